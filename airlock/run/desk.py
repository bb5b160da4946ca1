"""What lies open while a stage runs: all that it may read, opened and hashed, and the folders that it writes to."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from airlock.errors import BoundaryError
from airlock.evidence import zones
from airlock.evidence.revisions import Workspace, pipelines
from airlock.params import parse_params
from airlock.run import leftovers, paths
from airlock.run.code import TOOL, of_workspace
from airlock.run.handover import bytecode, memory_folder
from airlock.run.outs import remove
from airlock.run.request import Request
from airlock.wall.grants import Held
from airlock.workspaces import lock


@dataclass(frozen=True)
class Desk:
    """What lies open while a stage runs.

    Attributes:
        held: everything of the workspace that it reads, by name.
        hashes: SHA-256 and MD5 of each, taken before it starts.
        stamps: when each was last changed, as the kernel says, from before that.
        staging: where its outs go.
        scratch: its private TMPDIR.
    """

    held: Mapping[str, Held]
    hashes: Mapping[str, Mapping[str, str]]
    stamps: Mapping[str, Mapping[str, tuple[int, ...]]]
    staging: Path
    scratch: Path

    def changed(self) -> tuple[str, ...]:
        """What is not as it was when it was hashed."""
        return tuple(name for name, one in self.held.items() if _stamps(name, one) != self.stamps[name])


def _stamps(name: str, held: Held) -> dict[str, tuple[int, ...]]:
    tool = name.split("/")[0] == TOOL.name
    return paths.stamps(held, compiled=not zones.is_code(name), folders=not tool)


@contextmanager
def open_desk(asked: Request) -> Iterator[Desk]:
    """Open and hash what the stage may read; staging for the outs and a private TMPDIR, both gone afterwards.

    What a release stage stages is small and goes to tmpfs. A sensitive stage stages ciphertext, as large as
    the data: it goes to AIRLOCK_HOME, so that memory does not grow with the number of records.
    """
    memory, home = memory_folder(), asked.project.folder
    for folder in (memory, home):
        leftovers.sweep_folder(folder)
    names = (*asked.stage.deps, *pipelines(Workspace(asked.workspace)), "params.yaml", *asked.code.stages)
    prefix = f"airlock-{os.getpid()}-"
    with paths.hold(asked.workspace, names) as found:
        held = {name: _trusted(one) for name, one in found.items()}
        _check_unchanged(asked, held["params.yaml"])
        stamped = {name: _stamps(name, one) for name, one in held.items()}
        hashed = {name: paths.hashes(one, compiled=not zones.is_code(name)) for name, one in held.items()}
        if asked.code == of_workspace(asked.workspace):
            lock.check(asked.workspace, asked.stage, hashed)
        staging = Path(tempfile.mkdtemp(prefix=prefix, dir=memory if asked.zone == "release" else home))
        scratch = Path(tempfile.mkdtemp(prefix=prefix, dir=memory))
        try:
            yield Desk(held, hashed, stamped, staging, scratch)
        finally:
            remove(staging)
            remove(scratch)


def _trusted(one: Held) -> Held:
    """The installed tool's own compiled modules may be read: whoever can change those can change the tool.

    Where the tool is not installed but lies in the workspace, nobody's may.
    """
    return replace(one, hidden=()) if one.path.is_relative_to(TOOL) and not bytecode([TOOL]) else one


def _check_unchanged(asked: Request, held: Held) -> None:
    """What was checked is what is held."""
    if parse_params(paths.text_of(held)) != asked.params:
        raise BoundaryError("params.yaml changed while the stage was being started: run it again")
