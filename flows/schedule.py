"""`make schedule`: a Prefect server, both workers and the report on loopback, until Ctrl-C.

A process that ends by itself is started again, later and later if it keeps ending. Nothing is left behind.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import yaml

from airlock.errors import AirlockError, StageFailed
from airlock.owner.home import project
from flows import overrides, pages, server
from flows.limits import POOLS
from flows.pages import REPORT_URL
from flows.server import foreign_settings
from flows.setup import SWEEP

BACK_OFF_SECONDS, LONGEST_SECONDS = 1.0, 60.0


def main() -> None:
    """Start everything, say where to look, wait."""
    stop = threading.Event()
    for sign in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sign, lambda *_: stop.set())
    workspace = Path.cwd()
    if found := foreign_settings(workspace):
        raise StageFailed(f"{found} in the workspace would change how Prefect works: remove it")
    home = project(workspace).folder / "prefect"
    with ExitStack() as stack:
        environment = server.settings(home, server.free_port(4200), workspace)
        environment[REPORT_URL] = pages.serve(workspace, stack)
        server.write_profile(environment)
        server.clear_leases(home)
        with suppress(BlockingIOError), overrides.turn(workspace, wait=False):
            pass  # what a killed run left in params.yaml is put back
        print("Starting the Prefect server (about ten seconds) ...", flush=True)
        kept = [
            RestartedProcess(
                "server", lambda: server.start(environment, cwd=workspace, log=home / "server.log")
            )
        ]
        stack.callback(kept[0].stop)
        kept[0].start()
        _set_up(environment)
        for pool in POOLS:
            kept.append(RestartedProcess(f"worker {pool}", _worker(pool, environment, workspace, home)))
            stack.callback(kept[-1].stop)
            kept[-1].start()
        _tell(environment, workspace, home)
        while not stop.wait(0.5):
            for one in kept:
                one.watch()
        print("\nStopping ...", flush=True)


class RestartedProcess:
    """A process that is there again when it has ended, after a pause that doubles up to a minute."""

    def __init__(self, name: str, make: Callable[[], server.Process]) -> None:
        self.name, self._make = name, make
        self._process: server.Process | None = None
        self._pause, self._since, self._due = BACK_OFF_SECONDS, 0.0, 0.0

    def start(self) -> None:
        """Now."""
        self._process, self._since = self._make(), time.monotonic()

    def watch(self) -> None:
        """Look after it: wait for its pause to end, or begin one."""
        now = time.monotonic()
        if self._process is None:
            if now >= self._due:
                self._again()
        elif not self._process.running:
            if now - self._since > LONGEST_SECONDS:
                self._pause = BACK_OFF_SECONDS
            self._wait(f"ended; its log is {self._process.log}")

    def stop(self) -> None:
        """For good."""
        if self._process:
            self._process.stop()

    def _again(self) -> None:
        try:
            self.start()
        except AirlockError as error:
            self._wait(str(error))

    def _wait(self, why: str) -> None:
        print(f"{self.name}: {why}; it is started again in {self._pause:.0f} s", flush=True)
        self._process, self._due = None, time.monotonic() + self._pause
        self._pause = min(2 * self._pause, LONGEST_SECONDS)


def _worker(
    pool: str, environment: dict[str, str], workspace: Path, home: Path
) -> Callable[[], server.Process]:
    """How to start the worker of a pool: what its last one had under way died with it, and holds no turn."""

    def make() -> server.Process:
        _flows("flows.setup", SWEEP, pool, environment=environment)
        return server.start_worker(pool, environment, cwd=workspace, log=home / f"{pool}.log")

    return make


def _set_up(environment: dict[str, str]) -> None:
    _flows("flows.setup", environment=environment)


def _flows(*module: str, environment: dict[str, str]) -> None:
    done = subprocess.run([sys.executable, "-m", *module], env=environment, check=False)
    if done.returncode != 0:
        raise StageFailed("the server could not be set up; see the lines above")


def _tell(environment: dict[str, str], workspace: Path, home: Path) -> None:
    run = f"PREFECT_HOME={home} prefect deployment run pipeline/on-demand"
    print(
        f"""
Prefect is at      {environment["PREFECT_API_URL"].removesuffix("/api")}
It asks for        the line in {home / "password"}
The report is at   {environment[REPORT_URL]} (after the first run)
Logs are in        {home}

By the clock:
{schedules(workspace)}
To run the pipeline now, in another terminal:
  {run}
  {run} --param overrides='{{"release.epsilon": 0.5}}'
Ctrl-C stops everything.""",
        flush=True,
    )


def schedules(workspace: Path) -> str:
    """What prefect.yaml says about the clock, one line a schedule."""
    lines = [
        f"  {deployment['entrypoint'].rpartition(':')[2]}/{deployment['name']}: {_clock(schedule)}"
        for deployment in yaml.safe_load((workspace / "prefect.yaml").read_text())["deployments"]
        for schedule in deployment.get("schedules") or []
        if schedule.get("active", True)
    ]
    return "\n".join(lines) or "  nothing (prefect.yaml has no schedule)"


def _clock(schedule: dict[str, object]) -> str:
    kinds = {"cron": "cron '{}'", "interval": "every {} seconds", "rrule": "{}"}
    found = next(
        (words.format(schedule[kind]) for kind, words in kinds.items() if kind in schedule), "unknown"
    )
    return f"{found}, {schedule.get('timezone', 'UTC')}"


if __name__ == "__main__":
    try:
        main()
    except AirlockError as error:
        sys.exit(f"airlock: {error}")
