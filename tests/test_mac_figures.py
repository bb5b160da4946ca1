"""DP-MAC's Figs. 1 to 4 and what its differences from the authors' program do (bench/papers/mac_*.py)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bench.papers import interactive, mac_ablations, mac_epochs, mac_figures
from stages.release.papers.dp_mac import coordinates
from tests.support.sealed_records import pictures

SMALL: dict[str, Any] = {"preset": "authors-usps", "epochs": 3, "batch": 20, "hidden": [6]}
ASKED: dict[str, Any] = {"dataset": "usps", "epsilon": 8.0, "mechanism": "dp-mac", "options": SMALL}


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> interactive.Images:
    """Sixty made-up digits in the place of USPS, for training and testing."""
    x, y = pictures(60, 10, side=16)
    images = x.reshape(-1, 16, 16, 1), y.astype(np.int32)
    monkeypatch.setattr(interactive, "read_usps", lambda train: images)
    monkeypatch.setattr(interactive, "READERS", {"usps": lambda train: images})
    return images


def test_a_curve_ends_where_the_whole_run_does(
    few: interactive.Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mac_epochs, "SETTINGS", {"program": SMALL})
    row, whole = mac_epochs.run("program", 8.0, 0), interactive.run(ASKED, few, few, None)
    assert len(row["test"]) == len(row["train"]) == 3
    assert row["test"][-1] == whole["mean_squared_error"] == row["train"][-1]
    assert len(row["digits"]) == 10 and {len(one) for one in row["digits"].values()} == {256}
    other = mac_epochs.run("program", 8.0, 1)
    assert other["test"][-1] != row["test"][-1] and "digits" not in other


def test_a_row_of_several_keys_is_their_mean_and_takes_the_place_of_one(
    few: interactive.Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interactive, "RESULTS", tmp_path / "rows.json")
    monkeypatch.setattr(interactive, "cells", lambda: [{**ASKED, "options": dict(SMALL)}])
    found = []
    for more in (
        [],
        ["--keys", "2", "--state", str(tmp_path / "state")],
        ["--keys", "2", "--state", str(tmp_path / "state")],
        ["--keys", "1"],
    ):
        monkeypatch.setattr("sys.argv", ["", *more])
        interactive.main()
        found.append(json.loads((tmp_path / "rows.json").read_text())["runs"])
    ((one,), (two,), again, kept) = found
    other = interactive.run(ASKED, few, few, None, key=1)["mean_squared_error"]
    assert other != one["mean_squared_error"] and "keys" not in one
    assert two["mean_squared_error"] == pytest.approx((one["mean_squared_error"] + other) / 2)
    assert two["keys"] == 2 and again == kept == [two]


def test_runs_that_are_there_are_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def run(*one: Any) -> dict[str, Any]:
        made.append(one)
        return {**dict(zip(("setting", "epsilon", "key"), one, strict=True)), "train": [1.0], "test": [2.0]}

    monkeypatch.setattr(mac_epochs, "run", run)
    monkeypatch.setattr(mac_epochs, "RESULTS", tmp_path / "rows.json")
    for keys in (2, 3):
        monkeypatch.setattr("sys.argv", ["", "--setting", "table", "--epsilon", "1", "--keys", str(keys)])
        mac_epochs.main()
    assert made == [("table", 1.0, 0), ("table", 1.0, 1), ("table", 1.0, 2)]
    assert mac_epochs.halves(mac_epochs.read(), "test") == ([1.0], [0.0])


def test_the_programs_order_mean_and_directions_are_its_own(few: interactive.Images) -> None:
    ordered = mac_epochs.begun(ASKED, few, 0, mac_ablations.InOrder)
    state, plain = ordered.start(), mac_epochs.begun(ASKED, few, 0)
    for step in range(4):
        again = plain.update(step, state, _noisy(plain, step, state, torch.arange(20) + 20 * (step % 3)))
        state = ordered.advance(step, state)
        assert all(torch.equal(state[name], again[name]) for name in state if name.startswith("weight"))
    centred = mac_epochs.begun(ASKED, few, 0, mac_ablations.Centred).flat(torch.arange(60))
    assert float(centred.mean()) == pytest.approx(0, abs=1e-6)
    assert torch.allclose(centred - plain.flat(torch.arange(60)), centred[0, 0] - plain.flat([0])[0, 0])
    options = {"preset": "authors-mnist", "batch": 20, "projection": 5, "projection_sigma": 0.01}
    walks = [
        mac_epochs.begun({**ASKED, "epsilon": 0.5, "options": options}, few, 0, kind)
        for kind in (coordinates.CoordinateDescent, mac_ablations.Directions)
    ]
    # With hardly any noise they are those of the mechanism.
    spans = [found @ found.T for found in (walk.learn_projection(5) for walk in walks)]
    assert torch.allclose(*spans, atol=1e-2)


def _noisy(walk: Any, step: int, state: Any, rows: Any) -> Any:
    return walk.perturb(step, walk.sums(state, rows), state["thresholds"])


@pytest.mark.parametrize("kind", mac_figures.TRUE)
def test_the_expansion_meets_the_objective_at_nought(kind: str) -> None:
    step = 1e-3
    true, expanded, _ = mac_figures.expansion(kind, np.array([-step, 0.0, step]))
    assert true == pytest.approx(expanded, abs=step**2 / 100)
    inputs, targets = mac_figures.made_up(kind)
    ends = [mac_figures.objective(kind, mac_figures.TRUE[kind] + by, inputs, targets) for by in (-1, 0, 1)]
    assert min(ends) == ends[1]


def test_a_rough_picture_is_rougher_than_a_smooth_one() -> None:
    random = np.random.default_rng(0).normal(size=(28, 28))
    smooth = np.add.outer(np.sin(np.arange(28) / 9), np.arange(28) / 28)
    assert mac_figures.roughness(random) == pytest.approx(1, abs=0.1)
    assert mac_figures.roughness(smooth) < 0.05


def test_each_label_has_a_hidden_unit_of_its_own() -> None:
    from airlock.models.papers import networks

    network = networks.build("relu:40", (28, 28, 1), 10, seed=0)
    with torch.no_grad():
        last = [one for name, one in network.named_parameters() if name.endswith("weight")][1]
        last[:, 7] = 3  # speaks for all of them, and so for none
    chosen = [mac_figures.filter_of(network, label) for label in range(10)]
    units = network.get_parameter("layers.1.weight").detach().numpy().reshape(40, 28, 28)
    places = [next(k for k in range(40) if np.array_equal(units[k], one)) for one in chosen]
    assert len(set(places)) == 10 and 7 not in places


def test_the_pictures_in_docs_are_what_the_results_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, words, images in (
        (mac_epochs, ("hardly any noise", "claimed 8", "half of the squared error"), 0),
        (mac_figures, ("2nd order, at 0", "not private", "test digits", "claimed 1"), 6),
    ):
        kept = module.PICTURE.read_text()
        monkeypatch.setattr(module, "PICTURE", tmp_path / "drawn.svg")
        module.draw()
        drawn = (tmp_path / "drawn.svg").read_text()
        assert all(word in drawn and word in kept for word in words)
        assert drawn.count("<image") == kept.count("<image") == images


def test_key_nought_is_the_run_of_the_tables() -> None:
    """The same samples and noise; other machines may round sums differently, which draws other noise."""
    rows = json.loads(interactive.RESULTS.read_text())["runs"]
    for one in mac_epochs.read():
        if one["key"] == 0 and one["epsilon"]:
            asked = {"dataset": "usps", "mechanism": "dp-mac", "epsilon": one["epsilon"]}
            (row,) = (
                row
                for row in rows
                if row["options"] == one["options"] and all(row[name] == asked[name] for name in asked)
            )
            assert one["test"][-1] == pytest.approx(row["mean_squared_error"], rel=0.05)
