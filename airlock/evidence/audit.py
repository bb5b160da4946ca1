"""`airlock audit`: for a commit or the workspace, which stages could read records, which did, what was
released.

Whether the answer can be believed is `evidence.checker`'s question.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from airlock.evidence import checker, policy, receipts, zones
from airlock.evidence.checker import Evidence
from airlock.evidence.receipts import Receipt
from airlock.evidence.revisions import Tree, Workspace, tree_of
from airlock.owner import keys
from airlock.owner.home import Project
from airlock.run import paths


@dataclass(frozen=True)
class AuditRow:
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
    user: str = ""  # as whom its code ran: its own | the runner | root; empty where none was run
    limits: str = ""  # what held it to its limits
    signer: str = ""  # the key that signed the newest receipt, in hexadecimal


@dataclass(frozen=True)
class Audit:
    """The whole answer. The boundary holds when there is no problem."""

    evidence: Evidence

    @property
    def source(self) -> str:
        """The workspace, a commit's name, or a bundle."""
        return self.evidence.tree.name

    @cached_property
    def stages(self) -> tuple[AuditRow, ...]:
        """One row for each stage."""
        return tuple(
            _row(stage, self.evidence.graph, self.evidence.matching(stage.name))
            for stage in self.evidence.graph
        )

    @cached_property
    def problems(self) -> tuple[str, ...]:
        """What does not agree, or cannot be told."""
        return tuple(checker.problems(self.evidence))

    @property
    def holds(self) -> bool:
        return not self.problems


def audit(workspace: Path, rev: str | None = None) -> Audit:
    """Audit the workspace, or the commit `rev`."""
    return audit_tree(tree_of(workspace, rev))


def audit_tree(tree: Tree) -> Audit:
    """Audit any source of files (workspace, commit, bundle)."""
    return Audit(Evidence(tree))


def collect(workspace: Path, place: Project) -> list[Path]:
    """Bring home the receipts of queued experiments that dvc.lock now speaks of, and with them, where no stage was ever
    run in the workspace itself, the key that signed them: the project's own.
    """
    lock, signers = checker.lock_of(Workspace(workspace)), policy.of_workspace(workspace)
    fresh = not signers.owner and keys.exist(place)
    if fresh:
        signers = replace(signers, owner=keys.signer(place).public_key.hex())
    brought = receipts.collect(
        workspace,
        place.receipts,
        lambda receipt: bool(checker.matching(receipt.stage, lock.get(receipt.stage), [receipt])),
        signers,
    )
    if fresh and brought:
        paths.write(workspace, policy.OWNER_KEY, f"{signers.owner}\n".encode())
    return brought


def _row(stage: zones.Stage, graph: zones.Graph, matching: list[Receipt]) -> AuditRow:
    labels = stage.reads(graph)
    bodies = [receipt.body for receipt in matching]
    answers = {body["did_read"]["records"] for body in bodies}
    latest = max(bodies, key=lambda body: str(body["when"]), default=None)
    releases = list(latest["releases"]) if latest else []
    return AuditRow(
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
        user=str(latest["enforcement"].get("user", "")) if latest else "",
        limits=str(latest["enforcement"].get("limits", "")) if latest else "",
        signer=str(latest["key"]) if latest else "",
    )
