"""When a release may not be made, and the one line that says why and what to do."""

from __future__ import annotations

import math

from airlock.errors import BudgetRefused
from airlock.ledger.accounts import Account, Release
from airlock.ledger.totals import Quote


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
    if asked.public or free:
        return
    if not asked.charged:
        raise BudgetRefused(
            f"population '{asked.population}': no finite epsilon is proven for '{asked.mechanism}', so it may only release public data; "
            f"choose another release.mechanism"
        )
    if account.cap is None:
        raise BudgetRefused(
            f"population '{asked.population}' has no cap, so nothing may be spent: {_set(asked.population)}"
        )
    if account.charged and account.charged[0].relation != asked.relation:
        unit, neighbours = account.charged[0].relation
        raise BudgetRefused(
            f"population '{asked.population}' is accounted per {unit} under {neighbours}, and this release per {asked.unit} under "
            f"{asked.neighbours}: set release.unit and release.neighbours back, one population has one relation"
        )


def objection(quote: Quote, *, scratch: bool) -> str | None:
    """The refusal that these releases would meet, or None."""
    try:
        for asked in quote.asked:
            check_terms(asked, quote.account, scratch=scratch)
    except BudgetRefused as refusal:
        return str(refusal)
    return None if quote.fits else beyond_cap(quote)


def beyond_cap(quote: Quote) -> str:
    """The arithmetic of a release that does not fit."""
    cap, largest = quote.account.cap, quote.largest
    assert cap is not None
    count = sum(release.charged for release in quote.asked)
    asked = "this release alone is" if count == 1 else f"these {count} releases alone are"
    way_out = (
        f"the largest epsilon that still fits is {largest:g}: lower release.epsilon"
        if largest
        else "nothing more fits"
    )
    return (
        f"{quote.account.population}: {quote.before:.4g} spent of {cap.epsilon:g} at delta {cap.delta:g}; {asked} "
        f"{quote.alone:.4g}, together {_up(quote.together)} > {cap.epsilon:g}; {way_out}, or ask the owner: "
        f"{_set(quote.account.population, delta=cap.delta)}"
    )


def missing(name: str) -> str:
    """A ledger that should be there is not. It is never started afresh, for that would refill every budget."""
    return f"the ledger {name} is missing: restore it from a backup (a first `airlock add FILE` starts one), or check AIRLOCK_HOME"


def other_bytes(known: Release) -> str:
    """A committed id was made again and came out differently."""
    return (
        f"release {known.release_id[:12]} is committed with other bytes (release.json {str(known.manifest)[:12]}): nothing was written; "
        f"replay it with `dvc repro`, or raise the version of '{known.mechanism}'"
    )


def other_terms(known: Release) -> str:
    """A known id came with another price."""
    return (
        f"release {known.release_id[:12]} of '{known.population}' is in the ledger on other terms (event, relation, passes or mechanism): "
        f"raise the version of '{known.mechanism}', which gives it a new id"
    )


def _set(population: str, *, delta: float | None = None) -> str:
    return f"airlock budget set {population} --epsilon E --delta {'D' if delta is None else f'{delta:g}'} --why TEXT"


def _up(value: float) -> str:
    """Four digits, rounded up: a total above the cap is never shown as equal to it."""
    if math.isinf(value) or value == 0:
        return f"{value:g}"
    scale = 10.0 ** (3 - math.floor(math.log10(value)))
    return f"{math.ceil(value * scale) / scale:.12g}"
