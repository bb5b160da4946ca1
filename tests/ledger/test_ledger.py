"""What a ledger promises, in every kind of database."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from airlock.errors import BudgetRefused, InputError, LedgerError, ReleaseError
from airlock.ledger import Ledger
from airlock.privacy import accounting, events
from tests.support.bookkeeping import gaussian, name, reserve

SAMPLED = {
    "kind": "self-composed",
    "count": 50,
    "event": {
        "kind": "poisson-sampled",
        "sampling_probability": 0.05,
        "event": {"kind": "gaussian", "noise_multiplier": 1.0},
    },
}


def test_reservation_is_spent_before_the_release_is_made(ledger: Ledger) -> None:
    assert reserve(ledger, "a", 1.0).status == "new"
    spent = ledger.spent("clinic")
    assert spent.epsilon == pytest.approx(1.0, rel=1e-9)
    assert [release.release_id for release in spent.reserved] == [name("a")]
    ledger.commit(name("a"), name("bytes"))
    assert ledger.spent("clinic").epsilon == spent.epsilon
    assert ledger.spent("clinic").reserved == ()


@pytest.mark.parametrize("public", [False, True])
def test_total_is_composed_from_events_and_not_added_up(ledger: Ledger, public: bool) -> None:
    ledger.set_cap("mixed", 3, 1e-5, who="owner", why="test", slack=1e-6)
    history = [gaussian(0.5), SAMPLED, gaussian(0.7)]
    for number, event in enumerate(history):
        named = "dp-sgd" if event is SAMPLED else "coefficients"
        reserve(ledger, str(number), event=event, mechanism=named, population="mixed", public=public)
    spent = ledger.spent("mixed")
    plan = accounting.total_epsilon([events.from_json(event) for event in history], 1e-5)
    assert (spent.epsilon == plan) if public else plan < spent.epsilon < 1.05 * plan
    assert spent.epsilon < sum(accounting.epsilon(events.from_json(event), 1e-5) for event in history)
    alone = accounting.epsilon(events.from_json(SAMPLED), 1e-5)
    assert spent.mechanisms["dp-sgd"] == pytest.approx(alone, rel=0 if public else 0.05)
    assert reserve(ledger, "what fits", spent.largest, population="mixed", public=public).status == "new"


@pytest.mark.parametrize(("epsilon", "delta"), [(3.0, 1e-5), (0.1, 1e-7), (8.0, 1e-6), (1 / 3, 1.23e-9)])
def test_release_priced_to_fit_the_cap_fits(ledger: Ledger, epsilon: float, delta: float) -> None:
    ledger.set_cap("exact", epsilon, delta, who="owner", why="test")
    reserve(ledger, "relevance", event=gaussian(epsilon, delta, 0.1), population="exact")
    reserve(ledger, "release", event=gaussian(epsilon, delta, 1 - 0.1), population="exact")
    assert ledger.spent("exact").epsilon == pytest.approx(epsilon, rel=1e-9)
    with pytest.raises(BudgetRefused):
        reserve(ledger, "more", 0.001, population="exact")


def test_refusal_shows_the_arithmetic_and_its_advice_fits(ledger: Ledger) -> None:
    reserve(ledger, "a", 2.0)
    with pytest.raises(BudgetRefused) as refusal:
        reserve(ledger, "b", 2.5)
    text = str(refusal.value)
    assert text.startswith(
        "clinic: 2 spent of 3 at delta 1e-05; this release alone is 2.5, together 3.345 > 3;"
    )
    assert "airlock budget set clinic --epsilon E --delta 1e-05 --why TEXT" in text
    assert "\n" not in text
    advised = float(re.search(r"largest epsilon that still fits is ([\d.]+\d)", text)[1])
    assert advised == ledger.spent("clinic").largest
    with pytest.raises(BudgetRefused):
        reserve(ledger, "c", advised * 1.02)
    assert reserve(ledger, "d", advised).status == "new"


def test_refused_release_writes_nothing(ledger: Ledger) -> None:
    before = ledger.receipt()
    with pytest.raises(BudgetRefused, match=r"alone is 3\.5"):
        reserve(ledger, "a", 3.5)
    assert ledger.receipt() == before
    assert ledger.release(name("a")) is None


def test_dead_reservation_stays_spent_and_is_taken_over_without_a_second_charge(
    ledger: Ledger, url: str
) -> None:
    reserve(ledger, "a", 2.0)
    again = Ledger.open(url, create=False)
    spent = again.spent("clinic").epsilon
    assert reserve(again, "a", 2.0).status == "taken-over"
    assert again.spent("clinic").epsilon == spent
    assert [entry.kind for entry in again.history("clinic")] == ["cap", "reserve", "take-over"]
    assert again.release(name("a")).taken_over == 1


def test_committed_id_is_for_replay_and_costs_nothing(ledger: Ledger) -> None:
    reserve(ledger, "a", 2.0)
    ledger.commit(name("a"), name("bytes"))
    before = ledger.receipt()
    reservation = reserve(ledger, "a", 2.0)
    assert (reservation.status, reservation.manifest) == ("committed", name("bytes"))
    ledger.commit(name("a"), name("bytes"))
    assert ledger.receipt() == before


def test_committing_other_bytes_is_refused_and_writes_nothing(ledger: Ledger) -> None:
    reserve(ledger, "a")
    ledger.commit(name("a"), name("bytes"))
    before = ledger.receipt()
    with pytest.raises(ReleaseError, match="committed with other bytes"):
        ledger.commit(name("a"), name("other bytes"))
    assert ledger.receipt() == before


def test_commit_needs_a_reservation(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="never reserved"):
        ledger.commit(name("a"), name("bytes"))


@pytest.mark.parametrize("terms", [{"event": gaussian(0.5)}, {"population": "other"}, {"mechanism": "adlm"}])
def test_known_id_on_other_terms_is_refused(ledger: Ledger, terms: dict[str, object]) -> None:
    ledger.set_cap("other", 3, 1e-5, who="owner", why="test")
    reserve(ledger, "a", 1.0)
    with pytest.raises(ReleaseError, match="on other terms"):
        reserve(ledger, "a", **{"event": gaussian(1.0), **terms})


def test_population_without_a_cap_is_refused_with_the_command_that_sets_it(ledger: Ledger) -> None:
    with pytest.raises(BudgetRefused, match="airlock budget set bank --epsilon"):
        reserve(ledger, "a", population="bank")


def test_changed_data_is_a_new_id_and_does_not_refill_the_budget(ledger: Ledger) -> None:
    reserve(ledger, "569 records", 2.9)
    with pytest.raises(BudgetRefused):
        reserve(ledger, "579 records", 2.9)


@pytest.mark.parametrize("event", [None, {"kind": "non-private"}, {}])
def test_release_without_finite_proof_is_for_public_data_only(
    ledger: Ledger, event: dict[str, str] | None
) -> None:
    with pytest.raises(BudgetRefused, match="no finite epsilon is proven"):
        reserve(ledger, "a", event=event, mechanism="as-published")
    reserve(ledger, "b", event=event, public=True, population="benchmark")
    assert ledger.spent("benchmark").epsilon == 0
    assert ledger.spent("benchmark").disclosures == 1
    assert ledger.history("benchmark")[0].kind == "disclosure"


def test_release_that_reads_nothing_is_free(ledger: Ledger) -> None:
    assert not reserve(ledger, "a", event=None, passes=0, population="no cap").charged


def test_public_population_needs_no_cap_but_keeps_one(ledger: Ledger) -> None:
    reserve(ledger, "a", 5.0, public=True, population="benchmark")
    assert ledger.spent("benchmark").left is None
    ledger.set_cap("benchmark", 6, 1e-5, who="owner", why="test")
    with pytest.raises(BudgetRefused):
        reserve(ledger, "b", 5.0, public=True, population="benchmark")


@pytest.mark.parametrize("terms", [{"neighbours": "replace-one"}, {"unit": "user"}])
def test_population_has_one_unit_and_one_relation(ledger: Ledger, terms: dict[str, str]) -> None:
    reserve(ledger, "a", 0.1)
    with pytest.raises(BudgetRefused, match="accounted per record under zero-out"):
        reserve(ledger, "b", 0.1, **terms)
    # Of public data too, where a cap asks for a total: it used to be refused as "together inf".
    ledger.set_cap("benchmark", 6, 1e-5, who="owner", why="test")
    reserve(ledger, "c", 0.1, public=True, population="benchmark")
    with pytest.raises(BudgetRefused, match="set release.unit and release.neighbours back"):
        reserve(ledger, "d", 0.1, public=True, population="benchmark", **terms)


def test_mixed_relations_of_public_data_have_no_total(ledger: Ledger) -> None:
    for relation in ("zero-out", "replace-one"):
        reserve(ledger, relation, 0.1, neighbours=relation, public=True, population="benchmark")
    assert ledger.spent("benchmark").epsilon == math.inf
    assert ledger.spent("benchmark").neighbours is None


def test_caps_keep_their_history_with_who_and_why(ledger: Ledger) -> None:
    reserve(ledger, "a", 2.9)
    ledger.set_cap("clinic", 5, 1e-6, who="board", why="second study", odometer=True)
    assert (ledger.cap("clinic").epsilon, ledger.cap("clinic").delta) == (5, 1e-6)
    caps = [entry.details for entry in ledger.history("clinic") if entry.kind == "cap"]
    assert [(cap["who"], cap["why"], cap["odometer"]) for cap in caps] == [
        ("owner", "ethics board", False),
        ("board", "second study", True),
    ]
    assert ledger.spent("clinic").epsilon == pytest.approx(
        accounting.epsilon(events.from_json(gaussian(2.9)), 1e-6)
    )
    reserve(ledger, "b", 1.0)


def test_lowering_a_cap_below_what_was_spent_leaves_nothing(ledger: Ledger) -> None:
    reserve(ledger, "a", 2.0)
    ledger.set_cap("clinic", 1, 1e-5, who="owner", why="withdrawn")
    assert (ledger.spent("clinic").left, ledger.spent("clinic").largest) == (0, 0)
    with pytest.raises(BudgetRefused, match="nothing more fits"):
        reserve(ledger, "b", 0.001)


@pytest.mark.parametrize(
    ("epsilon", "delta", "who", "why"),
    [
        (-1, 1e-5, "a", "b"),
        (math.inf, 1e-5, "a", "b"),
        (math.nan, 1e-5, "a", "b"),
        (1, 0, "a", "b"),
        (1, 1, "a", "b"),
        (1, 1e-5, "", "b"),
        (1, 1e-5, "a", " "),
    ],
)
def test_impossible_caps_are_refused(
    ledger: Ledger, epsilon: float, delta: float, who: str, why: str
) -> None:
    with pytest.raises(InputError, match="a cap needs"):
        ledger.set_cap("clinic", epsilon, delta, who=who, why=why)


def test_quote_is_what_reserve_would_say(ledger: Ledger) -> None:
    reserve(ledger, "a", 2.0)
    known = ledger.release(name("a"))
    assert ledger.quote("clinic", [known]).asked == ()
    quote = ledger.quote("clinic", [replace(known, release_id=name("b"), event=gaussian(2.5))])
    assert quote.before == pytest.approx(2.0)
    assert quote.alone == pytest.approx(2.5)
    assert not quote.fits
    assert ledger.quote("clinic", [replace(known, release_id=name("b"), event=gaussian(0.5))]).fits


def test_scratch_ledger_takes_public_data_only(url: str) -> None:
    scratch = Ledger.open(url, create=True, scratch=True)
    assert scratch.scratch
    scratch.set_cap("clinic", 3, 1e-5, who="owner", why="test")
    with pytest.raises(BudgetRefused, match="takes public data only"):
        reserve(scratch, "a")
    assert reserve(scratch, "b", public=True).status == "new"


def test_event_that_cannot_be_priced_is_refused(ledger: Ledger) -> None:
    with pytest.raises(ReleaseError, match="cannot be priced"):
        reserve(ledger, "a", event={"kind": "gaussian", "noise_multiplier": -1.0})
