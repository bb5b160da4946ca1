"""When a release may not be made, and the one line that says why and what to do."""

from __future__ import annotations

import math
from collections.abc import Sequence

from airlock.errors import BudgetRefused, InputError
from airlock.ledger.accounts import Account, Cap, Release, night_problem
from airlock.ledger.quotes import Quote, largest_like
from airlock.ledger.totals import SLACK, charge_of, kind


def check_terms(asked: Release, account: Account, *, scratch: bool) -> None:
    """Everything but the sum: a proof, a cap, one relation, the right ledger.

    Raises:
        BudgetRefused: with the reason and the way out.
    """
    free = asked.event is None and asked.passes == 0
    if scratch and not asked.public:
        raise BudgetRefused(
            f"population '{asked.population}' is private and the scratch ledger takes public data only"
        )
    if account.retired is not None and not free:
        raise BudgetRefused(
            f"population '{asked.population}' was retired and releases nothing more: {account.retired}"
        )
    if asked.later_night:
        _check_night(asked, account)
        return
    if free or (asked.public and (account.cap is None or not asked.charged)):
        return
    if not asked.charged:
        raise BudgetRefused(
            f"population '{asked.population}': no finite epsilon is proven for '{asked.mechanism}', so it "
            "may only release public data; "
            f"choose another release.mechanism"
        )
    if account.cap is None:
        raise BudgetRefused(
            f"population '{asked.population}' has no cap, so nothing may be spent: {_set(asked.population)}"
        )
    if account.charged and account.charged[0].relation != asked.relation:
        unit, neighbours = account.charged[0].relation
        raise BudgetRefused(
            f"population '{asked.population}' is accounted per {unit} under {neighbours}, and this release "
            f"per {asked.unit} under "
            f"{asked.neighbours}: set release.unit and release.neighbours back, "
            "one population has one relation"
        )


def _check_night(asked: Release, account: Account) -> None:
    """A night that was paid with the first one: covered by it, and after all others."""
    if problem := night_problem(asked, account):
        raise BudgetRefused(f"this night of '{asked.population}' {problem}: see `airlock budget show`")
    assert asked.horizon is not None
    for one in account.nights(asked.horizon["id"]):
        if not (one.committed or one.lost):
            raise BudgetRefused(
                f"night {(one.horizon or {})['night']} of '{asked.population}' is reserved and not committed, and this "
                f"one builds on it: finish it first (airlock budget settle {one.release_id[:12]})"
            )


def objection(quote: Quote, *, scratch: bool) -> str | None:
    """The refusal that these releases would meet, or None: what charges nothing always fits, whatever became
    of the cap.
    """
    try:
        for asked in quote.asked:
            check_terms(asked, quote.account, scratch=scratch)
    except BudgetRefused as refusal:
        return str(refusal)
    charges = any(release.charged for release in quote.asked)
    return beyond_cap(quote) if charges and not quote.fits else None


def beyond_cap(quote: Quote) -> str:
    """The arithmetic of a release that does not fit."""
    cap = quote.account.cap
    assert cap is not None
    charged = [release for release in quote.asked if release.charged]
    asked = "this release alone is" if len(charged) == 1 else f"these {len(charged)} releases alone are"
    together = quote.together
    if together > cap.epsilon:
        sums = f"together {_up(together)} > {cap.epsilon:g}"
    else:
        sums = f"together {_up(together)}, but {' and '.join(quote.over)} (docs/ledger.md, the box)"
    return (
        f"{quote.account.population}: {quote.before:.4g} spent of {cap.epsilon:g} "
        f"at delta {cap.delta:g}; {asked} "
        f"{quote.alone:.4g}, {sums}; {_way_out(quote, charged)}, or ask the owner: "
        f"{_set(quote.account.population, delta=cap.delta)}"
    )


def _way_out(quote: Quote, charged: Sequence[Release]) -> str:
    box = quote.box
    if box and any(charge_of(release, box) is None for release in charged):
        if quote.account.charged:
            return (
                "this cap's split was fixed with the first release and has no slack for it: choose a "
                "Gaussian mechanism"
            )
        return f"nothing was released yet, so split off slack for it with --slack {box.delta * SLACK:g}"
    if box and box.pure >= box.epsilon and any(kind(release) != "pure" for release in charged):
        return (
            "this cap's split was fixed with the first release, all of it for Laplace noise: choose a "
            "mechanism with Laplace noise"
        )
    alike = box and len(charged) == 1 and kind(charged[0]) != "gaussian"
    largest = largest_like(quote) if alike else quote.largest
    if not largest:
        return "nothing more fits"
    return f"the largest epsilon that still fits is {largest:g}: lower release.epsilon"


def raising(population: str, promised: Cap) -> str:
    """A cap that would let through more than was promised, after results were seen."""
    return (
        f"{population}: results were seen under the cap of {promised.epsilon:g} at delta "
        f"{promised.delta:g}, and a filter's limits are fixed "
        "before (docs/ledger.md): keep within it, use a new population for new records, or say --odometer, "
        "which promises nothing "
        f"about everything together"
    )


def check_small(name: str, delta: float, number: int, by_user: bool = False) -> None:
    """Refuse a delta that would allow to publish one of `number` records, or users, whole.

    Raises:
        InputError: it is not below 1/number.
    """
    if delta >= 1 / max(number, 1):
        what, symbol = ("users", "users") if by_user else ("records", "n")
        raise InputError(
            f"{name} {delta:g} must be below 1/{symbol} = {1 / max(number, 1):.2g} ({symbol} = {number} "
            f"{what} is public): "
            f"lower it{' in params.yaml' if '.' in name else ''}"
        )


def missing(name: str) -> str:
    """A ledger that should be there is not.

    It is never started afresh, for that would refill every budget.
    """
    return (
        f"the ledger {name} is missing: restore it from a backup (a first `airlock add FILE` starts "
        "one), or check AIRLOCK_HOME (in a workspace that was taken, only the owner has one)"
    )


def moved(name: str, where: str) -> str:
    """A ledger that is kept elsewhere now."""
    return f"the ledger {name} was moved to {where}: export AIRLOCK_LEDGER_URL={where}"


def other_bytes(known: Release) -> str:
    """A committed id was made again and came out differently."""
    return (
        f"release {known.release_id[:12]} is committed with other bytes (release.json "
        f"{str(known.manifest)[:12]}): nothing was written; "
        f"replay it with `dvc repro`, or raise the version of '{known.mechanism}'"
    )


def given_up(known: Release) -> str:
    """A reservation that the owner booked as lost."""
    return (
        f"release {known.release_id[:12]} of '{known.population}' was booked as lost: change a parameter "
        "that shapes it, "
        f"which gives it a new id and a new charge"
    )


def other_terms(known: Release) -> str:
    """A known id came with another price."""
    return (
        f"release {known.release_id[:12]} of '{known.population}' is in the ledger on other terms (event, "
        "relation, passes or mechanism): "
        f"raise the version of '{known.mechanism}', which gives it a new id"
    )


def _set(population: str, *, delta: float | None = None) -> str:
    return (
        f"airlock budget set {population} --epsilon "
        f"E --delta {'D' if delta is None else f'{delta:g}'} --why TEXT"
    )


def _up(value: float) -> str:
    """Four digits, rounded up: a total above the cap is never shown as equal to it."""
    if math.isinf(value) or value == 0:
        return f"{value:g}"
    scale = 10.0 ** (3 - math.floor(math.log10(value)))
    return f"{math.ceil(value * scale) / scale:.12g}"
