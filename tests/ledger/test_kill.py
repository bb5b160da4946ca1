"""SIGKILL at random moments of reserve -> write -> commit: never less in the ledger than on disk, never half
a release.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType

import pytest

from airlock.inside import manifest
from airlock.ledger import Ledger
from airlock.ledger.store import Store
from airlock.privacy import accounting, events
from airlock.privacy.guarantees import Guarantee
from airlock.privacy.plan import Facts, Plan
from airlock.run import archive
from tests.support.bookkeeping import gaussian, name, reserve

EVENT = gaussian(0.05)
PLAN = Plan("coefficients", 1, {}, 1, Guarantee("proven", "record", "zero-out", 0.05, 1e-5, event=EVENT))
FACTS = Facts("clinic", False, "tabular", 100, 0, (3,), ("a", "b"), "schema", "fingerprint")
FIELDS = 40_000
BATCH = 20
FORK = multiprocessing.get_context("fork")


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
            digest = archive.restore(
                self.archive, name(text), self.released / text, manifest_sha256=held.manifest
            )
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

    def work(self, first: int, started: Connection) -> None:
        """Release after release, until killed from outside."""
        started.send("go")
        for number in range(first, first + 1000):
            self.release(number)

    def stumble(self, number: int, last_call: int) -> None:
        """One release, killed at its `last_call`-th call of a function, Python's or C's."""
        calls = 0

        def count(frame: object, event: str, argument: object) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")
            if calls == last_call:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.setprofile(count)
        self.release(number)
        sys.setprofile(None)


def check(house: House) -> None:
    """What must hold at any moment, whatever was killed."""
    ledger = Ledger.open(house.url, create=False)
    assert ledger.verify() == []
    on_disk: set[str] = set()
    for folder in (house.archive, house.released):
        complete = [path for path in folder.glob("*") if not path.name.startswith(".")]
        on_disk |= {manifest.load(path).release_id for path in complete}  # raises on a half-written release
    kinds = {(entry.kind, entry.release_id) for entry in ledger.history()}
    assert on_disk <= {release_id for kind, release_id in kinds if kind == "reserve"}, (
        "a release is on disk that was never charged"
    )
    written = accounting.total_epsilon([events.from_json(EVENT)] * len(on_disk), 1e-5)
    assert ledger.spent("clinic").epsilon >= written


def prepare(url: str, root: Path) -> tuple[House, range, float]:
    """A new house with three releases; the calls of one of them from its first write to its end, and how long
    one takes.
    """
    house, calls, first_write = House(url, root), 0, 0
    Ledger.open(url, create=True).set_cap("clinic", 100, 1e-5, who="owner", why="kills")
    house.archive.mkdir(parents=True)
    house.released.mkdir()
    house.release(0)  # loads the accountant

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls, first_write
        calls += event in ("call", "c_call")
        if not first_write and frame.f_code is Store.append.__code__:
            first_write = calls

    sys.setprofile(count)
    house.release(1)
    sys.setprofile(None)
    began = time.perf_counter()
    house.release(2)
    return house, range(first_write, calls), time.perf_counter() - began


def kill_from_outside(house: House, number: int, delay: float) -> None:
    """SIGKILL a process at any instruction, in a system call or out of it."""
    ours, theirs = FORK.Pipe()
    child = FORK.Process(target=house.work, args=(number, theirs))
    child.start()
    ours.recv()
    child.join(timeout=delay)  # the random moment of the kill, not a synchronisation
    child.kill()
    child.join()
    assert child.exitcode == -signal.SIGKILL


def kill_at_call(house: House, number: int, last_call: int) -> None:
    """SIGKILL evenly over all that a release does once it is priced, however long each part takes."""
    child = FORK.Process(target=house.stumble, args=(number, last_call))
    child.start()
    child.join()
    assert child.exitcode in (-signal.SIGKILL, 0)  # 0: it needed fewer calls this time


def kill_rounds(urls: Callable[[], str], root: Path, rounds: int) -> None:
    chance, moments, began = random.Random(7), Counter[str](), time.perf_counter()
    for batch in range(0, rounds, BATCH):
        house, calls, seconds = prepare(urls(), root / str(batch))
        number = 3
        for turn in range(min(BATCH, rounds - batch)):
            if turn % 2:
                kill_from_outside(house, number, chance.uniform(0, seconds))
            else:
                kill_at_call(house, number, chance.choice(calls))
            check(house)
            number, moment = recover(house, number)
            moments[moment] += 1
    print(
        f"{rounds} kills: {dict(moments)}; every release whole, spend never below what is on disk; "
        f"{time.perf_counter() - began:.1f} s"
    )


def recover(house: House, first: int) -> tuple[int, str]:
    """The next run works: it finishes what was begun, without a second charge.

    Returns where to go on, and what was found.
    """
    ledger, number = Ledger.open(house.url, create=False), first
    while (known := ledger.release(name(f"release {number}"))) and known.committed:
        assert house.release(number) == "committed"
        number += 1
    moment = "not reserved" if number == first else "committed"
    if known:
        moment = (
            "archived, not committed"
            if archive.holds(house.archive, known.release_id)
            else "reserved, not written"
        )
    before = ledger.spent("clinic").epsilon
    assert house.release(number) == ("taken-over" if known else "new")
    assert (ledger.spent("clinic").epsilon == before) == (known is not None)
    assert manifest.load(house.released / f"release {number}").release_id == name(f"release {number}")
    check(house)
    return number + 1, moment


def test_killed_release_is_spent_whole_and_can_be_finished(urls: Callable[[], str], tmp_path: Path) -> None:
    kill_rounds(urls, tmp_path / "house", rounds=8)


@pytest.mark.stress
def test_two_hundred_kills(urls: Callable[[], str], tmp_path: Path) -> None:
    kill_rounds(urls, tmp_path / "house", rounds=200)
