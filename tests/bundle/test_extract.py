"""The ledger in a bundle: other populations are hashes, and the chain still holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from airlock.bundle import extract
from airlock.ledger import Ledger, chain


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
