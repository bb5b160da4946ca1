"""Every entry commits to its population: a hidden one is provably of another, and tells nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airlock.ledger import Ledger, chain, commitments
from airlock.ledger.accounts import Release
from airlock.ledger.store import Store
from tests.support.bookkeeping import name, reserve


@pytest.fixture
def ledger(tmp_path: Any) -> Ledger:
    made = Ledger.open(f"sqlite:///{tmp_path}/ledger.db", create=True)
    for population in ("clinic", "bank"):
        made.set_cap(population, 3, 1e-5, who="owner", why="test")
        for number in range(3):
            reserve(made, f"{population} {number}", 0.1, population=population)
            made.commit(name(f"{population} {number}"), name("bytes"))
    return made


def test_salt_of_a_population_tells_its_entries_from_all_others(ledger: Ledger) -> None:
    entries = ledger.history()
    salt = commitments.salts(entry for entry in entries if entry.population == "clinic")["clinic"]
    for entry in entries[1:]:
        mine = commitments.is_of(salt, "clinic", entry.sequence, str(entry.commitment))
        assert mine == (entry.population == "clinic")


def test_hidden_entry_is_followed_by_what_may_be_shown_of_it(ledger: Ledger) -> None:
    for entry in ledger.history()[1:]:
        shown = (entry.sequence, str(entry.commitment), entry.body(), entry.previous)
        assert chain.sealed_digest(*shown) == entry.hash
        other = commitments.commitment("another salt", "bank", entry.sequence)
        assert chain.sealed_digest(entry.sequence, other, entry.body(), entry.previous) != entry.hash


def test_commitments_do_not_tell_which_entries_belong_together(ledger: Ledger) -> None:
    entries = ledger.history()[1:]
    assert len({entry.commitment for entry in entries}) == len(entries)
    assert len({entry.body() for entry in entries}) == len(entries)
    salts = commitments.salts(entries)
    assert salts["clinic"] != salts["bank"]


def test_entry_that_names_one_population_and_commits_to_another_is_found(ledger: Ledger) -> None:
    store, entries = Store(str(ledger)), ledger.history()
    salt = commitments.salts(entries)["bank"]
    details = {"commitment": commitments.commitment(salt, "bank", entries[-1].sequence + 1), "at": ""}
    with store.writing() as connection:
        terms = Release("", "clinic", "m", None, "record", "zero-out", 0, False).terms()
        forged = chain.link(
            entries[-1], "disclosure", population="clinic", release_id=name("x"), details={**terms, **details}
        )
        store.append(connection, forged)
    assert ledger.verify() == [f"entry {forged.sequence} names 'clinic' but commits to another population"]


def test_old_chain_goes_on_with_commitments_and_cannot_go_back(ledger: Ledger) -> None:
    old = [replace(entry) for entry in ledger.history()[:1]]
    bare = {"epsilon": 1.0, "delta": 1e-5, "who": "o", "why": "w", "at": ""}
    old.append(chain.link(old[-1], "cap", population="clinic", details=bare))
    assert commitments.problems(old) == [] and old[-1].commitment is None
    new = commitments.link_of(old[-1], "cap", population="clinic", salt=None, details=bare)
    assert new.commitment and "salt" in new.details
    assert chain.problems([*old, new]) == [] and commitments.problems([*old, new]) == []
    silent = chain.link(new, "cap", population="clinic", details=bare)
    assert "does not say whose it is" in commitments.problems([*old, new, silent])[0]
