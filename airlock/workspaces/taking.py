"""`airlock take`: the modeller's side. From a place to a workspace with releases whose signatures were checked.

Nothing of it is run before it is checked: the note's signature, the history's hash, the pipeline's boundary and
every receipt. What then runs is the owner's stages, behind this machine's wall.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from airlock.errors import BoundaryError, InputError
from airlock.evidence import checker, zones
from airlock.evidence.checker import Evidence
from airlock.evidence.revisions import Commit, Workspace, load_graph
from airlock.owner.home import project
from airlock.owner.keys import signer
from airlock.params import load_params
from airlock.run.dvc import keep_notes
from airlock.workspaces import listings, parcel, pipelines
from airlock.workspaces.creation import author, commit, git
from airlock.workspaces.handover import REMOTE, dvc, released
from airlock.workspaces.parcel import Note, Store

TAKEN = "refs/airlock/owner"
CAREFUL = ("-c", "core.symlinks=false", "-c", "transfer.fsckObjects=true")


@dataclass(frozen=True)
class Taken:
    """What is here now; `key` is the modeller's own, which the owner may admit."""

    folder: Path
    note: Note
    key: str


def take(place: str, folder: Path | None, owner: str | None) -> Taken:
    """Bring what was handed over into a new folder, or into one that was taken before.

    Raises:
        InputError: there is nothing, or the folder is taken.
        BoundaryError: something is not what its owner signed; nothing is left behind.
    """
    place = parcel.address(place)
    with tempfile.TemporaryDirectory(prefix="airlock-take-") as temporary:
        store, brought = Store(place), Path(temporary)
        store.get(parcel.NOTE, brought / parcel.NOTE)
        note = parcel.read((brought / parcel.NOTE).read_bytes(), place)
        if owner is not None and owner != note.key:
            raise BoundaryError(f"{place} was handed over by another owner: its key is {note.key}")
        store.get(parcel.HISTORY, brought / parcel.HISTORY)
        parcel.check_history(brought / parcel.HISTORY, note)
        target = (folder or Path(note.project.rpartition("-")[0] or note.project)).absolute()
        if (target / ".git").exists():
            _take_again(target, place, note, brought / parcel.HISTORY)
        else:
            _take_anew(target, place, note, brought / parcel.HISTORY)
    keep_notes(project(target), target)
    return Taken(target, note, signer(project(target)).public_key.hex())


def _take_anew(target: Path, place: str, note: Note, history: Path) -> None:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError(f"{target} is not empty, and was not taken before: give a new folder")
    if not target.parent.is_dir():
        raise InputError(f"there is no folder {target.parent}: make it first")
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as temporary:
        root = Path(temporary) / target.name
        git(target.parent, *CAREFUL, "clone", "-q", "--branch", note.branch, str(history), str(root))
        git(root, "remote", "remove", "origin")
        git(root, "config", "core.symlinks", "false")
        if git(root, "rev-parse", "HEAD").strip() != note.commit:
            raise BoundaryError("the history is not of the commit that the owner signed: ask for it again")
        evidence = _check(root, note)
        _pull(root, place, evidence)
        git(root, "update-ref", TAKEN, note.commit)
        _rearrange(root)
        commit(root, f"Take {note.commit[:12]}: the owner's stages are frozen here")
        if target.exists():
            target.rmdir()
        shutil.move(root, target)


def _take_again(root: Path, place: str, note: Note, history: Path) -> None:
    before = git(root, "rev-parse", "--verify", "-q", TAKEN, fails=True).strip()
    if not before or project(root).id != note.project:
        raise InputError(f"{root} is not a workspace that was taken from this project: give a new folder")
    if Evidence(Workspace(root)).policy.owner != note.key:
        raise BoundaryError(f"{place} was handed over by another owner than before: its key is {note.key}")
    if git(root, "status", "--porcelain").strip():
        raise InputError(f"commit or remove your changes in {root} first (git status)")
    git(root, *CAREFUL, "fetch", "-q", str(history), f"+{note.branch}:{TAKEN}")
    evidence = _check(root, note)
    if before == note.commit:
        _pull(root, place, evidence)
        return
    mine = {name: git(root, "show", f"HEAD:{name}", fails=True) for name in (pipelines.TOP, pipelines.OWNERS)}
    git(root, *author(root), "merge", "-q", "--no-commit", "--no-ff", TAKEN, fails=True)
    try:
        _check_own(root, before, mine)
        for name in pipelines.FILES:
            if _has(root, name):
                git(root, "checkout", TAKEN, "--", name)
            else:  # only the rearrangement made it
                git(root, "rm", "-q", "-f", "--ignore-unmatch", "--", name)
        if left := git(root, "diff", "--name-only", "--diff-filter=U").split():
            raise InputError(
                f"you and the owner have both changed {left[0]}: run `git merge {TAKEN}` and decide"
            )
        zones.check(load_graph(root))
        _pull(root, place, evidence)
        _rearrange(root)
        commit(root, f"Take {note.commit[:12]}")
    except BaseException:
        git(root, "update-ref", TAKEN, before)
        git(root, "reset", "-q", "--hard", "HEAD")
        raise


def _has(root: Path, name: str) -> bool:
    return bool(git(root, "ls-tree", "--name-only", TAKEN, name).strip())


def _check_own(root: Path, before: str, mine: dict[str, str]) -> None:
    """A pipeline that the modeller has edited is not replaced by the owner's next one."""
    texts = {name: git(root, "show", f"{before}:{name}", fails=True) for name in pipelines.FILES}
    texts = {name: text for name, text in texts.items() if text}
    others = {pipelines.OWNERS: texts[pipelines.OWNERS]} if pipelines.OWNERS in texts else {}
    params = git(root, "show", f"{before}:params.yaml")
    graph = zones.parse(texts[pipelines.TOP], params, others)
    expected = pipelines.rearranged(texts, graph, _dataset(params))
    for name, text in mine.items():
        if text != expected.get(name, ""):
            raise InputError(
                f"you have changed {name}, and the owner may have too: run `git merge {TAKEN}` and decide"
            )


def _dataset(params: str) -> str:
    from airlock.evidence import reader

    return str(reader.load(params, "params.yaml")["dataset"])


def _check(root: Path, note: Note) -> Evidence:
    """The boundary, and every signature of the owner's commit, by this machine's own check."""
    evidence = Evidence(Commit(root, note.commit))
    zones.check(evidence.graph)
    if evidence.policy.owner != note.key:
        raise BoundaryError("receipts/runner.pub does not name the key that signed the hand-over")
    for problem in checker.problems(evidence):
        raise BoundaryError(f"what was handed over does not hold: {problem}")
    return evidence


def _check_bytes(root: Path, evidence: Evidence) -> None:
    """What was pulled is what the receipts name."""
    for out, receipt in evidence.makers.items():
        here = Workspace(root).digest(out)
        if here is not None and here != receipt.body["outs"][out]["sha256"]:
            raise BoundaryError(
                f"'{out}' is not what stage '{receipt.stage}' made: ask the owner to hand over again"
            )


def _pull(root: Path, place: str, evidence: Evidence) -> None:
    """Bring what was released, and compare it with the receipts."""
    outs = set(released(evidence))
    items = [item for locked in evidence.lock.values() for item in locked.get("outs", [])]
    listings.bring(
        Store(place),
        listings.cache_of(root),
        [(one["path"], one.get("md5")) for one in items if one["path"] in outs],
    )
    with tempfile.TemporaryDirectory(prefix="airlock-take-") as notes:
        dvc(root, "remote", "modify", "--local", REMOTE, "url", place, notes=Path(notes))
        dvc(root, "pull", "--remote", REMOTE, *sorted(outs), notes=Path(notes))
    _check_bytes(root, evidence)


def _rearrange(root: Path) -> None:
    texts = {name: (root / name).read_text() for name in pipelines.FILES if (root / name).is_file()}
    dataset = load_params(root / "params.yaml").dataset
    for name, text in pipelines.rearranged(texts, load_graph(root), dataset).items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    zones.check(load_graph(root))
