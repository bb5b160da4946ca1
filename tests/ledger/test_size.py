"""A long history: verified once a process, compared at every question, and never waited for under the lock."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy import Connection

from airlock.errors import LedgerError
from airlock.inside.digests import canonical_json
from airlock.ledger import Entry, Ledger, tables
from airlock.ledger.chain import link
from airlock.ledger.commitments import commitment, salts
from airlock.ledger.store import Store
from tests.support.bookkeeping import gaussian, name, reserve, tampering

POPULATIONS = [f"clinic{number}" for number in range(10)]
TERMS = {
    "mechanism": "coefficients", "unit": "record", "neighbours": "zero-out", "passes": 1, "public": False,
    "started": False,
}  # fmt: skip


def fill(url: str, length: int) -> Ledger:
    """A ledger of `length` entries: caps, and releases that were reserved, started and committed."""
    ledger = Ledger.open(url, create=True)
    for population in POPULATIONS:
        ledger.set_cap(population, 1000, 1e-5, who="owner", why="size")
    store, last = Store(url), ledger.history()[-1]
    with store.writing() as connection:
        rows = list(_entries(last, salts(ledger.history()), length))
        names = [column.name for column in tables.entries.columns]
        connection.execute(
            tables.entries.insert(), [{each: getattr(row, each) for each in names} for row in rows]
        )
    return ledger


def _entries(last: Entry, known: dict[str, str], length: int) -> Iterator[Entry]:
    events = [gaussian(0.01 + 0.001 * number) for number in range(20)]
    for number in range((length - last.sequence) // 3):
        population = POPULATIONS[number % len(POPULATIONS)]
        details = [{**TERMS, "event": events[number % 20]}, {}, {"manifest": name(f"bytes {number}")}]
        for kind, document in zip(("reserve", "start", "commit"), details, strict=True):
            sealed = {
                "commitment": commitment(known[population], population, last.sequence + 1),
                "nonce": secrets.token_hex(16),
                "at": "2026-01-01T00:00+00:00",
            }
            last = link(
                last, kind, population=population, release_id=name(f"release {number}"),
                details={**document, **sealed},
            )  # fmt: skip
            yield last


class Work:
    """What is done in a block: rows fetched, under the lock and before it, and entries hashed."""

    def __init__(self) -> None:
        self.under_lock = self.before = self.hashed = 0


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    work, rows, digest = Work(), Store.rows, Entry.digest

    def fetch(self: Store, connection: Connection, since: int = 0) -> list[tuple[object, ...]]:
        found = rows(self, connection, since)
        if connection.get_execution_options().get("airlock_writes"):
            work.under_lock += len(found)
        else:
            work.before += len(found)
        return found

    def hashed(self: Entry) -> str:
        work.hashed += 1
        return digest(self)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "rows", fetch)
        patch.setattr(Entry, "digest", hashed)
        yield work


@pytest.mark.parametrize("length", [100, 1000])
def test_nobody_waits_under_the_lock_for_the_length_of_the_history(
    url: str, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(url, length)
    ledger = Ledger.open(url, create=False)
    with counted(monkeypatch) as work:
        reserve(ledger, "a", 0.5, population="clinic1")
        ledger.start(name("a"))
        ledger.commit(name("a"), name("bytes"))
        assert work.under_lock <= 6
        assert length - 3 <= work.hashed <= length + 10, "the history is verified once, not at every step"
    assert ledger.verify() == []


@pytest.mark.parametrize("column", ["kind", "population", "release_id", "payload", "previous", "hash"])
def test_an_old_row_that_changes_under_a_running_process_is_found_before_it_spends(
    url: str, column: str
) -> None:
    ledger = fill(url, 60)
    reserve(ledger, "a", 0.5, population="clinic1")  # everything is verified by now
    with tampering(url) as connection:
        connection.execute(
            sa.text(f"UPDATE ledger_entries SET {column} = 'x' || substr({column}, 2) WHERE sequence = 20")
        )
    with pytest.raises(LedgerError, match="was changed"):
        reserve(ledger, "b", 0.5, population="clinic1")
    with pytest.raises(LedgerError, match="was changed"):
        ledger.spent("clinic2")
    assert ledger.verify() != []


def test_a_row_that_changes_between_the_look_and_the_lock_is_not_believed(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Totals are those of the verified entries; what was put in their place is found at the next question."""
    ledger = fill(url, 60)
    before, newest = ledger.spent("clinic1").epsilon, Ledger.newest

    def late(self: Ledger, connection: Connection) -> object:
        for word in ("update", "delete", "replace"):
            connection.execute(sa.text(f"DROP TRIGGER IF EXISTS ledger_no_{word}"))
        connection.execute(sa.text("UPDATE ledger_entries SET payload = '{}' WHERE sequence = 14"))
        return newest(self, connection)

    if not url.startswith("sqlite"):
        pytest.skip("the triggers have other names; the code above the database is the same")
    monkeypatch.setattr(Ledger, "newest", late)
    ledger.set_cap("clinic1", 900, 1e-5, who="o", why="w")
    monkeypatch.undo()
    assert ledger._verified.book.account("clinic1").charged and before > 0
    with pytest.raises(LedgerError, match="entry 14 .* was edited"):
        ledger.spent("clinic1")


@pytest.mark.stress
def test_ten_thousand_entries(url: str, tmp_path: Path) -> None:
    """Seconds of processor time, which do not depend on what else runs here."""
    figures = {}
    for length in (100, 1000, 10_000):
        place = url if length == 10_000 else f"sqlite:///{tmp_path}/{length}.db"
        fill(place, length)
        figures[length] = json.loads(_measured(place))
    print(f"{url.partition(':')[0]}: {json.dumps(figures)}")
    assert figures[10_000]["show"] < 1
    assert figures[10_000]["under lock"] < figures[100]["under lock"] + 0.01
    assert figures[10_000]["again"] < 0.15


def _measured(url: str) -> bytes:
    # `show` counts all that a fresh process does, imports included.
    return subprocess.run(
        [sys.executable, "-m", "tests.ledger.measure_size", url],
        cwd=Path(__file__).parents[2],
        check=True,
        capture_output=True,
    ).stdout


def test_canonical_json_is_what_hashes_were_taken_of() -> None:
    odd = {"b": [1, 2.5, None, True], "a": 'q"\\ \u2028 ü \x07', "c": {"z": "", "y": 1e-300}}
    plain = json.dumps(odd, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    assert canonical_json(odd) == plain.encode()
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json({"a": float("nan")})
