"""`airlock upgrade`: a workspace follows the installed tool, and says what that makes stale.

A file that nobody has edited since it was shipped is replaced; an edited one is kept and named. Every stage's lock
is written anew, so DVC finds stale exactly the stages whose code changed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from airlock.errors import BoundaryError, InputError
from airlock.evidence import zones
from airlock.evidence.revisions import load_graph
from airlock.files import parse_json, read_plain
from airlock.run.code import STAGES
from airlock.run.paths import read_text, write
from airlock.workspaces import layout, lock
from airlock.workspaces.creation import note


@dataclass(frozen=True)
class Upgrade:
    """What follows from the installed tool.

    Attributes:
        before, after: versions.
        replaced, added, removed: stages and pipelines as shipped.
        kept: edited here, so left alone although another version was shipped.
        reasons: for each stage that becomes stale by itself, the first file that changed.
        stale: those and everything that is made from their outs.
    """

    before: str
    after: str
    replaced: tuple[str, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    kept: tuple[str, ...]
    reasons: Mapping[str, str]
    stale: tuple[str, ...]

    @property
    def changes(self) -> bool:
        """Whether anything is to be done."""
        return bool(self.replaced or self.added or self.removed or self.reasons or self.before != self.after)


def upgrade(workspace: Path, *, only_check: bool = False) -> Upgrade:
    """Bring a workspace up to the installed tool, or only say what would happen.

    Raises:
        InputError: it was not made by `airlock new`.
    """
    version, known = _known(workspace)
    shipped = layout.followed()
    fates = {path: _fate(workspace, path, shipped, known) for path in {*shipped, *known}}
    by_fate = {
        fate: tuple(sorted(path for path, one in fates.items() if one == fate))
        for fate in ("replace", "add", "remove", "keep")
    }
    before = _state(workspace)
    backup = {path: _bytes(workspace, path) or b"" for path in (*by_fate["replace"], *by_fate["remove"])}
    try:
        for path in (*by_fate["replace"], *by_fate["add"]):
            write(workspace, path, shipped[path])
        for path in by_fate["remove"]:
            (workspace / path).unlink()
        graph, locks = load_graph(workspace), layout.locks(workspace)
    except BaseException:
        _undo(workspace, backup, by_fate["add"])
        raise
    touched = {*by_fate["replace"], *by_fate["add"], *by_fate["remove"]}
    reasons = {stage.name: why for stage in graph if (why := _reason(stage, before, locks, touched))}
    if only_check:
        _undo(workspace, backup, by_fate["add"])
    else:
        for path, data in locks.items():
            write(workspace, path, data)
        write(workspace, lock.SHIPPED, note(shipped))
    return Upgrade(
        before=version,
        after=layout.version(),
        replaced=by_fate["replace"],
        added=by_fate["add"],
        removed=by_fate["remove"],
        kept=by_fate["keep"],
        reasons=reasons,
        stale=tuple(downstream(graph, set(reasons))),
    )


def _known(workspace: Path) -> tuple[str, dict[str, str]]:
    """The version that the workspace was made or last upgraded with, and what was shipped then."""
    try:
        document = parse_json(read_plain(workspace / lock.SHIPPED))
        files = {str(path): str(digest) for path, digest in document["files"].items()}
        return str(document["airlock"]), {path: one for path, one in files.items() if _is_shipped(path)}
    except FileNotFoundError:
        raise InputError(
            f"there is no {lock.SHIPPED} here: this is no workspace of `airlock new`; run from its top folder "
            "(a clone of the product is upgraded by `git pull`)"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"{lock.SHIPPED} is damaged: restore it from git") from None


def _is_shipped(path: str) -> bool:
    """Whether a file of such a name can have been shipped: the note stands in git, and what it names is removed where
    nothing of the kind is shipped any more.
    """
    parts = path.split("/")
    plain = all(part not in ("", ".", "..") for part in parts)
    return plain and (path in (*layout.PIPELINES, layout.ENCODERS) or (parts[0] == STAGES and len(parts) > 1))


def _fate(workspace: Path, path: str, shipped: Mapping[str, bytes], known: Mapping[str, str]) -> str:
    mine = _bytes(workspace, path)
    untouched = mine is not None and hashlib.sha256(mine).hexdigest() == known.get(path)
    if path not in shipped:
        return "remove" if untouched else "none"
    if mine == shipped[path]:
        return "none"
    if mine is None:
        return "keep" if path in known or os.path.lexists(workspace / path) else "add"
    return "replace" if untouched else "keep"


def _bytes(workspace: Path, path: str) -> bytes | None:
    """Of a plain file; None where there is none, or something else, or it lies behind a link."""
    try:
        text = read_text(workspace, path)
    except BoundaryError:
        return None
    return None if text is None else text.encode()


def _undo(workspace: Path, backup: Mapping[str, bytes], added: tuple[str, ...]) -> None:
    for path, data in backup.items():
        write(workspace, path, data)
    for path in added:
        (workspace / path).unlink(missing_ok=True)


def _state(workspace: Path) -> dict[str, Mapping[str, str]]:
    """What each lock says now; nothing where it cannot be read."""
    found = sorted(f"{lock.FOLDER}/{file.name}" for file in (workspace / lock.FOLDER).glob("*.json"))
    return {path: lock.files((_bytes(workspace, path) or b"").decode()) for path in found}


def _reason(
    stage: zones.Stage,
    before: Mapping[str, Mapping[str, str]],
    locks: Mapping[str, bytes],
    touched: set[str],
) -> str:
    """The first file that changed behind a stage, or nothing."""
    place = lock.place(stage.name)
    old, new = before.get(place, {}), json.loads(locks[place])["files"]
    changed = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    changed += sorted(
        path for path in touched for dep in stage.deps if path == dep or path.startswith(f"{dep}/")
    )
    return f"{changed[0]} and {len(changed) - 1} more" if len(changed) > 1 else "".join(changed)


def downstream(graph: zones.Graph, names: set[str]) -> Iterator[str]:
    """These stages and all that use what they make, in the order of dvc.yaml."""
    found, before = set(names), set[str]()
    while found != before:
        before = set(found)
        outs = [out for name in found for out in graph.stage(name).outs]
        found |= {
            stage.name for stage in graph for dep in stage.deps for out in outs if zones.overlaps(out, dep)
        }
    yield from (stage.name for stage in graph if stage.name in found)
