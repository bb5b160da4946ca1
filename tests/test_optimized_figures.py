"""Fig. 5 of optimized noise (bench/papers/optimized_figures.py): what is run is what is drawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from airlock.models.papers.networks import build
from bench.papers import interactive, optimized_figures
from bench.papers.optimized_figures import PANELS, WIDTH, wide
from tests.support.sealed_records import pictures


def test_every_run_is_in_its_panel_and_has_a_rate() -> None:
    for panel in PANELS:
        asked = list(panel.asked())
        assert len(asked) == 2 * len(panel.along) * len(panel.epsilons)
        assert {panel.of(one) for one in asked} == set(panel.along)
        assert all(optimized_figures.rate(one, 50_000) > 0 for one in asked)
    lots, colour, units, clips = PANELS
    assert not any(lots.of(one) for other in (colour, units) for one in other.asked() if one.get("units"))
    assert not any(lots.of(one) for one in colour.asked())
    shared = [one for one in clips.asked() if lots.of(one)]
    assert {one["options"]["clip"] for one in shared} == {4.0}


def test_results_are_of_runs_that_can_be_made_again() -> None:
    rows = optimized_figures.read()
    assert all(any(panel.of(row) for panel in PANELS) for row in rows)
    for panel in PANELS:
        for asked in panel.asked():
            assert sum(optimized_figures._is(row, asked) for row in rows) == 1


def test_a_width_is_the_benchs_own_and_ends_with_the_run() -> None:
    def units() -> int:
        return int(build("perceptron", (4, 4, 1), 3, seed=0).state_dict()["layers.1.bias"].numel())

    with wide(7):
        assert units() == 7
    assert units() == WIDTH


def test_a_run_of_another_width_is_released_and_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = pictures(200, 10, side=28)
    monkeypatch.setitem(interactive.READERS, "mnist", lambda train: (x, y))
    monkeypatch.setattr(optimized_figures, "RESULTS", tmp_path / "rows.json")
    one = optimized_figures.Panel("hidden units", "units", (16,))
    monkeypatch.setattr(optimized_figures, "PANELS", (one,))
    monkeypatch.setattr(optimized_figures, "LOT", 100)
    optimized_figures.measure()
    rows = optimized_figures.read()
    assert [(row["mechanism"], row["units"], one.of(row)) for row in rows] == [
        ("optimized-noise", 16, 16),
        ("dp-sgd", 16, 16),
    ]
    monkeypatch.setattr(interactive, "run", None)
    optimized_figures.measure()
