"""A reservation that no run takes over, made after all: that very release, in a workspace of its own.

The workspace may have gone on to other parameters. A copy of what the stage reads gets the parameters and the
releases that it was reserved with, the stage runs there behind the wall like any other, and what it makes goes
to the archive. Nothing in the workspace changes; whoever sets the parameters again has it replayed.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import yaml

from airlock.errors import InputError
from airlock.evidence.revisions import Workspace, load_graph, pipelines
from airlock.inside import manifest
from airlock.owner.home import IDENTITY, Project
from airlock.records import handles
from airlock.run import archive, orders, reservations
from airlock.run.code import of_workspace
from airlock.run.handover import Listener
from airlock.run.outs import remove
from airlock.run.request import request
from airlock.run.reservations import Purpose
from airlock.run.stage import run_stage


def make(
    project: Project, workspace: Path, release_id: str, *, listen: Listener = lambda event: None
) -> None:
    """Make a reserved release with what it was reserved for.

    Raises:
        InputError: records, code or an upstream artifact are not those that it was reserved with.
    """
    purpose = reservations.purpose(project, release_id)
    room = Path(tempfile.mkdtemp(prefix=f"airlock-{os.getpid()}-", dir=project.folder))
    try:
        _furnish(room, workspace, project, purpose)
        asked = request(purpose.stage, workspace=room, home=project)
        facts, _ = orders.read_facts(room)
        priced = orders.price(
            asked.stage, asked.graph, params=asked.params, facts=facts, workspace=room, project=project
        )
        if release_id not in {order.release_id for order in priced}:
            raise InputError(
                f"release {release_id[:12]} cannot be made from here: its records, its code or a model that it "
                "judges have changed since; check out what it was reserved with, or book it as lost with --lost"
            )
        run_stage(purpose.stage, workspace=room, listen=listen)
    finally:
        remove(room)


def _furnish(room: Path, workspace: Path, project: Project, purpose: Purpose) -> None:
    graph = load_graph(workspace)
    wanted = graph.stage(purpose.stage)
    names = (*wanted.deps, *pipelines(Workspace(workspace)), *of_workspace(workspace).stages)
    _bring(room, workspace, (*names, IDENTITY, handles.FOLDER, "data/schemas", "receipts", "data/sealed"))
    with suppress(FileNotFoundError):
        (room / "params.yaml").unlink()
    (room / "params.yaml").write_text(yaml.safe_dump(dict(purpose.params), sort_keys=False))
    facts, _ = orders.read_facts(room)
    for dep in wanted.deps:
        if graph.label(dep) != "released":
            continue
        there = manifest.load(room / dep) if (room / dep).is_dir() else None
        if there and (there.release_id if there.applies else None) == purpose.upstream.get(dep):
            continue
        shutil.rmtree(room / dep, ignore_errors=True)
        if dep in purpose.upstream:
            archive.restore(project.archive, purpose.upstream[dep], room / dep)
        else:
            nothing = manifest.none_plan("off")
            manifest.write(room / dep, plan=nothing, facts=facts, release_id="0" * 64)


def _bring(room: Path, workspace: Path, names: Iterable[str]) -> None:
    # Whole folders first: what is below them is then there.
    for name in sorted(set(names), key=lambda name: name.count("/")):
        source, target = workspace / name, room / name
        if target.exists() or not source.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            compiled = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, target, copy_function=_link, symlinks=True, ignore=compiled)
        else:
            _link(str(source), str(target))


def _link(source: str, target: str) -> None:
    """Sealed records may be large: one more name for them is enough, where that can be had."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)
