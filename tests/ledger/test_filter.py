"""The cap is a privacy filter (docs/proofs/filter.md): no analyst
who chooses by what was seen gets past it.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airlock.errors import BudgetRefused, InputError
from airlock.ledger import Ledger, Quote, chain
from airlock.ledger.accounts import Account, Cap, Release, read_book
from airlock.ledger.store import Store
from airlock.privacy import accounting, charges, events, gaussian
from airlock.privacy.filter import Box, add_up
from tests.support.bookkeeping import name, reserve

Event = dict[str, Any]


def normal(mu: float) -> Event:
    return {"kind": "gaussian", "noise_multiplier": 1 / mu}


def steps(rate: float, multiplier: float, count: int = 1) -> Event:
    step = {
        "kind": "poisson-sampled",
        "sampling_probability": rate,
        "event": {"kind": "gaussian", "noise_multiplier": multiplier},
    }
    return {"kind": "self-composed", "count": count, "event": step}


def laplace(epsilon: float) -> Event:
    return {"kind": "laplace", "noise_multiplier": 1 / epsilon}


@pytest.fixture
def ledger(tmp_path: Any) -> Ledger:
    return Ledger.open(f"sqlite:///{tmp_path}/ledger.db", create=True)


# docs/proofs/filter.md, Mixed histories: first, and two continuations that each fitted the old rule.
COUNTEREXAMPLES = {
    "after a Gaussian": (1.0, normal(0.2), normal(0.178), steps(1e-4, 0.287), 1.8e-5),
    "after Laplace": (3.0, laplace(0.5), laplace(2.50004), steps(9.25e-5, 0.25), 1.3e-5),
}
SPLITS = [(None, None), (0.0, 1.9e-7), (0.0, 5e-6), (0.5, 1e-6), (1.0, 0.0)]


def together(epsilon: float, first: Event, one: Event, other: Event) -> float:
    """delta of an analyst who goes on with the worse of the two for what came out first, by brute force (the
    control).
    """

    def gaussian_curve(mu: float, e: Any) -> Any:
        from scipy.special import ndtr

        return ndtr(mu / 2 - np.log(e) / mu) - e * ndtr(-mu / 2 - np.log(e) / mu)

    def curve(event: Event) -> Any:
        if event["kind"] == "gaussian":
            return lambda e: gaussian_curve(1 / event["noise_multiplier"], e)
        if event["kind"] == "laplace":
            pure = 1 / event["noise_multiplier"]
            return lambda e: np.where(
                np.log(e) >= pure,
                0,
                np.where(np.log(e) <= -pure, 1 - e, 1 - np.exp((np.log(e) - pure) / 2)),
            )
        step = event["event"]
        rate, shift = step["sampling_probability"], 1 / step["event"]["noise_multiplier"]
        lifted = lambda e: np.maximum((e - 1 + rate) / rate, 1e-300)  # noqa: E731
        return lambda e: np.where(e <= 1 - rate, 1 - e, rate * gaussian_curve(shift, lifted(e)))

    worst = lambda e: np.maximum(curve(one)(e), curve(other)(e))  # noqa: E731
    e = math.exp(epsilon)
    if first["kind"] == "gaussian":
        mu, y = 1 / first["noise_multiplier"], np.linspace(-12, 12, 200001)
        density = np.exp(-((y - mu) ** 2) / 2) / math.sqrt(2 * math.pi)
        return float(np.trapezoid(density * worst(e * np.exp(mu**2 / 2 - mu * y)), y))
    pure, x = 1 / first["noise_multiplier"], np.linspace(0, 1, 40001)
    inside = np.trapezoid(np.exp(-pure * x) * pure / 2 * worst(e * np.exp(-pure * (1 - 2 * x))), x)
    ends = worst(e * np.exp(-pure)) / 2 + np.exp(-pure) / 2 * worst(e * np.exp(pure))
    return float(inside + ends)


@pytest.mark.parametrize("case", COUNTEREXAMPLES.values(), ids=COUNTEREXAMPLES)
def test_control_each_continuation_fits_the_old_rule_and_the_choice_between_them_passes_the_cap(
    case: tuple[Any, ...],
) -> None:
    epsilon, first, one, other, at_least = case
    for event in (one, other):
        plan = accounting.total_epsilon([events.from_json(first), events.from_json(event)], 1.01e-5)
        assert plan <= epsilon * 1.00002
    assert together(epsilon, first, one, other) > at_least


@pytest.mark.parametrize(("pure", "slack"), SPLITS)
@pytest.mark.parametrize("case", COUNTEREXAMPLES.values(), ids=COUNTEREXAMPLES)
def test_in_no_split_do_both_continuations_fit(
    ledger: Ledger, case: tuple[Any, ...], pure: float | None, slack: float | None
) -> None:
    epsilon, first, one, other, _ = case
    let_through = []
    for number, event in enumerate((one, other)):
        population = f"world {number}"
        ledger.set_cap(population, epsilon, 1e-5, who="owner", why="test", pure=pure, slack=slack)
        try:
            reserve(ledger, f"first {number}", event=first, population=population)
            reserve(ledger, f"then {number}", event=event, population=population)
            let_through.append(event)
        except BudgetRefused:
            pass
    assert len(let_through) < 2


def test_sliding_split_is_refused_too(ledger: Ledger) -> None:
    """Adding up mu^2 and delta, and asking afterwards whether some split of delta covers both, is not a
    filter either.
    """
    one, other = normal(0.1785), steps(1e-5, 0.02)
    for slack in (0.0, 1e-6, 5e-6):
        population = f"slack {slack}"
        ledger.set_cap(population, 1, 1e-5, who="owner", why="test", pure=0.0, slack=slack)
        reserve(ledger, population, event=normal(0.2), population=population)
        quotes = [
            ledger.quote(
                population,
                [Release(name("x"), population, "m", event, "record", "zero-out", 1, False)],
            ).fits
            for event in (one, other)
        ]
        assert not all(quotes)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-7), (1.0, 1e-5), (3.0, 1e-5), (8.0, 1e-6)])
def test_gaussian_histories_have_the_same_limit_as_before(epsilon: float, delta: float) -> None:
    box = Box(epsilon, delta)
    assert gaussian.epsilon_at(box.mu, delta) <= epsilon * (1 + 1e-9)
    assert gaussian.epsilon_at(math.nextafter(box.mu, math.inf), delta) > epsilon * (1 + 1e-9)
    charge = charges.charge(
        events.from_json(normal(0.3)), neighbours="zero-out", purse=False, slack=0.0, mu=box.mu
    )
    assert box.gauge(charge) == accounting.epsilon(events.from_json(normal(0.3)), delta)


@given(
    st.lists(
        st.tuples(
            st.floats(1e-3, 0.2),
            st.floats(0.6, 4.0),
            st.integers(1, 500),
            st.sampled_from(["zero-out", "replace-one"]),
        ),
        min_size=1,
        max_size=1,
    ),
    st.floats(0.0, 1.0),
)
@settings(max_examples=10, deadline=None)
def test_pair_is_above_the_loss_distribution_everywhere(
    drawn: list[tuple[float, float, int, Any]], mu: float
) -> None:
    """Against dp_accounting's curve, alone and composed with a Gaussian: the pair never promises more."""
    ((rate, multiplier, count, neighbours),) = drawn
    event = events.from_json(steps(rate, multiplier, count))
    box = Box(8.0, 1e-5, slack=1e-6)
    charge = charges.charge(event, neighbours=neighbours, purse=False, slack=box.slack, mu=box.mu)
    if charge is None:
        return
    total = charge + charges.Charge(square=Fraction(mu) ** 2)
    plan = events.compose([event, *([events.from_json(normal(mu))] if mu > 1e-3 else [])])
    for epsilon in (0.0, 0.5, 2.0, 5.0):
        shift = math.sqrt(total.square)
        ours = float(total.delta) + gaussian.delta_at(shift, epsilon) if shift else float(total.delta)
        assert accounting.delta_of(plan, epsilon, neighbours=neighbours) <= ours * (1 + 1e-6) + 1e-11


def test_pair_of_a_gaussian_and_of_laplace_noise_is_known() -> None:
    def shift(part: Event, delta: float) -> float:
        return charges._curve(((events.from_json(part), 1),), "zero-out").shift(delta)

    assert shift(laplace(1.0), 1e-10) == pytest.approx(1.03006, abs=1e-4)
    assert charges.pure_shift(1.0) == pytest.approx(1.2320, abs=1e-4)
    sampled = steps(0.01, 1.0, 1000)
    parts = tuple(events.leaves(events.from_json(sampled)).items())
    curve = charges._curve(parts, "zero-out")
    assert [round(curve.shift(delta), 4) for delta in (1e-7, 1e-6, 2e-6)] == [0.4729, 0.4608, 0.4573]


def test_both_limits_are_used_up_together_by_however_many_releases(ledger: Ledger) -> None:
    ledger.set_cap("clinic", 3, 1e-5, who="owner", why="test", slack=1e-6)
    made = 0
    with pytest.raises(BudgetRefused, match="largest epsilon that still fits|nothing more fits"):
        for number in range(100):
            reserve(ledger, str(number), event=steps(0.01, 2.0, 400))
            made += 1
    purses = ledger.spent("clinic").box
    assert made > 5
    for purse in ("mu", "slack"):
        used = purses[purse].used / purses[purse].limit
        assert 0.85 < used <= 1


def test_order_of_arrival_does_not_matter(tmp_path: Any) -> None:
    history = [normal(0.1), steps(0.01, 1.5, 300), laplace(0.2), normal(0.05)]
    spent = []
    for order in (history, history[::-1]):
        place = Ledger.open(f"sqlite:///{tmp_path}/{len(spent)}.db", create=True)
        place.set_cap("clinic", 3, 1e-5, who="owner", why="test", pure=0.5, slack=1e-6)
        for number, event in enumerate(order):
            reserve(place, str(number), event=event)
        spent.append((place.spent("clinic").epsilon, place.spent("clinic").box))
    assert spent[0] == spent[1]


@pytest.mark.parametrize(
    ("first", "pure", "slack"),
    [(normal(0.1), 0.0, 0.0), (laplace(0.1), 3.0, 0.0), (steps(0.01, 1.5, 100), 0.0, 1e-6)],
    ids=["gaussian", "pure", "sampled"],
)
def test_first_release_fixes_the_split_where_the_owner_did_not(
    ledger: Ledger, first: Event, pure: float, slack: float
) -> None:
    ledger.set_cap("clinic", 3, 1e-5, who="owner", why="test")
    reserve(ledger, "a", event=first)
    box = ledger.spent("clinic").box
    assert (box["pure"].limit, box["slack"].limit) == (pure, pytest.approx(slack))


def test_giving_back_the_release_that_fixed_the_split_does_not_change_it(ledger: Ledger) -> None:
    """Otherwise the split could be chosen after a result was seen: the smallest box that holds both has a
    delta of 1.1 times the cap's.
    """
    ledger.set_cap("clinic", 3, 1e-5, who="owner", why="test")
    reserve(ledger, "a", event=steps(0.01, 1.5, 100))
    ledger.give_back(name("a"), who="owner", why="nothing was seen: the next one decides")
    reserve(ledger, "b", event=steps(0.01, 1.5, 100))
    reserve(ledger, "c", event=normal(0.1))
    ledger.start(name("c"))
    ledger.commit(name("c"), "0" * 64)
    before = ledger.spent("clinic").box
    assert before["slack"].limit == pytest.approx(1e-6)
    ledger.give_back(name("b"), who="owner", why="it never started")
    after = ledger.spent("clinic").box
    assert (after["slack"].limit, after["mu"].limit) == (before["slack"].limit, before["mu"].limit)


def test_refusal_beside_laplace_noise_names_the_reason(ledger: Ledger) -> None:
    ledger.set_cap("clinic", 3, 1e-5, who="owner", why="test")
    reserve(ledger, "a", event=laplace(0.1))
    with pytest.raises(BudgetRefused, match="all of it for Laplace noise"):
        reserve(ledger, "b", event=normal(0.01))


def test_population_of_laplace_noise_loses_nothing(ledger: Ledger) -> None:
    ledger.set_cap("clinic", 3, 1e-5, who="owner", why="test")
    for number in range(3):
        reserve(ledger, str(number), event=laplace(1.0))
    assert ledger.spent("clinic").epsilon == pytest.approx(3, rel=1e-9)
    with pytest.raises(BudgetRefused):
        reserve(ledger, "more", event=laplace(0.01))


def test_refusal_of_what_has_no_slack_names_the_way(ledger: Ledger) -> None:
    ledger.set_cap("clinic", 3, 1e-5, who="owner", why="test", pure=0.0, slack=0.0)
    with pytest.raises(BudgetRefused, match=r"split off slack for it with --slack 1e-06"):
        reserve(ledger, "a", event=steps(0.01, 1.5, 100))
    reserve(ledger, "b", event=normal(0.1))
    with pytest.raises(BudgetRefused, match="fixed with the first release"):
        reserve(ledger, "a", event=steps(0.01, 1.5, 100))


def test_refused_sampled_release_is_told_what_fits_and_it_does(ledger: Ledger) -> None:
    ledger.set_cap("clinic", 1, 1e-5, who="owner", why="test")
    event = steps(0.01, 1.0, 1000)
    with pytest.raises(BudgetRefused, match="largest epsilon that still fits") as refusal:
        reserve(ledger, "a", event=event)
    advised = float(str(refusal.value).split("still fits is ")[1].split(":")[0])
    from airlock.privacy.calibration import sampled_gaussian_multiplier

    multiplier = sampled_gaussian_multiplier(advised, 1e-5, rate=0.01, steps=1000)
    assert reserve(ledger, "b", event=steps(0.01, multiplier, 1000)).status == "new"
    assert 0.8 < advised < 1


def test_cap_is_not_raised_after_results_were_seen_unless_called_an_odometer(ledger: Ledger) -> None:
    ledger.set_cap("clinic", 3, 1e-5, who="owner", why="test")
    ledger.set_cap("clinic", 4, 1e-5, who="owner", why="nothing was seen yet")
    reserve(ledger, "a", 1.0)
    for change in ({"epsilon": 5}, {"delta": 1e-4}, {"slack": 1e-6}):
        wanted = {"epsilon": 4, "delta": 1e-5, **change}
        with pytest.raises(BudgetRefused, match="--odometer"):
            ledger.set_cap("clinic", who="owner", why="more", **wanted)
    ledger.set_cap("clinic", 2, 1e-5, who="owner", why="less")
    ledger.set_cap("clinic", 4, 1e-5, who="owner", why="what was promised first")
    assert not ledger.spent("clinic").raised
    ledger.set_cap("clinic", 5, 1e-5, who="owner", why="more", odometer=True)
    assert ledger.spent("clinic").raised
    assert [cap.odometer for cap in read_book(ledger.history()).caps["clinic"]] == [
        False,
        False,
        False,
        False,
        True,
    ]
    reserve(ledger, "b", 4.0)


def test_cap_of_public_data_is_raised_freely(ledger: Ledger) -> None:
    ledger.set_cap("benchmark", 3, 1e-5, who="owner", why="test")
    reserve(ledger, "a", 2.0, public=True, population="benchmark")
    reserve(ledger, "b", event=steps(0.01, 1.5, 100), public=True, population="benchmark")
    ledger.set_cap("benchmark", 30, 1e-5, who="owner", why="more")
    assert not ledger.spent("benchmark").raised


@pytest.mark.parametrize("split", [{"pure": 4.0}, {"pure": -1.0}, {"slack": 1e-5}, {"slack": -1e-9}])
def test_impossible_splits_are_refused(ledger: Ledger, split: dict[str, float]) -> None:
    with pytest.raises(InputError, match="--pure between 0 and its epsilon, and --slack"):
        ledger.set_cap("clinic", 3, 1e-5, who="owner", why="test", **split)


def test_charge_is_written_down_and_stays_when_the_cap_is_lowered(ledger: Ledger) -> None:
    ledger.set_cap("clinic", 3, 1e-5, who="owner", why="test", slack=1e-6)
    reserve(ledger, "a", event=steps(0.01, 1.5, 100))
    written = ledger.history("clinic")[-1].details["charge"]
    before = ledger.spent("clinic").box["mu"].used
    ledger.set_cap("clinic", 2, 1e-5, who="owner", why="less", slack=5e-7)
    assert ledger.release(name("a")).charge == written
    assert ledger.spent("clinic").box["mu"].used == before
    reserve(ledger, "b", event=normal(0.1))
    assert "charge" not in ledger.history("clinic")[-1].details


def old_history(ledger: Ledger, population: str, history: list[Event]) -> None:
    """Entries as an older Airlock wrote them: a cap without a split, reservations without a charge."""
    store = Store(str(ledger))
    with store.writing() as connection:
        last = store.entries(connection)[-1]
        cap = {"epsilon": 3.0, "delta": 1e-5, "who": "owner", "why": "old", "at": "2026-01-01T00:00+00:00"}
        store.append(connection, last := chain.link(last, "cap", population=population, details=cap))
        for number, event in enumerate(history):
            terms = Release("", population, "old", event, "record", "zero-out", 1, False).terms()
            details = {**terms, "at": "2026-01-01T00:00+00:00"}
            entry = chain.link(
                last,
                "reserve",
                population=population,
                release_id=name(f"{population} {number}"),
                details=details,
            )
            store.append(connection, last := entry)


def test_old_entries_are_charged_again_and_none_is_lost(ledger: Ledger) -> None:
    old_history(ledger, "gaussian", [normal(0.1), normal(0.2)])
    old_history(ledger, "sampled", [steps(0.01, 1.5, 100), normal(0.1)])
    old_history(ledger, "mixed", [normal(0.1), steps(0.01, 1.5, 100)])
    assert ledger.verify() == []
    both = events.compose([events.from_json(normal(0.1)), events.from_json(normal(0.2))])
    assert ledger.spent("gaussian").epsilon == accounting.epsilon(both, 1e-5)
    for population in ("sampled", "mixed"):
        spent = ledger.spent(population)
        assert spent.releases == 2 and 0.3 < spent.epsilon < 3
    reserve(ledger, "a", event=normal(0.1), population="sampled")
    with pytest.raises(BudgetRefused):
        reserve(ledger, "b", event=normal(0.01), population="mixed")


def test_what_has_no_finite_charge_is_never_left_out_of_the_sum() -> None:
    cap = Cap(3.0, 1e-5, "owner", "test", "", pure=0.0, slack=0.0)
    hopeless = Release("", "p", "m", laplace(5000.0), "record", "zero-out", 1, False)
    quote = Quote(Account("p", (cap,), (hopeless,)), ())
    assert quote.before == math.inf and not quote.fits


def test_ten_thousand_distinct_gaussians_add_up_at_once() -> None:
    found = [
        charges.charge(
            events.from_json(normal(1e-3 + number * 1e-8)), neighbours="zero-out", purse=False, slack=0, mu=1
        )
        for number in range(2000)
    ]
    total = add_up(found)
    exact = math.fsum(1 / (1 / (1e-3 + number * 1e-8)) ** 2 for number in range(2000))
    assert float(total.square) == pytest.approx(exact, rel=1e-12)
    assert total.square.denominator <= 2**400
