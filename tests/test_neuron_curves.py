"""Curves of neuron noise injection on images: the same steps, quicker, stopped and gone on (bench/papers)."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from airlock.models.papers import neurons
from airlock.models.papers.networks import Ordered, build
from bench.papers import neuron_course, neuron_epochs
from stages.checkpoints import Checkpoint
from stages.release.keyed_noise import KeyedNoise
from stages.release.papers.dp_sgd.dp_sgd import Data
from stages.release.papers.neuron import neuron_noise, training
from tests.support.comparison import facts, params
from tests.support.sealed_records import pictures

SIDE, CLASSES, RECORDS = 8, 3, 60
ABOUT = facts((SIDE, SIDE, 1), RECORDS, CLASSES)
SHORT = {"hidden": [8, 6], "epochs": 3, "iterations": 4, "batch": 16, "relevance_records": 20}


@pytest.fixture(scope="module")
def data() -> Data:
    x, y = pictures(RECORDS, CLASSES, side=SIDE)
    return Data(torch.from_numpy(x), torch.from_numpy(y.astype(np.int64)))


def recipe(**changes: Any) -> neuron_noise.Recipe:
    return neuron_noise.resolve(params("neuron-noise", **{**SHORT, **changes}), ABOUT)


def network(chosen: neuron_noise.Recipe) -> Ordered:
    found = build(chosen.network, chosen.shape, chosen.classes, seed=training.SEED)
    assert isinstance(found, Ordered)
    return found


def noise(key: int, data: Data) -> dict[str, Any]:
    chosen = recipe()
    parts = training.proportions(neuron_epochs.known_ratios(chosen, data, ABOUT, None), chosen)
    return {"scales": 5 * parts, "keyed": KeyedNoise(bytes([key]) * 32, "test")}


def test_the_lean_network_has_the_same_scores_and_gradients(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In doubles, with noise on every neuron, in parts that do not divide the batch; also as it predicts."""
    monkeypatch.setattr(neuron_course, "PART", 7)
    plain, lean = network(recipe()).double(), neuron_course.Lean(network(recipe()).double())
    drawn = np.random.default_rng(0).standard_normal(sum(one.noise.numel() for one in neurons.offsets(plain)))
    images, found = data.records.double() / 255, []
    for one in (plain, lean):
        training.set_noise(one, drawn)
        loss = torch.nn.functional.cross_entropy(one.train()(images), data.labels)
        torch.autograd.backward(loss)
        gradients = [
            parameter.grad.reshape(-1) for parameter in one.parameters() if parameter.grad is not None
        ]
        with torch.no_grad():
            found.append(torch.cat([loss.detach().reshape(1), *gradients, one.eval()(images).reshape(-1)]))
    assert [*plain.state_dict()] == [*lean.state_dict()]
    assert torch.allclose(found[0], found[1], rtol=1e-9, atol=1e-12)


def test_a_curve_goes_on_where_it_was_stopped(data: Data, tmp_path: Path) -> None:
    chosen, whole, told = recipe(), Checkpoint(None, "a"), list[list[float]]()

    def run(keeper: Checkpoint, **more: Any) -> tuple[list[float], list[torch.Tensor]]:
        lean = neuron_course.Lean(network(chosen))
        descent = training.Descent(lean, data, chosen, **noise(0, data))
        found = neuron_course.walk(descent, keeper, data, **more)
        return found, [value.clone() for value in lean.state_dict().values()]

    wanted, weights = run(whole, epochs=3)
    assert len(wanted) == 3
    stopped, _ = run(Checkpoint(tmp_path, "a"), epochs=2)
    assert stopped == wanted[:2]
    late, _ = run(Checkpoint(tmp_path, "a"), epochs=3, until=-math.inf)
    assert late == wanted[:2]
    found, others = run(Checkpoint(tmp_path, "a"), epochs=3, told=lambda curve: told.append(list(curve)))
    assert (found, told) == (wanted, [wanted])
    assert all(torch.equal(one, other) for one, other in zip(weights, others, strict=True))


def test_a_walk_takes_the_steps_of_the_mechanism(data: Data) -> None:
    chosen, given = recipe(), noise(0, data)
    one, other = network(chosen), network(chosen)
    training.descend(one, data, chosen, chosen.steps, **given)
    descent = training.Descent(other, data, chosen, **given)
    neuron_course.walk(descent, Checkpoint(None, ""), data, epochs=3)
    assert all(
        torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    )


def test_a_key_has_the_same_noise_in_larger_batches(data: Data, tmp_path: Path) -> None:
    """So that curves of one key differ in their batches alone; another key has other noise."""
    setting = {"setting": "mnist", "relevance_records": 20, "hidden": [8, 6], "iterations": 2, "epochs": 1}
    small, large = (recipe(**{**setting, "batch": batch}) for batch in (8, 40))
    found = [
        neuron_epochs.known_ratios(one, data, ABOUT, state)
        for one in (small, large)
        for state in (None, tmp_path)
    ]
    assert all(np.array_equal(found[0], one) for one in found)
    assert len(list(tmp_path.iterdir())) == 1


def test_what_follows_batches_of_another_size_begins_where_they_ended(data: Data, tmp_path: Path) -> None:
    small, large = recipe(batch=8), recipe(batch=40)
    way = neuron_epochs.Way(state=tmp_path, after=8)
    keepers = [
        neuron_epochs._keeper(small, ABOUT, True, neuron_epochs.Way(state=tmp_path), None),
        neuron_epochs._keeper(large, ABOUT, True, way, 8),
        neuron_epochs._keeper(large, ABOUT, True, way, None),
        neuron_epochs._keeper(large, ABOUT, True, neuron_epochs.Way(state=tmp_path), None),
    ]
    keepers[0].keep(1, {"weights": torch.ones(3)})
    assert torch.equal(neuron_epochs.begun_from(keepers[1])["weights"], torch.ones(3))
    assert keepers[2].resume() is None and keepers[3].resume() is None
    with pytest.raises(SystemExit, match="make that curve first"):
        neuron_epochs.begun_from(keepers[2])


def test_a_curve_replaces_what_there_was_of_it_and_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neuron_epochs, "RESULTS", tmp_path / "curves.json")
    options = neuron_epochs.options_of("mnist", 10, None)
    asked = {"dataset": "mnist", "epsilon": 0.1, "options": options, "key": 1}
    table = {"dataset": "wdbc", "epsilon": 0.1, "options": {"epochs": 2, "setting": "wdbc"}}
    neuron_epochs.keep({**table, "accuracies": [0.5, 0.6]})
    neuron_epochs.keep({**asked, "accuracies": [0.5]})
    assert not neuron_epochs.finished(asked)
    neuron_epochs.keep({**asked, "accuracies": [0.5] * 25})
    assert neuron_epochs.finished(asked) and neuron_epochs.finished({**table, "key": 7})
    others = (
        {"key": 2},
        {"after": 500},
        {"options": {**options, "batch": neuron_epochs.WHOLE}},
        {"epsilon": 0.5},
    )
    assert not any(neuron_epochs.finished({**asked, **other}) for other in others)
    assert len(json.loads((tmp_path / "curves.json").read_text())) == 2


def test_finished_curves_of_the_papers_batches_are_one_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neuron_epochs, "RESULTS", tmp_path / "curves.json")
    options, rows = neuron_epochs.options_of("mnist", 10, None), tmp_path / "rows.json"
    first = {"dataset": "mnist", "mechanism": "neuron-noise", "epsilon": 0.1, "reading": "as published"}
    first |= {"options": options, "keys": 5, "accuracy_mean": 0.8}
    others = [{**first, "epsilon": 0.5}, {**first, "dataset": "wdbc"}, {**first, "mechanism": "coefficients"}]
    rows.write_text(json.dumps([first, *others]))
    curve = {"dataset": "mnist", "epsilon": 0.1, "options": {**options, "batch": neuron_epochs.WHOLE}}
    for key, ends, more in (
        (1, 0.9, {}),
        (0, 0.7, {}),
        (2, 0.1, {"accuracies": [0.1] * 24}),
        (3, 0.2, {"after": 250}),
        (4, 0.3, {"options": options}),
        (5, 0.4, {"epsilon": 0.3}),
    ):
        neuron_epochs.keep({**curve, "key": key, "accuracies": [0.5] * 24 + [ends], **more})
    for _ in range(2):
        neuron_epochs.collect(rows)
        found = json.loads(rows.read_text())
        (made,) = (row for row in found if row["reading"] != "as published")
        assert len(found) == 5
        assert made["reading"] == "as published, batches of 1,800" and made["epsilon"] == 0.1
        assert (made["accuracies"], made["keys"], made["epochs"]) == ([0.7, 0.9], 2, 25)
        assert made["accuracy_mean"] == pytest.approx(0.8) and made["options"]["batch"] == 1800


def test_curves_of_two_keys_and_batches_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(neuron_epochs, "keep_picture", lambda figure, _: drawn.append(figure))
    neuron_epochs.draw(neuron_epochs.read())
    drawn[0].canvas.draw()
    for panel in drawn[0].axes:
        lines = [line for line in panel.lines if line.get_marker() == "None"]
        assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == len(lines) > 3
        assert panel.get_legend().get_window_extent().y1 < panel.get_window_extent().y0
    words = [text.get_text() for text in drawn[0].axes[-1].get_legend().get_texts()]
    assert all("batches of" in word and "key" in word for word in words)
