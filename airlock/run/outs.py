"""From staging to the workspace: only what was declared, only plain files, with nothing on them but their bytes.

A sandbox cannot stop a stage from leaving a link or a set-user-id file where an out should be; DVC would follow the one and
keep the other. So outs are looked at here, after the stage's last process is gone, and copied: links, modes, owners and
extended attributes stay behind.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path

from airlock.errors import BoundaryError
from airlock.wall import kernel

_FILE_MODE, _FOLDER_MODE = 0o644, 0o755
_EXCHANGE = 2


def publish(staging: Path, outs: Sequence[str], workspace: Path) -> None:
    """Replace each declared out in the workspace by what the stage left in `staging`, which is empty afterwards.

    All outs are checked and copied before the first one is replaced, so a refused out leaves the workspace as it was.

    Raises:
        BoundaryError: naming the out that is missing, or is not made of plain files of its own.
    """
    copies: list[tuple[Path, Path]] = []
    try:
        for out in outs:
            _check(staging, out)
        for out in outs:
            target = workspace / out
            target.parent.mkdir(parents=True, exist_ok=True)
            copies.append((Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent)), target))
            _copy(staging / out, copies[-1][0] / target.name)
        for folder, target in copies:
            _replace(folder / target.name, target)
    finally:
        for folder, _ in copies:
            shutil.rmtree(folder, ignore_errors=True)
        _empty(staging)


def _check(staging: Path, out: str) -> None:
    place = staging
    for part in (parts := Path(out).parts):
        place /= part
        if part in ("..", "/"):
            raise BoundaryError(f"out '{out}' is not inside the workspace: name a path below it in dvc.yaml")
        if not os.path.lexists(place):
            raise BoundaryError(
                f"the stage did not make its out '{out}': write it, or take it out of dvc.yaml"
            )
        _check_entry(place, out, folder=len(place.parts) < len(staging.parts) + len(parts))
    _check_below(place, out)


def _check_below(path: Path, out: str) -> None:
    """All entries below, never through a link. Whatever modes the stage has set are opened up."""
    if path.is_dir():
        path.chmod(0o700)
        for child in sorted(path.iterdir()):
            _check_entry(child, out)
            _check_below(child, out)


def _check_entry(path: Path, out: str, *, folder: bool = False) -> None:
    status = path.lstat()
    plain = stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and not folder
    if not plain and not stat.S_ISDIR(status.st_mode):
        kind = "a link" if path.is_symlink() or status.st_nlink > 1 else "not a plain file"
        raise BoundaryError(
            f"out '{out}' was not published: '{path.name}' is {kind}; an out is made of plain files of its own"
        )


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        target.mkdir()
        for child in sorted(source.iterdir()):
            _copy(child, target / child.name)
        target.chmod(_FOLDER_MODE)
    else:
        source.chmod(0o600)
        shutil.copyfile(source, target, follow_symlinks=False)
        target.chmod(_FILE_MODE)


def _replace(new: Path, target: Path) -> None:
    """In one step: whoever looks sees the old out or the new one. The old one goes with its temporary folder."""
    if not os.path.lexists(target):
        new.rename(target)
        return
    try:
        at = kernel.AT_FDCWD
        kernel.syscall("renameat2", at, os.fsencode(new), at, os.fsencode(target), _EXCHANGE)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS):
            raise
        target.rename(new.with_name(f"{new.name}.old"))  # a file system without the exchange: nearly one step
        new.rename(target)


def _empty(staging: Path) -> None:
    for child in staging.iterdir() if staging.is_dir() else ():
        if child.is_dir() and not child.is_symlink():
            _open_up(child)
            shutil.rmtree(child, ignore_errors=True)
        else:
            child.unlink()


def _open_up(folder: Path) -> None:
    folder.chmod(0o700)
    for child in folder.iterdir():
        if child.is_dir() and not child.is_symlink():
            _open_up(child)
