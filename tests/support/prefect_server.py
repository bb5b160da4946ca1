"""A Prefect server with workers and a workspace, all real, all gone afterwards; spoken to over HTTP."""

from __future__ import annotations

import base64
import json
import os
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from flows import server

PATIENCE, RETRIES = 240, 20
DATABASE = "prefect.db"  # in PREFECT_HOME
FINAL = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
# Faster than in production, so that tests do not wait for polls; nothing else differs from `make schedule`.
FAST = {
    "PREFECT_WORKER_QUERY_SECONDS": "1",
    "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "2",
    "PREFECT_SERVER_SERVICES_SCHEDULER_MAX_RUNS": "4",
    "PREFECT_SERVER_SERVICES_SCHEDULER_MIN_SCHEDULED_TIME": "PT10S",
    "PREFECT_SERVER_CONCURRENCY_MAXIMUM_CONCURRENCY_SLOT_WAIT_SECONDS": "1",
}


def wait_for(condition: Callable[[], Any], what: str, *, pause: float = 0.05) -> Any:
    """The first true answer; fails loudly when none comes. A server that is asked all the time does nothing else: who
    asks one and can wait pauses for longer.
    """
    deadline = time.monotonic() + PATIENCE
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"waited {PATIENCE} s in vain: {what}"
        time.sleep(pause)
    return answer


def copy_database(old: Path, new: Path) -> None:
    """As it is now, although a server has it open."""
    with closing(sqlite3.connect(old)) as source, closing(sqlite3.connect(new)) as target:
        source.backup(target)


class Station:
    """One server on loopback and the processes that belong to it."""

    def __init__(self, folder: Path, root: Path, environment: dict[str, str]) -> None:
        self.folder, self.root = folder, root
        self.home = folder / "prefect"
        self.environment = server.settings(self.home, server.free_port(), root, environment) | FAST
        self.workers: list[server.Process] = []
        self.start()
        self.empty = folder / "empty.db"
        copy_database(self.home / DATABASE, self.empty)
        setup = subprocess.run(
            [sys.executable, "-m", "flows.setup"],
            cwd=root,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert setup.returncode == 0, setup.stderr

    def start(self) -> None:
        self.server = server.start(self.environment, cwd=self.root, log=self.folder / "server.log")

    def work(self, pool: str, **environment: str) -> None:
        log = self.folder / f"{pool}.log"
        self.workers.append(
            server.start_worker(pool, self.environment | environment, cwd=self.folder, log=log)
        )

    def stop(self) -> None:
        for process in (*self.workers, self.server):
            process.kill()

    def call(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        address = self.environment["PREFECT_API_URL"] + path
        word = base64.b64encode(self.environment["PREFECT_API_AUTH_STRING"].encode()).decode()
        headers = {"Content-Type": "application/json", "Authorization": f"Basic {word}"}
        request = urllib.request.Request(address, data, headers, method=method)
        for _ in range(RETRIES):
            try:
                with urllib.request.urlopen(request, timeout=120) as answer:
                    text = answer.read()
                return json.loads(text) if text else None
            except urllib.error.HTTPError as error:
                if error.code != 503:
                    raise AssertionError(f"{method} {path}: {error.code} {error.read().decode()}") from None
                time.sleep(0.5)  # its database is busy: Prefect's own client tries again too
        raise AssertionError(f"{method} {path}: the server stays busy")

    def deployment(self, name: str) -> dict[str, Any]:
        return dict(self.call("GET", f"/deployments/name/{name}"))

    def run(self, name: str, **parameters: Any) -> str:
        """Ask for a run, as `prefect deployment run` does."""
        identity = self.deployment(name)["id"]
        return str(
            self.call("POST", f"/deployments/{identity}/create_flow_run", {"parameters": parameters})["id"]
        )

    def state(self, run: str) -> dict[str, Any]:
        return dict(self.call("GET", f"/flow_runs/{run}")["state"])

    def end(self, run: str) -> dict[str, Any]:
        """The final state of a run."""
        wait_for(
            lambda: self.state(run)["type"] in FINAL,
            f"flow run {run} ends; worker says:\n{self.words()}",
            pause=0.5,
        )
        return self.state(run)

    def tasks(self, run: str) -> list[dict[str, Any]]:
        return list(self.call("POST", "/task_runs/filter", {"flow_runs": {"id": {"any_": [run]}}}))

    def artifacts(self, run: str) -> dict[str, dict[str, Any]]:
        found = self.call("POST", "/artifacts/filter", {"flow_runs": {"id": {"any_": [run]}}})
        return {artifact["key"]: artifact for artifact in found}

    def logs(self, run: str) -> str:
        found = self.call("POST", "/logs/filter", {"logs": {"flow_run_id": {"any_": [run]}}, "limit": 200})
        return "\n".join(entry["message"] for entry in found)

    def free_limits(self) -> None:
        """What an operator does who does not want to wait for the lease of a killed run to end."""
        for name in ("airlock-sensitive", "airlock-open"):
            self.call("PATCH", f"/v2/concurrency_limits/{name}", {"active_slots": 0})

    def words(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-3000:] for path in self.folder.glob("*.log"))


def command_of(pid: int) -> str:
    """The command of a process; empty when it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def below(above: set[int]) -> set[int]:
    """Children, grandchildren and so on of some processes, across namespaces."""
    parents = {}
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit():
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found: set[int] = set()
    while fresh := {pid for pid, parent in parents.items() if parent in above | found} - found:
        found |= fresh
    return found


def processes_of(run: str) -> dict[int, str]:
    """Every process that carries a flow run's id in its environment, and its command."""
    found = {}
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and f"PREFECT__FLOW_RUN_ID={run}".encode() in (
                folder / "environ"
            ).read_bytes().split(b"\0"):
                found[int(folder.name)] = command_of(int(folder.name))
        except OSError:
            continue  # it has ended meanwhile, or is not ours
    return found


def processes_in(folder: Path) -> list[int]:
    """Every process whose working folder is `folder` or below."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and Path(os.readlink(process / "cwd")).is_relative_to(folder):
                found.append(int(process.name))
        except OSError:
            continue
    return found
