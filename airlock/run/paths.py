"""Paths of the workspace, opened once: below its top folder, without following a link, and held until the
stage has ended.

Whoever may change files of the workspace may also change them between two looks. So the runner looks once:
what it opened is what is hashed into the receipt, what the wall mounts, and where outs are put.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from airlock.errors import BoundaryError, InputError
from airlock.inside.digests import BYTECODE_FOLDER, CHUNK, empty_folders, md5_listing, sha256_listing
from airlock.wall import kernel
from airlock.wall.grants import Held

CODE, COMPILED_ENDINGS = ("airlock", "stages"), (".pyc", ".pyo", ".so")
MOST_TEXT = 64 << 20
DEEPEST, MOST_ENTRIES = 64, 1_000_000
"""Of a dep or an out: folders in folders, and entries in all."""


@contextmanager
def hold(workspace: Path, names: Iterable[str]) -> Iterator[dict[str, Held]]:
    """Open each name below `workspace` and keep it open.

    Raises:
        InputError: naming the path that does not exist.
        BoundaryError: naming the path that a link stands in the way of.
    """
    with ExitStack() as stack:
        top = stack.enter_context(opened(os.open(workspace, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)))
        yield {name: stack.enter_context(_held(workspace, top, name)) for name in dict.fromkeys(names)}


@contextmanager
def hold_folder(folder: Path, place: str) -> Iterator[Held]:
    """A folder of the runner's own, under the name that it has inside a new root."""
    with opened(os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)) as descriptor:
        yield Held(folder.resolve(), descriptor, Path(place))


@contextmanager
def hold_file(path: Path, place: str | None = None) -> Iterator[Held]:
    """A file or folder from anywhere, which the owner has named:
    links on the way to it are the owner's own.
    """
    real = path.resolve()
    try:
        descriptor = os.open(real, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise BoundaryError(_problem(str(path), error)) from None
    with opened(descriptor):
        _check_plain(descriptor, str(path))
        yield Held(real, descriptor, Path(place) if place else None)


@contextmanager
def _held(workspace: Path, top: int, name: str) -> Iterator[Held]:
    try:
        descriptor = kernel.open_beneath(top, name)
    except FileNotFoundError:
        raise InputError(f"'{name}' does not exist: {_remedy(name)}") from None
    except OSError as error:
        raise BoundaryError(_problem(name, error)) from None
    with opened(descriptor):
        _check_plain(descriptor, name)
        yield Held(workspace / name, descriptor, hidden=tuple(_unhashed(descriptor, name)))


def _check_plain(descriptor: int, name: str) -> None:
    """A pipe is a channel and a device has no end: neither has bytes that a hash could speak for."""
    mode = os.fstat(descriptor).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise BoundaryError(f"'{name}' is not a plain file: replace it by the file itself")


def _remedy(name: str) -> str:
    if name.startswith(("data/handles/", "data/schemas/")):
        dataset = name.rpartition("/")[2].removesuffix(".yaml")
        return (
            f"run `airlock add FILE --name {dataset}` or `airlock data fetch {dataset}`, or choose another data set "
            "with `airlock data use NAME`"
        )
    return "run `dvc repro`"


def _problem(name: str, error: OSError) -> str:
    if error.errno == errno.ENOENT:
        return f"'{name}' does not exist: run `dvc repro`"
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return f"'{name}' is a link, or lies behind one: replace it by the file itself"
    return f"'{name}' cannot be opened ({error.strerror})"


@contextmanager
def opened(descriptor: int) -> Iterator[int]:
    """Closed at the end."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class FolderEntry:
    """One entry below an open folder: its name relative to the top,
    its folder's descriptor, and what it is.
    """

    name: str
    folder: int
    status: os.stat_result

    @property
    def last(self) -> str:
        return self.name.rpartition("/")[2]


def entries(descriptor: int, what: str, *, own: bool = False) -> Iterator[FolderEntry]:
    """Everything below an open folder, a folder before what is in it. Nothing is followed.

    Args:
        descriptor: the folder.
        what: its name in an error.
        own: it is the runner's own, and a folder whose modes are in the way is opened up.

    Raises:
        BoundaryError: it is deeper or has more entries than anything reasonable.
    """
    for count, entry in enumerate(_below(descriptor, "", what, 1, own)):
        if count >= MOST_ENTRIES:
            raise BoundaryError(f"'{what}' has more than {MOST_ENTRIES} entries: put them into fewer files")
        yield entry


def _below(folder: int, prefix: str, what: str, depth: int, own: bool) -> Iterator[FolderEntry]:
    if depth > DEEPEST:
        raise BoundaryError(f"'{what}' has folders {DEEPEST} deep and more: make it flatter")
    if own:
        os.chmod(f"/proc/self/fd/{folder}", 0o700)
    with opened(os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)) as readable:
        for name in sorted(os.listdir(readable)):
            status = os.stat(name, dir_fd=readable, follow_symlinks=False)
            yield FolderEntry(prefix + name, readable, status)
            if stat.S_ISDIR(status.st_mode):
                flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
                with opened(os.open(name, flags, dir_fd=readable)) as inner:
                    yield from _below(inner, f"{prefix}{name}/", what, depth + 1, own)


def _is_folder(descriptor: int) -> bool:
    return stat.S_ISDIR(os.fstat(descriptor).st_mode)


def _unhashed(descriptor: int, name: str) -> Iterator[str]:
    """Compiled modules are not shown: beside code no hash counts them, and they could be anything.

    Raises:
        BoundaryError: a module without its source stands among the code, which nobody can review.
    """
    if _is_folder(descriptor):
        for entry in entries(descriptor, name):
            bare = BYTECODE_FOLDER not in entry.name.split("/") and entry.last.endswith(COMPILED_ENDINGS)
            if bare and name.split("/")[0] in CODE:
                raise BoundaryError(
                    f"'{name}/{entry.name}' is compiled code, which nobody can review: remove it"
                )
            if (
                entry.last == BYTECODE_FOLDER
                and stat.S_ISDIR(entry.status.st_mode)
                and BYTECODE_FOLDER not in entry.name.split("/")[:-1]
            ):
                yield entry.name


def hashes(held: Held, *, compiled: bool = True) -> dict[str, str]:
    """SHA-256 and MD5 of what is held, as in `digests`; of code, without what Python puts beside it.

    Raises:
        BoundaryError: there is something else than plain files in it.
    """
    if not _is_folder(held.descriptor):
        return _file_hashes(held.descriptor, "", str(held.path))
    found: dict[str, dict[str, str]] = {}
    folders = []
    for entry in entries(held.descriptor, held.path.name):
        if not compiled and BYTECODE_FOLDER in entry.name.split("/"):
            continue
        if stat.S_ISDIR(entry.status.st_mode):
            folders.append(entry.name)
            continue
        if not stat.S_ISREG(entry.status.st_mode):
            raise BoundaryError(
                f"'{held.path.name}/{entry.name}' is not a plain file: replace a link by the file itself"
            )
        found[entry.name] = _file_hashes(entry.folder, entry.last, f"{held.path.name}/{entry.name}")
    if empty := empty_folders(found, folders):
        raise BoundaryError(
            f"'{held.path.name}/{empty[0]}' is a folder without files, whose name no hash counts: remove it"
        )
    return {
        "sha256": sha256_listing({name: both["sha256"] for name, both in found.items()}),
        "md5": md5_listing({name: both["md5"] for name, both in found.items()}),
    }


def _file_hashes(folder: int, name: str, what: str) -> dict[str, str]:
    path, where = (name, folder) if name else (f"/proc/self/fd/{folder}", None)
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (os.O_NOFOLLOW if name else 0)
    try:
        descriptor = os.open(path, flags, dir_fd=where)
    except OSError as error:
        raise BoundaryError(f"'{what}' cannot be read ({error.strerror})") from None
    sha256, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
    with os.fdopen(descriptor, "rb") as file:
        while block := file.read(CHUNK):
            sha256.update(block)
            md5.update(block)
    return {"sha256": sha256.hexdigest(), "md5": md5.hexdigest()}


def stamps(held: Held, *, compiled: bool = True, folders: bool = True) -> dict[str, tuple[int, ...]]:
    """For each file, and each folder, what the kernel changes whenever anyone changes it.

    Args:
        held: what is looked at.
        compiled: with False, without what Python puts beside its source.
        folders: with False, without folders: Python compiles the tool itself while a stage runs.
    """
    if not _is_folder(held.descriptor):
        return {"": _stamp(os.fstat(held.descriptor))}
    found = {"": _stamp(os.fstat(held.descriptor))} if folders else {}
    for entry in entries(held.descriptor, held.path.name):
        beside = not compiled and BYTECODE_FOLDER in entry.name.split("/")
        if not beside and (folders or not stat.S_ISDIR(entry.status.st_mode)):
            found[entry.name] = _stamp(entry.status)
    return found


def size(held: Held) -> int:
    """Bytes on the disk of all that is in a folder of the runner's own."""
    found = entries(held.descriptor, held.path.name, own=True)
    return sum(512 * entry.status.st_blocks for entry in found)


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def text_of(held: Held) -> str:
    """Of a file that is held."""
    with open(f"/proc/self/fd/{held.descriptor}", "rb") as file:
        return file.read(MOST_TEXT).decode(errors="replace")


def read_text(workspace: Path, name: str) -> str | None:
    """Text of a file of the workspace; None where nothing is there.

    Raises:
        BoundaryError: a link, a pipe or a device stands there, or on the way; it is too large, or no text.
    """
    with opened(os.open(workspace, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)) as top:
        try:
            descriptor = kernel.open_beneath(top, name, os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise BoundaryError(_problem(name, error)) from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BoundaryError(f"'{name}' is not a plain file: replace it by the file itself")
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(MOST_TEXT + 1)
    if len(data) > MOST_TEXT:
        raise BoundaryError(f"'{name}' has more than {MOST_TEXT >> 20} MiB: no text here needs as much")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BoundaryError(f"'{name}' is not UTF-8 text: save it as such") from None


@contextmanager
def folder_of(workspace: Path, name: str) -> Iterator[tuple[int, str]]:
    """The folder that `name` stands in, opened without links and made where it is missing; and the last part
    of the name.

    Raises:
        BoundaryError: a link, or a file, stands in the way.
    """
    *parents, last = name.split("/")
    place = os.open(workspace, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parents:
            inner = _enter(place, part, name)
            os.close(place)
            place = inner
        yield place, last
    finally:
        os.close(place)


def check_way(workspace: Path, name: str) -> None:
    """Refuse a link on the way to a file of the workspace that is about to be written by its name, or one in its place.

    Raises:
        BoundaryError: naming it.
    """
    with folder_of(workspace, name) as (folder, last), suppress(FileNotFoundError):
        if stat.S_ISLNK(os.stat(last, dir_fd=folder, follow_symlinks=False).st_mode):
            raise BoundaryError(_problem(name, OSError(errno.ELOOP, "a link")))


def _enter(folder: int, part: str, name: str) -> int:
    try:
        if part in ("", ".", ".."):
            raise OSError(errno.ELOOP, "not a name")
        with suppress(FileExistsError):
            os.mkdir(part, dir_fd=folder)
        return os.open(part, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except OSError as error:
        raise BoundaryError(_problem(name, error)) from None


def write(workspace: Path, name: str, data: bytes, *, mode: int = 0o644) -> None:
    """Write a file of the workspace, all of it or nothing, also after a loss of power, and never through a
    link.
    """
    with folder_of(workspace, name) as (folder, last):
        temporary = f".{last}-{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(temporary, flags, mode, dir_fd=folder), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.rename(temporary, last, src_dir_fd=folder, dst_dir_fd=folder)
            _sync(folder)
        except BaseException:
            _remove_if_there(temporary, folder)
            raise


def _sync(folder: int) -> None:
    """The names of a folder that was opened to walk through it, to the disk."""
    descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_if_there(name: str, folder: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
