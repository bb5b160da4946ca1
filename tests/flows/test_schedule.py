"""Runs by the clock and on demand, against a real server."""

from __future__ import annotations

import importlib
from datetime import datetime

from tests.conftest import Workspace
from tests.support.station import Station, wait_for


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
        "flow_runs": {"state": {"type": {"any_": ["COMPLETED", "FAILED", "CRASHED"]}}},
    }
    ended = wait_for(lambda: len(found := station.call("POST", "/flow_runs/filter", wanted)) >= 2 and found, "two scheduled runs")
    station.call("DELETE", f"{schedules}/{made[0]['id']}")
    assert {run["state"]["type"] for run in ended} == {"COMPLETED"}, station.words()
    assert all(run["auto_scheduled"] for run in ended)


def test_a_run_shows_boundary_budget_metrics_and_report(station: Station) -> None:
    run = station.run("pipeline/on-demand")
    assert station.end(run)["type"] == "COMPLETED", station.words()
    shown = station.artifacts(run)
    assert set(shown) == {"boundary", "budget", "metrics", "report"}
    assert "The boundary holds." in shown["boundary"]["description"]
    assert '"stage": "release"' in shown["boundary"]["data"]
    assert '"population": "wdbc"' in shown["budget"]["data"]
    assert "evaluate.accuracy" in shown["metrics"]["data"]
    assert "report.html" in shown["report"]["data"]


def test_two_runs_at_once_queue(station: Station) -> None:
    runs = [station.run("pipeline/on-demand"), station.run("pipeline/on-demand")]
    assert [station.end(run)["type"] for run in runs] == ["COMPLETED", "COMPLETED"], station.words()
    spans = sorted(
        (min(_time(task["start_time"]) for task in tasks), max(_time(task["end_time"]) for task in tasks))
        for tasks in (station.tasks(run) for run in runs)
    )
    assert spans[0][1] <= spans[1][0], "they worked in the same folder at the same time"


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
