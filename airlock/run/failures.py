"""Runs of stages that did not come to their end: one note per stage and workspace, in AIRLOCK_HOME.

The broker writes a note before a stage starts and removes it when the stage has ended well, so a run that was
killed leaves one too. No stage can reach it: a page or a metric of an earlier run cannot pass for this one.
"""

from __future__ import annotations

import builtins
import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from airlock import errors
from airlock.errors import AirlockError
from airlock.owner.home import Project, project, write_private

KILLED_CLASS = "Killed"
# What may be told to anyone: a class of ours or of Python's own. A stage chooses the names of others.
CLASSES = {
    name
    for module in (errors, builtins)
    for name, found in vars(module).items()
    if isinstance(found, type) and issubclass(found, BaseException)
}
INNER_CLASS = re.compile(r"\[(\w+)\]$|\((\w+) at ")


@dataclass(frozen=True)
class Failure:
    """A stage that was refused, failed, or was killed (then `words` are empty and `pid` is gone)."""

    workspace: str
    stage: str
    when: str
    pid: int
    error: str = KILLED_CLASS
    words: str = ""

    @property
    def under_way(self) -> bool:
        """Whether it is still running."""
        return self.error == KILLED_CLASS and Path("/proc", str(self.pid)).exists()


@contextmanager
def noted(workspace: Path, stage: str) -> Iterator[None]:
    """Keep a note of this run for as long as it has not ended well."""
    home, when = project(workspace), datetime.now(UTC).isoformat(timespec="seconds")
    note, begun = _place(home, workspace, stage), Failure(str(workspace.resolve()), stage, when, os.getpid())
    _sweep(home)
    _write(note, begun)
    try:
        yield
    except AirlockError as error:
        _write(note, Failure(begun.workspace, stage, when, begun.pid, class_of(error), str(error)))
        raise
    except Exception as error:
        _write(note, Failure(begun.workspace, stage, when, begun.pid, class_of(error), "see `--debug`"))
        raise
    note.unlink(missing_ok=True)


def of_workspace(workspace: Path) -> list[Failure]:
    """Every stage of this workspace whose last run failed or was killed, the oldest first."""
    found = [one for one in _all(project(workspace)).values() if one.workspace == str(workspace.resolve())]
    return sorted((one for one in found if not one.under_way), key=lambda one: one.when)


def class_of(error: BaseException) -> str:
    """The class of an error, or the one that a stage ended with behind the wall if that may be told."""
    found = INNER_CLASS.search(str(error)) if isinstance(error, AirlockError) else None
    inner = (found[1] or found[2]) if found else ""
    return inner if inner in CLASSES else type(error).__name__


def _place(home: Project, workspace: Path, stage: str) -> Path:
    name = hashlib.sha256(f"{workspace.resolve()}\0{stage}".encode()).hexdigest()[:24]
    return home.folder / "unfinished" / f"{name}.json"


def _write(note: Path, failure: Failure) -> None:
    write_private(note, json.dumps(asdict(failure)).encode())


def _all(home: Project) -> dict[Path, Failure]:
    found = {}
    for note in (home.folder / "unfinished").glob("*.json"):
        with suppress(OSError, ValueError, TypeError):
            found[note] = Failure(**json.loads(note.read_text()))
    return found


def _sweep(home: Project) -> None:
    """Forget workspaces that are gone: queued experiments have one each."""
    for note, failure in _all(home).items():
        if not Path(failure.workspace).exists():
            note.unlink(missing_ok=True)
