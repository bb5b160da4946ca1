"""The tool's lock in a workspace that has no copy of the tool: one file a stage, in git, on which it depends.

tool/STAGE.json has the SHA-256 of every file of the installed tool that the stage's code can import. DVC sees a
stage go stale when one of them changes, and no other; the runner refuses to run a stage whose lock is not of the
tool that is installed, so that neither an old nor an edited one passes for it; a receipt signs the lock's hash
with those of the other deps, so an audit tells which code of the tool ran.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from airlock.errors import BoundaryError
from airlock.evidence.zones import Stage
from airlock.inside.digests import sha256_path
from airlock.run.code import STAGES, TOOL
from airlock.workspaces.imports import needed

FOLDER = "tool"
SHIPPED = f"{FOLDER}/shipped.json"


def place(stage: str) -> str:
    """Where a stage's lock stands."""
    return f"{FOLDER}/{stage}.json"


def text(workspace: Path, stage: Stage) -> str:
    """The lock of a stage, from the tool as it is installed and the stage's code as it is declared."""
    found = {name: sha256_path(TOOL.parent / name) for name in needed(_code(workspace, stage))}
    return json.dumps({"stage": stage.name, "files": found}, indent=1, sort_keys=True) + "\n"


def files(text: str) -> dict[str, str]:
    """What a lock says: SHA-256 of the tool's files; nothing where it cannot be read."""
    try:
        return {str(name): str(digest) for name, digest in json.loads(text)["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _code(workspace: Path, stage: Stage) -> Iterator[Path]:
    for dep in stage.deps:
        if dep.split("/")[0] == STAGES:
            found = workspace / dep
            yield from sorted(found.rglob("*.py")) if found.is_dir() else [found]


def applies(workspace: Path, stage: Stage) -> bool:
    """Whether the stage is held to a lock: it declares one, or its workspace has locks and no copy of the
    tool that it could depend on.
    """
    if place(stage.name) in stage.deps:
        return True
    copied = any(dep.split("/")[0] == TOOL.name for dep in stage.deps)
    return (workspace / FOLDER).is_dir() and not copied


def check(workspace: Path, stage: Stage, hashes: Mapping[str, Mapping[str, str]]) -> None:
    """Refuse to run a stage with another tool than its lock says.

    Args:
        workspace: the top folder.
        stage: what is to be run.
        hashes: of its deps, as they are held.

    Raises:
        BoundaryError: the lock is missing, of another version, or was edited.
    """
    if not applies(workspace, stage):
        return
    name = place(stage.name)
    if name not in stage.deps:
        raise BoundaryError(
            f"stage '{stage.name}' does not say which tool it ran with: run `airlock upgrade`, and add "
            f"{name} to its deps in dvc.yaml"
        )
    if hashes[name]["sha256"] != hashlib.sha256(text(workspace, stage).encode()).hexdigest():
        raise BoundaryError(
            f"{name} is not of the Airlock that is installed, or of other stages than these: `airlock upgrade` "
            "writes it anew and shows what becomes stale"
        )
