"""Become nobody, on a machine on which nobody can reach the interpreter: `python disguise.py USER COMMAND...` as
root.

In a mount namespace of its own, folders that only root may enter (such as /root with its pyenv) are replaced
by open ones that hold the interpreter and this project at the same paths, and nothing else. Nobody cannot become
anybody else; so a process of a second account is left beside it, for attacks by another user of the machine.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from airlock.wall import kernel  # noqa: E402
from tests.support import second_account  # noqa: E402


def barrier(path: Path) -> Path | None:
    """The first folder on the way that others may not enter."""
    return next((folder for folder in reversed(path.parents) if not folder.stat().st_mode & 0o001), None)


def main() -> None:
    needed = [Path(os.path.realpath(path)) for path in (sys.base_prefix, sys.prefix, ROOT)]
    behind = [(path, wall) for path in needed if (wall := barrier(path))]
    kernel.unshare(0x20000)
    kernel.mount("none", "/", "", 0x44000)
    trees = [
        kernel.syscall("open_tree", kernel.AT_FDCWD, str(path).encode(), 1 | 0x80000 | kernel.AT_RECURSIVE)
        for path, _ in behind
    ]
    for wall in {wall for _, wall in behind}:
        kernel.mount("tmpfs", str(wall), "tmpfs", 0, "mode=755")
    for tree, (path, _) in zip(trees, behind, strict=True):
        path.mkdir(parents=True, exist_ok=True)
        kernel.syscall("move_mount", tree, b"", kernel.AT_FDCWD, str(path).encode(), 4)
    user, *command = sys.argv[1:]
    if int(user) != second_account.OTHER:
        second_account.leave_behind()
    second_account.become(int(user))
    os.execv(command[0], command)


main()
