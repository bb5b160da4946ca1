"""What `airlock verify` is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airlock.bundle.ledgers import Recomputed, Total
from airlock.bundle.rerun import Agreement
from airlock.bundle.results import Result


@dataclass(frozen=True)
class VerifyOptions:
    """What to check, and how far.

    Attributes:
        quick: run nothing again.
        own_code: a workspace; run its stages with the installed tool instead of the bundle's code.
        records: the owner's workspace, to make the releases again too.
        key: the owner's public key in hexadecimal, if the reader knows it.
    """

    quick: bool = False
    own_code: Path | None = None
    records: Path | None = None
    key: str | None = None


@dataclass(frozen=True)
class CheckLine:
    """One row of the summary."""

    name: str
    holds: bool
    words: str


@dataclass
class Verdict:
    """Everything that was found. The bundle verifies if there is no problem."""

    facts: dict[str, Any] = field(default_factory=dict)
    steps: list[CheckLine] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    guarantees: list[Recomputed] = field(default_factory=list)
    agreements: list[Agreement] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    totals: list[Total] = field(default_factory=list)
    hidden: int = 0
    unknown: int = 0

    def note(self, name: str, words: str, problems: Iterable[str] = ()) -> None:
        """Add a step and what it found."""
        found = list(problems)
        self.steps.append(CheckLine(name, not found, found[0] if found else words))
        self.problems += found

    def take(self, name: str, run: Verdict) -> None:
        """Add what was found about one run of a collection."""
        problems = [f"{name}: {problem}" for problem in run.problems]
        again = ", ".join(f"{one.stage} {one.verdict}" for one in run.agreements) or "nothing run again"
        self.note(name, f"all {len(run.steps)} checks hold; {again}", problems)
        self.guarantees += run.guarantees
        self.agreements += run.agreements
        self.results += run.results
        self.totals += [total for total in run.totals if total not in self.totals]
        self.hidden += run.hidden
        self.unknown += run.unknown
