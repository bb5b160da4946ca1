"""Relevance from a release alone: against captum on the assembled network, against what is known, and beside
the non-private one.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from airlock.errors import InputError
from airlock.inside.manifest import Manifest
from airlock.models import explain, explained
from airlock.models.features import hybrid
from airlock.models.features.projection import Centre, Whiten
from airlock.models.model import Model
from airlock.models.taken_away import of_middle
from airlock.params import Params, TrainParams
from stages.mechanisms import Whole, mechanism
from stages.open import explanation
from tests.support.sealed_records import KEY, facts, pictures, seal, table

LABELS = ("a", "b", "c")


def model(width: int = 6, hidden: int | None = None, *, whitened: bool = True, seed: int = 0) -> Model:
    """A model of a table, with random steps and layers."""
    random = np.random.default_rng(seed)
    steps: list[Any] = [Centre(random.integers(-3000, 3000, width), 2000)]
    if whitened:
        steps.append(Whiten(random.integers(-(2**20), 2**20, (width + 1, width + 1))))
    sizes = [width + 1, *([hidden] if hidden else []), len(LABELS)]
    layers = [
        (random.standard_normal((one, other)), 0.1 * random.standard_normal(other))
        for one, other in pairwise(sizes)
    ]
    return Model("tabular-2", "tabular", (width,), LABELS, steps, layers)


def assembled(layers: Any) -> torch.nn.Sequential:
    """The same layers in torch."""
    parts: list[torch.nn.Module] = []
    for index, (weight, offset) in enumerate(layers):
        parts += [torch.nn.ReLU()] if index else []
        linear = torch.nn.Linear(*weight.shape).double()
        linear.weight.data, linear.bias.data = torch.as_tensor(weight.T.copy()), torch.as_tensor(offset)
        parts.append(linear)
    return torch.nn.Sequential(*parts)


@pytest.mark.parametrize("hidden", [None, 8])
@pytest.mark.parametrize("whitened", [False, True])
def test_propagation_is_that_of_captum_on_the_assembled_network(hidden: int | None, whitened: bool) -> None:
    from captum.attr import LRP
    from captum.attr._utils.lrp_rules import EpsilonRule

    layers = explain.linear_chain(model(hidden=hidden, whitened=whitened))
    assert layers is not None
    rows = np.random.default_rng(1).standard_normal((9, 7))
    found = explain.propagate(rows, layers, np.eye(len(LABELS)))
    network = assembled(layers)
    for place in range(len(LABELS)):
        for module in network:
            if isinstance(module, torch.nn.Linear):
                module.rule = EpsilonRule(explain.STABILISER)
        expected = LRP(network).attribute(torch.as_tensor(rows).requires_grad_(), target=place)
        assert np.allclose(found[:, :, place], expected.detach().numpy(), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("whitened", [False, True])
def test_what_is_propagated_is_what_the_model_says(whitened: bool) -> None:
    """Inputs and the constant column add up to the score above the mean, less the offset."""
    chosen = model(whitened=whitened)
    records = np.random.default_rng(2).random((12, 6))
    parts = explain.of_records(chosen, records)
    scores = chosen.logits(records) - chosen.layers[-1][1]
    above = scores - scores.mean(axis=1, keepdims=True)
    valid = np.ones(12, np.uint8)
    layers = explain.linear_chain(chosen)
    assert layers is not None
    rows = chosen.steps[0](chosen.map(records, valid), valid)
    matrix = explain.whitening(chosen)
    lengths = np.full(12, 32767.0) if matrix is None else np.linalg.norm(rows @ matrix, axis=1)
    constant = explain.propagate(rows / lengths[:, None], layers)[:, -1]
    assert np.allclose(parts.sum(axis=1) + constant, above, rtol=2e-3, atol=2e-3)


def released(
    folder: Path,
    data: Any,
    classes: int,
    name: str = "coefficients",
    epsilon: float = 20.0,
    features: str = "auto",
) -> Any:
    """A model and the manifest and tensors that it was trained from."""
    x, y = data
    known = facts(x, classes)
    params = Params.model_validate({"release": {"mechanism": name, "epsilon": epsilon, "features": features}})
    with seal(folder, x, y, rows=512) as reader:
        tensors, details = Whole(mechanism(name)).make(params, known, reader, key=KEY, release_id="id")
    plan = mechanism(name).plan(params, known)
    said = {"kind": known.kind, "n": known.n, "shape": list(known.shape), "labels": list(known.labels)}
    made = Manifest(
        "id",
        name,
        plan.version,
        plan.parameters,
        "record",
        "zero-out",
        None,
        plan.proven,
        plan.passes,
        plan.interactive,
        "f",
        {},
        {"data": {**said, "schema": "s"}, **details},
    )
    return mechanism(name, "open").train(TrainParams(), made, tensors).model, made, tensors


def informative(n: int) -> tuple[Any, Any]:
    """Six columns, of which the second tells the class and the fifth speaks against it."""
    random = np.random.default_rng(0)
    y = random.integers(2, size=n).astype(np.int32)
    x = random.uniform(0.3, 0.7, (n, 6))
    x[:, 1] = 0.25 + 0.4 * y + random.uniform(-0.1, 0.1, n)
    x[:, 4] = 0.6 - 0.15 * y + random.uniform(-0.1, 0.1, n)
    return x, y


@pytest.mark.parametrize("name", ["coefficients", "coefficients-iterated"])
def test_the_columns_that_tell_the_class_are_found_with_their_signs(tmp_path: Path, name: str) -> None:
    trained, made, tensors = released(tmp_path, informative(2000), 2, name)
    found = explanation.explanation(trained, TrainParams(), made, tensors, list("uvwxyz"))
    assert found is not None
    assert [found.names[index] for index in np.argsort(-found.overall)[:2]] == ["v", "y"]
    assert found.direction[1].tolist() == [-1, 1]
    assert found.direction[4].tolist() == [1, -1]
    assert (found.low <= found.relevance).all()
    assert (found.relevance <= found.high).all()
    assert found.noise is not None
    # A column that hardly varies carries more noise for its size than one that does.
    assert found.noise[1] == found.noise.min()


def test_more_noise_makes_wider_intervals(tmp_path: Path) -> None:
    widths = []
    for place, epsilon in enumerate((0.5, 20.0)):
        (tmp_path / str(place)).mkdir()
        trained, made, tensors = released(tmp_path / str(place), informative(2000), 2, epsilon=epsilon)
        found = explanation.explanation(trained, TrainParams(), made, tensors)
        assert found is not None
        widths.append(float((found.high - found.low).mean()))
    assert widths[0] > 5 * widths[1]


def test_pictures_get_cells_and_the_cell_of_the_bar_matters(tmp_path: Path) -> None:
    trained, made, tensors = released(tmp_path, pictures(600, 2), 2, epsilon=50.0)
    found = explanation.explanation(trained, TrainParams(), made, tensors)
    assert found is not None
    assert found.grid == (6, 6)
    picture = found.overall.reshape(6, 6)
    # Bars stand in the first column of pixels or in the middle one.
    assert picture.sum(axis=0).argmax() in (0, 3)


def test_a_file_is_what_was_written(tmp_path: Path) -> None:
    trained, made, tensors = released(tmp_path, informative(300), 2)
    found = explanation.explanation(trained, TrainParams(), made, tensors)
    assert found is not None
    explanation.write(found, tmp_path / explanation.FILE)
    again = explained.read(tmp_path / explanation.FILE)
    assert (again.names, again.grid, again.labels) == (found.names, found.grid, found.labels)
    assert again.noise is not None
    for name in ("relevance", "low", "high", "direction", "noise"):
        assert np.array_equal(getattr(again, name), getattr(found, name))
    (tmp_path / explanation.FILE).write_bytes(b"PAR1 no")
    with pytest.raises(InputError, match="damaged"):
        explained.read(tmp_path / explanation.FILE)
    with pytest.raises(InputError, match="says nothing about its inputs"):
        explained.read(tmp_path / "nothing" / explanation.FILE)


def test_a_network_on_a_table_is_asked_what_an_input_changes() -> None:
    chosen = model(hidden=8, whitened=False)
    chosen.layers[0][0][2] *= 20
    found = of_middle(chosen)
    assert found is not None
    assert found.noise is None
    assert found.overall.argmax() == 2


def test_relevance_under_noise_has_the_order_of_the_one_without(tmp_path: Path) -> None:
    """The control: with hardly any budget it has not."""
    from scipy.stats import spearmanr

    data, found = table(4000, 10, 3, seed=3), {}
    for epsilon in (100.0, 3.0, 0.003):
        (tmp_path / str(epsilon)).mkdir()
        trained, made, tensors = released(tmp_path / str(epsilon), data, 3, epsilon=epsilon)
        one = explanation.explanation(trained, TrainParams(), made, tensors)
        assert one is not None
        found[epsilon] = one.overall
    assert spearmanr(found[100.0], found[3.0]).statistic > 0.9
    assert spearmanr(found[100.0], found[0.003]).statistic < 0.9


def test_behind_cosines_noise_is_told_of_the_columns_themselves(tmp_path: Path) -> None:
    """Of the hybrid map: an interval by the law of the noise, and the noise of every column."""
    x, y = informative(2000)
    x[:, 5] = 0.5 + 0.02 * (x[:, 5] - 0.5)
    seen = []
    for place, epsilon in enumerate((1.0, 20.0)):
        (tmp_path / str(place)).mkdir()
        trained, made, tensors = released(
            tmp_path / str(place), (x, y), 2, "coefficients-iterated", epsilon, "hybrid-32-1"
        )
        found = explanation.explanation(trained, TrainParams(), made, tensors, list("uvwxyz"))
        assert found is not None
        assert found.noise is not None
        assert found.names[int(np.argmax(found.overall))] == "v"
        assert found.direction[1].tolist() == [-1, 1]
        assert (found.low < found.high).all()
        # What hardly varies carries more noise for its size than anything else.
        assert int(np.argmax(found.noise)) == 5
        seen.append(float(found.noise[1]))
    assert seen[0] > 5 * seen[1]


def test_features_of_the_hybrid_map_belong_to_their_columns() -> None:
    assert hybrid.owners("hybrid-3-1@nx2.g2.c3").tolist() == [-1, -1, -1, 0, 1, 2, 2, 2, 3, 4, 5]
    assert hybrid.owners("tabular-2") is None
    parts = hybrid.shares("hybrid-3-1@nx2.g2.c3", np.arange(11.0))
    assert parts is not None
    # Nothing is lost: what a feature says is divided among the columns.
    assert np.allclose(parts.sum(axis=0), 1.0)
    assert (parts[:, :3] > 0).all()
