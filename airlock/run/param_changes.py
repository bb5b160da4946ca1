"""params.yaml with other values for as long as a run lasts: whatever ends that run, it is put back.

What is changed is noted in AIRLOCK_HOME first. A run that was killed leaves the note, and the next command of any
kind in the workspace puts params.yaml back: otherwise the next `dvc repro` would pay for another's question. An
edit made since then stays.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from airlock.errors import AirlockError, ParamsError
from airlock.files import replacing
from airlock.owner.home import IDENTITY, project, write_private

FILE = "params.yaml"


@contextmanager
def turn(workspace: Path, *, wait: bool = True) -> Iterator[None]:
    """One run that changes parameters at a time in a workspace; the kernel ends it with us.

    Raises:
        BlockingIOError: without `wait`, if it is another one's turn.
    """
    descriptor = os.open(_place(workspace, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        recover(workspace)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def changed(workspace: Path, after: str, *, stays: bool, unless_paid: Sequence[str] = ()) -> Iterator[None]:
    """params.yaml with the text `after`, in a `turn`.

    Args:
        workspace: its folder.
        after: the whole text.
        stays: whether it is kept if the block ends well; it is undone if the block fails.
        unless_paid: outs; once one of them was reserved, it stays even if the block fails.
    """
    change = {"before": (workspace / FILE).read_text(), "after": after, "unless_paid": [*unless_paid]}
    write_private(_place(workspace, "json"), json.dumps(change).encode())
    write(workspace, after)
    try:
        yield
    except BaseException:
        recover(workspace)
        raise
    if stays:
        _place(workspace, "json").unlink()
    else:
        recover(workspace)


def recover(workspace: Path) -> bool:
    """Put back what a run changed that ended without a reservation; whether there was something to put back."""
    note = _place(workspace, "json")
    if not note.exists():
        return False
    change = json.loads(note.read_text())
    mine = (workspace / FILE).read_text() == change["after"] and not _paid(workspace, change["unless_paid"])
    if mine:
        write(workspace, change["before"])
    note.unlink()
    return mine


def recover_after_kill(workspace: Path) -> bool:
    """`recover`, unless whoever made the change is alive; whether something was put back."""
    if not (workspace / IDENTITY).exists() or not (workspace / FILE).exists():
        return False
    with suppress(AirlockError, OSError):
        if not _place(workspace, "json").exists():
            return False
        before = (workspace / FILE).read_bytes()
        with turn(workspace, wait=False):
            return (workspace / FILE).read_bytes() != before
    return False


def text_with(workspace: Path, settings: Mapping[str, Any]) -> str:
    """params.yaml with some values changed ({"release.epsilon": 0.5}), its comments kept.

    Raises:
        ParamsError: a key goes below a value.
    """
    from dvc.utils.serialize import modify_yaml  # type: ignore[import-untyped]

    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copy(workspace / FILE, folder))
        with modify_yaml(str(copy)) as document:
            apply(document, settings)
        return copy.read_text()


def apply(document: dict[str, Any], settings: Mapping[str, Any]) -> None:
    """Set values of a parsed params.yaml.

    Raises:
        ParamsError: a key goes below a value, or is none.
    """
    for key, value in settings.items():
        *parents, last = parts = key.split(".")
        if not all(parts):
            raise ParamsError(f"overrides: '{key}' is not a key: write it like release.epsilon")
        place = document
        for parent in parents:
            place = place.setdefault(parent, {})
            if not isinstance(place, dict):
                raise ParamsError(f"overrides: '{key}' goes below a value: name a key of params.yaml")
        place[last] = value


def write(workspace: Path, text: str) -> None:
    """All of it or nothing, whenever the process is killed."""
    with replacing(workspace / FILE) as fresh:
        fresh.write_text(text)
        shutil.copymode(workspace / FILE, fresh)


def _paid(workspace: Path, outs: Sequence[str]) -> bool:
    """Whether an out that was new has been reserved; if that cannot be told, the next run must not pay."""
    from airlock.params import load_params
    from airlock.run import budget

    if not outs:
        return False
    try:
        (point,) = budget.price(project(workspace), workspace, load_params(workspace / FILE))
    except AirlockError:
        return False
    return any(price.out in outs and price.status != "new" for price in point.prices)


def _place(workspace: Path, kind: str) -> Path:
    """Where a note about this workspace is kept: outside of it, where nothing versioned can forge it."""
    folder = project(workspace).folder / "changes"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / f"{hashlib.sha256(str(workspace.resolve()).encode()).hexdigest()[:16]}.{kind}"
