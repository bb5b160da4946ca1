"""`airlock synthesize`: the open room's code on a release, confined like every stage, with one folder to write
to.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from airlock.errors import InputError, StageFailed
from airlock.owner.home import Project
from airlock.params import Params
from airlock.run import limits, paths
from airlock.run.handover import memory_folder
from airlock.run.outs import publish, remove
from airlock.run.questions import ask

MODULE, RELEASE, OUT = "stages.open.synthesize", "data/released/release", "data/open/synthetic"
FILES = {"synthetic.parquet", "synthetic.csv", "synthetic.json"}


def make(params: Params, output: Path, *, workspace: Path, project: Project) -> dict[str, Any]:
    """Synthetic records in the folder `output`; what they say of themselves.

    Raises:
        InputError: there is no release or schema, or the folder holds something else.
        StageFailed: the open room's code ended with an error.
    """
    schema = f"data/schemas/{params.dataset}.yaml"
    if output == Path(OUT):  # what is there may be anyone's; another place is the owner's choice
        paths.check_way(workspace, OUT)
    output = output if output.is_absolute() else workspace / output
    if output.exists() and (not output.is_dir() or not {one.name for one in output.iterdir()} <= FILES):
        raise InputError(f"{output} holds something else than synthetic records: give a new folder")
    staging = Path(tempfile.mkdtemp(prefix=f"airlock-{os.getpid()}-", dir=memory_folder()))
    try:
        ask(
            MODULE,
            {},
            params=params,
            workspace=workspace,
            project=project,
            deps=(RELEASE, schema),
            writes={OUT: staging / output.name},
            zone="open",
        )
        marks = _marks(staging / output.name)
        output.parent.mkdir(parents=True, exist_ok=True)
        publish(staging, [output.name], output.parent, most=limits.of(params.boundary).file_size)
    finally:
        remove(staging)
    return marks


def _marks(folder: Path) -> dict[str, Any]:
    """What the open room's code wrote beside the records, looked at before anything is believed."""
    try:
        if {one.name for one in folder.iterdir()} != FILES or any(
            one.is_symlink() for one in folder.iterdir()
        ):
            raise ValueError
        found = json.loads((folder / "synthetic.json").read_text())
        kinds = {"rows": int, "release": str, "epsilon": float, "delta": float}
        if found["kind"] != "synthetic" or not all(
            isinstance(found[key], kind) for key, kind in kinds.items()
        ):
            raise ValueError
    except (OSError, ValueError, KeyError, TypeError):
        raise StageFailed(f"{MODULE} did not write synthetic records that say what they are") from None
    marks: dict[str, Any] = found
    return marks
