"""What a receipt says about one run.

Nothing in it depends on a record's value; times are rounded to the minute.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airlock.errors import InputError
from airlock.evidence.zones import RECORDS, is_code
from airlock.inside.digests import md5_path, sha256_path
from airlock.run import git
from airlock.run.code import STAGES, TOOL
from airlock.run.machine import platform_facts
from airlock.wall.layers import LEFT_OPEN, MINIMUM, Layer

if TYPE_CHECKING:
    from airlock.run.request import Request
    from airlock.run.stage import Made
    from airlock.wall.sandbox import Outcome


def describe(made: Made) -> dict[str, Any]:
    """The body of a run's receipt, written after its outs were published.

    Hashes of what was read are from before it started.
    """
    run, before = made.request, made.hashes
    stage, workspace = run.stage, run.workspace
    could = could_read(stage.reads(run.graph), run.layers)
    return {
        "stage": stage.name,
        "zone": run.zone,
        "when": datetime.now(UTC).strftime("%Y-%m-%dT%H:%MZ"),
        "could_read": could,
        "did_read": did_read(made),
        "deps": {dep: dict(before[dep]) for dep in stage.deps},
        "outs": {out: _hashes(workspace, out) for out in stage.outs},
        **({"changed": sorted(made.changed)} if made.changed else {}),
        "raw": dict(made.fingerprints),
        "params": before["params.yaml"]["sha256"],
        "dvc_yaml": before["dvc.yaml"]["sha256"],
        "code": _code(run, before[STAGES]["sha256"]),
        "platform": platform_facts(),
        "enforcement": {
            "asked": run.boundary.enforcement,
            "layers": sorted(run.layers),
            "left_open": {str(layer): LEFT_OPEN[layer] for layer in sorted(set(Layer) - run.layers)},
            **_held_by(made.outcome),
        },
        "passes": 1
        if run.zone == "sensitive"
        else sum(order.plan.passes for order in made.orders if order.pending),
        "releases": [_release(order, workspace) for order in made.orders if order.plan.mechanism != "none"],
        "connection": made.connection.address if made.connection else None,
        "ledger": made.ledger.receipt() if made.ledger else None,
    }


def _held_by(outcome: Outcome | None) -> dict[str, str]:
    """As whom it ran, and what held it to its limits; nothing where no code was run."""
    if outcome is None:
        return {}
    whose = "root" if outcome.user == 0 else "the runner" if outcome.user == os.geteuid() else "its own"
    return {"user": whose, "limits": outcome.limits}


def could_read(labels: frozenset[str], layers: frozenset[Layer]) -> dict[str, bool]:
    """What the wall let the stage read. Below the minimum of layers nothing held it back."""
    held = layers >= MINIMUM
    return {label: label in labels or not held for label in RECORDS}


def did_read(made: Made) -> dict[str, Any]:
    """Whether records were opened: yes, no, or unknown where nothing watched.

    Never "no" without a recorder.
    """
    if made.outcome is None:
        return {"records": "no", "recorder": "no code was run: replayed or not made"}
    reads, recorder = made.outcome.reads, made.outcome.recorder
    if reads is None:
        return {"records": "unknown", "recorder": recorder}
    folder = made.request.workspace / "data/sealed"
    sealed, raw = str(folder), [str(path) for path in made.watched if path != folder]
    opened = {
        "raw": any(_inside(path, raw) for path in reads),
        "sealed": any(_inside(path, [sealed]) for path in reads),
    }
    if any(not _inside(path, [sealed, *raw]) for path in reads):
        opened["keys"] = True  # or the ledger, or the registry
    return {"records": "yes" if any(opened.values()) else "no", "recorder": recorder, **opened}


def _inside(path: str, folders: list[str]) -> bool:
    return any(path == folder or path.startswith(folder + "/") for folder in folders)


def _hashes(workspace: Path, path: str) -> dict[str, str]:
    place, compiled = workspace / path, not is_code(path)
    return {"sha256": sha256_path(place, compiled=compiled), "md5": md5_path(place, compiled=compiled)}


def _code(run: Request, stages: str) -> dict[str, Any]:
    """What ran: the stages of the workspace, and of the tool what is installed, which may differ from what is
    declared.
    """
    declared = [dep for dep in run.stage.deps if dep.split("/")[0] == TOOL.name]
    return {
        "commit": _commit(run.workspace),
        "stages": stages,
        "module": run.code.module_of(run.stage.name, run.stage.module),
        "default": run.code.modules.get(run.stage.name),
        "differs": [dep for dep in declared if not _installed(run.workspace, dep)],
    }


def _installed(workspace: Path, dep: str) -> bool:
    """Whether the installed tool has the same there as the workspace."""
    ours, theirs = workspace / dep, TOOL.parent / dep
    return ours == theirs or (
        theirs.exists() and sha256_path(ours, compiled=False) == sha256_path(theirs, compiled=False)
    )


def _release(order: Any, workspace: Path) -> Mapping[str, Any]:
    claimed = order.plan.claimed
    return {
        "out": order.out,
        "id": order.release_id,
        "mechanism": order.plan.mechanism,
        "manifest": sha256_path(workspace / order.out / "release.json"),
        "passes": order.plan.passes,
        "interactive": order.plan.interactive,
        "replayed": order.status == "committed",
        "proven": order.plan.proven.to_json(),
        "claimed": claimed.to_json() if claimed else None,
    }


def _commit(workspace: Path) -> str:
    try:
        return git.commit_of(workspace, "HEAD")
    except InputError:
        return "none"
