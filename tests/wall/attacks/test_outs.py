"""Attacks on the door itself: an out that leads to records, or that is more than its bytes.

The sandbox or the publisher stops each.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from airlock.errors import BoundaryError
from airlock.run.outs import publish
from airlock.wall import layers
from tests.support.small_workspace import SECRET, Cell, cell

OFFERED = layers.choose("advisory", zone="open")
pytestmark = pytest.mark.skipif(layers.ALL != OFFERED, reason="not all layers here: airlock doctor")

LEADING = {
    "symlink": "os.symlink(raw, 'staging/out')",
    "symlink-in-a-folder": "os.mkdir('staging/out'); os.symlink(raw, 'staging/out/table')",
    "symlinked-folder": "os.symlink(os.path.dirname(raw), 'staging/out')",
    "hardlink": "os.link(raw, 'staging/out')",
    "moved": "os.rename(raw, 'staging/out')",
    "fifo": "os.mkfifo('staging/out')",
}


@pytest.fixture
def room() -> Iterator[Cell]:
    with cell() as made:
        (made.base / "workspace").mkdir()
        yield made


def published(room: Cell) -> bytes:
    """Everything that came out."""
    return b"".join(path.read_bytes() for path in (room.base / "workspace").rglob("*") if path.is_file())


@pytest.mark.parametrize("trick", LEADING)
def test_an_out_that_leads_to_records_is_stopped_inside(room: Cell, trick: str) -> None:
    outcome = room.run(f"import os; raw = {str(room.raw)!r}; {LEADING[trick]}")
    assert outcome.returncode == 1
    with suppress(BoundaryError):  # the out is missing, or a folder with nothing in it
        publish(room.staging, ["out"], room.base / "workspace")
    assert published(room) == b""


@pytest.mark.parametrize("trick", [trick for trick in LEADING if trick != "moved"])
def test_without_a_wall_the_publisher_stops_it(room: Cell, trick: str) -> None:
    """The control: the trick works, a reader of staging would find the records, and still nothing is
    published.
    """
    assert room.run(f"import os; raw = {str(room.raw)!r}; {LEADING[trick]}", frozenset()).returncode == 0
    found = [
        Path(folder, name) for folder, _, names in os.walk(room.staging, followlinks=True) for name in names
    ]
    assert trick == "fifo" or SECRET in {path.read_text() for path in found}
    with pytest.raises(BoundaryError, match="plain"):
        publish(room.staging, ["out"], room.base / "workspace")
    assert published(room) == b""


@pytest.mark.parametrize("wanted", [layers.ALL, frozenset()], ids=["full", "advisory"])
def test_set_user_id_does_not_come_out(room: Cell, wanted: frozenset[layers.Layer]) -> None:
    outcome = room.run(
        "import os; open('staging/out', 'w').write('#!/bin/sh'); os.chmod('staging/out', 0o6777)", wanted
    )
    assert outcome.returncode == 0
    assert (room.staging / "out").stat().st_mode & stat.S_ISUID
    publish(room.staging, ["out"], room.base / "workspace")
    assert stat.S_IMODE((room.base / "workspace/out").stat().st_mode) == 0o644


def test_what_was_not_declared_does_not_come_out(room: Cell) -> None:
    room.run("open('staging/out', 'w').write('fine'); open('staging/.git', 'w').write('not declared')")
    publish(room.staging, ["out"], room.base / "workspace")
    assert published(room) == b"fine"
