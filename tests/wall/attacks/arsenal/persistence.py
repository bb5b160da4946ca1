"""Ways to leave something behind, or to change what a later stage or the owner will run.

Judged outside, by what has changed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any


def _append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"#attack")


def _truncate(path: Path) -> None:
    os.truncate(path, 0)


def _replace(path: Path) -> None:
    new = path.with_name(path.name + ".new")
    new.write_bytes(b"#attack")
    new.rename(path)


def _replace_from_scratch(path: Path) -> None:
    new = Path(os.environ["TMPDIR"], f"new-{os.getpid()}")
    new.write_bytes(b"#attack")
    new.rename(path)


def _remove(path: Path) -> None:
    path.unlink()


def _open_mode(path: Path) -> None:
    path.chmod(0o777)


def _touch(path: Path) -> None:
    os.utime(path, (1, 1))


def _attribute(path: Path) -> None:
    os.setxattr(path, "user.attack", b"x")


def _link_into_place(path: Path) -> None:
    os.symlink("/etc/passwd", str(path) + ".link")


WAYS: list[Callable[[Path], None]] = [
    _open_mode, _touch, _attribute, _append, _truncate, _link_into_place, _replace_from_scratch, _replace, _remove,
]  # fmt: skip


def tamper(path: str) -> bytes:
    """Everything one can do to a file that exists, the last way taking it away."""
    for way in WAYS:
        with suppress(OSError):
            way(Path(path))
    return b""


def plant(path: str) -> bytes:
    """A new file where somebody will run or read it."""
    Path(path).write_text("import os  # attack\n")
    return b""


def daemon(config: dict[str, Any]) -> bytes:
    """A process that means to stay."""
    waiting = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(300)", config["daemon"]]
    if os.fork() == 0:
        os.setsid()
        null = subprocess.DEVNULL
        subprocess.Popen(waiting, stdin=null, stdout=null, stderr=null, start_new_session=True)
        os._exit(0)
    os.wait()
    return b""


ATTACKS: list[Callable[[dict[str, Any]], bytes]] = [daemon]
PRIVILEGED: list[Callable[[dict[str, Any]], bytes]] = []
