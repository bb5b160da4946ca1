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
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import cast

from airlock.inside.digests import canonical_json
from airlock.ledger.accounts import Account, Cap, Release
from airlock.privacy.charges import Charge, Kind, of_gaussian
from airlock.privacy.events import gaussians
from airlock.privacy.filter import ROUNDING as ROUNDING
from airlock.privacy.filter import Box, add_up
from airlock.privacy.gaussian import epsilon_at
from airlock.privacy.guarantees import Neighbours
from airlock.privacy.rounding import float_above, root_above

# The part of a cap's delta that is kept for failures where the first release is neither Gaussian nor pure and
# the owner said nothing.
SLACK = 0.1
# How many amounts of noise are tried to find one that fits.
TRIES = 7
# At which delta a population without a cap is shown.
DELTA = 1e-5


@dataclass(frozen=True)
class Purse:
    """One of the three sums of a cap's box: how much of it is used."""

    used: float
    limit: float


@dataclass(frozen=True)
class Spent:
    """What a population has spent.

    Attributes:
        epsilon: one number for everything reserved or committed, at `delta`; infinite if relations were mixed
            (public data only).
        cap_epsilon: the cap, or None if none is set.
        left: cap minus epsilon, at least 0. One more release may be larger than this: see `largest`.
        largest: the largest epsilon at `delta` of one more Gaussian release that still fits (see
            `largest_gaussian`).
        mechanisms: the total of each mechanism alone. These add up to more than epsilon: composition is not
            addition.
        reserved: spent, but not committed: their processes crashed or are still running.
        box: the cap's three sums by name; None for public data, whose releases are added up as one plan.
        raised: the cap was raised after results were seen, so it reads an odometer and promises nothing about
            the whole.
        horizons: of each that was paid: the last night that was reserved, and of how many.
    """

    population: str
    epsilon: float
    delta: float
    cap_epsilon: float | None
    left: float | None
    largest: float | None
    mechanisms: dict[str, float]
    releases: int
    disclosures: int
    reserved: tuple[Release, ...]
    unit: str | None
    neighbours: str | None
    box: dict[str, Purse] | None = None
    raised: bool = False
    horizons: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True)
class Quote:
    """What further releases would cost. The figures are worked out when asked for."""

    account: Account
    asked: tuple[Release, ...]

    @property
    def delta(self) -> float:
        """The delta that totals are taken at."""
        return self.account.cap.delta if self.account.cap else DELTA

    @cached_property
    def box(self) -> Box | None:
        """The limits of the cap; None without a cap, and for public data."""
        return box_of(self.account, self.asked)

    @cached_property
    def used(self) -> Charge:
        """The sum of what was charged so far, in a box; it is formed once."""
        return charges_of(self.account.charged, self.box) if self.box else Charge()

    @cached_property
    def before(self) -> float:
        """Spent so far."""
        return self.box.gauge(self.used) if self.box else total(self.account.charged, self.delta)

    @property
    def alone(self) -> float:
        """What is asked for, by itself."""
        return total(self.asked, self.delta)

    @property
    def together(self) -> float:
        """Spent afterwards."""
        if self.box:
            return self.box.gauge(self.used + charges_of(self.asked, self.box))
        return total((*self.account.charged, *self.asked), self.delta)

    @property
    def over(self) -> list[str]:
        """Which limits it passes; a population without a cap has none (only public data get so far)."""
        cap = self.account.cap
        if cap is None:
            return []
        if self.box:
            return self.box.over(self.used + charges_of(self.asked, self.box))
        return [f"epsilon > {cap.epsilon:g}"] if self.together > cap.epsilon * (1 + ROUNDING) else []

    @property
    def fits(self) -> bool:
        """Whether everything stays within the cap."""
        return not self.over

    @property
    def largest(self) -> float | None:
        """The largest epsilon of one more Gaussian release that still fits, to three digits, rounded down."""
        return largest_gaussian(self) if self.account.cap else None

    def of(self, releases: Sequence[Release]) -> float:
        """What some of the charged releases come to by themselves."""
        if len(releases) == len(self.account.charged):
            return self.before
        if self.box is None:
            return total(releases, self.delta)
        return self.box.gauge(charges_of(releases, self.box))

    def with_asked(self, *asked: Release) -> Quote:
        """The same account, asked for something else: what was charged is not added up again."""
        other = Quote(self.account, asked)
        if self.account.charged:
            other.__dict__.update(
                {name: self.__dict__[name] for name in ("box", "used") if name in self.__dict__}
            )
        return other


def spent(account: Account) -> Spent:
    """The state of an account."""
    quote, charged = Quote(account, ()), account.charged
    cap = account.cap.epsilon if account.cap else None
    names = sorted({release.mechanism for release in charged})
    relations = {release.relation for release in charged}
    unit, neighbours = relations.pop() if len(relations) == 1 else (None, None)
    return Spent(
        population=account.population,
        epsilon=quote.before,
        delta=quote.delta,
        cap_epsilon=cap,
        left=None if cap is None else max(0.0, cap - quote.before),
        largest=quote.largest,
        mechanisms={
            name: quote.of([release for release in charged if release.mechanism == name]) for name in names
        },
        releases=len(charged),
        disclosures=sum(not (release.charged or release.later_night) for release in account.releases),
        reserved=tuple(release for release in account.releases if not release.committed and not release.lost),
        unit=unit,
        neighbours=neighbours,
        box=_purses(quote),
        raised=raised(account),
        horizons=_horizons(account),
    )


def _horizons(account: Account) -> tuple[tuple[str, int, int], ...]:
    paid = [one for one in account.releases if one.horizon and not one.later_night]
    return tuple(
        (
            one.release_id,
            max(int(night.horizon["night"]) for night in account.nights(one.release_id) if night.horizon),
            int(one.horizon["nights"]),
        )
        for one in paid
        if one.horizon
    )


def _purses(quote: Quote) -> dict[str, Purse] | None:
    if quote.box is None:
        return None
    used = quote.used
    return {
        "pure": Purse(float_above(used.pure), quote.box.pure),
        "mu": Purse(root_above(used.square), quote.box.mu),
        "slack": Purse(float_above(used.delta), quote.box.slack),
    }


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


def largest_gaussian(quote: Quote) -> float:
    """How large one more Gaussian release may be, to three digits.

    Squared shifts of Gaussians add up, which gives the answer in a box, and for public data where the history
    is Gaussian. Otherwise it is a good guess; one that does not fit gives way to what is left by plain
    subtraction.
    """
    from airlock.privacy.calibration import gaussian_mu

    account, quote = quote.account, quote.with_asked()
    cap, charged = account.cap, account.charged
    assert cap is not None
    spent = quote.before
    if not quote.fits or spent >= cap.epsilon:
        return 0.0
    example = (
        charged[0] if charged else Release("", account.population, "", None, "record", "zero-out", 1, False)
    )
    square = _square_left(quote, spent)
    guess = total([_gaussian(example, math.sqrt(square))], cap.delta) if square > 0 else 0.0
    for candidate in (round_down(guess), round_down(guess * 0.999), round_down(cap.epsilon - spent)):
        if candidate > 0 and quote.with_asked(_gaussian(example, gaussian_mu(candidate, cap.delta))).fits:
            return candidate
    return 0.0


def largest_like(quote: Quote) -> float | None:
    """The largest epsilon of one more release like the one that is asked for: the same with more noise. None
    if no noise fits.

    Calibration asks the ledger's question here: the noise is raised until the charge fits the box.
    """
    from airlock.privacy.accounting import epsilon
    from airlock.privacy.events import from_json, scale, to_json

    (asked,) = (release for release in quote.asked if release.charged)
    event, box = from_json(dict(asked.event or {})), quote.box
    low, high, factor, left = 1.0, math.inf, 1.0, _square_left(quote, quote.before)
    for _ in range(TRIES if box and left > 0 else 0):
        assert box is not None
        noisier = replace(asked, event=to_json(scale(event, factor)))
        if quote.with_asked(noisier).fits:
            high = factor
        else:
            low = factor
        # Squared shifts fall about as the square of the noise; once a noise fits, halving the distance is
        # enough.
        guess = low * min(2.0, max(1.02, math.sqrt(float(charges_of([noisier], box).square) / left)))
        factor = guess if math.isinf(high) else math.sqrt(low * high)
    if math.isinf(high):
        return None
    found = epsilon(scale(event, high), quote.delta, neighbours=cast(Neighbours, asked.neighbours))
    return round_down(found, 2) or None


def _square_left(quote: Quote, spent: float) -> float:
    from airlock.privacy.calibration import gaussian_mu

    if quote.box:
        return float(Fraction(quote.box.mu) ** 2 - quote.used.square)
    cap = quote.account.cap
    assert cap is not None
    return gaussian_mu(cap.epsilon, cap.delta) ** 2 - (gaussian_mu(spent, cap.delta) ** 2 if spent else 0.0)


def _gaussian(example: Release, mu: float) -> Release:
    event = {"kind": "gaussian", "noise_multiplier": 1 / mu}
    return Release("", example.population, "", event, example.unit, example.neighbours, 1, example.public)


def round_down(value: float, digits: int = 3) -> float:
    """To so many significant digits, never up: a figure that is shown as fitting must fit."""
    if value == 0 or math.isinf(value):
        return value
    scale = 10.0 ** (digits - 1 - math.floor(math.log10(value)))
    return math.floor(value * scale) / scale


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
