"""The chain finds every change; with the heads of receipts, also a cut tail and a rewritten book."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from airlock.errors import LedgerError
from airlock.ledger import Ledger, chain
from airlock.ledger.commitments import link_of, salts
from airlock.ledger.store import Store
from tests.support.bookkeeping import name, reserve, tampering


def make(size: int) -> list[chain.Entry]:
    entries: list[chain.Entry] = []
    for number in range(size):
        entries.append(
            chain.link(entries[-1] if entries else None, "cap", population="p", details={"number": number})
        )
    return entries


@given(st.integers(1, 12), st.data())
def test_edit_of_any_field_is_found(size: int, data: st.DataObject) -> None:
    entries = make(size)
    assert chain.problems(entries) == []
    index = data.draw(st.integers(0, size - 1))
    field = data.draw(st.sampled_from(["kind", "population", "release_id", "payload", "previous", "hash"]))
    entries[index] = replace(entries[index], **{field: getattr(entries[index], field) + "x"})
    assert any(f"entry {index + 1}" in problem for problem in chain.problems(entries))


@given(st.integers(2, 12), st.data())
def test_removed_or_swapped_entry_is_found(size: int, data: st.DataObject) -> None:
    entries = make(size)
    gone = data.draw(st.integers(0, size - 2))
    assert f"entry {gone + 1} is missing: the next one is {gone + 2}" in chain.problems(
        entries[:gone] + entries[gone + 1 :]
    )
    one, two = entries[gone], entries[gone + 1]
    entries[gone], entries[gone + 1] = (
        replace(two, sequence=one.sequence),
        replace(one, sequence=two.sequence),
    )
    assert chain.problems(entries)


def test_cut_tail_is_found_by_heads_only() -> None:
    entries = make(5)
    assert chain.problems(entries[:3]) == []
    assert chain.lost(entries, [(entry.sequence, entry.hash) for entry in entries]) == []
    assert chain.lost(entries[:3], [entries[2].hash]) == []
    assert "head" in chain.lost(entries[:3], [(4, entries[3].hash)])[0]
    assert "is entry 2 here but entry 3" in chain.lost(entries, [(3, entries[1].hash)])[0]


TAMPERINGS = {
    "edit": "UPDATE ledger_entries SET payload = replace(payload, '1e-05', '1e-06') WHERE sequence = 2",
    "edit_population": "UPDATE ledger_entries SET population = 'nobody' WHERE sequence = 3",
    "remove": "DELETE FROM ledger_entries WHERE sequence = 3",
    "remove_first": "DELETE FROM ledger_entries WHERE sequence = 1",
    "empty": "DELETE FROM ledger_entries",
}


@pytest.fixture
def filled(ledger: Ledger) -> Ledger:
    """Five entries: open, cap, reserve, commit, reserve."""
    reserve(ledger, "a", 0.5)
    ledger.commit(name("a"), name("bytes"))
    reserve(ledger, "b", 0.5)
    return ledger


@pytest.mark.parametrize("statement", TAMPERINGS.values(), ids=TAMPERINGS)
def test_tampering_in_the_database_is_found_and_stops_spending(
    filled: Ledger, url: str, statement: str
) -> None:
    assert filled.verify([filled.head()]) == []
    with tampering(url) as connection:
        assert connection.execute(sa.text(statement)).rowcount > 0
    assert filled.verify()
    with pytest.raises(LedgerError, match="was changed"):
        reserve(filled, "c", 0.1)


def test_reordered_rows_are_found(filled: Ledger, url: str) -> None:
    with tampering(url) as connection:
        for old, new in ((3, 100), (5, 3), (100, 5)):
            connection.execute(sa.text(f"UPDATE ledger_entries SET sequence = {new} WHERE sequence = {old}"))
    assert filled.verify()


def test_cut_tail_is_found_through_a_receipt(filled: Ledger, url: str) -> None:
    receipt = filled.receipt()
    with tampering(url) as connection:
        connection.execute(sa.text("DELETE FROM ledger_entries WHERE sequence > 3"))
    assert filled.verify() == []
    assert filled.verify([(receipt["sequence"], receipt["head"])]) == [
        f"head {receipt['head'][:12]} of entry 5 stands in a receipt but "
        "not in the ledger: it was cut or rewritten"
    ]


def test_rewritten_ledger_is_found_through_a_receipt(filled: Ledger, url: str) -> None:
    head = filled.head()
    rewritten: list[chain.Entry] = []
    for entry in filled.history():
        if entry.release_id != name("a"):  # forget a release and make every hash right again
            details = {
                key: entry.details[key] for key in entry.details.keys() - {"salt", "commitment", "nonce"}
            }
            named = {"population": entry.population, "release_id": entry.release_id}
            salt = salts(rewritten).get(entry.population)
            link = (
                link_of(rewritten[-1], entry.kind, **named, salt=salt, details=details)
                if rewritten
                else entry
            )
            rewritten.append(link)
    store = Store(url)
    with tampering(url) as connection:
        connection.execute(sa.text("DELETE FROM ledger_entries"))
        for entry in rewritten:
            store.append(connection, entry)
    assert filled.verify() == []
    assert "was cut or rewritten" in filled.verify([head])[0]


def test_commit_without_reservation_is_found(filled: Ledger, url: str) -> None:
    last = filled.history()[-1]
    with tampering(url) as connection:
        Store(url).append(
            connection, chain.link(last, "commit", release_id=name("z"), details={"manifest": "", "at": ""})
        )
    assert "does not belong here" in filled.verify()[0]
