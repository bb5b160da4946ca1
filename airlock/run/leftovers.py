"""What killed runs leave behind: known by its name, its owner and whether its process still lives; swept by the
next command of any kind, and listed by `airlock doctor`.

A run that is killed outright cannot clean up: its private TMPDIR and staging, a half copy in the archive, a
half-written file beside the one it was to replace. DVC cannot either: interrupted while it writes down which files it
uses (`.dvc/tmp/rwlock`), it leaves a torn list, and then every `dvc repro` fails until that is gone; killed while it
writes dvc.lock, it leaves that empty or cut. Without the torn file stages run again, and releases are replayed.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from airlock.owner.home import home_folder

MEMORY = Path("/dev/shm")
HOUR = 3600.0
# A run's folders, a half copy of a release, and a file that was to replace another (airlock/files.py).
RUN = re.compile(r"airlock-(?P<process>[0-9]+)-[a-z0-9_]+")
HALF_COPY = re.compile(r"\.[0-9a-f]{64}-(?:(?P<process>[0-9]+)-)?[a-z0-9_]{8}")
HALF_WRITTEN = re.compile(r"\..+-[0-9a-f]{16}")
# Where files are replaced, below a project's folder. Receipts are many: those of the archive are left to the
# stages that write them.
REPLACED_IN = (
    "",
    "keys",
    "keys/old",
    "unfinished",
    "changes",
    "drafts",
    "heads",
    "prefect",
    "reservations",
    "workspaces",
)
# DVC's list of files in use, below a workspace, and what it locks while it reads and writes that list.
DVC_FOLDER, DVC_LIST, DVC_GUARD = ".dvc/tmp", "rwlock", "rwlock.lock"
DVC_LOCK = "dvc.lock"
LONGEST_LIST = 16 << 20


@dataclass(frozen=True)
class Leftover:
    """Something that a run left, or is using.

    Attributes:
        path: where.
        kind: "run", "half copy", "half-written file", "torn list of DVC" or "torn dvc.lock".
        why_kept: why it is not to be swept; empty if it is.
    """

    path: Path
    kind: str
    why_kept: str = ""


def find(home: Path | None = None, workspace: Path | None = None) -> list[Leftover]:
    """Everything of that kind on this machine: in shared memory, in every project of AIRLOCK_HOME, and in this
    workspace.
    """
    return [*_all(home or home_folder()), *_torn_lists(workspace or Path.cwd())]


def sweep(home: Path | None = None, workspace: Path | None = None) -> list[Path]:
    """Remove what belongs to us and to no living process."""
    swept = _remove(one.path for one in _all(home or home_folder()) if not one.why_kept)
    return swept + sweep_workspace(workspace or Path.cwd())


def sweep_workspace(workspace: Path) -> list[Path]:
    """Remove DVC's list of files in use, and dvc.lock, if they are torn and no DVC is at work here."""
    if not any(not one.why_kept for one in _torn_lists(workspace)):
        return []
    folder = workspace / DVC_FOLDER
    with suppress(OSError):
        guard = os.open(folder / DVC_GUARD, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(
                guard, fcntl.LOCK_EX | fcntl.LOCK_NB
            )  # as DVC does while it reads and writes the list
            return _remove(one.path for one in _torn_lists(workspace) if not one.why_kept)
        finally:
            os.close(guard)
    return []


def sweep_folder(folder: Path) -> list[Path]:
    """Remove what killed runs left in one folder: the archive, staging, a private TMPDIR."""
    return _remove(one.path for one in (*_runs(folder), *_half_copies(folder)) if not one.why_kept)


def _all(home: Path) -> Iterator[Leftover]:
    yield from _runs(MEMORY)
    with suppress(OSError):
        for project in sorted(path for path in home.iterdir() if path.is_dir()):
            yield from _runs(project)
            yield from _half_copies(project / "archive")
            for name in REPLACED_IN:
                yield from _half_written(project / name)


def _runs(folder: Path) -> Iterator[Leftover]:
    for path, facts in _named(folder, "airlock-"):
        if found := RUN.fullmatch(path.name):
            yield Leftover(path, "run", _why_kept(facts, found["process"]))


def _half_copies(folder: Path) -> Iterator[Leftover]:
    for path, facts in _named(folder, "."):
        if (found := HALF_COPY.fullmatch(path.name)) and stat.S_ISDIR(facts.st_mode):
            yield Leftover(path, "half copy", _why_kept(facts, found["process"]))


def _half_written(folder: Path) -> Iterator[Leftover]:
    for path, facts in _named(folder, "."):
        if HALF_WRITTEN.fullmatch(path.name) and stat.S_ISREG(facts.st_mode):
            yield Leftover(path, "half-written file", _why_kept(facts, None))


def _torn_lists(workspace: Path) -> Iterator[Leftover]:
    folder = workspace / DVC_FOLDER
    if any(part.is_symlink() for part in (workspace / ".dvc", folder)) or not folder.is_dir():
        return
    yield from _torn(workspace, folder / DVC_LIST, "torn list of DVC", _is_list)
    yield from _torn(workspace, workspace / DVC_LOCK, "torn dvc.lock", _is_lock)


def _torn(workspace: Path, path: Path, kind: str, whole: Callable[[bytes], bool]) -> Iterator[Leftover]:
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            facts = os.fstat(descriptor)
            if not stat.S_ISREG(facts.st_mode) or whole(file.read(LONGEST_LIST)):
                return
        kept = "belongs to another user" if facts.st_uid != os.geteuid() else ""
        yield Leftover(path, kind, kept or ("DVC is running here" if _dvc_in(workspace) else ""))


def _is_lock(content: bytes) -> bool:
    """Whether it was written to its end, which DVC does with a line."""
    return content.endswith(b"\n")


def _is_list(content: bytes) -> bool:
    """Whether DVC can read it."""
    try:
        return isinstance(json.loads(content), dict)
    except ValueError:
        return False


def _dvc_in(workspace: Path) -> bool:
    """Whether a process named dvc has its working folder in the workspace."""
    top = workspace.resolve()
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with suppress(OSError):
                words = (process / "cmdline").read_bytes().split(b"\0")[:6]
                if any(Path(os.fsdecode(word)).name == "dvc" for word in words):
                    here = Path(os.readlink(process / "cwd"))
                    if here.is_relative_to(top):
                        return True
    return False


def _named(folder: Path, beginning: str) -> Iterator[tuple[Path, os.stat_result]]:
    with suppress(OSError), os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if entry.name.startswith(beginning))
        for name in names:
            with suppress(FileNotFoundError):
                yield folder / name, (folder / name).lstat()


def _why_kept(facts: os.stat_result, process: str | None) -> str:
    if facts.st_uid != os.geteuid():
        return "belongs to another user"
    if process is None:
        return "" if time.time() - facts.st_mtime > HOUR else "was written within the hour"
    # Another process may have its number by now: then it waits for that one's end, which harms nobody. To
    # compare when they began would make a run whose clock was set look dead.
    return "its process is running" if Path("/proc", process).exists() else ""


def _remove(paths: Iterable[Path]) -> list[Path]:
    removed = []
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):
                path.unlink()
        if not path.exists():
            removed.append(path)
    return removed
