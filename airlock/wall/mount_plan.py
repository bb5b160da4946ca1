"""From grants to the launcher's plan: real paths, mounts, links and Landlock rules, all checked to exist before anything starts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from airlock.errors import BoundaryError
from airlock.wall import landlock, seccomp
from airlock.wall.grants import Grants, cover
from airlock.wall.layers import Layer
from airlock.wall.namespaces import NO_DEVICES, READ_ONLY, SHARED_MEMORY

Rule = tuple[str, int]
Mount = tuple[str, bool, int]

_DEVICES = {
    "/dev/null": landlock.READ_FILE | landlock.WRITE_FILE,
    "/dev/zero": landlock.READ_FILE,
    "/dev/urandom": landlock.READ_FILE,
}
_DEVICES["/dev/random"] = landlock.READ_FILE
# Without a pid namespace the machine's /proc tells about all its processes: only these, and the stage's own folder.
_PROC = (
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/filesystems",
    "/proc/sys/vm/overcommit_memory",
)
_NVIDIA = ("/proc/driver/nvidia", "/proc/driver/nvidia-uvm")
_MOST_LINKS = 40


@dataclass(frozen=True)
class Blueprint:
    """Resolved grants, as plain values that the launcher carries out in order.

    Attributes:
        mounts: path, whether it is a folder, mount attributes; parents before children.
        links: symbolic links that lead to granted paths, with their targets.
        hidden: folders to cover with an empty one.
        rules: Landlock rules.
        filter: seccomp program.
    """

    mounts: tuple[Mount, ...]
    links: tuple[tuple[str, str], ...]
    hidden: tuple[str, ...]
    rules: tuple[Rule, ...]
    filter: bytes


def draw(
    grants: Grants, layers: frozenset[Layer], *, scratch: Path, cwd: Path, architecture: str
) -> Blueprint:
    """Resolve everything.

    Raises:
        BoundaryError: naming the first granted path that does not exist. A missing path never just drops a rule.
    """
    links: dict[str, str] = {}
    real = replace(
        grants,
        read=_resolve(grants.read, links),
        execute=_resolve(grants.execute, links),
        write=_resolve((*grants.write, scratch), links),
        hidden=_resolve(grants.hidden, {}),
        devices=_resolve((*map(Path, _DEVICES), *grants.devices), links),
    )
    new_root = Layer.ROOT in layers
    return Blueprint(
        mounts=tuple(_mounts(real)),
        links=tuple(links.items()),
        hidden=tuple(
            str(path)
            for path in sorted(real.hidden)
            if {*real.read, *real.execute}.intersection(path.parents)
        ),
        rules=tuple(_rules(real, layers, scratch=scratch.resolve(), cwd=cwd.resolve())),
        filter=seccomp.build(architecture, new_root=new_root) if Layer.SECCOMP in layers else b"",
    )


def _resolve(paths: Iterable[Path], links: dict[str, str]) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(_follow(path, links) for path in paths))


def _follow(path: Path, links: dict[str, str]) -> Path:
    """The real path; the links on the way are noted, to be made again in the new root."""
    for _ in range(_MOST_LINKS):
        link = next((part for part in (*reversed(path.parents), path) if part.is_symlink()), None)
        if link is None:
            break
        links[str(link)] = os.readlink(link)
        path = Path(os.path.normpath(link.parent / links[str(link)] / path.relative_to(link)))
    if not path.is_absolute() or not path.exists():
        raise BoundaryError(
            f"'{path}' is granted to the stage but does not exist: declare it correctly in dvc.yaml or run `dvc repro`"
        )
    return path


def _tops(paths: Iterable[Path]) -> list[Path]:
    """Those that no other one holds already."""
    known = set(paths)
    return [path for path in sorted(known) if not known.intersection(path.parents)]


def _mounts(grants: Grants) -> list[Mount]:
    """Parents before children; what a granted parent already shows is not mounted again."""
    found = [(path, READ_ONLY | NO_DEVICES) for path in _tops((*grants.read, *grants.execute))]
    found += [(path, NO_DEVICES) for path in grants.write]
    found += [(path, 0) for path in grants.devices]
    return [(str(path), path.is_dir(), attributes) for path, attributes in sorted(found)]


def _rules(grants: Grants, layers: frozenset[Layer], *, scratch: Path, cwd: Path) -> list[Rule]:
    # In a new root an empty folder lies over each hidden one; only without it must the rules leave them out one by one.
    hidden = [] if Layer.ROOT in layers else [str(path) for path in grants.hidden]
    rules = [*_below(grants.read, hidden, landlock.READ), *_below(grants.execute, hidden, landlock.RUN)]
    rules += [(str(path), landlock.SCRATCH if path == scratch else landlock.WRITE) for path in grants.write]
    rules += [
        (str(path), landlock.on_file(_DEVICES.get(str(path), landlock.DEVICE))) for path in grants.devices
    ]
    return rules + _places(grants, layers, hidden, cwd)


def _below(paths: Iterable[Path], hidden: Sequence[str], access: int) -> list[Rule]:
    shown = (entry for path in _tops(paths) for entry in cover(str(path), hidden))
    return [(path, access if folder else landlock.on_file(access)) for path, folder in shown]


def _places(grants: Grants, layers: frozenset[Layer], hidden: Sequence[str], cwd: Path) -> list[Rule]:
    """Rules that depend on whose /proc, /dev/shm and root the stage sees."""
    cuda_names_threads = landlock.WRITE_FILE | landlock.TRUNCATE if len(grants.devices) > len(_DEVICES) else 0
    if Layer.NAMESPACES in layers:
        rules = [("/proc", landlock.READ | cuda_names_threads)]
    else:
        rules = [(path, landlock.READ_FILE) for path in _PROC if os.path.exists(path)]
        rules += [(path, landlock.READ) for path in _NVIDIA if os.path.isdir(path)]
        rules.append(("/proc/self", landlock.READ | cuda_names_threads))
    if Layer.ROOT in layers:
        return [
            *rules,
            (SHARED_MEMORY, landlock.WRITE),
            ("/", landlock.READ_DIR),
        ]  # the root holds only grants
    # Python lists the folders that it imports from. Names alone can be found out without a new root anyway.
    partly = [
        path
        for path in _tops((*grants.read, *grants.execute))
        if any(below.startswith(f"{path}/") for below in hidden)
    ]
    return [*rules, *((str(path), landlock.READ_DIR) for path in (cwd, *partly))]
