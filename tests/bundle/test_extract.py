"""The ledger in a bundle: other populations are hashes, and the chain still holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from airlock.bundle import extract, ledgers
from airlock.ledger import Ledger, chain
from tests.support import bookkeeping


def ledger(tmp_path: Path) -> Ledger:
    made = Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}", create=True)
    for population in ("clinic", "secret-ward", "clinic"):
        made.set_cap(population, 1.0, 1e-5, who=f"owner of {population}", why="test")
    return made


def test_other_populations_are_hidden_and_the_chain_holds(tmp_path: Path) -> None:
    history = ledger(tmp_path).history()
    extract.write(
        extract.take(history, scratch=False, head=4, populations=["clinic"]), tmp_path / "real.json"
    )
    found = extract.read(tmp_path / "real.json")
    assert "secret-ward" not in (tmp_path / "real.json").read_text()
    assert [entry.kind for entry in found.visible] == ["open", "cap", "cap"]
    assert chain.problems(found.entries) == [] and found.entries[-1].hash == history[-1].hash


def test_it_ends_at_the_head_that_was_asked_for(tmp_path: Path) -> None:
    history = ledger(tmp_path).history()
    found = extract.take(history, scratch=False, head=2, populations=["clinic"])
    assert [entry.hash for entry in found.entries] == [entry.hash for entry in history[:2]]


def test_a_hidden_entry_cannot_be_replaced_or_taken_out(tmp_path: Path) -> None:
    found = extract.take(ledger(tmp_path).history(), scratch=False, head=4, populations=["clinic"])
    first, second, hidden, last = found.entries
    assert chain.problems([first, second, replace(hidden, hash="0" * 64), last])
    assert chain.problems([first, second, last])


def test_a_hidden_charge_of_the_bundled_population_is_found(tmp_path: Path) -> None:
    made = ledger(tmp_path)
    for number in range(3):
        bookkeeping.reserve(made, f"release {number}", 0.1)
    history = made.history()
    whole = extract.take(history, scratch=False, head=len(history), populations=["clinic"])
    assert list(ledgers._misplaced(whole)) == [] and whole.unknown == []
    hidden = replace(whole, entries=(*whole.entries[:-1], extract._hide(whole.entries[-1])))
    extract.write(hidden, tmp_path / "real.json")
    found = extract.read(tmp_path / "real.json")
    assert chain.problems(found.entries) == [], "the chain alone does not tell"
    assert [line for line in ledgers._misplaced(found) if "is hidden, and is of 'clinic'" in line]


def test_a_hidden_entry_cannot_deny_whose_it_is(tmp_path: Path) -> None:
    history = ledger(tmp_path).history()
    found = extract.take(history, scratch=False, head=4, populations=["clinic"])
    first, second, hidden, last = found.entries
    assert isinstance(hidden, extract.HiddenEntry) and chain.problems(found.entries) == []
    assert chain.problems([first, second, replace(hidden, stated="0" * 64), last])
    silent = replace(found, entries=(first, second, replace(hidden, stated=None), last))
    assert [line for line in ledgers._misplaced(silent) if "does not say whose" in line] and silent.unknown
