"""SIGKILL at random moments of reserve -> write -> commit: never less in the ledger than on disk, never half a release."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from bookkeeping import gaussian, name, reserve

from stages.boundary import archive, manifest
from stages.boundary.ledger import Ledger
from stages.privacy import accounting, events
from stages.privacy.guarantees import Guarantee
from stages.privacy.plan import Facts, Plan

EVENT = gaussian(0.05)
PLAN = Plan("coefficients", 1, {}, 1, Guarantee("proven", "record", "zero-out", 0.05, 1e-5, event=EVENT))
FACTS = Facts("clinic", False, "tabular", 100, 0, (3,), ("a", "b"), "schema", "fingerprint")
FIELDS = 40_000


@dataclass(frozen=True)
class House:
    """A ledger, an archive, and a workspace's data/released."""

    url: str
    root: Path

    @property
    def archive(self) -> Path:
        return self.root / "archive"

    @property
    def released(self) -> Path:
        return self.root / "released"

    def release(self, number: int) -> str:
        """One release from beginning to end, as the runner makes it; its bytes depend on the id alone."""
        ledger, text = Ledger.open(self.url, create=False), f"release {number}"
        held = reserve(ledger, text, event=EVENT)
        if held.status == "committed" or archive.holds(self.archive, name(text)):
            digest = archive.restore(self.archive, name(text), self.released / text, manifest_sha256=held.manifest)
        else:
            staging = self.root / f"staging-{os.getpid()}"
            shutil.rmtree(staging, ignore_errors=True)
            staging.mkdir()
            (staging / "statistics.bin").write_bytes(random.Random(text).randbytes(FIELDS))
            (staging / "labels.json").write_text("{}")
            manifest.write(staging, plan=PLAN, facts=FACTS, release_id=name(text))
            digest = archive.store(self.archive, name(text), staging)
            archive.restore(self.archive, name(text), self.released / text)
        ledger.commit(name(text), digest)
        return held.status

    def work(self, first: int) -> None:
        """Release after release, until killed."""
        for number in range(first, first + 1000):
            self.release(number)


def check(house: House) -> None:
    """What must hold at any moment, whatever was killed."""
    ledger = Ledger.open(house.url, create=False)
    assert ledger.verify() == []
    on_disk: set[str] = set()
    for folder in (house.archive, house.released):
        complete = [path for path in folder.glob("*") if not path.name.startswith(".")]
        on_disk |= {manifest.load(path).release_id for path in complete}  # raises on a half-written release
    kinds = {(entry.kind, entry.release_id) for entry in ledger.history()}
    assert on_disk <= {release_id for kind, release_id in kinds if kind == "reserve"}, "a release is on disk that was never charged"
    written = accounting.total_epsilon([events.from_json(EVENT)] * len(on_disk), 1e-5)
    assert ledger.spent("clinic").epsilon >= written


def kill_rounds(url: str, root: Path, rounds: int) -> None:
    house = House(url, root)
    ledger = Ledger.open(url, create=True)
    ledger.set_cap("clinic", 100, 1e-5, who="owner", why="kills")
    house.archive.mkdir(parents=True)
    house.released.mkdir()
    house.release(0)  # loads the accountant
    began = time.perf_counter()
    house.release(1)
    cycle, chance = time.perf_counter() - began, random.Random(7)
    context, next_release, moments = multiprocessing.get_context("fork"), 2, Counter[str]()
    for _ in range(rounds):
        child = context.Process(target=house.work, args=(next_release,))
        child.start()
        child.join(timeout=chance.uniform(0, 2 * cycle))  # the moment of the kill, not a synchronisation
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        assert child.exitcode == -signal.SIGKILL
        check(house)
        next_release, moment = recover(house, next_release)
        moments[moment] += 1
    print(f"{rounds} kills: {dict(moments)}; every release whole, spend never below what is on disk; {time.perf_counter() - began:.1f} s")


def recover(house: House, first: int) -> tuple[int, str]:
    """The next run works: it finishes what was begun, without a second charge. Returns where to go on, and what was found."""
    ledger, number = Ledger.open(house.url, create=False), first
    while (known := ledger.release(name(f"release {number}"))) and known.committed:
        assert house.release(number) == "committed"
        number += 1
    moment = "between releases" if known is None else "archived, not committed"
    if known and not archive.holds(house.archive, known.release_id):
        moment = "reserved, not written"
    before = ledger.spent("clinic").epsilon
    assert house.release(number) == ("taken-over" if known else "new")
    assert (ledger.spent("clinic").epsilon == before) == (known is not None)
    assert manifest.load(house.released / f"release {number}").release_id == name(f"release {number}")
    check(house)
    return number + 1, moment


def test_killed_release_is_spent_whole_and_can_be_finished(url: str, tmp_path: Path) -> None:
    kill_rounds(url, tmp_path / "house", rounds=8)


@pytest.mark.stress
def test_two_hundred_kills(url: str, tmp_path: Path) -> None:
    kill_rounds(url, tmp_path / "house", rounds=200)
