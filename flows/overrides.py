"""Parameters of a flow run: checked like params.yaml, written there, and taken back if nothing was paid.

A run that fails, or is killed, before it has reserved anything leaves params.yaml as it was: otherwise the
next scheduled run would pay for it. What it changes is noted in AIRLOCK_HOME first, for the next run to put
back.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from airlock.errors import AirlockError, ParamsError
from airlock.files import replacing
from airlock.owner.home import project, write_private
from airlock.params import Params, check, load_params
from airlock.run import budget

Overrides = Mapping[str, Any]
FILE = "params.yaml"


def merged(workspace: Path, overrides: Overrides) -> Params:
    """params.yaml with `overrides` ({"release.epsilon": 0.5}) on top, checked; nothing is written.

    Raises:
        ParamsError: for params.yaml itself, or for an override, with the nearest valid key.
    """
    load_params(workspace / FILE)
    document = deepcopy(yaml.safe_load((workspace / FILE).read_text()) or {})
    _apply(document, overrides)
    return check(Params, document, "overrides")


def only(overrides: Overrides, section: str) -> None:
    """Refuse overrides outside `section`."""
    for key in overrides:
        if key.split(".")[0] != section:
            raise ParamsError(
                f"overrides: '{key}' belongs to the sensitive side: "
                f"a run on released data may change {section}.* only"
            )


@contextmanager
def turn(workspace: Path, *, wait: bool = True) -> Iterator[None]:
    """One flow at a time in a workspace, whatever a server thinks; the kernel ends it with us.

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
def written(workspace: Path, overrides: Overrides, new: Sequence[str]) -> Iterator[None]:
    """params.yaml with `overrides` in it, as `dvc exp run --set-param` writes them: git shows the difference.

    It stays so if the block ends well, or fails after one of the `new` outs was paid for; else it is undone.
    """
    if not overrides:
        yield
        return
    change = {"before": (workspace / FILE).read_text(), "after": _text(workspace, overrides), "new": [*new]}
    write_private(_place(workspace, "json"), json.dumps(change).encode())
    _replace(workspace, str(change["after"]))
    try:
        yield
    except BaseException:
        recover(workspace)
        raise
    _place(workspace, "json").unlink()


def recover(workspace: Path) -> None:
    """Put back what a run changed that ended without a reservation; an edit made since then stays."""
    note = _place(workspace, "json")
    if not note.exists():
        return
    change = json.loads(note.read_text())
    if (workspace / FILE).read_text() == change["after"] and not _paid(workspace, change["new"]):
        _replace(workspace, change["before"])
    note.unlink()


def _paid(workspace: Path, new: Sequence[str]) -> bool:
    """Whether an out that was new has been reserved; if that cannot be told, the next run must not pay."""
    if not new:
        return False
    try:
        (point,) = budget.price(project(workspace), workspace, load_params(workspace / FILE))
    except AirlockError:
        return False
    return any(price.out in new and price.status != "new" for price in point.prices)


def _place(workspace: Path, kind: str) -> Path:
    """Where a note about this workspace is kept: outside of it, where nothing versioned can forge it."""
    folder = project(workspace).folder / "prefect"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / f"{hashlib.sha256(str(workspace.resolve()).encode()).hexdigest()[:16]}.{kind}"


def _text(workspace: Path, overrides: Overrides) -> str:
    from dvc.utils.serialize import modify_yaml  # type: ignore[import-untyped]

    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copy(workspace / FILE, folder))
        with modify_yaml(copy) as document:
            _apply(document, overrides)
        return copy.read_text()


def _replace(workspace: Path, text: str) -> None:
    """All of it or nothing, whenever the process is killed."""
    with replacing(workspace / FILE) as fresh:
        fresh.write_text(text)
        shutil.copymode(workspace / FILE, fresh)


def _apply(document: dict[str, Any], overrides: Overrides) -> None:
    for key, value in overrides.items():
        *parents, last = _parts(key)
        place = document
        for parent in parents:
            place = place.setdefault(parent, {})
            if not isinstance(place, dict):
                raise ParamsError(f"overrides: '{key}' goes below a value: name a key of params.yaml")
        place[last] = value


def _parts(key: str) -> Iterator[str]:
    parts = key.split(".")
    if not all(parts):
        raise ParamsError(f"overrides: '{key}' is not a key: write it like release.epsilon")
    return iter(parts)
