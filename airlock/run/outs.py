"""From staging to the workspace: only what was declared, only plain files, with nothing on them but their
bytes.

A sandbox cannot stop a stage from leaving a link or a set-user-id file where an out should be; DVC would
follow the one and keep the other. So outs are looked at here, after the stage's last process is gone, and
copied: links, modes, owners and extended attributes stay behind. Both sides are walked by open folders: no
name is looked up twice, none through a link.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from airlock.errors import BoundaryError
from airlock.inside.digests import empty_folders
from airlock.run.allowed import is_obeyed
from airlock.run.paths import entries, folder_of, opened
from airlock.wall import kernel

_FILE_MODE, _FOLDER_MODE = 0o644, 0o755
_EXCHANGE = 2
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_SMALL_HOLES = 1 << 20
MOST_BYTES = 1 << 40
"""Of all outs together, where nobody says less."""


def publish(staging: Path, outs: Sequence[str], workspace: Path, *, most: int = MOST_BYTES) -> None:
    """Replace each declared out in the workspace by what the stage left in `staging`, which is empty
    afterwards.

    All outs are checked and copied before the first one is replaced, so a refused out leaves the workspace as
    it was.

    Args:
        staging: where the stage wrote.
        outs: names below it, and below the workspace.
        workspace: where they go.
        most: bytes of all outs together.

    Raises:
        BoundaryError: naming the out that is missing, or is not made of plain files of its own.
    """
    copies: list[tuple[int, str, str]] = []
    with ExitStack() as stack:
        top = stack.enter_context(opened(os.open(staging, _FOLDER)))
        try:
            _check_size({out: _check(top, out) for out in outs}, most, workspace)
            for out in outs:
                folder, last = stack.enter_context(folder_of(workspace, out))
                temporary = f".{last}.{secrets.token_hex(8)}"
                os.mkdir(temporary, 0o700, dir_fd=folder)
                copies.append((folder, last, temporary))
                with opened(kernel.open_beneath(top, out)) as source:
                    _copy(source, folder, f"{temporary}/{last}", out)
            for folder, last, temporary in copies:
                _replace(folder, f"{temporary}/{last}", last)
        finally:
            for folder, _, temporary in copies:
                remove(temporary, folder)
            empty(top)


def _check(top: int, out: str) -> int:
    """Bytes of an out, all of which is plain files with one name each.

    Whatever modes the stage has set are opened up.
    """
    if any(part in ("", ".", "..") for part in out.split("/")):
        raise BoundaryError(f"out '{out}' is not inside the workspace: name a path below it in dvc.yaml")
    try:
        with opened(kernel.open_beneath(top, out)) as place:
            status = os.fstat(place)
            size = _check_entry(out, out.rpartition("/")[2], status)
            if stat.S_ISDIR(status.st_mode):
                for entry in entries(place, out, own=True):
                    size += _check_entry(out, entry.last, entry.status)
            return size
    except FileNotFoundError:
        raise BoundaryError(
            f"the stage did not make its out '{out}': write it, or take it out of dvc.yaml"
        ) from None
    except OSError as error:
        kind = "a link" if error.errno in (errno.ELOOP, errno.ENOTDIR) else "not readable"
        raise BoundaryError(_refusal(out, out.rpartition("/")[2], kind)) from None


def _check_entry(out: str, name: str, status: os.stat_result) -> int:
    if stat.S_ISLNK(status.st_mode) or (status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode)):
        raise BoundaryError(_refusal(out, name, "a link"))
    if is_obeyed(name):
        raise BoundaryError(_refusal(out, name, "a name that other programs obey"))
    if stat.S_ISDIR(status.st_mode):
        return 0
    if not stat.S_ISREG(status.st_mode):
        raise BoundaryError(_refusal(out, name, "not a plain file"))
    return status.st_size


def _refusal(out: str, name: str, kind: str) -> str:
    shown = "".join(filter(str.isprintable, name))[:100]
    return f"out '{out}' was not published: '{shown}' is {kind}; an out is made of plain files of its own"


def _check_size(sizes: dict[str, int], most: int, workspace: Path) -> None:
    for out, size in sizes.items():
        if sum(sizes.values()) > min(most, shutil.disk_usage(workspace).free) and size == max(sizes.values()):
            raise BoundaryError(
                f"out '{out}' was not published: with {size} bytes it is too large; see boundary.file_size "
                "and the disk"
            )


def _copy(source: int, folder: int, name: str, out: str) -> None:
    if not stat.S_ISDIR(os.fstat(source).st_mode):
        _copy_file(f"/proc/self/fd/{source}", None, folder, name, out)
        return
    os.mkdir(name, _FOLDER_MODE, dir_fd=folder)
    with opened(kernel.open_beneath(folder, name)) as target:
        found = list(entries_of(source, out))
        folders = [name for name, folder in found if folder]
        empty = set(empty_folders((name for name, folder in found if not folder), folders))
        for entry in entries(source, out, own=True):
            if entry.name in empty:
                continue  # its name is all there is of it, and no hash would count that
            if stat.S_ISDIR(entry.status.st_mode):
                os.mkdir(entry.name, _FOLDER_MODE, dir_fd=target)
            else:
                _copy_file(entry.last, entry.folder, target, entry.name, out)
        for entry in entries(target, out):
            if stat.S_ISDIR(entry.status.st_mode):
                os.chmod(entry.last, _FOLDER_MODE, dir_fd=entry.folder)
        os.chmod(f"/proc/self/fd/{target}", _FOLDER_MODE)


def entries_of(folder: int, out: str) -> Iterator[tuple[str, bool]]:
    """Names below an open folder, and whether each is a folder."""
    for entry in entries(folder, out, own=True):
        yield entry.name, stat.S_ISDIR(entry.status.st_mode)


def _copy_file(path: str, where: int | None, folder: int, name: str, out: str) -> None:
    os.chmod(path, 0o600, dir_fd=where)
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if where is None else os.O_NOFOLLOW)
    made = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with (
        os.fdopen(os.open(path, flags, dir_fd=where), "rb") as source,
        os.fdopen(os.open(name, made, 0o600, dir_fd=folder), "wb") as target,
    ):
        if _holes(source.fileno()) > max(_SMALL_HOLES, os.fstat(source.fileno()).st_size // 2):
            raise BoundaryError(_refusal(out, name.rpartition("/")[2], "mostly a hole"))
        shutil.copyfileobj(source, target, 1 << 20)
        os.fchmod(target.fileno(), _FILE_MODE)


def _holes(file: int) -> int:
    """Bytes of a file that nobody ever wrote: on disk they cost nothing, and copied they would."""
    size, place, data = os.fstat(file).st_size, 0, 0
    try:
        while place < size:
            start = os.lseek(file, place, os.SEEK_DATA)
            place = os.lseek(file, start, os.SEEK_HOLE)
            data += place - start
    except OSError as error:
        if error.errno != errno.ENXIO:  # no data after `place`
            return 0
    finally:
        os.lseek(file, 0, os.SEEK_SET)
    return size - data


def _replace(folder: int, new: str, target: str) -> None:
    """In one step: whoever looks sees the old out or the new one.

    The old one goes with its temporary folder.
    """
    try:
        os.stat(target, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        os.rename(new, target, src_dir_fd=folder, dst_dir_fd=folder)
        return
    try:
        kernel.syscall("renameat2", folder, os.fsencode(new), folder, os.fsencode(target), _EXCHANGE)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS):
            raise
        # A file system without the exchange: nearly one step.
        os.rename(target, f"{new}.old", src_dir_fd=folder, dst_dir_fd=folder)
        os.rename(new, target, src_dir_fd=folder, dst_dir_fd=folder)


def remove(name: str | Path, folder: int | None = None) -> None:
    """Remove a file or a folder with all that is in it, however deep, whatever its modes; nothing is
    followed.
    """
    try:
        if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=folder)
            return
        os.chmod(name, 0o700, dir_fd=folder)
        with opened(os.open(name, _FOLDER, dir_fd=folder)) as inside:
            empty(inside)
        os.rmdir(name, dir_fd=folder)
    except FileNotFoundError:
        return


def empty(folder: int) -> None:
    """Remove what is in an open folder.

    Folders in folders are brought up and emptied in turn, so that depth does not matter.
    """
    number = 0
    with opened(os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)) as top:
        while names := os.listdir(top):
            for name in names:
                if not stat.S_ISDIR(os.stat(name, dir_fd=top, follow_symlinks=False).st_mode):
                    os.unlink(name, dir_fd=top)
                    continue
                os.chmod(name, 0o700, dir_fd=top)
                with opened(os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)) as inner:
                    for child in os.listdir(inner):
                        if not stat.S_ISDIR(os.stat(child, dir_fd=inner, follow_symlinks=False).st_mode):
                            os.unlink(child, dir_fd=inner)
                            continue
                        number += 1
                        os.chmod(child, 0o700, dir_fd=inner)
                        os.rename(child, f"{number}-{secrets.token_hex(8)}", src_dir_fd=inner, dst_dir_fd=top)
                os.rmdir(name, dir_fd=top)
