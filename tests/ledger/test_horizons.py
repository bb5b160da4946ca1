"""Nights that were paid together: what the ledger charges, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airlock.errors import BudgetRefused, LedgerError, ReleaseError
from airlock.ledger import Ledger

EVENT = {"kind": "gaussian", "noise_multiplier": 5.0}


def name(letter: str) -> str:
    return letter * 64


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}", create=True)
    made.set_cap("clinic", 2.0, 1e-6, who="t", why="test")
    return made


def reserve(ledger: Ledger, letter: str, night: int, nights: int = 4, **changes: Any) -> str:
    given = {
        "mechanism": "coefficients",
        "event": EVENT,
        "neighbours": "zero-out",
        "unit": "record",
        "passes": 1,
        "public": False,
        "horizon": {"id": name("a"), "night": night, "nights": nights},
    }
    return ledger.reserve("clinic", release_id=name(letter), **{**given, **changes}).status


def test_the_first_night_is_charged_for_all(ledger: Ledger) -> None:
    with pytest.raises(BudgetRefused, match="first night was not charged"):
        reserve(ledger, "b", 2)
    assert reserve(ledger, "a", 1) == "new"
    paid = ledger.spent("clinic").epsilon
    with pytest.raises(BudgetRefused, match="night 1 of 'clinic' is reserved and not committed"):
        reserve(ledger, "b", 2)
    ledger.commit(name("a"), name("1"))
    for letter, night in (("b", 2), ("c", 3)):
        assert reserve(ledger, letter, night) == "new"
        assert reserve(ledger, letter, night) == "taken-over"
        ledger.commit(name(letter), name(letter))
        assert reserve(ledger, letter, night) == "committed"
    spent = ledger.spent("clinic")
    assert spent.epsilon == paid
    assert (spent.releases, spent.disclosures) == (1, 0)
    assert spent.horizons == ((name("a"), 3, 4),)
    assert [entry.kind for entry in ledger.history("clinic")].count("night") == 2
    assert ledger.verify() == []


def test_a_night_has_one_release_the_price_of_the_first_and_an_end(ledger: Ledger) -> None:
    reserve(ledger, "a", 1)
    ledger.commit(name("a"), name("1"))
    reserve(ledger, "b", 2)
    ledger.commit(name("b"), name("2"))
    refused: list[tuple[dict[str, Any], str]] = [
        ({"night": 2}, "comes after night 2"),
        ({"night": 5}, "beyond its horizon"),
        ({"night": 3, "nights": 5}, "beyond its horizon"),
        ({"night": 3, "event": {"kind": "gaussian", "noise_multiplier": 4.0}}, "another price"),
        ({"night": 3, "unit": "user"}, "another price"),
        ({"night": 3, "mechanism": "inputs"}, "another price"),
    ]
    head = ledger.head()
    for changes, line in refused:
        with pytest.raises(BudgetRefused, match=line):
            reserve(ledger, "d", **changes)
    assert ledger.head() == head
    with pytest.raises(ReleaseError, match="on other terms"):
        reserve(ledger, "b", 3)


def test_a_night_that_was_given_up_is_over_and_a_retired_population_has_no_nights(ledger: Ledger) -> None:
    reserve(ledger, "a", 1)
    ledger.commit(name("a"), name("1"))
    reserve(ledger, "b", 2)
    ledger.start(name("b"))
    ledger.give_up(name("b"), who="t", why="test")
    with pytest.raises(BudgetRefused, match="comes after night 2"):
        reserve(ledger, "c", 2)
    assert reserve(ledger, "c", 3) == "new"
    ledger.commit(name("c"), name("3"))
    ledger.retire("clinic", who="t", why="test")
    with pytest.raises(BudgetRefused, match="was retired"):
        reserve(ledger, "d", 4)


def test_a_second_horizon_is_charged_like_any_release(ledger: Ledger) -> None:
    reserve(ledger, "a", 1)
    ledger.commit(name("a"), name("1"))
    before = ledger.spent("clinic").epsilon
    other = {"id": name("e"), "night": 1, "nights": 4}
    assert reserve(ledger, "e", 1, horizon=other) == "new"
    assert ledger.spent("clinic").epsilon > before
    with pytest.raises(BudgetRefused, match="first night was not charged"):
        reserve(ledger, "f", 2, horizon={"id": name("9"), "night": 2, "nights": 4})


def test_a_night_written_past_the_rules_is_found(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever writes into the database without the ledger's checks: the chain is right, the book is not."""
    from airlock.ledger import refusals

    reserve(ledger, "a", 1)
    ledger.commit(name("a"), name("1"))
    with monkeypatch.context() as patch:
        patch.setattr(refusals, "check_terms", lambda *_, **__: None)
        reserve(ledger, "b", 9)
    with pytest.raises(LedgerError, match="beyond its horizon"):
        ledger.spent("clinic")
