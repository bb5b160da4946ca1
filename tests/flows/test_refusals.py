"""What a run may not do, and what its end may tell."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.csv
import pytest

from tests.conftest import Workspace
from tests.support import clinic
from tests.support.prefect_server import Station

pytestmark = pytest.mark.xdist_group("prefect")

SECRET = "Quetzalcoatl-4711"


@pytest.fixture(scope="module")
def private(plant: Workspace) -> Workspace:
    """Two private populations beside the default: one has a small cap, one a broken record."""
    table = clinic.records(400)
    ages = [str(age) for age in table["age"].to_pylist()]
    broken = table.set_column(0, "age", pa.array([*ages[:17], SECRET, *ages[18:]]))
    for name, records in (("clinic", table), ("broken", broken)):
        (plant.root / f"data/schemas/{name}.yaml").write_text(
            clinic.SCHEMA.replace("name: clinic", f"name: {name}")
        )
        pa.csv.write_csv(records, plant.home / f"{name}.csv")
        plant.run(
            "airlock",
            "add",
            str(plant.home / f"{name}.csv"),
            "--name",
            name,
            "--epsilon",
            "1",
            "--delta",
            "1e-5",
            "--distinct",  # the same people but for one
        )
    return plant


def test_an_impossible_parameter_ends_the_run_at_once(station: Station, plant: Workspace) -> None:
    before = (plant.root / "params.yaml").read_text()
    state = station.end(station.run("pipeline/on-demand", overrides={"release.epsilonn": 1}))
    assert state["type"] == "FAILED"
    assert "unknown key 'release.epsilonn', did you mean 'epsilon'?" in state["message"]
    assert (plant.root / "params.yaml").read_text() == before


def test_a_run_that_would_overspend_fails_in_the_ledgers_words(station: Station, private: Workspace) -> None:
    before, lock = (private.root / "params.yaml").read_text(), (private.root / "dvc.lock").read_text()
    run = station.run("pipeline/on-demand", overrides={"dataset": "clinic", "release.epsilon": 3})
    state = station.end(run)
    assert state["type"] == "FAILED"
    assert "clinic: 0 spent of 1 at delta 1e-05; these 2 releases alone are 3" in state["message"]
    assert station.tasks(run) == [], "no stage may start"
    assert (private.root / "params.yaml").read_text() == before
    assert (private.root / "dvc.lock").read_text() == lock


def test_of_a_broken_record_the_server_learns_the_stage_and_the_class_only(
    station: Station, private: Workspace
) -> None:
    before = (private.root / "params.yaml").read_text()
    run = station.run("pipeline/on-demand", overrides={"dataset": "broken"})
    state = station.end(run)
    assert (private.root / "params.yaml").read_text() == before, "it ended without a reservation"
    assert state["type"] == "FAILED"
    assert "stage 'ingest' failed: RecordError; its output is in the owner's log" in state["message"]
    assert station.tasks(run)[0]["run_count"] == 1, "a stage that sees records is never retried"
    assert "boundary" in station.artifacts(run), "a failed run shows its boundary too"
    told = b"".join(path.read_bytes() for path in station.folder.rglob("*") if path.is_file())
    assert b"RecordError" in told, "the search finds nothing at all"
    for secret in (SECRET.encode(), b"row 18", b"column 'age'"):
        assert secret not in told
    (log,) = private.home.glob("airlock/*/log/flow.out")
    assert "column 'age', row 18" in log.read_text(), "the owner is told"
    report = private.run("airlock", "report", check=False)
    assert report.returncode == 1
    assert report.stdout.startswith("Failed    ingest (RecordError, ")
    assert "What follows is from the run before it." in report.stdout.splitlines()[1]
