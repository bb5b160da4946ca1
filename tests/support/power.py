"""A file system that loses power: what a process did to a folder, recorded, and every state it may be found in.

The process runs under strace, so SQLite's own journal is in the record as well as everything of Airlock's. A
state is what may be on disk if the power goes after the n-th call: all that was synced, and of the rest
nothing, everything, names without their bytes, torn writes, or any part of it.

What is assumed of a file system: a sync of a file makes its bytes and length lasting, but not its name; a sync
of a folder makes its names lasting; either makes the folders above it lasting.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

CALLS = (
    "openat,creat,write,pwrite64,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat,rmdir,mkdir,"
    "mkdirat,ftruncate,link,linkat,lseek,close"
)
LINE = re.compile(r"(?P<call>\w+)\((?P<arguments>.*)\)\s+= (?P<result>-?\d+)(?:<(?P<path>[^>]*)>)?")
Loss = Literal["everything", "nothing", "bytes", "torn", "some"]
LOSSES: tuple[Loss, ...] = ("everything", "nothing", "bytes", "torn", "some")


@dataclass(frozen=True)
class Step:
    """One call: `kind` is make, write, cut, sync, rename, link, remove or folder."""

    kind: str
    path: str
    other: str = ""
    offset: int = 0
    data: bytes = b""


def record(program: Sequence[str], root: Path, *, cwd: Path, log: Path) -> list[Step]:
    """Run a Python program under strace and tell what it did below `root`, in order."""
    command = [
        "strace", "-qq", "-y", "-xx", "-s", "99999999", "-e", f"trace={CALLS}", "-e", "signal=none",
        "-o", str(log), sys.executable, *program,
    ]  # fmt: skip
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return list(_Reader(root).read(log))


class _Reader:
    """From strace's lines to steps: descriptors have places, and some append."""

    def __init__(self, root: Path) -> None:
        self.root, self.places, self.appends = str(root), dict[int, int](), set[int]()
        self.sizes: dict[str, int] = {}

    def read(self, log: Path) -> Iterator[Step]:
        for line in log.read_text().splitlines():
            found = LINE.match(line)
            if found and int(found["result"]) >= 0:
                yield from self._steps(found)

    def _steps(self, found: re.Match[str]) -> Iterator[Step]:
        call, arguments, result = found["call"], found["arguments"], int(found["result"])
        if call in ("openat", "creat"):
            yield from self._opened(arguments, result, _text(found["path"] or ""))
            return
        strings = [_text(each) for each in re.findall(r'"((?:\\x[0-9a-f]{2})*)"', arguments)]
        number, path = _descriptor(arguments)
        if call == "lseek":
            self.places[number] = result
        elif call == "close":
            self.appends.discard(number)
        elif call in ("write", "pwrite64") and self._inside(path):
            data = _bytes(re.findall(r'"((?:\\x[0-9a-f]{2})*)"', arguments)[0])[:result]
            if call == "pwrite64":
                offset = int(arguments.rpartition(",")[2])
            else:
                offset = self.sizes.get(path, 0) if number in self.appends else self.places.get(number, 0)
                self.places[number] = offset + len(data)
            self.sizes[path] = max(self.sizes.get(path, 0), offset + len(data))
            yield Step("write", path, offset=offset, data=data)
        elif call == "ftruncate" and self._inside(path):
            self.sizes[path] = int(arguments.rpartition(",")[2])
            yield Step("cut", path, offset=self.sizes[path])
        elif call in ("fsync", "fdatasync") and self._inside(path):
            yield Step("sync", path)
        elif call in ("rename", "renameat", "renameat2", "link", "linkat") and self._inside(
            self._named(arguments, strings, 1)
        ):
            before, after = self._named(arguments, strings, 0), self._named(arguments, strings, 1)
            self.sizes[after] = self.sizes.get(before, 0)
            yield Step("rename" if call.startswith("rename") else "link", before, after)
        elif call in ("unlink", "unlinkat", "rmdir") and self._inside(self._named(arguments, strings, 0)):
            self.sizes.pop(self._named(arguments, strings, 0), None)
            yield Step("remove", self._named(arguments, strings, 0))
        elif call in ("mkdir", "mkdirat") and self._inside(self._named(arguments, strings, 0)):
            yield Step("folder", self._named(arguments, strings, 0))

    def _opened(self, arguments: str, number: int, path: str) -> Iterator[Step]:
        self.places[number] = 0
        if "O_APPEND" in arguments:
            self.appends.add(number)
        if not self._inside(path) or not ("O_CREAT" in arguments or "O_TRUNC" in arguments):
            return
        if path not in self.sizes or "O_TRUNC" in arguments:
            yield Step("make" if path not in self.sizes else "cut", path)
            self.sizes[path] = 0

    def _named(self, arguments: str, strings: list[str], place: int) -> str:
        """The absolute path of the n-th name of a call, relative to its own folder's descriptor or not."""
        if len(strings) <= place:
            return ""
        folders = [_text(each) for each in re.findall(r"(?:AT_FDCWD|\d+)<([^>]*)>", arguments)]
        name = strings[place]
        return (
            name
            if name.startswith("/")
            else f"{folders[min(place, len(folders) - 1)]}/{name}"
            if folders
            else name
        )

    def _inside(self, path: str) -> bool:
        return path.startswith(self.root + "/")


def _descriptor(arguments: str) -> tuple[int, str]:
    found = re.match(r"(\d+)<([^>]*)>", arguments)
    return (int(found[1]), _text(found[2])) if found else (-1, "")


def _bytes(escaped: str) -> bytes:
    return bytes.fromhex(escaped.replace("\\x", ""))


def _text(escaped: str) -> str:
    return os.fsdecode(_bytes(escaped)) if escaped.startswith("\\x") else escaped


@dataclass
class _File:
    lasting: bytes = b""
    pending: list[Step] = field(default_factory=list)

    def bytes(self, loss: Loss, chance: random.Random) -> bytes:
        content = bytearray(self.lasting)
        for step in self.pending if loss not in ("everything", "bytes") else []:
            keep = {"nothing": True, "torn": True, "some": chance.random() < 0.5}[loss]
            if not keep:
                continue
            data = step.data[: len(step.data) // 2] if loss == "torn" else step.data
            if step.kind == "cut":
                del content[step.offset :]
                content += bytes(step.offset - len(content))
            else:
                content += bytes(max(0, step.offset - len(content)))
                content[step.offset : step.offset + len(data)] = data
        return bytes(content)


@dataclass(frozen=True)
class _Change:
    """Of names: `path` gets `file` (a folder has None), or goes to `other`, or goes away."""

    path: str
    file: _File | None = None
    other: str = ""
    gone: bool = False

    def apply(self, names: dict[str, _File | None]) -> None:
        if self.other:
            for path in [each for each in names if _within(each, self.path)]:
                names[self.other + path[len(self.path) :]] = names.pop(path)
        elif self.gone:
            names.pop(self.path, None)
        else:
            names[self.path] = self.file

    def moved(self, by: _Change) -> _Change:
        """The same change below a folder that has another name by now."""
        if not by.other or not _within(self.path, by.path):
            return self
        return replace(self, path=by.other + self.path[len(by.path) :])


class Disk:
    """What is on a disk after some steps."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.names: dict[str, _File | None] = {}
        self.lasting: dict[str, _File | None] = {}
        self.changes: list[_Change] = []
        for step in steps:
            self._do(step)

    def _do(self, step: Step) -> None:
        match step.kind:
            case "make":
                self._change(_Change(step.path, _File()))
            case "folder":
                self._change(_Change(step.path))
            case "write" | "cut":
                file = self.names.get(step.path)
                if file is not None:
                    file.pending.append(step)
            case "rename":
                self._change(_Change(step.path, other=step.other))
            case "link":
                self._change(_Change(step.other, self.names[step.path]))
            case "remove":
                self._change(_Change(step.path, gone=True))
            case "sync":
                self._sync(step.path)

    def _change(self, change: _Change) -> None:
        change.apply(self.names)
        self.changes.append(change)

    def _sync(self, path: str) -> None:
        file = self.names.get(path)
        if file is not None:
            file.lasting, file.pending = file.bytes("nothing", random.Random()), []
        above, kept = {str(each) for each in Path(path).parents}, list[_Change]()
        for change in self.changes:
            target = change.other or change.path
            within = file is None and (target == path or str(Path(target).parent) == path)
            if target in above or within:
                change.apply(self.lasting)
                kept = [each.moved(change) for each in kept]
            else:
                kept.append(change)
        self.changes = kept

    def found(self, loss: Loss, chance: random.Random) -> dict[str, bytes | None]:
        """Files and folders (None) after a loss of power."""
        names = dict(self.lasting)
        count = {"everything": 0, "some": chance.randint(0, len(self.changes))}.get(loss, len(self.changes))
        for change in self.changes[:count]:
            change.apply(names)
        return {
            path: None if file is None else file.bytes(loss, chance) for path, file in sorted(names.items())
        }


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")


def write(found: dict[str, bytes | None], root: Path, target: Path) -> None:
    """Make the folder that would be found, at another place."""
    target.mkdir(parents=True)
    for path, content in found.items():
        place = target / Path(path).relative_to(root)
        if content is None:
            place.mkdir(parents=True, exist_ok=True, mode=0o700)
        elif place.parent.is_dir():  # a name in a folder that is not there is not there either
            place.write_bytes(content)
            os.chmod(place, 0o600)
