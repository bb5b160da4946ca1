"""Disks that a stage writes to: it is ended before one of them is full, because the ledger, the receipts and the
owner's log need them too.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

RESERVE_BYTES, RESERVE_FILES = 1 << 30, 10_000
"""What is left to others; of a disk that has little when the stage starts, a quarter of that."""


@dataclass(frozen=True)
class Reserve:
    """What a stage leaves of the disk on which `folder` lies."""

    folder: Path
    space: int
    files: int

    @property
    def is_touched(self) -> bool:
        space, files = _free(self.folder)
        return space < self.space or files < self.files


def reserves(folders: Iterable[Path]) -> tuple[Reserve, ...]:
    """One for each disk that the folders lie on."""
    disks = {os.stat(folder).st_dev: folder for folder in folders}
    return tuple(_reserve(folder) for folder in disks.values())


def _reserve(folder: Path) -> Reserve:
    space, files = _free(folder)
    return Reserve(folder, min(RESERVE_BYTES, space // 4), min(RESERVE_FILES, files // 4))


def _free(folder: Path) -> tuple[int, int]:
    """Bytes and files; a file system that does not count files says that it has none, before as after."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize, found.f_favail
