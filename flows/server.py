"""A Prefect server of one's own on loopback: its password, settings and start; it ends with us.

Whoever may speak to the server can make its workers run code as their owner. So it has a password, which only
the owner can read, and no page of another origin is let in.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from airlock.errors import StageFailed
from airlock.owner.home import write_private
from airlock.run.die_with_parent import leashed

HOST = "127.0.0.1"
START_SECONDS, STOP_SECONDS = 300, 8  # 90 were too few on a machine with fourteen others at work on one core


def free_port(wanted: int = 0) -> int:
    """`wanted` if nobody listens there, else any free port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, wanted))
        except OSError:
            return free_port()
        return int(probe.getsockname()[1])


def password(home: Path) -> str:
    """What the server asks for (user:password); made once, and only the owner can read it."""
    path = home / "password"
    if not path.exists():
        write_private(path, f"airlock:{secrets.token_urlsafe(32)}".encode())
    return path.read_text()


def settings(home: Path, port: int, workspace: Path, base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of the server, its workers and their runs; the user's own settings do not leak in."""
    site, word = f"http://{HOST}:{port}", password(home)
    return {
        **{name: value for name, value in base.items() if not name.startswith("PREFECT_")},
        "PREFECT_HOME": str(home),
        "PREFECT_API_URL": f"{site}/api",
        "PREFECT_API_AUTH_STRING": word,
        "PREFECT_SERVER_API_AUTH_STRING": word,
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": site,
        "PREFECT_SERVER_CORS_ALLOWED_METHODS": "GET",
        "PREFECT_SERVER_CORS_ALLOWED_HEADERS": "Authorization",
        "PREFECT_SERVER_UI_API_URL": f"{site}/api",
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


def foreign_settings(workspace: Path) -> str:
    """Files in which Prefect looks for settings wherever it is started, some of which name code to load."""
    for name in (".env", "prefect.toml"):
        if os.path.lexists(workspace / name):
            return name
    try:
        sections = tomllib.loads((workspace / "pyproject.toml").read_text()).get("tool", {})
    except FileNotFoundError:
        return ""
    except (OSError, ValueError):
        return "pyproject.toml, which cannot be read,"
    return "[tool.prefect] of pyproject.toml" if "prefect" in sections else ""


def write_profile(environment: Mapping[str, str]) -> None:
    """What `prefect` needs to speak to the server when it is given PREFECT_HOME alone."""
    lines = [f'{name} = "{environment[name]}"' for name in ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING")]
    text = "\n".join(['active = "airlock"', "[profiles.airlock]", *lines, ""])
    write_private(Path(environment["PREFECT_HOME"]) / "profiles.toml", text.encode())


def clear_leases(home: Path) -> None:
    """Forget turns that the last server lent out: their end would free a turn that is taken again."""
    shutil.rmtree(home / "concurrency_leases", ignore_errors=True)


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
            last = " | ".join(log.read_text(errors="replace").splitlines()[-5:])
            raise StageFailed(f"the Prefect server did not start: {last}")
        time.sleep(0.2)
    return server


def start_worker(pool: str, environment: Mapping[str, str], *, cwd: Path, log: Path) -> Process:
    """Start the worker of one pool: one that decides itself what it runs."""
    return Process(
        [sys.executable, "-P", str(Path(__file__).with_name("worker.py")), pool],
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
