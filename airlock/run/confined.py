"""A stage's code behind the wall: what it is given to see and to write there, and what is watched meanwhile."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airlock.errors import BoundaryError, DiskFull
from airlock.owner import registry
from airlock.owner.home import Project, canary
from airlock.run import paths
from airlock.run.desk import Desk
from airlock.run.handover import Visit, confine
from airlock.run.outs import remove
from airlock.run.request import Request
from airlock.wall.disks import RESERVE_BYTES
from airlock.wall.grants import Held
from airlock.wall.sandbox import Outcome

if TYPE_CHECKING:
    from airlock.run.dask_broker import DaskCluster

_OUTS, _CHECKPOINT, _RAW, _HORIZON = (
    "/.airlock/outs",
    "/.airlock/checkpoint",
    "/.airlock/raw",
    "/.airlock/horizon",
)
"""What these folders are called in a new root, where their own names would tell about the machine."""


def confined(
    asked: Request,
    desk: Desk,
    *,
    raw: Mapping[str, Path] | None = None,
    progress: str = "",
    keys: Mapping[str, bytes] | None = None,
    facts: Mapping[str, Any] | None = None,
    connection: DaskCluster | None = None,
    memory: Path | None = None,
) -> Outcome:
    """Run the stage's code behind the wall: it sees what is held, the raw files if it is given any, and its
    own folders; a night also the folder with the memory of its horizon.
    """
    for out in asked.stage.outs:
        (desk.staging / out).parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        reads = {**_shown(asked, desk), **_hold_raw(raw or {}, stack)}
        staging = stack.enter_context(paths.hold_folder(desk.staging, _OUTS))
        inside = {name: one.inside(new_root=asked.new_root) for name, one in reads.items()}
        inside |= {out: staging.inside(new_root=asked.new_root) / out for out in asked.stage.outs}
        writes, kept = [staging], checkpoint(asked, progress)
        if kept:
            writes.append(stack.enter_context(paths.hold_folder(kept, _CHECKPOINT)))
            inside["checkpoint"] = writes[-1].inside(new_root=asked.new_root)
        if memory:
            writes.append(stack.enter_context(paths.hold_folder(memory, _HORIZON)))
            inside["horizon"] = writes[-1].inside(new_root=asked.new_root)
        visit = Visit(
            stage=asked.stage.name,
            zone=asked.zone,
            module=asked.code.module_of(asked.stage.name, asked.stage.module),
            code=asked.code,
            params=asked.params,
            paths=inside,
            reads=tuple(reads.values()),
            writes=tuple(writes),
            scratch=desk.scratch,
            limits=asked.limits,
            watch=watched(asked, tuple((raw or {}).values())),
            guarded=guarded(asked.project),
            facts=facts or {},
            keys=keys or {},
            connection=connection,
            insist=asked.boundary.enforcement == "strict",
        )
        try:
            outcome = confine(
                visit,
                project=asked.project,
                workspace=asked.workspace,
                layers=asked.layers,
                canary=canary(asked.project),
                listen=asked.listen,
            )
        except DiskFull:
            if kept and _is_large(writes[-1]):
                remove(kept)
            raise
    if kept:
        remove(kept)
    return outcome


def _shown(asked: Request, desk: Desk) -> dict[str, Held]:
    """What is held, but for code that the stage does not declare."""
    besides = set(asked.code.stages) - set(asked.stage.deps) if asked.code.declared else set()
    return {name: one for name, one in desk.held.items() if name not in besides}


def _is_large(held: Held) -> bool:
    """Whether a checkpoint takes more of the disk, or is deeper, than any honest one."""
    try:
        return paths.size(held) > RESERVE_BYTES
    except BoundaryError:
        return True


def _hold_raw(raw: Mapping[str, Path], stack: ExitStack) -> dict[str, Held]:
    """The name stays: it tells the format."""
    return {
        f"raw:{role}": stack.enter_context(paths.hold_file(path, f"{_RAW}/{role}/{path.name}"))
        for role, path in raw.items()
    }


def checkpoint(asked: Request, progress: str = "") -> Path | None:
    """A folder that outlives a killed run, for stages that can go on where they stopped; gone after one that
    ends well.

    It lies in AIRLOCK_HOME, by workspace, room and what is being made: another clone is at another point of
    another release, and no open stage can be called like a release, whose sums without noise lie here.
    """
    if asked.zone == "sensitive":
        return None
    clone = hashlib.sha256(os.fsencode(asked.workspace)).hexdigest()[:16]
    made = hashlib.sha256(progress.encode()).hexdigest()[:32] if progress else asked.stage.name
    folder = asked.project.checkpoints / clone / asked.zone / made
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def watched(asked: Request, raw: tuple[Path, ...] = ()) -> tuple[Path, ...]:
    """Where records are: the recorder tells whether any of it was opened."""
    places = [
        *registry.raw_paths(asked.project),
        *raw,
        asked.workspace / "data/raw",
        asked.workspace / "data/sealed",
    ]
    return tuple(path for path in dict.fromkeys(places) if path.exists())


def guarded(home: Project) -> tuple[Path, ...]:
    """Keys and ledgers: no stage has any business there."""
    places = (home.keys, home.registry, *(home.folder / name for name in ("ledger.db", "scratch.db")))
    return tuple(path for path in places if path.exists())
