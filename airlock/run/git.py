"""Git, asked about what a commit holds, and nothing else: whatever the clone, its settings or the environment say.

An object may be replaced by another under its own name (`git replace`), and settings can make git run
programs (monitors, hooks, filters): none of that has a say in evidence.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from airlock.errors import InputError

_PLAIN = (
    "--no-replace-objects",
    *("-c", "core.fsmonitor=false"),
    *("-c", f"core.hooksPath={os.devnull}"),
    *("-c", "core.quotePath=false"),
    *("-c", "log.showSignature=false"),  # it would run whatever is named as the program that checks them
    *("-c", "protocol.allow=never"),
)


def ask(workspace: Path, *arguments: str, given: bytes | None = None) -> bytes | None:
    """What git answers; None where it refuses.

    Raises:
        InputError: git is not installed.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_NO_REPLACE_OBJECTS": "1", "GIT_GRAFT_FILE": os.devnull, "GIT_NO_LAZY_FETCH": "1"}
    # What git itself has set for a hook or a tool that it runs us in (another index, another work tree) is left
    # out on purpose; the place of the repository is kept.
    environment |= {name: os.environ[name] for name in ("GIT_DIR", "GIT_WORK_TREE") if name in os.environ}
    try:
        done = subprocess.run(
            ["git", *_PLAIN, *arguments],
            cwd=workspace,
            env=environment,
            input=given,
            stdin=None if given is not None else subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    except FileNotFoundError:
        raise InputError("git is not installed: install it") from None
    return done.stdout if done.returncode == 0 else None


def commit_of(workspace: Path, revision: str) -> str:
    """The full name of the commit that `revision` means.

    Raises:
        InputError: there is none.
    """
    found = ask(workspace, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if not found and ask(workspace, "rev-parse", "--git-dir") is None:
        raise InputError(f"{workspace} is in no git repository: run from the project's top folder")
    if not found:
        raise InputError(f"no commit '{revision}' here: name one that `git log` lists")
    return found.decode().strip()
