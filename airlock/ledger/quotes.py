"""What a population has spent and what further releases would cost, worked out from its account."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import cast

from airlock.ledger.accounts import Account, Release
from airlock.ledger.totals import DELTA, box_of, charges_of, raised, total
from airlock.privacy.charges import Charge
from airlock.privacy.filter import ROUNDING, Box
from airlock.privacy.guarantees import Neighbours
from airlock.privacy.rounding import float_above, root_above

# How many amounts of noise are tried to find one that fits.
TRIES = 7


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
