"""`make schedule`: a Prefect server, both workers and the report on loopback, until Ctrl-C; nothing is left behind."""

from __future__ import annotations

import functools
import http.server
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

from airlock.errors import StageFailed
from airlock.owner.home import project
from flows import server
from flows.artifacts import REPORT, REPORT_URL
from flows.limits import POOLS
from flows.setup import SWEEP


def main() -> None:
    """Start everything, say where to look, wait."""
    stop = threading.Event()
    for sign in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sign, lambda *_: stop.set())
    workspace = Path.cwd()
    home = project(workspace).folder / "prefect"
    with ExitStack() as stack:
        environment = server.settings(home, server.free_port(4200), workspace)
        environment[REPORT_URL] = _serve_report(workspace, stack)
        print("Starting the Prefect server (about ten seconds) ...", flush=True)
        processes = [server.start(environment, cwd=workspace, log=home / "server.log")]
        stack.callback(processes[0].stop)
        if (
            subprocess.run(
                [sys.executable, "-m", "flows.setup", SWEEP], env=environment, check=False
            ).returncode
            != 0
        ):
            raise StageFailed("the server could not be set up; see the lines above")
        for pool in POOLS:
            processes.append(server.start_worker(pool, environment, cwd=workspace, log=home / f"{pool}.log"))
            stack.callback(processes[-1].stop)
        _tell(environment, home)
        while not stop.wait(1) and all(process.running for process in processes):
            pass
        print("\nStopping ...", flush=True)
    if not stop.is_set():
        sys.exit(f"airlock: a process ended by itself; see {home}")


def _serve_report(workspace: Path, stack: ExitStack) -> str:
    """Serve the report's folder alone, on loopback; a page of the server may not link to a file."""
    folder = workspace / Path(REPORT).parent
    handler = functools.partial(_Quiet, directory=str(folder))
    pages = http.server.ThreadingHTTPServer((server.HOST, 0), handler)
    threading.Thread(target=pages.serve_forever, daemon=True).start()
    stack.callback(pages.shutdown)
    return f"http://{server.HOST}:{pages.server_port}/{Path(REPORT).name}"


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def _tell(environment: dict[str, str], home: Path) -> None:
    api = environment["PREFECT_API_URL"]
    print(
        f"""
Prefect is at      {api.removesuffix("/api")}
The report is at   {environment[REPORT_URL]} (after the first run)
Logs are in        {home}

The pipeline runs every night at 2:00 UTC. To run it now, in another terminal:
  PREFECT_API_URL={api} prefect deployment run pipeline/on-demand
  PREFECT_API_URL={api} prefect deployment run pipeline/on-demand --param overrides='{{"release.epsilon": 0.5}}'
Ctrl-C stops everything.""",
        flush=True,
    )


if __name__ == "__main__":
    main()
