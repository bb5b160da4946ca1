"""Sums of privacy, formed again from events and charges at every question (airlock/privacy does the
mathematics).

Private data have a cap that is a filter: three sums against three limits that were fixed before anything was
seen (docs/proofs/filter.md).
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import cast

from airlock.errors import ReleaseError
from airlock.inside.digests import canonical_json
from airlock.ledger.accounts import Account, Cap, Release
from airlock.privacy.charges import Charge, Kind, of_gaussian
from airlock.privacy.events import gaussians
from airlock.privacy.filter import Box, add_up
from airlock.privacy.gaussian import epsilon_at
from airlock.privacy.guarantees import Neighbours
from airlock.privacy.rounding import root_above

# The part of a cap's delta that is kept for failures where the first release is neither Gaussian nor pure and
# the owner said nothing.
SLACK = 0.1
# At which delta a population without a cap is shown.
DELTA = 1e-5


def total(releases: Iterable[Release], delta: float) -> float:
    """Epsilon at `delta` of all that is charged together, as one plan; infinite where it does not share one
    unit and relation.
    """
    charged = [release for release in releases if release.charged]
    if len({release.relation for release in charged}) > 1:
        return math.inf
    events = tuple(sorted(canonical_json(release.event) for release in charged))
    return _total(events, delta, charged[0].neighbours if charged else "zero-out")


def box_of(account: Account, asked: Sequence[Release] = (), cap: Cap | None = None) -> Box | None:
    """The box of a cap (the one in force, unless another is named): as the owner split it, or else as the
    first release decided.

    The first release is chosen before anything was seen, so it may choose the split: all for Gaussians where
    it is Gaussian, all for pure epsilons where it is pure, and otherwise a tenth of delta as slack. Public
    data have no box: nobody is to be protected, and their releases are added up as the composition theorem
    does for a plan.
    """
    cap = cap or account.cap
    charged = account.charged or tuple(release for release in asked if release.charged)
    if cap is None or (charged and all(release.public for release in (*account.charged, *asked))):
        return None
    pure, slack = cap.pure, cap.slack
    if pure is None and slack is None and charged:
        first = kind(account.first or charged[0])
        pure = cap.epsilon if first == "pure" else None
        slack = cap.delta * SLACK if first == "mixed" else None
    return Box(cap.epsilon, cap.delta, pure or 0.0, slack or 0.0)


def promise(account: Account) -> Cap | None:
    """The cap that was promised: the last one that was set before anything was seen, or that the owner raised
    knowingly.
    """
    held = [cap for cap in account.caps if not cap.seen or cap.odometer]
    return held[-1] if held else account.cap


def passes_promise(account: Account, cap: Cap) -> bool:
    """Whether `cap` would let through what was not promised, although results have been seen: then it only
    reads an odometer.
    """
    first = promise(account)
    if not account.charged or first is None:
        return False
    old, new = box_of(account, cap=first), box_of(account, cap=cap)
    return old is not None and new is not None and not old.contains(new)


def raised(account: Account) -> bool:
    """Whether the cap in force, or one before it, was raised after results had been seen."""
    return any(cap.odometer or (cap.seen and passes_promise(account, cap)) for cap in account.caps)


def charges_of(releases: Iterable[Release], box: Box) -> Charge:
    """The sum of charges. Where a box has none for a release (of an older ledger, or only asked for) it is
    worked out with a tenth of delta as slack, which shows how much is missing; what has no finite charge at
    all is charged as a certain failure.
    """
    wider = replace(box, slack=box.delta * SLACK)
    return add_up(
        charge_of(release, box) or charge_of(release, wider) or Charge(delta=Fraction(1))
        for release in releases
        if release.charged
    )


def kind(release: Release) -> Kind:
    """What a release's event is made of."""
    return _kind(canonical_json(release.event))


def charge_of(release: Release, box: Box) -> Charge | None:
    """What one release is charged: as it was written down, or else from its event.

    None if there is no finite charge in this box.
    """
    if release.charge is not None:
        return Charge.from_json(release.charge)
    if release.event and release.event["kind"] == "gaussian":
        return of_gaussian(release.event["noise_multiplier"])
    return _charge(canonical_json(release.event), release.neighbours, box)


def with_charge(asked: Release) -> Release:
    """Decide whether a release counts: it has an event, the event has a finite price, and no other release was
    charged for it.
    """
    if asked.event is None or asked.later_night:
        return replace(asked, charged=False)
    try:
        return replace(asked, charged=math.isfinite(total([asked], DELTA)))
    except ValueError as error:
        raise ReleaseError(f"release {asked.release_id[:12]} cannot be priced: {error}") from None


@lru_cache(maxsize=4096)
def _total(events: Sequence[bytes], delta: float, neighbours: str) -> float:
    square = _gaussian_square(events)
    if square is not None:
        return epsilon_at(root_above(square), delta)
    from airlock.privacy.accounting import total_epsilon
    from airlock.privacy.events import from_json

    return total_epsilon(
        [from_json(json.loads(event)) for event in events], delta, neighbours=cast(Neighbours, neighbours)
    )


def _gaussian_square(events: Sequence[bytes]) -> Fraction | None:
    """The sum of mu^2 where there are only Gaussians: without loading the library of events."""
    counted: Counter[float] = Counter()
    for event, times in Counter(events).items():
        found = gaussians(json.loads(event))
        if found is None:
            return None
        for multiplier, count in found.items():
            counted[multiplier] += count * times
    return add_up(
        Charge(square=count * of_gaussian(multiplier).square) for multiplier, count in counted.items()
    ).square


@lru_cache(maxsize=4096)
def _kind(event: bytes) -> Kind:
    from airlock.privacy.charges import kind_of
    from airlock.privacy.events import from_json

    document = json.loads(event)
    found = gaussians(document)
    if found is not None:
        return "gaussian" if found else "none"
    return kind_of(from_json(document))


@lru_cache(maxsize=16384)
def _charge(event: bytes, neighbours: str, box: Box) -> Charge | None:
    from airlock.privacy.charges import charge
    from airlock.privacy.events import from_json

    return charge(
        from_json(json.loads(event)),
        neighbours=cast(Neighbours, neighbours),
        purse=box.pure > 0,
        slack=box.slack,
        mu=box.mu,
    )
