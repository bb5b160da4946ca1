"""Write, then rename: a file is there as a whole or not at all, whenever the process is killed. And read what is
a plain file, and nothing else; what every reader reads alike.

What a user may still change between two names (workspaces that a stage could have filled with links) is written
by `run/paths.py` and `run/outs.py` instead, from an open folder.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MOST_BYTES = 16 << 20
"""Of a text that somebody may have written by hand."""
_STREAM = re.compile(r"/dev/(stdout|stderr)|/(?:dev|proc/self)/fd/([0-9]{1,4})")
_NUMBERS = {"stdout": 1, "stderr": 2}


@contextmanager
def replacing(path: Path, *, mode: int = 0o666, durable: bool = False) -> Iterator[Path]:
    """A file to fill beside `path`, which takes its place when the block ends well and is gone when it does not.

    Args:
        path: the name that it gets in the end; its folder is made.
        mode: as for a new file; the umask takes its part.
        durable: bytes and name are on disk afterwards, also after a loss of power.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    os.close(os.open(fresh, flags, mode))
    try:
        yield fresh
        if durable:
            sync(fresh)
        os.replace(fresh, path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    if durable:
        sync(path.parent)


def replace(path: Path, content: str | bytes, *, mode: int = 0o666, durable: bool = False) -> None:
    """Write a file by `replacing`."""
    with replacing(path, mode=mode, durable=durable) as fresh:
        fresh.write_bytes(content.encode() if isinstance(content, str) else content)


def deliver(path: Path, text: str) -> None:
    """Write what a user asked to have at `path`: all of it or nothing, as private as a file that stood there, and
    behind a link of theirs. What is no file (a pipe, a device) is written to, and so is what is open already
    (`/dev/stdout`, `>(...)`), from where it has come to: it may be a file with more in it.
    """
    if path.exists() and (opened := _STREAM.fullmatch(str(path.absolute()))):
        with os.fdopen(os.dup(_NUMBERS.get(opened[1]) or int(opened[2])), "wb") as sink:
            sink.write(text.encode())
    elif path.exists() and not path.is_file():
        with path.open("wb") as sink:
            sink.write(text.encode())
    else:
        path = path.resolve()
        replace(path, text, mode=path.stat().st_mode & 0o777 if path.exists() else 0o666)


def read_plain(path: Path) -> str:
    """The text of a file, and of nothing else: a link could lead to records, whose values an error would quote, and
    a pipe has no end.

    Raises:
        FileNotFoundError: there is none.
        OSError: something else stands there, or more than any text here needs.
        UnicodeDecodeError: it is no text.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a plain file", str(path))
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise OSError(errno.EFBIG, "too large for a text", str(path))
    return data.decode()


def check_plain(path: Path) -> None:
    """Refuse what is no plain file before a library opens it by its name, and waits for a pipe, or reads a device, for
    ever.

    Raises:
        FileNotFoundError: there is none.
        OSError: something else stands there.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "not a plain file", str(path))


def parse_json(text: str | bytes) -> Any:
    """The document in a text, where every parser finds the same one: no key twice, no NaN, nothing that has no
    bytes, not deeper than it can be walked.

    Raises:
        ValueError: it is no such text.
    """
    try:
        document = json.loads(text, object_pairs_hook=_object, parse_constant=_refuse)
        json.dumps(document, allow_nan=False, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("nested too deep") from None
    return document


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("a key twice")
    return found


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


def sync(path: Path) -> None:
    """Bytes of a file, or names of a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
