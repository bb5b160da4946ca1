"""What a stage read, as the kernel saw it, from outside the sandbox.

As root: fanotify on the sandbox's own mounts. Nobody else has those mounts, so every open is the stage's, and
there is no other
way in: nothing can be missed.

Otherwise: inotify on the watched files themselves. It needs no privilege, and unlike strace or seccomp
notifications it cannot be deceived by a path that changes while it is being looked at. It does not tell who
opened a file, so an open of something that was not even granted makes the answer unknown, never "no" and
never a false "yes".
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from airlock.wall import kernel
from airlock.wall.grants import Grants
from airlock.wall.layers import Layer

_BUFFER = (
    1 << 12
    # at most 170 events of fanotify at once: each opens a file here, and must not run into the limit of open
    # files
)

_libc = ctypes.CDLL(None, use_errno=True)


class Recorder(Protocol):
    """Watches paths while a stage runs.

    Attributes:
        name: what recorded, for the receipt.
        descriptor: what the kernel reports through; -1 if nothing watches.
        marks: whether the launcher must mark the sandbox's mounts with the descriptor.
    """

    name: str
    descriptor: int
    marks: bool

    def drain(self) -> None:
        """Take in what has happened so far."""

    def reads(self) -> tuple[str, ...] | None:
        """The watched paths that were opened, or None: unknown."""

    def close(self) -> None:
        """Stop watching."""


def record(
    watch: Sequence[Path], grants: Grants, layers: frozenset[Layer], guarded: Sequence[Path] = ()
) -> Recorder:
    """The best recorder on offer here.

    `guarded` is what others open too: it counts where the stage could open it.
    """
    try:
        if Layer.ROOT in layers:
            return Fanotify([*watch, *guarded])
    except OSError:
        pass  # not root, or a kernel without it
    granted = [path.resolve() for path in grants.paths]
    shown = [path for path in guarded if any(path.resolve().is_relative_to(one) for one in granted)]
    try:
        return Inotify([*watch, *shown], grants)
    except OSError as error:
        return Blind(f"unknown (inotify: {error.strerror}; raise fs.inotify.max_user_watches)")


def files(paths: Iterable[Path]) -> Iterator[tuple[Path, Path]]:
    """Every plain file at or below each path, with the path it belongs to."""
    for path in paths:
        below = (Path(folder, name) for folder, _, names in os.walk(path.resolve()) for name in names)
        for file in below if path.is_dir() else (path.resolve(),):
            if not file.is_symlink():
                yield file, path


class Fanotify:
    """Every open through the mounts of the sandbox."""

    name = "fanotify"
    marks = True

    _QUIET = 0x1 | 0x2 | 0x10 | 0x20  # close on exec, non-blocking, unlimited queue and marks
    _EVENT = struct.Struct("<IBBHQii")

    def __init__(self, watch: Sequence[Path]) -> None:
        self._watched = {_identity(os.stat(file)): str(path) for file, path in files(watch)}
        self._opened: set[str] = set()
        self._unknown = False
        self.descriptor = kernel.syscall(
            "fanotify_init", self._QUIET, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
        )

    def drain(self) -> None:
        try:
            for data in _events(self.descriptor):
                for *_, opened, _pid in self._EVENT.iter_unpack(data):
                    self._note(opened)
        except OSError:  # an event whose file could not be opened here, and which is lost
            self._unknown = True

    def _note(self, opened: int) -> None:
        if opened < 0:
            self._unknown = True
            return
        path = self._watched.get(_identity(os.fstat(opened)))
        os.close(opened)
        if path:
            self._opened.add(path)

    def reads(self) -> tuple[str, ...] | None:
        self.drain()
        return None if self._unknown else tuple(sorted(self._opened))

    def close(self) -> None:
        os.close(self.descriptor)


class Inotify:
    """Every open of the watched files, by whomever."""

    name = "inotify"
    marks = False

    _OPEN, _OVERFLOW = 0x20, 0x4000
    _HEADER = struct.Struct("<iIII")

    def __init__(self, watch: Sequence[Path], grants: Grants) -> None:
        self._granted = tuple(path.resolve() for path in grants.paths)
        self._opened: set[str] = set()
        self._unknown = False
        self._watched: dict[int, tuple[Path, Path]] = {}
        self.descriptor = _checked(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        try:
            for file, path in files(watch):
                number = _checked(_libc.inotify_add_watch(self.descriptor, os.fsencode(file), self._OPEN))
                self._watched[number] = (file, path)
        except OSError:
            self.close()
            raise

    def drain(self) -> None:
        for data in _events(self.descriptor):
            offset = 0
            while offset < len(data):
                number, mask, _, length = self._HEADER.unpack_from(data, offset)
                self._note(number, mask)
                offset += self._HEADER.size + length

    def _note(self, number: int, mask: int) -> None:
        if mask & self._OVERFLOW:
            self._unknown = True
        elif mask & self._OPEN:
            file, path = self._watched[number]
            if any(file.is_relative_to(granted) for granted in self._granted):
                self._opened.add(str(path))
            else:
                self._unknown = True
                self.name = "inotify: some process opened a watched file that the stage was not granted"

    def reads(self) -> tuple[str, ...] | None:
        self.drain()
        return None if self._unknown else tuple(sorted(self._opened))

    def close(self) -> None:
        os.close(self.descriptor)


class Blind:
    """Nothing watches."""

    descriptor = -1
    marks = False

    def __init__(self, name: str) -> None:
        self.name = name

    def drain(self) -> None:
        """Nothing to take in."""

    def reads(self) -> None:
        return None

    def close(self) -> None:
        """Nothing to stop."""


def _events(descriptor: int) -> Iterator[bytes]:
    while True:
        try:
            data = os.read(descriptor, _BUFFER)
        except BlockingIOError:
            return
        yield data


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
