"""SIGKILL in the middle of a release: the ledger stays whole, nothing runs on, and the next run completes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from airlock.inside import manifest
from airlock.ledger import Ledger
from tests.conftest import Workspace
from tests.support.prefect_server import Station, below, command_of, processes_in, processes_of, wait_for

pytestmark = pytest.mark.xdist_group("prefect")


def ledger_of(plant: Workspace) -> Ledger:
    (database,) = (plant.home / "airlock").glob("*/scratch.db")
    return Ledger.open(f"sqlite:///{database}", create=False)


def pending(plant: Workspace) -> int:
    """How many releases are reserved and not committed."""
    entries = ledger_of(plant).history("wdbc")
    ids = {
        kind: {entry.release_id for entry in entries if entry.kind == kind} for kind in ("reserve", "commit")
    }
    return len(ids["reserve"] - ids["commit"])


def start_release(station: Station, plant: Workspace, epsilon: float) -> tuple[str, list[int]]:
    """Ask for a new release; come back with the run and its confined process, stopped in the middle."""
    assert pending(plant) == 0
    run = station.run("pipeline/on-demand", overrides={"release.epsilon": epsilon})
    # The first reservation is the relevance release's; before that there is nothing to ask the ledger for.
    brokers = wait_for(
        lambda: {pid for pid, command in processes_of(run).items() if "airlock run relevance" in command},
        "the first release",
        pause=0.2,
    )
    wait_for(lambda: pending(plant), "the reservation")
    confined = wait_for(
        lambda: [pid for pid in below(brokers) if "airlock.inside" in command_of(pid)],
        "the stage behind the wall",
    )
    for pid in confined:
        os.kill(pid, signal.SIGSTOP)
    assert pending(plant) == 1
    return run, confined


def check_whole(plant: Workspace) -> None:
    """No broken chain, and no release that is not all there."""
    assert ledger_of(plant).verify() == []
    for folder in (plant.root / "data/released").iterdir():
        manifest.load(folder)


def test_a_killed_flow_takes_everything_with_it(station: Station, plant: Workspace) -> None:
    run, confined = start_release(station, plant, 0.71)
    (engine,) = [pid for pid, command in processes_of(run).items() if "prefect.engine" in command]
    os.kill(engine, signal.SIGKILL)
    wait_for(
        lambda: not processes_of(run) and not any(command_of(pid) for pid in confined),
        "all its processes end",
    )
    assert pending(plant) == 1
    check_whole(plant)
    assert station.end(run)["type"] == "CRASHED"
    station.free_limits()
    again = station.run("pipeline/nightly")
    assert station.end(again)["type"] == "COMPLETED", station.words()
    assert pending(plant) == 0, (
        "it had paid, so params.yaml stayed: the next run, whichever it is, completes it"
    )
    check_whole(plant)


@pytest.mark.stress
def test_a_killed_server_costs_the_report_and_not_the_release(station: Station, plant: Workspace) -> None:
    run, confined = start_release(station, plant, 0.72)
    station.server.kill()
    for pid in confined:
        os.kill(pid, signal.SIGCONT)
    wait_for(
        lambda: all("prefect.engine" in command for command in processes_of(run).values()),
        "dvc and the stage end",
    )
    check_whole(plant)
    station.start()
    # It may have gone on, if the server was back in time: its turn is over when it has ended, and not before.
    wait_for(lambda: not processes_of(run), "the flow that lost its server ends")
    station.free_limits()
    again = station.run("pipeline/on-demand", overrides={"release.epsilon": 0.72})
    assert station.end(again)["type"] == "COMPLETED", station.words()
    assert pending(plant) == 0
    check_whole(plant)


def _named(folder: Path, words: str) -> list[int]:
    return [
        pid
        for pid in processes_in(folder)
        if words in command_of(pid) and "die_with_parent" not in command_of(pid)
    ]


def test_a_run_killed_before_it_has_paid_leaves_no_trace_in_params_yaml(
    station: Station, plant: Workspace
) -> None:
    params, before = plant.root / "params.yaml", (plant.root / "params.yaml").read_text()
    entries = len(ledger_of(plant).history("wdbc"))
    run = station.run("pipeline/on-demand", overrides={"release.epsilon": 0.62})
    wait_for(lambda: params.read_text() != before, "params.yaml is written")
    assert pending(plant) == 0
    for pid, command in processes_of(run).items():
        if "prefect.engine" in command:
            os.kill(pid, signal.SIGKILL)
    assert station.end(run)["type"] == "CRASHED"
    assert "0.62" in params.read_text(), "the control: what the next run would have paid for"
    station.free_limits()
    again = station.run("pipeline/nightly")
    assert station.end(again)["type"] == "COMPLETED", station.words()
    assert params.read_text() == before
    assert len(ledger_of(plant).history("wdbc")) == entries, "nothing was charged"


@pytest.mark.stress
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_the_local_schedule_leaves_nothing_behind(finished: Workspace, sign: signal.Signals) -> None:
    command = [sys.executable, "-m", "flows.schedule"]
    started = subprocess.Popen(
        command, cwd=finished.root, env=finished.environment, stdout=subprocess.PIPE, text=True
    )
    assert started.stdout is not None
    told = ""
    while "Ctrl-C stops everything.\n" not in told:
        line = started.stdout.readline()
        assert line, f"it ended before it was ready: {told}"
        told += line
    assert "Prefect is at      http://127.0.0.1:" in told
    assert len(processes_in(finished.root)) >= 4, "itself, the server and two workers"
    assert "pipeline/nightly: cron '0 2 * * *', UTC" in told
    address = next(word for word in told.split() if word.startswith("PREFECT_HOME="))
    for name in ("prefect server start", "flows/worker.py open"):
        (pid,) = _named(finished.root, name)
        os.kill(pid, signal.SIGKILL)
        wait_for(
            lambda name=name, pid=pid: set(_named(finished.root, name)) - {pid}, f"{name} is started again"
        )
    wait_for(
        lambda: finished.run("env", address, "prefect", "work-pool", "ls", check=False).returncode == 0,
        "the server answers again",
    )
    finished.run("env", address, "prefect", "deployment", "run", "pipeline/on-demand")
    wait_for(
        lambda: any("prefect.engine" in command_of(pid) for pid in processes_in(finished.root)),
        "a run under way",
    )
    started.send_signal(sign)
    wait_for(lambda: started.poll() is not None and not processes_in(finished.root), "all processes end")
