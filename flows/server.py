"""A Prefect server of one's own on loopback: its settings, its start, and processes that all end with the one that started them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from airlock.errors import StageFailed
from airlock.run.die_with_parent import leashed

HOST = "127.0.0.1"
START_SECONDS, STOP_SECONDS = 90, 8


def free_port(wanted: int = 0) -> int:
    """`wanted` if nobody listens there, else any free port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, wanted))
        except OSError:
            return free_port()
        return int(probe.getsockname()[1])


def settings(home: Path, port: int, workspace: Path, base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of the server, its workers and their runs; Prefect settings of the user's own do not leak in."""
    api = f"http://{HOST}:{port}/api"
    return {
        **{name: value for name, value in base.items() if not name.startswith("PREFECT_")},
        "PREFECT_HOME": str(home),
        "PREFECT_API_URL": api,
        "PREFECT_SERVER_UI_API_URL": api,
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        # Leases in files: a limit that was held when the server was killed is freed after its restart.
        "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
        # A busy machine must not turn a locked database into a failed run.
        "PREFECT_SERVER_DATABASE_TIMEOUT": "60",
        "PREFECT_SERVER_DATABASE_CONNECTION_TIMEOUT": "60",
        "PREFECT_RESULTS_PERSIST_BY_DEFAULT": "false",
        "PREFECT_CLI_PROMPT": "false",
        "DO_NOT_TRACK": "1",
        "AIRLOCK_WORKSPACE": str(workspace),
    }


class Process:
    """A leashed child with a log file, in a process group of its own."""

    def __init__(
        self, command: Sequence[str], *, environment: Mapping[str, str], log: Path, cwd: Path
    ) -> None:
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            self.child = subprocess.Popen(
                leashed(command),
                cwd=cwd,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def running(self) -> bool:
        """Whether it is still there."""
        return self.child.poll() is None

    def stop(self) -> None:
        """Ask, then insist."""
        for sign in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(self.child.pid, sign)
            with suppress(subprocess.TimeoutExpired):
                self.child.wait(STOP_SECONDS)
                return

    def kill(self) -> None:
        """Without asking."""
        with suppress(ProcessLookupError):
            os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()


def start(environment: Mapping[str, str], *, cwd: Path, log: Path) -> Process:
    """Start the server and wait until it answers.

    Raises:
        StageFailed: it ended or stayed silent; the last lines of its log are in the message.
    """
    api = environment["PREFECT_API_URL"]
    port = api.removesuffix("/api").rpartition(":")[2]
    server = Process(
        ["prefect", "server", "start", "--host", HOST, "--port", port],
        environment=environment,
        log=log,
        cwd=cwd,
    )
    deadline = time.monotonic() + START_SECONDS
    while not _healthy(api):
        if not server.running or time.monotonic() > deadline:
            server.kill()
            raise StageFailed(
                f"the Prefect server did not start: {' | '.join(log.read_text(errors='replace').splitlines()[-5:])}"
            )
        time.sleep(0.2)
    return server


def start_worker(pool: str, environment: Mapping[str, str], *, cwd: Path, log: Path) -> Process:
    """Start a process worker of one pool."""
    return Process(
        ["prefect", "worker", "start", "--pool", pool, "--type", "process"],
        environment=environment,
        log=log,
        cwd=cwd,
    )


def _healthy(api: str) -> bool:
    try:
        with urllib.request.urlopen(f"{api}/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
