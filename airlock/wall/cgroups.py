"""Control groups: limits on the whole of a stage, however many processes it is, where the machine offers them.

Version 2 where memory and pids are handed down to a folder that this user may write to (systemd does so for
its users), otherwise the two controllers of version 1 where those may be written to. What is on offer is
tried, not guessed: a folder is made, its limits are written, and a process moves in. Elsewhere limits are
those of each process (rlimits).
"""

from __future__ import annotations

import functools
import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from airlock.wall.launch_plan import LaunchLimits

NONE, VERSION_1, VERSION_2 = "rlimits", "cgroup v1", "cgroup v2"
MEMBERS = "cgroup.procs"
_NEEDED = ("memory", "pids")
_NAME = re.compile(r"airlock-(\d+)-[0-9a-f]+")
# Per version: file, limit. Files that a machine may lack (swap) are optional: those with a "?".
_FILES = {
    VERSION_2: {
        "memory.max": "memory",
        "memory.swap.max?": "0",
        "memory.oom.group?": "1",
        "pids.max": "processes",
    },
    VERSION_1: {
        "memory.limit_in_bytes": "memory",
        "memory.memsw.limit_in_bytes?": "memory",
        "memory.swappiness?": "0",
        "pids.max": "processes",
    },
}
_KILLED = {VERSION_2: "memory.events", VERSION_1: "memory.oom_control"}
_TRIAL = LaunchLimits(memory=1 << 30, processes=64, file_size=0)
_PATIENCE = 2.0  # seconds, for the kernel to see that all are gone


@dataclass(frozen=True)
class Group:
    """The folders of one stage: one in version 2, one for each controller in version 1."""

    version: str
    folders: tuple[Path, ...]

    def open_members(self) -> list[int]:
        """Descriptors: whoever writes "0" into each is a member, and all that it starts are."""
        return [os.open(folder / MEMBERS, os.O_WRONLY | os.O_CLOEXEC) for folder in self.folders]

    @property
    def ran_out_of_memory(self) -> bool:
        """Whether the kernel has ended a member because the whole took more than it may."""
        for folder in self.folders:
            with suppress(OSError):
                text = (folder / _KILLED[self.version]).read_text()
                return re.search(r"^oom_kill [1-9]", text, re.MULTILINE) is not None
        return False

    def remove(self) -> None:
        """After the last member has ended."""
        deadline = time.monotonic() + _PATIENCE
        for folder in self.folders:
            while _remains(folder) and time.monotonic() < deadline:
                time.sleep(0.005)


def make(limits: LaunchLimits) -> Group | None:
    """A group with these limits (0 is none) and no member yet; None where there can be none."""
    version, parents = offered()
    if version == NONE:
        return None
    _sweep(parents)
    try:
        return _make(version, parents, limits)
    except OSError:  # it was on offer, and is not any more
        return None


@functools.cache
def offered() -> tuple[str, tuple[Path, ...]]:
    """The version that this process can use, tried; and the folders below which groups are made."""
    with suppress(OSError):
        for version, parents in _candidates():
            if _works(version, parents):
                return version, parents
    return NONE, ()


def _candidates() -> Iterator[tuple[str, tuple[Path, ...]]]:
    """From this process's own groups upwards: in version 2 a group with members hands nothing down."""
    mounts, memberships = _mounts(), _memberships()
    if (unified := mounts.get("")) and "" in memberships:
        for folder in _upwards(*unified, memberships[""]):
            if set(_NEEDED) <= set(_words(folder / "cgroup.subtree_control")):
                yield VERSION_2, (folder,)
    if all(name in mounts and name in memberships for name in _NEEDED):
        own = [next(_upwards(*mounts[name], memberships[name])) for name in _NEEDED]
        yield VERSION_1, tuple(dict.fromkeys(own))


def _mounts() -> dict[str, tuple[Path, str]]:
    """For each controller of version 1, and under "" for version 2: where it is mounted, and what of it."""
    found: dict[str, tuple[Path, str]] = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        _, _, _, root, point, *_ = left.split()
        kind, _, options = right.split()[:3]
        names = {"cgroup2": [""], "cgroup": options.split(",")}.get(kind, [])
        found |= {name: (Path(point), root) for name in names}
    return found


def _memberships() -> dict[str, str]:
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    return {name: path for _, names, path in lines for name in names.split(",")}


def _upwards(point: Path, root: str, own: str) -> Iterator[Path]:
    """Own folder first, then those above it, as far as they are mounted here."""
    below = os.path.relpath(own, root)
    folder = point if below.startswith("..") else Path(os.path.normpath(point / below))
    while folder.is_relative_to(point):
        yield folder
        folder = folder.parent


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def _works(version: str, parents: tuple[Path, ...]) -> bool:
    try:
        group = _make(version, parents, _TRIAL)
    except OSError:
        return False
    try:
        return _can_join(group)
    finally:
        group.remove()


def _can_join(group: Group) -> bool:
    child = os.fork()
    if child == 0:
        try:
            for descriptor in group.open_members():
                os.write(descriptor, b"0")
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def _make(version: str, parents: tuple[Path, ...], limits: LaunchLimits) -> Group:
    name = f"airlock-{os.getpid()}-{secrets.token_hex(4)}"
    group = Group(version, tuple(folder / name for folder in parents))
    asked = {"memory": limits["memory"], "processes": limits["processes"]}
    try:
        for folder in group.folders:
            folder.mkdir()
        for file, limit in _FILES[version].items():
            _write(group, file, limit if limit.isdigit() else str(asked[limit] or ""))
    except OSError:
        group.remove()
        raise
    return group


def _write(group: Group, file: str, value: str) -> None:
    optional, file = file.endswith("?"), file.rstrip("?")
    places = [folder / file for folder in group.folders if (folder / file).exists()]
    if not places and not optional:
        raise FileNotFoundError(file)
    for place in places if value else ():
        try:
            place.write_text(value)
        except OSError:
            if not optional:
                raise


def _remains(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _sweep(parents: tuple[Path, ...]) -> None:
    """Remove the groups of runs that were killed outright."""
    for parent in parents:
        for name in os.listdir(parent):
            if (match := _NAME.fullmatch(name)) and not Path("/proc", match[1]).exists():
                with suppress(OSError):
                    (parent / name).rmdir()
