"""A long run of AdLM's program that is stopped and goes on elsewhere (bench/papers/adlm_program.py)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from bench.papers import adlm, adlm_program, every_step
from stages.release.papers.adlm import perturbation
from tests.support.sealed_records import pictures


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Forty made-up pictures in the place of MNIST; where rows go."""
    x, y = pictures(40, 10, side=28)
    monkeypatch.setattr(adlm, "read", lambda *_: (x, y))
    monkeypatch.setattr(adlm, "read_mnist", lambda _: (x, y))
    monkeypatch.setattr(adlm_program, "ROWS", tmp_path / "rows.json")
    return tmp_path


def test_a_state_goes_on_elsewhere_as_if_it_had_never_stopped(
    few: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, stopped, elsewhere = (few / name for name in ("whole", "stopped", "elsewhere"))
    monkeypatch.setattr(adlm_program, "POINTS", ())
    whole.mkdir()
    adlm_program.run("adlm", 0.5, 3, 15, whole)
    wanted = json.loads((few / "rows.json").read_text())
    (few / "rows.json").unlink()
    stopped.mkdir()
    adlm_program.run("adlm", 0.5, 1, 15, stopped)
    assert contents(stopped) != contents(whole)
    shutil.copytree(stopped, elsewhere)

    def again(*_: Any, **__: Any) -> None:
        raise AssertionError("relevance was released already")

    monkeypatch.setattr(perturbation, "average", again)
    adlm_program.run("adlm", 0.5, 3, 15, elsewhere)
    assert contents(elsewhere) == contents(whole)
    curve = json.loads((few / "rows.json").read_text())["runs"][0]["curves"]
    assert {name: points["3"] for name, points in curve.items()} == {
        name: points["3"] for name, points in wanted["runs"][0]["curves"].items()
    }


def test_a_state_belongs_to_the_bytes_of_its_release(few: Path) -> None:
    """Cells in one folder do not take each other's, and a state is small enough to be kept beside the results."""
    adlm_program.run("ilm", 0.5, 1, 40, few / "state")
    adlm_program.run("ilm", 2.0, 1, 40, few / "state")
    files = list((few / "state").iterdir())
    assert len(files) == 2
    assert all(file.stat().st_size < 2_000_000 for file in files)


def test_a_cell_of_colour_images_goes_on_from_point_to_point(
    few: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = pictures(40, 10, side=16)
    monkeypatch.setattr(adlm, "read", lambda *_: (x.repeat(3, axis=3), y))
    monkeypatch.setattr(adlm_program, "POINTS", (1,))
    monkeypatch.setattr(adlm_program, "TESTED", 20)
    adlm_program.run("ilm", 2.5, 2, 20, few / "state", "cifar10-jpeg")
    (row,) = json.loads((few / "rows.json").read_text())["runs"]
    assert (row["dataset"], row["epochs"], row["learning_rate"]) == ("cifar10-jpeg", 2, 1.0)
    assert {name: list(points) for name, points in row["curves"].items()} == {
        "stored": ["1", "2"],
        "batch": ["1", "2"],
    }


def test_noise_of_each_step_goes_on_as_if_it_had_never_stopped(
    few: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adlm_program, "EVERY_STEP", few / "fresh.json")
    monkeypatch.setattr(adlm_program, "POINTS", ())
    adlm_program.run("ilm", 0.5, 3, 15, few / "whole", fresh=True)
    whole = json.loads((few / "fresh.json").read_text())
    (few / "fresh.json").unlink()
    monkeypatch.setattr(adlm_program, "POINTS", (1,))
    adlm_program.run("ilm", 0.5, 1, 15, few / "parts", fresh=True)
    adlm_program.run("ilm", 0.5, 3, 15, few / "parts", fresh=True)
    (row,) = json.loads((few / "fresh.json").read_text())["runs"]
    assert row["accuracy"] == whole["runs"][0]["accuracy"]
    assert contents(few / "parts") == contents(few / "whole")
    assert (row["epochs"], row["passes"]) == (3, 3)
    assert row["reading"].endswith("noise drawn anew in each step")
    adlm_program.run("ilm", 0.5, 3, 15, few / "whole")
    assert len(contents(few / "whole")) == 2
    assert (few / "fresh.json").read_text() != (few / "rows.json").read_text()


def test_rows_read_together_share_noise_that_no_other_step_has() -> None:
    records, scales = np.full((6, 4), 7), np.array([1e6, 1e6, 1e6, 0.0])
    inputs = every_step.FreshNoise(records, scales, "cell")
    first, again, other = (inputs[np.array(rows)] for rows in ([0, 1, 2], [0, 1, 2], [1, 0, 2]))
    assert (first == first[0]).all()
    assert (first == again).all()
    assert (first[:, :3] != other[:, :3]).all()
    assert (first[:, 3] == 7).all()
    sizes = np.abs(np.stack([inputs[np.array([step])][0] for step in range(6)])[:, :3] - 7)
    assert 1e5 < sizes.mean() < 1e7
    assert (every_step.FreshNoise(records, scales, "another")[np.array([0, 1, 2])] != first).any()


def test_the_table_on_the_page_is_what_the_results_say() -> None:
    between = every_step.PAGE.read_text().split(every_step.MARKS[0])[1].split(every_step.MARKS[1])[0]
    assert between.strip() == every_step.table()
    assert {one.claimed for one in every_step.compared()} == {0.25, 0.5, 2.0}


def contents(folder: Path) -> dict[str, dict[str, bytes]]:
    """By file and tensor; what a file says of itself comes in any order."""
    return {
        file.name: {name: one.tobytes() for name, one in load_file(file).items()} for file in folder.iterdir()
    }
