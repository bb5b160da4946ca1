"""Many workspaces on one home and one ledger, all at once: every release goes the runner's own way, and the cap holds.

What one process archives, signs and commits, all others compare with the ledger before they spend: a race between
those books would stop an honest run.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from airlock.errors import BudgetRefused
from airlock.evidence import receipts
from airlock.ledger import Ledger
from airlock.owner.keys import signer
from airlock.privacy.guarantees import Guarantee
from airlock.privacy.plan import Plan
from airlock.run import reconcile
from tests.ledger.test_machine import PLANS, House
from tests.support.bookkeeping import gaussian

FIT = 0.6
"""The part of what is asked for that fits, to the last bit."""


@dataclass(frozen=True)
class Clone(House):
    """One of several workspaces of a project."""

    number: int = 0

    @property
    def workspace(self) -> Path:
        return self.root / f"workspace-{self.number}"


def ask(house: Clone, each: int, start: object, answers: multiprocessing.SimpleQueue[list[str]]) -> None:
    """One workspace: its releases one after another, and what became of them."""
    told = []
    start.wait()  # type: ignore[attr-defined]
    for number in range(each):
        try:
            told.append(house.release(house.home(0), 1000 * (house.number + 1) + number))
        except BudgetRefused:
            told.append("refused")
        except BaseException as error:
            told.append(f"{type(error).__name__}: {error}")
    answers.put(told)


def load(root: Path, workspaces: int, each: int) -> None:
    fit = round(FIT * workspaces * each)
    event = gaussian(3.0, share=1 / fit)
    proven = Guarantee("proven", "record", "zero-out", 3.0, 1e-5, event=event)
    keys = [1000 * (clone + 1) + number for clone in range(workspaces) for number in range(each)]
    PLANS.update({key: Plan("coefficients", 1, {"number": key}, 1, proven) for key in keys})
    clones = [Clone(root, number) for number in range(workspaces)]
    clones[0].found()
    place = clones[0].home(0)
    for clone in clones[1:]:
        clone.workspace.mkdir()
        receipts.pin(clone.workspace, signer(place).public_key, owner=True)
    ledger = Ledger.open(place.ledger_url, create=False)
    ledger.set_cap("clinic", 3.0, 1e-5, who="owner", why="load")
    context = multiprocessing.get_context("fork")
    start, answers = context.Barrier(workspaces), context.SimpleQueue()
    workers = [context.Process(target=ask, args=(clone, each, start, answers)) for clone in clones]
    began = time.perf_counter()
    for worker in workers:
        worker.start()
    told = [answer for _ in workers for answer in answers.get()]
    for worker in workers:
        worker.join()
    seconds = time.perf_counter() - began
    counts = {answer: told.count(answer) for answer in sorted(set(told))}
    assert counts == {"new": fit, "refused": len(told) - fit}
    spent = ledger.spent("clinic")
    assert spent.releases == fit and spent.epsilon <= 3.0 * (1 + 1e-9) and not spent.reserved
    assert all(reconcile.problems(place, clone.workspace) == [] for clone in clones)
    print(
        f"{workspaces} workspaces, {len(told)} releases asked, {fit} made: {seconds:.1f} s", file=sys.stderr
    )


@pytest.fixture
def shared(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose ledger is in either database."""
    if not url.startswith("sqlite"):
        monkeypatch.setenv("AIRLOCK_LEDGER_URL", url)
    return tmp_path


def test_four_workspaces_at_once(shared: Path) -> None:
    load(shared, workspaces=4, each=3)


@pytest.mark.stress
def test_twenty_workspaces_with_a_hundred_releases(shared: Path) -> None:
    load(shared, workspaces=20, each=5)
