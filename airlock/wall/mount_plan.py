"""From grants to the launcher's plan: real paths, mounts, links and Landlock rules, all checked to exist
before anything starts.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from airlock.errors import BoundaryError
from airlock.wall import kernel, landlock, seccomp
from airlock.wall.grants import Grants, Held, cover
from airlock.wall.launch_plan import NOWHERE, Mount, Rule
from airlock.wall.layers import Layer
from airlock.wall.namespaces import NO_DEVICES, READ_ONLY, SHARED_MEMORY

_DEVICES = {
    "/dev/null": landlock.READ_FILE | landlock.WRITE_FILE,
    "/dev/zero": landlock.READ_FILE,
    "/dev/urandom": landlock.READ_FILE,
}
_DEVICES["/dev/random"] = landlock.READ_FILE
# All that may be read in /proc: of the machine these, of processes what `kernel.OWN_PROC` has, and only of
# the stage's own. Never a list of mounts, which names the folders of the machine that they are from.
_PROC = (
    "/proc/cpuinfo",
    "/proc/filesystems",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/sys/kernel/cap_last_cap",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/vm/overcommit_memory",
    "/proc/uptime",
    "/proc/version",
)
_NVIDIA = ("/proc/devices", "/proc/driver/nvidia", "/proc/driver/nvidia-uvm", "/proc/modules")
_MOST_LINKS = 40


@dataclass(frozen=True)
class Blueprint:
    """Resolved grants, as plain values that the launcher carries out in order.

    Attributes:
        mounts: parents before children.
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
        BoundaryError: naming the first granted path that does not exist. A missing path never just drops a
            rule.
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
    shown = {*real.read, *real.execute}
    hidden = [str(path) for path in sorted(real.hidden) if shown.intersection(path.parents)]
    hidden += [f"{one.inside(new_root=True)}/{name}" for one in grants.held for name in one.hidden]
    return Blueprint(
        mounts=tuple(_mounts(real, new_root=new_root)),
        links=tuple(links.items()),
        hidden=tuple(dict.fromkeys(hidden)),
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
            f"'{path}' is granted to the stage but does not "
            "exist: declare it correctly in dvc.yaml or run `dvc repro`"
        )
    return path


def _tops(paths: Iterable[Path]) -> list[Path]:
    """Those that no other one holds already."""
    known = set(paths)
    return [path for path in sorted(known) if not known.intersection(path.parents)]


def _mounts(grants: Grants, *, new_root: bool) -> list[Mount]:
    """Parents before children; what a granted parent already shows is not mounted again, but for what is
    held.
    """
    found = [_mount(path, READ_ONLY | NO_DEVICES) for path in _tops((*grants.read, *grants.execute))]
    found += [_mount(path, NO_DEVICES) for path in grants.write]
    found += [_mount(path, 0) for path in grants.devices]
    found += [_mount_held(one, READ_ONLY | NO_DEVICES, new_root=new_root) for one in grants.held]
    found += [_mount_held(one, NO_DEVICES, new_root=new_root) for one in grants.held_write]
    # The last word on a place is that of who holds it: sorted is stable, and held ones come last.
    return list({mount["place"]: mount for mount in sorted(found, key=lambda mount: mount["place"])}.values())


def _mount(path: Path, attributes: int) -> Mount:
    return Mount(
        source=str(path), place=str(path), folder=path.is_dir(), attributes=attributes, descriptor=NOWHERE
    )


def _mount_held(one: Held, attributes: int, *, new_root: bool) -> Mount:
    return Mount(
        source=str(one.path),
        place=str(one.inside(new_root=new_root)),
        folder=_is_folder(one),
        attributes=attributes,
        descriptor=one.descriptor,
    )


def _is_folder(one: Held) -> bool:
    return stat.S_ISDIR(os.fstat(one.descriptor).st_mode)


def _rules(grants: Grants, layers: frozenset[Layer], *, scratch: Path, cwd: Path) -> list[Rule]:
    # In a new root an empty folder lies over each hidden one; only without it must the rules leave them out
    # one by one.
    new_root = Layer.ROOT in layers
    hidden = [] if new_root else [str(path) for path in grants.hidden]
    rules = [*_below(grants.read, hidden, landlock.READ), *_below(grants.execute, hidden, landlock.RUN)]
    rules += [
        (str(path), landlock.SCRATCH if path == scratch else landlock.WRITE, NOWHERE) for path in grants.write
    ]
    rules += [
        (str(path), landlock.on_file(_DEVICES.get(str(path), landlock.DEVICE)), NOWHERE)
        for path in grants.devices
    ]
    for one in grants.held:
        rules += _below_held(one, () if new_root else one.hidden)
    rules += [("", landlock.WRITE, one.descriptor) for one in grants.held_write]
    return rules + _places(grants, layers, hidden, cwd)


def _below(paths: Iterable[Path], hidden: Sequence[str], access: int) -> list[Rule]:
    shown = (entry for path in _tops(paths) for entry in cover(str(path), hidden))
    return [(path, access if folder else landlock.on_file(access), NOWHERE) for path, folder in shown]


def _below_held(one: Held, hidden: Sequence[str]) -> list[Rule]:
    """By names relative to the descriptor: what they lead to is looked up from there, without links."""
    if not hidden:
        access = landlock.READ if _is_folder(one) else landlock.on_file(landlock.READ)
        return [("", access, one.descriptor)]
    top = str(one.path)
    shown = cover(top, [f"{top}/{name}" for name in hidden])
    rules = [
        (
            os.path.relpath(path, top),
            landlock.READ if folder else landlock.on_file(landlock.READ),
            one.descriptor,
        )
        for path, folder in shown
    ]
    listed = {"", *(parent for name in hidden for parent in _parents(name))}
    return rules + [(name, landlock.READ_DIR, one.descriptor) for name in sorted(listed)]


def _parents(name: str) -> list[str]:
    parts = name.split("/")[:-1]
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]


def _places(grants: Grants, layers: frozenset[Layer], hidden: Sequence[str], cwd: Path) -> list[Rule]:
    """Rules that depend on whose /proc, /dev/shm and root the stage sees."""
    rules = [(path, landlock.READ_FILE, NOWHERE) for path in _PROC if os.path.exists(path)]
    rules += [(f"/proc/self/{name}", landlock.READ_FILE, NOWHERE) for name in kernel.OWN_PROC]
    if len(grants.devices) > len(_DEVICES):
        rules += [
            (path, landlock.READ if os.path.isdir(path) else landlock.READ_FILE, NOWHERE)
            for path in _NVIDIA
            if os.path.exists(path)
        ]
        # CUDA names its threads.
        rules.append(("/proc/self/task", landlock.WRITE_FILE | landlock.TRUNCATE, NOWHERE))
        rules.append(("/proc/self/comm", landlock.on_file(landlock.WRITE_FILE | landlock.TRUNCATE), NOWHERE))
    # Names of processes and of what they have open; without a pid namespace only the stage's own.
    rules.append(("/proc" if Layer.NAMESPACES in layers else "/proc/self", landlock.READ_DIR, NOWHERE))
    if Layer.ROOT in layers:
        # The root holds only grants.
        return [*rules, (SHARED_MEMORY, landlock.WRITE, NOWHERE), ("/", landlock.READ_DIR, NOWHERE)]
    # Python lists the folders that it imports from. Names alone can be found out without a new root anyway.
    partly = [
        path
        for path in _tops((*grants.read, *grants.execute))
        if any(below.startswith(f"{path}/") for below in hidden)
    ]
    return [*rules, *((str(path), landlock.READ_DIR, NOWHERE) for path in (cwd, *partly))]
