"""Power lost after any call of a release, with everything that was not synced dropped, torn or reordered.

What is found then: the ledger opens and its chain is whole; whatever was published before is charged; what is
in the archive is whole, and so is every receipt; the books agree; and the next run gives out the very bytes.
Controls: without the syncs of SQLite, or of the archive, the same search finds a loss.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from airlock.evidence import receipts
from airlock.inside import manifest
from airlock.ledger import Ledger
from airlock.owner import registry
from airlock.owner.home import Project
from airlock.run import reconcile
from tests.ledger.test_machine import House
from tests.support import power
from tests.support.bookkeeping import name

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace: apt install strace")
PROGRAM = """
import os, shutil, sys
from pathlib import Path
shutil._USE_CP_SENDFILE = False  # bytes that are copied in the kernel are not in the record
fault = sys.argv[2]
if fault == "sqlite":
    from airlock.ledger import store
    def careless(connection, _):
        connection.isolation_level = None
        connection.execute("PRAGMA synchronous = OFF")
    store._take_over_transactions = careless
if fault == "archive":
    from airlock.run import archive
    archive.sync = lambda path: None
from tests.ledger.test_machine import House
from airlock.ledger import Ledger
from airlock.owner import key_backup, registry
house = House(Path(sys.argv[1]))
house.found()
place = house.home(0)
with registry.changing_registry(place) as known:
    known.populations["clinic"] = {"public": False, "records": "/elsewhere"}
Ledger.open(place.ledger_url, create=False).set_cap("clinic", 2, 1e-5, who="o", why="w")
os.mkdir(house.root / "begun")
house.release(place, 0)
house.release(place, 0)
key_backup.rotate(place)
house.release(place, 1)
"""


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="power-"))
    yield folder
    shutil.rmtree(folder)


def recorded(root: Path, fault: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, list[power.Step]]:
    """A home, a workspace and a witness from nothing to two releases, call by call."""
    place = root / f"recorded-{fault}"
    place.mkdir()
    monkeypatch.setenv("AIRLOCK_WITNESS", str(place / "witness.jsonl"))
    here = Path(__file__).parents[2]
    return place, power.record(["-c", PROGRAM, str(place), fault], place, cwd=here, log=root / "strace.log")


def problems(
    steps: list[power.Step], place: Path, target: Path, loss: power.Loss, chance: random.Random
) -> list[str]:
    """What is wrong with the state that is found when the power goes after these steps."""
    power.write(power.Disk(steps).found(loss, chance), place, target)
    (target / "workspace").mkdir(exist_ok=True)  # a clone, which was there before the first of these steps
    house = House(target)
    home, ledger = house.home(0), Ledger.open(house.home(0).ledger_url, create=False)
    published = {
        Path(step.path).parent.name: Path(step.path).name
        for step in steps
        if step.kind == "make" and "/seen/" in step.path
    }
    known = {entry.release_id for entry in ledger.history()}
    found = [f"ledger: {line}" for line in ledger.verify()]
    found += [f"published and not charged: {one[:12]}" for one in published if one not in known]
    found += [f"books: {line}" for line in reconcile.problems(home, house.workspace)]
    found += [f"{one.path} {one.problem}" for one in receipts.in_workspace(house.workspace) if one.problem]
    if registry.load_registry(home).populations.get("clinic", {}).get("public") is not False:
        found.append("the registry has forgotten the population")
    return found + _again(house, home, published)


def _again(house: House, home: Project, published: dict[str, str]) -> list[str]:
    """Nothing is in the way of the next run, which gives out what it gave out before."""
    for number in (0, 1):
        house.release(home, number)
        made = manifest.load(house.workspace / "data/released/release").release_id
        if made != name(f"release {number}"):
            return [f"release {number} came out as {made[:12]}"]
    return [
        f"release {one[:12]} came out with other bytes"
        for one, digest in published.items()
        if house.seen[one] != [digest]
    ]


def losses(
    root: Path, fault: str, monkeypatch: pytest.MonkeyPatch, *, states: int | None, first_only: bool = False
) -> list[str]:
    """Every state, or so many of them, and the first thing wrong with each that has something."""
    place, steps = recorded(root, fault, monkeypatch)
    chance = random.Random(7)
    # Before the owner's first cap there is nothing to lose: a first `airlock add` is made again.
    first = next(number for number, step in enumerate(steps) if step.path.endswith("/begun"))
    moments = [(count, loss) for count in range(first, len(steps) + 1) for loss in power.LOSSES]
    wrong = []
    for number, (count, loss) in enumerate(moments if states is None else chance.sample(moments, states)):
        target = root / f"{fault}-{number}"
        monkeypatch.setenv("AIRLOCK_WITNESS", str(target / "witness.jsonl"))
        try:
            found = problems(steps[:count], place, target, loss, chance)
        except Exception as error:
            found = [f"{type(error).__name__}: {error}"]
        wrong += [f"after {count} of {len(steps)} calls, {loss} lost: {line}" for line in found[:1]]
        shutil.rmtree(target)
        if wrong and first_only:
            break
    print(
        f"{len(moments)} states of {len(steps)} calls, {states or 'all'} tried: {len(wrong)} wrong",
        file=sys.stderr,
    )
    return wrong


def test_nothing_that_was_published_is_forgotten_without_power(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert losses(root, "none", monkeypatch, states=30) == []


@pytest.mark.stress
def test_every_state_without_power(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert losses(tmp_path, "none", monkeypatch, states=None) == []


@pytest.mark.parametrize("fault", ["sqlite", "archive"])
def test_a_missing_sync_is_found(root: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    assert losses(root, fault, monkeypatch, states=60, first_only=True)
