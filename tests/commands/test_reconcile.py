"""An older ledger put back must not spend again: ledger, receipts, archive and witness are compared before
every reservation.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airlock.errors import BudgetRefused, InputError, KeysError, LedgerError
from airlock.evidence import receipts
from airlock.evidence.revisions import load_graph
from airlock.inside import manifest
from airlock.ledger import Ledger
from airlock.ledger.chain import Entry
from airlock.ledger.store import Store
from airlock.owner.home import Project
from airlock.owner.keys import Keyring, signer
from airlock.params import load_params
from airlock.privacy.plan import Plan
from airlock.records import handles
from airlock.run import archive, budget, orders, reconcile, witness
from tests.commands.test_budget import ask, desk, spend, told
from tests.ledger.conftest import KINDS, Urls, schemas, server

__all__ = ["desk", "server"]  # the fixtures


PRICED: dict[float, list[orders.Order]] = {}
ASK = orders.price


def price_once(stage: Any, graph: Any, *, params: Any, **where: Any) -> list[orders.Order]:
    """What a release would be does not depend on the test: the
    confined code is asked once for each epsilon.
    """
    if params.release.epsilon not in PRICED:
        PRICED[params.release.epsilon] = ASK(stage, graph, params=params, **where)
    return PRICED[params.release.epsilon]


@pytest.fixture
def owner(desk: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setattr(orders, "price", price_once)
    Keyring.create(desk)
    receipts.pin(Path.cwd(), signer(desk).public_key, owner=True)
    return desk


@dataclass(frozen=True)
class Desk:
    """An owner whose ledger is in a database of either kind.

    Attributes:
        elsewhere: gives an empty database of a server; None where the ledger is a file in AIRLOCK_HOME.
        name: says to the commands where the ledger is.
    """

    owner: Project
    elsewhere: Urls | None
    name: Callable[[str], None]

    def open(self) -> None:
        """Begin the ledger where it is to be."""
        if self.elsewhere:
            self.name(self.elsewhere())
            Ledger.open(self.owner.ledger_url, create=True).set_cap("clinic", 3, 1e-5, who="o", why="w")

    def back_up(self, folder: Path) -> Backup:
        shutil.copytree(self.owner.folder, folder)
        return Backup(folder, tuple(Ledger.open(self.owner.ledger_url, create=False).history()))

    def put_back(self, backup: Backup, *, only_the_ledger: bool = False) -> None:
        """A server's database is restored into a new one, as its own tools do."""
        if not (only_the_ledger and self.elsewhere):
            put_back(self.owner, backup.folder, only="ledger.db" if only_the_ledger else "")
        if self.elsewhere:
            store = Store(self.elsewhere())
            with store.writing() as connection:
                store.upgrade(connection)
                for entry in backup.entries:
                    store.append(connection, entry)
            self.name(store.url.render_as_string(hide_password=False))


@dataclass(frozen=True)
class Backup:
    """AIRLOCK_HOME, and the ledger's entries at that time."""

    folder: Path
    entries: tuple[Entry, ...]


@pytest.fixture(params=KINDS)
def either(
    request: pytest.FixtureRequest, owner: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Desk:
    """A desk with a ledger in each kind of database."""
    fresh = None
    if request.param == "postgresql":
        fresh = schemas(request.getfixturevalue("server"), tmp_path.name)
    made = Desk(owner, fresh, lambda url: monkeypatch.setenv("AIRLOCK_LEDGER_URL", url))
    made.open()
    return made


def release(place: Project, epsilon: float) -> orders.Order:
    """Reserve, make, archive, commit and sign one release, as the
    runner does; only the records are left out.
    """
    workspace = Path.cwd()
    params = budget.override(load_params(), {"release.epsilon": epsilon})
    graph, facts = load_graph(workspace), handles.public_facts(workspace, params)
    (workspace / "data/released/relevance").mkdir(parents=True, exist_ok=True)
    manifest.write(
        workspace / "data/released/relevance",
        plan=manifest.none_plan("off"),
        facts=facts,
        release_id="0" * 64,
    )
    ledger = reconcile.open_ledger(place, public=False)
    taken = orders.take_orders(
        graph.stage("release"),
        graph,
        params=params,
        facts=facts,
        ledger=ledger,
        workspace=workspace,
        project=place,
    )
    (order,) = (each for each in taken if each.out == "data/released/release")
    if order.pending:
        folder = workspace / ".airlock" / "staging" / order.release_id / order.out
        make(folder, order.plan, facts, order.release_id)
        ledger.start(order.release_id)
        orders.settle(order, project=place, ledger=ledger, staging=folder.parents[2])
        shutil.copytree(folder, workspace / order.out, dirs_exist_ok=True)
    body = {
        "stage": "release",
        "zone": "release",
        "ledger": ledger.receipt(),
        "releases": [statement(order, workspace)],
    }
    receipts.write(workspace, body, signer(place), archive=place.receipts)
    return order


def make(folder: Path, plan: Plan, facts: Any, release_id: str) -> None:
    folder.mkdir(parents=True)
    (folder / "sums.txt").write_text(release_id)
    manifest.write(folder, plan=plan, facts=facts, release_id=release_id)


def statement(order: orders.Order, workspace: Path) -> dict[str, Any]:
    return {
        "out": order.out,
        "id": order.release_id,
        "mechanism": order.plan.mechanism,
        "manifest": manifest.digest(workspace / order.out),
        "passes": order.plan.passes,
        "proven": order.plan.proven.to_json(),
    }


def commit_receipts() -> None:
    for command in (
        ["init", "-q"],
        ["add", "receipts"],
        ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "receipts"],
    ):
        subprocess.run(["git", *command], check=True)


def put_back(place: Project, backup: Path, *, only: str = "") -> None:
    if only:
        shutil.copy(backup / only, place.folder / only)
    else:
        shutil.rmtree(place.folder)
        shutil.copytree(backup, place.folder)


def test_ledger_put_back_does_not_spend_again(
    either: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = either.owner
    release(owner, 1.0)
    backup = either.back_up(tmp_path / "backup")
    release(owner, 2.0)
    true_total = Ledger.open(owner.ledger_url, create=False).spent("clinic").epsilon
    either.put_back(backup)
    with pytest.raises(
        LedgerError, match=r"real ledger: head .* nothing is spent; run `airlock budget verify`"
    ):
        release(owner, 2.5)
    assert ask("verify").exit_code == 1
    # The control: without the comparison the same money is spent twice.
    monkeypatch.setattr(reconcile, "require", lambda *_: None)
    release(owner, 2.5)
    forgot = Ledger.open(owner.ledger_url, create=False).spent("clinic").epsilon
    assert true_total > 2.2 and forgot < 3


@pytest.mark.parametrize("kept", ["archive", "home receipts", "committed receipts", "witness"])
def test_every_witness_by_itself_finds_it(
    either: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: str
) -> None:
    owner = either.owner
    if kept == "witness":
        monkeypatch.setenv("AIRLOCK_WITNESS", str(tmp_path / "witness.jsonl"))
    release(owner, 1.0)
    backup = either.back_up(tmp_path / "backup")
    release(owner, 2.0)
    if kept == "committed receipts":
        commit_receipts()
    for file in Path("receipts/release").glob("*.json"):
        file.unlink()
    either.put_back(backup, only_the_ledger=kept in ("archive", "home receipts"))
    if kept in ("archive", "home receipts"):
        shutil.rmtree(owner.receipts if kept == "archive" else owner.archive)
        shutil.rmtree(owner.folder / witness.FOLDER)
    with pytest.raises(LedgerError, match="nothing is spent"):
        release(owner, 2.5)


def test_books_that_agree_say_nothing(
    owner: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRLOCK_WITNESS", str(tmp_path / "witness.jsonl"))
    order = release(owner, 1.0)
    assert release(owner, 1.0).status == "committed"
    assert archive.holds(owner.archive, order.release_id)
    assert ask("verify").stdout == "every entry is in its place\n"
    assert len((tmp_path / "witness.jsonl").read_text().splitlines()) == 3


def test_two_homes_that_both_went_on_are_a_fork(either: Desk, tmp_path: Path) -> None:
    owner = either.owner
    release(owner, 0.5)
    backup = either.back_up(tmp_path / "backup")
    release(owner, 1.0)
    first = shutil.copytree("receipts", tmp_path / "receipts of the first")
    either.put_back(backup)
    for file in Path("receipts/release").glob("*.json"):
        if not (backup.folder / "receipts/release" / file.name).exists():
            file.unlink()
    release(owner, 2.0)
    shutil.copytree(first, "receipts", dirs_exist_ok=True)
    found = ask("verify")
    assert found.exit_code == 1
    assert "two copies of the ledger were written to" in found.stdout
    with pytest.raises(LedgerError):
        release(owner, 2.5)


@pytest.mark.parametrize("whole", [False, True], ids=["ledger put back", "home put back"])
def test_recover_charges_again_and_then_the_books_agree(either: Desk, tmp_path: Path, whole: bool) -> None:
    owner = either.owner
    release(owner, 1.0)
    backup = either.back_up(tmp_path / "backup")
    lost = release(owner, 2.0)
    true_total = Ledger.open(owner.ledger_url, create=False).spent("clinic").epsilon
    either.put_back(backup, only_the_ledger=not whole)
    ledger = Ledger.open(owner.ledger_url, create=False)
    done = ask("recover", "--why", "disk failure")
    assert done.exit_code == 0, done.exception
    assert f"charged again: release {lost.release_id[:12]}" in done.stdout
    assert ledger.spent("clinic").epsilon == true_total
    assert ledger.release(lost.release_id).committed
    assert ask("verify").exit_code == 0
    assert "disk failure" in ask("history").stdout
    assert ask("recover", "--why", "again").stdout == "nothing was forgotten\n"
    with pytest.raises(BudgetRefused):
        release(owner, 2.5)


def test_recover_asks_whose_a_release_is_that_only_a_receipt_remembers(
    owner: Project, tmp_path: Path
) -> None:
    release(owner, 1.0)
    backup = shutil.copytree(owner.folder, tmp_path / "backup")
    lost = release(owner, 2.0)
    put_back(owner, backup)
    shutil.rmtree("data/released/release")
    assert "only a receipt is left" in str(ask("recover", "--why", "x").exception)
    assert ask("verify").exit_code == 1
    assert ask("recover", "--why", "x", "--population", "clinic").exit_code == 0
    assert ask("verify").exit_code == 0
    assert Ledger.open(owner.ledger_url, create=False).release(lost.release_id) is not None


def test_witness_inside_the_home_is_refused(owner: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRLOCK_WITNESS", str(owner.folder / "witness"))
    with pytest.raises(InputError, match="lies in AIRLOCK_HOME"):
        release(owner, 1.0)


def test_witness_that_cannot_be_written_stops_the_release(
    owner: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRLOCK_WITNESS", str(tmp_path / "not mounted" / "witness"))
    with pytest.raises(LedgerError, match="cannot be written"):
        release(owner, 1.0)


def test_orphan_is_named_and_settled(desk: Project) -> None:
    ledger = spend(desk, 1.0)
    assert "airlock budget settle ID [--lost --why TEXT]" in ask("show").stdout
    ledger.start("a" * 64)
    assert "its stage started" in str(ask("settle", "aaaaaaaa", "--give-back", "--why", "x").exception)
    assert ask("settle", "aaaaaaaa", "--lost", "--why", "cancelled").exit_code == 0
    (clinic,) = told("show", "clinic")["ledgers"][0]["populations"]
    assert clinic["reserved"] == [] and clinic["epsilon"] == pytest.approx(1.0)
    with pytest.raises(BudgetRefused, match="booked as lost"):
        spend(desk, 1.0)
    assert isinstance(ask("settle", "aaaaaaaa", "--lost", "--why", "again").exception, InputError)
    assert "by " in ask("history", "clinic").stdout and "cancelled" in ask("history", "clinic").stdout


def test_reservation_that_provably_never_started_is_given_back(desk: Project) -> None:
    ledger = spend(desk, 1.0)
    assert ask("settle", "aaaaaaaa", "--give-back", "--why", "killed before it started").exit_code == 0
    assert ledger.spent("clinic").epsilon == 0
    with pytest.raises(LedgerError, match="not reserved any more"):
        ledger.start("a" * 64)  # its process was alive after all, and may not go on
    assert spend(desk, 1.0).spent("clinic").epsilon == pytest.approx(1.0)


def test_retired_population_releases_nothing_more_and_replays(owner: Project) -> None:
    release(owner, 0.5)
    assert ask("retire", "clinic", "--why", "consent ended").exit_code == 0
    assert release(owner, 0.5).status == "committed"
    with pytest.raises(BudgetRefused, match="retired and releases nothing more: consent ended"):
        release(owner, 1.0)


def test_json_of_show_is_one_state_of_the_ledger(desk: Project) -> None:
    ledger = spend(desk, 1.0)
    answer = told("show", "clinic")["ledgers"][0]
    assert (answer["sequence"], answer["head"]) == (ledger.receipt()["sequence"], ledger.head())
    assert json.dumps(answer)


def test_cap_is_not_raised_on_a_ledger_that_has_forgotten_what_was_seen(
    owner: Project, tmp_path: Path
) -> None:
    """Set by hand on the older ledger, it would count as set before any result was seen."""
    backup = shutil.copytree(owner.folder, tmp_path / "backup")
    release(owner, 2.0)
    put_back(owner, backup)
    for asked in (
        ("set", "clinic", "--epsilon", "10", "--delta", "1e-6", "--why", "x"),
        ("retire", "clinic", "--why", "x"),
    ):
        done = ask(*asked)
        assert "nothing is spent" in str(done.exception), done.stdout
    assert ask("recover", "--why", "x").exit_code == 0
    refused = ask("set", "clinic", "--epsilon", "10", "--delta", "1e-6", "--why", "x")
    assert isinstance(refused.exception, BudgetRefused), "results were seen, and the ledger knows it"


def test_receipts_of_another_owner_are_said_to_be_that(owner: Project, tmp_path: Path) -> None:
    """Their heads are in another ledger: to recover them here would be wrong."""
    release(owner, 0.5)
    shutil.rmtree(owner.keys)
    Keyring.create(owner)
    refused = ask("set", "clinic", "--epsilon", "2", "--delta", "1e-6", "--why", "x").exception
    assert isinstance(refused, KeysError) and "names another owner's key" in str(refused)


DECISIONS: dict[str, tuple[str, ...]] = {
    "a lower cap": ("set", "clinic", "--epsilon", "1.5", "--delta", "1e-6", "--why", "x"),
    "a retired population": ("retire", "clinic", "--why", "x"),
    "a reservation booked as lost": ("settle", "aaaaaaaa", "--lost", "--why", "x"),
}


@pytest.mark.parametrize("decision", DECISIONS)
def test_decision_without_a_receipt_is_not_forgotten_with_the_database(
    either: Desk, tmp_path: Path, decision: str
) -> None:
    """Nobody signs a receipt for a cap: the home itself remembers the last head."""
    spend(either.owner, 0.5)
    backup = either.back_up(tmp_path / "backup")
    assert ask(*DECISIONS[decision]).exit_code == 0
    assert ask("verify").exit_code == 0
    either.put_back(backup, only_the_ledger=True)
    with pytest.raises(LedgerError, match="nothing is spent"):
        release(either.owner, 1.0)


def test_another_database_is_not_a_second_budget(
    owner: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A population with a cap in each of two ledgers; nothing was released from either."""
    assert ask("set", "clinic", "--epsilon", "3", "--delta", "1e-6", "--why", "x").exit_code == 0
    monkeypatch.setenv("AIRLOCK_LEDGER_URL", f"sqlite:///{tmp_path / 'second.db'}")
    second = Ledger.open(owner.ledger_url, create=True)
    second.set_cap("clinic", 3.0, 1e-6, who="owner", why="x")
    with pytest.raises(LedgerError, match="nothing is spent"):
        release(owner, 1.0)


def test_receipt_that_a_later_commit_removed_still_bears_witness(owner: Project, tmp_path: Path) -> None:
    release(owner, 1.0)
    backup = shutil.copytree(owner.folder, tmp_path / "backup")
    release(owner, 2.0)
    commit_receipts()
    for command in (
        ["rm", "-rq", "receipts/release"],
        ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "tidy"],
    ):
        subprocess.run(["git", *command], check=True)
    put_back(owner, backup)
    shutil.rmtree("data/released/release")
    with pytest.raises(LedgerError, match="nothing is spent"):
        release(owner, 2.5)


@pytest.mark.parametrize("how", ["cut", "emptied", "not mounted"])
def test_witness_that_lost_its_end_is_none(
    either: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    owner = either.owner
    file = tmp_path / "disk/witness.jsonl"
    file.parent.mkdir()
    monkeypatch.setenv("AIRLOCK_WITNESS", str(file))
    release(owner, 1.0)
    lines = file.read_text().splitlines(keepends=True)
    if how == "not mounted":
        file.unlink()
    else:
        file.write_text("".join(lines[:-1]) if how == "cut" else "")
    with pytest.raises(LedgerError, match="lacks the head that was written to it last: mount or restore it"):
        release(owner, 0.5)
    file.write_text("".join(lines))
    release(owner, 0.5)
    monkeypatch.setenv("AIRLOCK_WITNESS", str(tmp_path / "another.jsonl"))
    release(owner, 0.4)


def test_a_clock_that_was_set_back_changes_no_order(
    owner: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries are in the order of their numbers. With real commands: tests/test_clock.py."""
    release(owner, 0.5)
    monkeypatch.setattr("airlock.ledger.entries.this_minute", lambda: "2001-01-01T00:00+00:00")
    backup = shutil.copytree(owner.folder, tmp_path / "backup")
    release(owner, 1.0)
    ledger = Ledger.open(owner.ledger_url, create=False)
    times = [entry.details["at"] for entry in ledger.history() if "at" in entry.details]
    assert times[-1] < times[0], "the control"
    numbers = [entry.sequence for entry in ledger.history()]
    assert numbers == list(range(1, len(numbers) + 1))
    assert ask("verify").exit_code == 0
    assert release(owner, 0.5).status == release(owner, 1.0).status == "committed"
    put_back(owner, backup)
    with pytest.raises(LedgerError, match="nothing is spent"):
        release(owner, 1.5)
