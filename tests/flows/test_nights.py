"""Nights by the schedule: parts are picked up, released and trained on; broken ones fail their run and no other."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from airlock.ledger import Ledger
from tests.conftest import Workspace, make_workspace
from tests.flows.conftest import left_as_it_was
from tests.support.clinic import SCHEMA
from tests.support.clinic import records as made_up
from tests.support.prefect_server import Station, processes_of, wait_for

pytestmark = pytest.mark.xdist_group("prefect")


class Ward:
    """A clinic in a workspace of the schedule, whose parts come into a folder."""

    def __init__(self, workspace: Workspace, horizon: int) -> None:
        self.workspace, self.folder = workspace, workspace.home / "nightly"
        self.folder.mkdir()
        # Not `clinic`, which other tests add to the same workspace, and at once.
        schema = SCHEMA.replace("name: clinic", "name: ward")
        (workspace.root / "data/schemas/ward.yaml").write_text(schema)
        first, judged = workspace.home / "first.csv", workspace.home / "judged.csv"
        pyarrow.csv.write_csv(self.batch(0, 160), first)
        pyarrow.csv.write_csv(made_up(64, seed=99), judged)
        name = ("--name", "ward")
        workspace.run("airlock", "add", str(first), *name, "--append", "--epsilon", "1.1", "--delta", "1e-6")
        workspace.run("airlock", "add", str(judged), *name, "--holdout", "--public")
        changes = {
            "dataset": "ward",
            "release.epsilon": 1.0,
            "release.delta": 1e-6,
            "release.horizon": horizon,
        }
        for key, value in {**changes, "evaluate.holdout": "public"}.items():
            workspace.set(key, value)
        workspace.run("airlock", "nights", "watch", str(self.folder))

    @staticmethod
    def batch(number: int, rows: int) -> pa.Table:
        """Records that are on no other night."""
        ages = np.arange(rows) / 8 + number / 1024
        return made_up(rows, seed=number).set_column(0, "age", pa.array(ages, pa.float64()))

    def part(self, number: int, *, broken: bool = False) -> None:
        """A part as another program leaves it: written elsewhere, then moved into the folder."""
        table = self.batch(number, 40)
        if broken:
            table = table.set_column(1, "site", pa.array(["nowhere"] * 40))
        path = self.folder / f".{number:03}.csv.part"
        pyarrow.csv.write_csv(table, path)
        path.rename(self.folder / f"{number:03}.csv")

    def done(self) -> set[int]:
        """Nights that are released or set aside, from the ledger and the registry as they lie there."""
        time.sleep(1)  # whoever waits for it asks without end, and a ledger takes its time to add up
        (folder,) = (self.workspace.home / "airlock").glob("*/registry.json")
        nights = json.loads(folder.read_text())["populations"]["ward"]["nights"]
        aside = {int(night) for night, found in nights.items() if found.get("aside")}
        ledger = Ledger.open(f"sqlite:///{folder.with_name('ledger.db')}", create=False)
        horizons = [one for one, *_ in ledger.spent("ward").horizons]
        made = [one for horizon in horizons for one in ledger.nights("ward", horizon) if one.committed]
        return aside | {int((one.horizon or {})["night"]) for one in made}

    def status(self) -> list[str]:
        said = self.workspace.run("airlock", "nights", "show", "--json").stdout
        return [one["status"] for one in json.loads(said)]


@pytest.fixture
def ward(plant: Workspace) -> Iterator[Ward]:
    """In the workspace that all tests of this folder share."""
    with left_as_it_was(plant):
        yield Ward(plant, 8)


def end_of(station: Station, run: str) -> dict[str, Any]:
    """Its final state, of a run that makes several nights: longer than the patience of others."""
    for _ in range(4):
        with suppress(AssertionError):
            return station.end(run)
    return station.end(run)


def test_parts_are_picked_up_and_a_broken_one_fails_its_own_run_alone(station: Station, ward: Ward) -> None:
    """Each run makes what is due: the first night, then the broken one; the next run the one after it."""
    ward.part(1, broken=True)
    ward.part(2)
    run = station.run("pipeline/nightly")
    end = end_of(station, run)
    assert end["type"] == "FAILED"
    assert "stage 'ingest' failed: RecordError" in end["message"]
    assert "nowhere" not in end["message"] + station.logs(run)
    assert ward.done() == {1, 2}

    run = station.run("pipeline/nightly")
    assert end_of(station, run)["type"] == "COMPLETED", station.words()
    assert ward.status() == ["released", "set aside", "released"]
    shown = station.artifacts(run)
    rows = json.loads(shown["nights"]["data"])
    assert [(row["night"], row["records so far"], row["epsilon of all nights"]) for row in rows] == [
        (1, 160, "1"),
        (3, 200, "1"),
    ]
    assert all(row["accuracy"].endswith(" %") for row in rows)
    assert "| age |" in shown["drift"]["data"]
    assert "5 % at most" in shown["drift"]["data"]
    page = (ward.workspace.root / "data/report/report.html").read_text()
    assert "3 of 8 nights, for one price" in page
    assert "class ill" in page

    # Mended, its records come on a night of their own.
    ward.part(1)
    ward.workspace.run("airlock", "nights", "run", check=False)
    assert ward.status() == ["released", "set aside", "released", "released"]


@pytest.mark.stress
def test_thirty_nights_by_the_clock_with_kills_of_worker_and_server(tmp_path: Path) -> None:
    """A part every night, a run every half minute; night 9's worker and night 18's server are killed, part 13 is
    broken.
    """
    workspace = make_workspace(tmp_path)
    ward = Ward(workspace, 32)
    workspace.commit("Begin")
    station = Station(tmp_path / "station", workspace.root, workspace.environment)
    try:
        station.work("sensitive")
        deployment = station.deployment("pipeline/nightly")
        schedules = f"/deployments/{deployment['id']}/schedules"
        station.call("POST", schedules, [{"active": True, "schedule": {"interval": 30}}])
        for night in range(2, 31):
            ward.part(night, broken=night == 13)
            if night == 9:
                kill_worker(station)
            if night == 18:
                station.server.kill()
                station.start()
                station.free_limits()
            wanted = "set aside" if night == 13 else "released"
            for _ in range(6):  # patience of several waits: this is long by nature
                with suppress(AssertionError):
                    wait_for(lambda night=night: night in ward.done(), f"night {night} is {wanted}")
                    break
                station.free_limits()
            assert night in ward.done(), station.words()
        assert ward.status() == ["set aside" if night == 13 else "released" for night in range(1, 31)]
        states = runs_of(station, deployment["id"])
        assert states.count("FAILED") >= 1
        assert states.count("COMPLETED") >= 10
        (ledger,) = json.loads(workspace.run("airlock", "budget", "show", "ward", "--json").stdout)["ledgers"]
        (spent,) = ledger["populations"]
        assert spent["epsilon"] <= 1.0001
        assert [spent["horizons"][0][1], spent["horizons"][0][2]] == [30, 32]
        workspace.run("airlock", "budget", "verify")
    finally:
        station.stop()


def kill_worker(station: Station) -> None:
    """In the middle of a run, with all that it runs; another one comes in its place."""

    def under_way() -> list[str]:
        wanted = {"flow_runs": {"state": {"type": {"any_": ["RUNNING"]}}}}
        return [run["id"] for run in station.call("POST", "/flow_runs/filter", wanted)]

    (run, *_) = wait_for(under_way, "a run under way")
    station.workers[-1].kill()
    for pid in processes_of(run):
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not processes_of(run), "all its processes end")
    station.free_limits()
    station.work("sensitive")


def runs_of(station: Station, deployment: str) -> list[str]:
    """The final states of the runs of a deployment, at most 200."""
    wanted = {
        "deployments": {"id": {"any_": [deployment]}},
        "flow_runs": {"state": {"type": {"not_any_": ["SCHEDULED"]}}},
        "limit": 200,
    }
    return [run["state"]["type"] for run in station.call("POST", "/flow_runs/filter", wanted)]
