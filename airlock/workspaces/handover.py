"""`airlock hand-over`: the owner's side. What was released goes to a place that a modeller can read; sealed records
and keys stay.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from airlock.errors import BoundaryError, InputError, KeysError
from airlock.evidence.audit import audit_tree
from airlock.evidence.checker import Evidence
from airlock.evidence.revisions import Commit
from airlock.inside.digests import sha256_path
from airlock.owner.home import project
from airlock.owner.keys import Keyring
from airlock.run import dvc as run
from airlock.workspaces import layout, parcel
from airlock.workspaces.creation import git
from airlock.workspaces.parcel import Note, Store

REMOTE = "released"


def hand_over(workspace: Path, place: str) -> Note:
    """Push what was released at the present commit, and the project's history, to a place.

    Raises:
        InputError: something is not committed, or the place cannot be used.
        KeysError: this is not the owner's machine.
        BoundaryError: the audit of the commit says no.
    """
    home = project(workspace)
    place = parcel.address(place)
    if "://" not in place:
        _check_outside(Path(place), workspace, home.folder.parent)
    if dirty := git(workspace, "status", "--porcelain").splitlines():
        raise InputError(f"commit first what is to be handed over (git status: {dirty[0].strip()})")
    commit, branch = (
        git(workspace, "rev-parse", "HEAD").strip(),
        git(workspace, "branch", "--show-current").strip(),
    )
    if not branch:
        raise InputError("no branch is checked out: run `git switch -c NAME` first, which keeps this commit")
    evidence = Evidence(Commit(workspace, commit))
    keyring = Keyring.load(home)
    if not evidence.policy.owner:
        raise InputError(f"commit {commit[:12]} has no receipts: run `dvc repro` and commit what it made")
    if evidence.policy.owner != keyring.signer.public_key.hex():
        raise KeysError(
            "only the owner hands over: the keys here are not those that receipts/runner.pub names"
        )
    if problems := audit_tree(evidence.tree).problems:
        raise BoundaryError(f"the boundary of commit {commit[:12]} does not hold: {problems[0]}")
    outs = released(evidence)
    if not any(path.startswith("data/released/") for path in outs):
        raise InputError("nothing was released yet: run `dvc repro` and commit")
    dvc(workspace, "remote", "modify", "--local", REMOTE, "url", place)
    dvc(workspace, "push", "--remote", REMOTE, *outs)
    with tempfile.TemporaryDirectory(prefix="airlock-handover-") as temporary:
        history, written = Path(temporary, parcel.HISTORY), Path(temporary, parcel.NOTE)
        git(workspace, "bundle", "create", "-q", str(history), branch)
        note = Note(
            home.id, commit, branch, layout.version(), sha256_path(history), keyring.signer.public_key.hex()
        )
        written.write_bytes(note.signed(keyring.signer))
        store = Store(place, config(workspace))
        store.put(history, parcel.HISTORY)
        store.put(written, parcel.NOTE)
    return note


def released(evidence: Evidence) -> list[str]:
    """The outs of a state that may leave: released or open by their label, and bound for that remote."""
    graph = evidence.graph
    return sorted(
        item["path"]
        for name, locked in evidence.lock.items()
        for item in locked.get("outs", [])
        if graph.label(item["path"]) in ("released", "open")
        and graph.stage(name).remotes.get(item["path"]) == REMOTE
    )


def config(workspace: Path) -> dict[str, Any]:
    """DVC's settings of a workspace, with those that are local to it."""
    from dvc.config import Config  # type: ignore[import-untyped]

    return dict(Config(str(workspace / ".dvc")))


def dvc(workspace: Path, *arguments: str, quiet: bool = True, notes: Path | None = None) -> None:
    """Run DVC.

    Args:
        workspace: where.
        arguments: its own.
        quiet: what it says is kept for the error.
        notes: where it keeps notes about files; in the project's own folder by default.

    Raises:
        InputError: with its last words.
        BoundaryError: the pipeline is not sound.
    """
    done = run.run(workspace, *arguments, quiet=quiet, notes=notes)
    if done.returncode != 0:
        said = (done.stderr or "").strip().splitlines()
        # Below what it could not foresee DVC says where to ask.
        errors = [line for line in said if line.startswith("ERROR: ")] or said
        words = (errors or ["its lines above say why"])[-1].removeprefix("ERROR: ")
        raise InputError(f"`dvc {arguments[0]}` failed: {words}")


def _check_outside(place: Path, workspace: Path, home: Path) -> None:
    for folder, what in ((workspace, "the workspace"), (home, "AIRLOCK_HOME")):
        if place.resolve().is_relative_to(folder.resolve()):
            raise InputError(
                f"{place} lies inside {what}, which a modeller must not need to read: choose another"
            )
