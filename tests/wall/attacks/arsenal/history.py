"""What DVC and git keep beside the files themselves."""

from __future__ import annotations

import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any


def dvc_temporary(config: dict[str, Any]) -> bytes:
    return Path(config["workspace"], ".dvc/tmp/leftover").read_bytes()


def git_log(config: dict[str, Any]) -> bytes:
    command = ["git", "-c", "safe.directory=*", "-C", config["workspace"], "log", "-p", "--all"]
    return subprocess.run(command, capture_output=True, check=True).stdout


def git_objects(config: dict[str, Any]) -> bytes:
    objects = Path(config["workspace"], ".git/objects")
    found = b"".join(zlib.decompress(path.read_bytes()) for path in objects.glob("??/*"))
    if not found:
        raise PermissionError("no object seen")
    return found


ATTACKS = [dvc_temporary, git_log, git_objects]
PRIVILEGED: list[Callable[[dict[str, Any]], bytes]] = []
