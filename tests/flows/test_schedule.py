"""Runs by the clock and on demand, against a real server."""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from airlock.privacy import gaussian
from tests.conftest import Workspace
from tests.flows.conftest import left_as_it_was
from tests.support import planted
from tests.support.browser import MISSING, Browser
from tests.support.imports import heard
from tests.support.prefect_server import Station, wait_for

pytestmark = pytest.mark.xdist_group("prefect")


def test_the_pinned_versions_make_a_server() -> None:
    """FastAPI and SQLAlchemy have broken it before, with `pip check` clean."""
    assert importlib.import_module("prefect.server.api.server").create_app


def test_scheduled_runs_fire_and_complete(station: Station, plant: Workspace) -> None:
    deployment = station.deployment("pipeline/nightly")
    assert [schedule["schedule"]["cron"] for schedule in deployment["schedules"]] == ["0 2 * * *"]
    schedules = f"/deployments/{deployment['id']}/schedules"
    made = station.call("POST", schedules, [{"active": True, "schedule": {"interval": 5}}])
    wanted = {
        "deployments": {"id": {"any_": [deployment["id"]]}},
        "flow_runs": {"state": {"type": {"not_any_": ["SCHEDULED"]}}},
    }
    fired = wait_for(
        lambda: len(found := _by_the_clock(station.call("POST", "/flow_runs/filter", wanted))) >= 2 and found,
        "two scheduled runs fire",
        pause=0.5,
    )
    station.call("DELETE", f"{schedules}/{made[0]['id']}")
    assert all(run["auto_scheduled"] for run in fired)
    assert {station.end(run["id"])["type"] for run in fired} == {"COMPLETED"}, station.words()


@pytest.fixture(scope="module")
def runs(station: Station, plant: Workspace) -> Iterator[list[str]]:
    """Two runs that were asked for at once and have ended; the first one releases a private population whose every
    value would be recognised, and is judged on public records.
    """
    changes = {"dataset": "planted", "release.epsilon": 0.93, "evaluate.holdout": "public"}
    with left_as_it_was(plant):
        params = (plant.root / "params.yaml").read_bytes()
        planted.plant(plant)
        (plant.root / "params.yaml").write_bytes(params)  # the first run is to ask for it
        judged = plant.home / "judged-planted.csv"
        judged.write_text("c0,c1,c2,c3,c4,outcome\n" + "1,2,3,4,5,ill\n5,4,3,2,1,healthy\n" * 20)
        plant.run("airlock", "add", str(judged), "--name", "planted", "--holdout", "--public")
        asked = [
            station.run("pipeline/on-demand", overrides=changes),
            station.run("pipeline/on-demand"),
        ]
        ends = [station.end(run) for run in asked]
        assert [end["type"] for end in ends] == ["COMPLETED", "COMPLETED"], (ends, station.words())
        yield asked


def test_a_run_shows_boundary_budget_metrics_and_report(station: Station, runs: list[str]) -> None:
    shown = station.artifacts(runs[0])
    assert set(shown) == {"boundary", "releases", "budget", "metrics", "report"}
    prices = {row["release"]: row["epsilon"] for row in json.loads(shown["releases"]["data"])}
    shifts = [gaussian.mu_at(float(prices[name]), 1e-5) for name in ("relevance", "release")]
    assert gaussian.epsilon_at(math.hypot(*shifts), 1e-5) == pytest.approx(0.93, abs=2e-3)
    assert {row["layers"] for row in json.loads(shown["boundary"]["data"])} <= {"all 5", ""}
    assert "The boundary holds." in shown["boundary"]["description"]
    assert '"stage": "release"' in shown["boundary"]["data"]
    assert '"population": "planted"' in shown["budget"]["data"]
    assert "evaluate.accuracy" in shown["metrics"]["data"]
    assert "report.html" in shown["report"]["data"]
    loaded = heard(station.folder / "hook")
    assert {"flows.pipeline", "airlock.run.stage"} <= loaded, (
        "the hook hears the worker, the run and its children"
    )
    assert not {name for name in loaded if name.partition(".")[0] == "stages"}, "loaded outside the wall"


def test_two_runs_at_once_queue(station: Station, runs: list[str]) -> None:
    spans = sorted(
        (min(_time(task["start_time"]) for task in tasks), max(_time(task["end_time"]) for task in tasks))
        for tasks in (station.tasks(run) for run in runs)
    )
    assert spans[0][1] <= spans[1][0], "they worked in the same folder at the same time"


def test_no_record_stands_in_what_prefect_keeps(station: Station, plant: Workspace, runs: list[str]) -> None:
    """Database, results and logs, after runs that released those records and showed what came of it."""
    search = planted.wanted()
    assert search.below(plant.home / "records.csv"), "the search finds nothing at all"
    assert search.below(station.folder) == []


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


@pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")
def test_the_servers_page_shows_a_run_and_what_it_made(
    station: Station, runs: list[str], tmp_path: Path
) -> None:
    run = runs[0]
    shown = station.artifacts(run)
    site = station.environment["PREFECT_API_URL"].removesuffix("/api")
    browser = Browser(tmp_path / "profile")
    word = json.dumps(station.environment["PREFECT_API_AUTH_STRING"])
    try:
        browser.visit(site)
        browser.run(f"localStorage.setItem('prefect-password', btoa({word}))")  # what its login form does
        for page, words in {
            f"/runs/flow-run/{run}": ["Completed", "Task runs", "on-demand"],
            f"/artifacts/artifact/{shown['boundary']['id']}": [
                "The boundary holds.",
                "could read sealed",
                "release",
            ],
            f"/artifacts/artifact/{shown['budget']['id']}": ["epsilon spent", "planted"],
            f"/artifacts/artifact/{shown['metrics']['id']}": ["evaluate.accuracy"],
            f"/artifacts/artifact/{shown['report']['id']}": ["report.html"],
        }.items():
            browser.visit(site + page)
            seen = wait_for(
                lambda words=words: all(word in (text := browser.text()) for word in words) and text,
                f"{words} on {page}",
                pause=0.2,
            )
            assert "Can't connect" not in seen
    finally:
        browser.close()


def _by_the_clock(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Other tests have asked for runs of the same deployment by hand."""
    return [run for run in runs if run["auto_scheduled"]]
