"""The papers' headline figures as DVC experiments that can be killed and go on (bench/papers/cells.py)."""

from __future__ import annotations

import gzip
import json
import os
import signal
import struct
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from airlock.compare import headline
from bench.papers import adlm_program, cells, headline_cells
from bench.papers.experiments import Project
from bench.papers.headline_cells import KINDS, Cell, figure_of, remember_runs
from tests.support.sealed_records import pictures

ROOT = Path(__file__).parents[1]
PREFIX, EPOCHS = "ilm-mnist-0-5-120", 60


@pytest.fixture
def few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Forty made-up digits in the files of MNIST."""
    folder = tmp_path / "data/mnist"
    folder.mkdir(parents=True)
    x, y = pictures(40, 10, side=28)
    images = struct.pack(">4i", 2051, *x.shape[:3]) + x.tobytes()
    labels = struct.pack(">2i", 2049, len(y)) + y.astype("uint8").tobytes()
    for part in ("train", "t10k"):
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
    monkeypatch.setenv("AIRLOCK_DATA_HOME", str(folder.parent))
    return tmp_path


def test_every_headline_figure_is_a_cell_with_a_name_of_its_own() -> None:
    found = list(headline_cells.cells())
    assert len({cell.name for cell in found}) == len(found)
    told = {_told(cell) for cell in found}
    assert {(one.dataset, one.mechanism, one.claimed) for one in headline.CELLS} <= told
    assert all(name.replace("-", "").isalnum() for name in (cell.name for cell in found))


def _told(cell: Cell) -> tuple[str, str, float]:
    asked = {"dataset": "mnist", "mechanism": "pcdbn", **cell.asked}
    return asked["dataset"], asked["mechanism"], asked["epsilon"]


def test_a_cell_finds_its_row_in_the_results() -> None:
    known = {cell.name: cell.command.known(cell.asked) for cell in headline_cells.cells()}
    assert {row["reading"] for name, row in known.items() if row and name == "adlm-mnist-0-5-120"} == {
        "preset authors-code, predicting by a batch's statistics, 120 of each 1,800"
    }
    assert {row["reading"] for name, row in known.items() if row and name == "adlm-mnist-0-5-whole"} == {
        "preset authors-code, predicting by a batch's statistics"
    }
    # ILM's whole batches were run with pixels in [0, 1] only: another program's.
    assert known["ilm-mnist-0-5-whole"] is None
    shown = [row for row in known.values() if row is not None]
    assert len(shown) > 30
    assert all(figure_of(row) is not None for row in shown)


@pytest.mark.parametrize(
    "name", ["adlm-mnist-0-5-120", "ilm-mnist-0-5-120", "pcdbn-mnist-0-5-120", "behaviour-2"]
)
def test_a_cell_of_the_papers_length_is_finished(name: str) -> None:
    """However often accuracy is told on the way, and however much longer another cell is."""
    (cell,) = (cell for cell in headline_cells.cells() if cell.name == name)
    row = cell.command.known(cell.asked)
    assert row is not None and cell.command.finished(cell.asked, row)
    assert not cell.command.finished(cell.asked, {**row, "epochs": row["epochs"] - 1})


def test_their_pipeline_tracks_every_parameter() -> None:
    stages = yaml.safe_load((ROOT / "bench/papers/headline/pipeline.yaml").read_text())["stages"]
    known = yaml.safe_load((ROOT / "bench/papers/headline/params.yaml").read_text())
    assert set(stages["cell"]["params"]) == set(known) == set(asdict(next(headline_cells.cells())))


def test_a_killed_experiment_goes_on_and_ends_in_the_row_of_one_go(
    few: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, cell = few / "project", next(cells.chosen(PREFIX, EPOCHS))
    state = folder / "state" / cell.name
    _kill_in_the_middle(folder, state)
    assert not (state / "rows.json").exists() or _epochs(state / "rows.json") < EPOCHS
    cells.run(folder, iter([cell]), -1, 1e9, again=True)
    ((name, told),) = Project(folder, folder).rows()
    assert (name, told["epochs"], told["seconds"]) == (cell.name, EPOCHS, None)
    cells.run(folder, iter([cell]), -1, 1e9, again=True)  # is there
    cells.show(folder)
    assert len(capsys.readouterr().out.splitlines()) == 2

    monkeypatch.setattr(adlm_program, "ROWS", few / "once.json")
    adlm_program.run("ilm", 0.5, EPOCHS, 120, few / "once")
    (row,) = adlm_program.kept_rows(few / "once.json")
    assert told["row"] == row
    curve = (folder / "accuracy.csv").read_text().splitlines()[1:]
    assert [line.split(",")[0] for line in curve] == ["1", "5", "10", "25", "50", "60"]

    monkeypatch.setattr(cells, "cells", lambda: iter([cell]))
    monkeypatch.setattr(adlm_program, "ROWS", few / "collected.json")
    cells.collect(folder)
    cells.collect(folder)
    assert adlm_program.kept_rows(few / "collected.json") == [row]


def _kill_in_the_middle(folder: Path, state: Path) -> None:
    """DVC and its stage together, once there is something to go on from."""
    command = [sys.executable, "-m", "bench.papers.cells", "run", str(folder), "--only", PREFIX]
    command += ["--most", "1", "--epochs", str(EPOCHS)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, start_new_session=True)
    while not any(state.glob("[!.]*.safetensors")) and process.poll() is None:
        time.sleep(0.01)
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    # DVC, its child, holds a lock as long as its number is known: until somebody has waited for it, too.
    end = time.monotonic() + 30
    while time.monotonic() < end and _known(process.pid):
        time.sleep(0.01)


def _known(group: int) -> bool:
    """Whether the group has a process yet."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def _epochs(rows: Path) -> int:
    return int(json.loads(rows.read_text())["runs"][0]["epochs"])


def test_a_stage_ends_itself_when_its_time_is_up(few: Path) -> None:
    cell = next(cells.chosen(PREFIX))
    (few / "params.yaml").write_text(yaml.safe_dump(asdict(cell)))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), cells.SECONDS: "1"}
    command = [sys.executable, "-m", "bench.papers.cells", "stage"]
    done = subprocess.run(command, cwd=few, env=environment, stdout=subprocess.DEVNULL)
    assert done.returncode == -signal.SIGALRM
    assert not (few / "row.json").exists()


def test_an_unfinished_cell_begins_with_the_repositorys_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adlm_program, "STATE", tmp_path / "repository")
    (tmp_path / "repository").mkdir()
    (tmp_path / "repository/relevance-0.5.safetensors").write_bytes(b"released")
    (tmp_path / "state").mkdir()
    KINDS["adlm"].begin({"epochs": 7}, tmp_path / "state")
    assert (tmp_path / "state/relevance-0.5.safetensors").read_bytes() == b"released"
    assert adlm_program.kept_rows(tmp_path / "state/rows.json") == [{"epochs": 7}]


def test_a_release_that_was_judged_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from airlock.params import Params
    from bench.flagship import pipeline

    made = []

    def run(self: Any, params: Any, noise: int) -> pipeline.PipelineResult:
        made.append(noise)
        return pipeline.PipelineResult(0.5 + noise, 1.0, 2, float("inf"), None)

    monkeypatch.setattr(pipeline.Pipeline, "run", run)
    remember_runs(tmp_path)
    asked: list[Any] = [Params.model_validate({"dataset": name}) for name in ("wdbc", "mnist")]
    found = [
        pipeline.Pipeline.run(None, params, noise)  # type: ignore[arg-type]
        for params, noise in ((asked[0], 0), (asked[0], 1), (asked[0], 0), (asked[1], 0))
    ]
    assert made == [0, 1, 0]
    assert [one.accuracy for one in found] == [0.5, 1.5, 0.5, 0.5]
