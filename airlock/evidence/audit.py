"""`airlock audit`: for a commit or the workspace, which stages could read records, which did, and what was released.

It believes three things: dvc.yaml (what was declared), dvc.lock (what DVC says was made) and signed receipts (what the
runner saw). Where they disagree the boundary does not hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from airlock.evidence import receipts, zones
from airlock.evidence.receipts import Receipt
from airlock.evidence.revisions import Tree, Workspace, graph_of, pipelines, tree_of, unfollowed
from airlock.wall.layers import MINIMUM


@dataclass(frozen=True)
class Row:
    """One stage's answer."""

    name: str
    zone: str
    could_read_raw: bool
    could_read_sealed: bool
    did_read_records: str  # yes | no | unknown | not run
    passes: int
    enforcement: list[str]
    releases: list[Mapping[str, Any]]
    when: str = ""


@dataclass(frozen=True)
class Audit:
    """The whole answer. The boundary holds when there is no problem."""

    source: str
    stages: tuple[Row, ...]
    problems: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return not self.problems


def audit(workspace: Path, rev: str | None = None) -> Audit:
    """Audit the workspace, or the commit `rev`."""
    return audit_tree(tree_of(workspace, rev))


def audit_tree(tree: Tree) -> Audit:
    """Audit any source of files (workspace, commit, bundle)."""
    signed = receipts_of(tree)
    graph = graph_of(tree)
    problems = zones.problems(graph)
    problems += unfollowed(tree)
    problems += [f"receipt {receipt.path} {receipt.problem}" for receipt in signed if receipt.problem]
    lock = lock_of(tree)
    rows = []
    for stage in graph:
        witnesses = matching(stage.name, lock.get(stage.name), signed)
        rows.append(_row(stage, graph, witnesses))
        problems += _problems_of(stage, lock.get(stage.name), witnesses)
    return Audit(tree.name, tuple(rows), tuple(problems))


def collect(workspace: Path, archive: Path) -> list[Path]:
    """Bring home the receipts of queued experiments that dvc.lock now speaks of."""
    lock = lock_of(Workspace(workspace))
    return receipts.collect(
        workspace, archive, lambda receipt: bool(matching(receipt.stage, lock.get(receipt.stage), [receipt]))
    )


def receipts_of(tree: Tree) -> list[Receipt]:
    """All receipts of a tree, believable or not."""
    files = [path for path in tree.files(receipts.FOLDER) if path.endswith(".json")]
    return receipts.read([(path, tree.text(path) or "") for path in files], tree.text(receipts.PINNED) or "")


def lock_of(tree: Tree) -> Mapping[str, Mapping[str, Any]]:
    """What every dvc.lock says was made, by stage."""
    stages: dict[str, Mapping[str, Any]] = {}
    for path in pipelines(tree):
        text = tree.text(path.removesuffix("yaml") + "lock")
        stages |= (yaml.safe_load(text) or {}).get("stages", {}) if text else {}
    return stages


def matching(stage: str, locked: Mapping[str, Any] | None, signed: list[Receipt]) -> list[Receipt]:
    """Believable receipts with the very hashes that dvc.lock names; a run-cache restore has an older one."""
    if locked is None:
        return []
    wanted = {
        section: {item["path"]: item.get("md5") for item in locked.get(section, [])}
        for section in ("deps", "outs")
    }
    return [
        receipt
        for receipt in signed
        if not receipt.problem
        and receipt.stage == stage
        and all(
            {path: hashes["md5"] for path, hashes in receipt.body[section].items()} == wanted[section]
            for section in wanted
        )
    ]


def _row(stage: zones.Stage, graph: zones.Graph, matching: list[Receipt]) -> Row:
    labels = stage.reads(graph)
    bodies = [receipt.body for receipt in matching]
    answers = {body["did_read"]["records"] for body in bodies}
    latest = max(bodies, key=lambda body: str(body["when"]), default=None)
    releases = list(latest["releases"]) if latest else []
    return Row(
        name=stage.name,
        zone=stage.zone or "none",
        could_read_raw="raw" in labels or any(body["could_read"]["raw"] for body in bodies),
        could_read_sealed="sealed" in labels or any(body["could_read"]["sealed"] for body in bodies),
        did_read_records=next(
            (answer for answer in ("yes", "unknown", "no") if answer in answers), "not run"
        ),
        passes=sum(release["passes"] for release in releases)
        or (1 if stage.zone == "sensitive" and latest else 0),
        enforcement=list(latest["enforcement"]["layers"]) if latest else [],
        releases=releases,
        when=str(latest["when"]) if latest else "",
    )


def _problems_of(
    stage: zones.Stage, locked: Mapping[str, Any] | None, matching: list[Receipt]
) -> Iterator[str]:
    if locked is None:
        return
    if not matching:
        yield (
            f"stage '{stage.name}': no signed receipt has the hashes in dvc.lock: it was made outside the runner "
            f"(dvc commit, an edited dvc.lock or another command); run `dvc repro -f {stage.name}`"
        )
    for receipt in matching:
        body = receipt.body
        if body["zone"] != stage.zone:
            yield f"stage '{stage.name}' ran in zone {body['zone']} and dvc.yaml now says {stage.zone}: run `dvc repro -f {stage.name}`"
        if not set(body["enforcement"]["layers"]) >= {str(layer) for layer in MINIMUM}:
            yield f"stage '{stage.name}' ran without the minimum of layers (advisory): set boundary.enforcement to auto and run it again"
        if stage.zone == "open" and body["did_read"]["records"] == "yes":
            yield f"open stage '{stage.name}' read records (receipt {receipt.path})"
