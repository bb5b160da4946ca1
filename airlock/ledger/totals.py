"""Sums of privacy, recomputed from events at every question (airlock/privacy/accounting.py does the mathematics)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

from airlock.inside.digests import canonical_json
from airlock.ledger.accounts import Account, Release
from airlock.privacy.guarantees import Neighbours

# A release priced to fit must fit although its shares were rounded: this is far above float rounding and far below meaning.
ROUNDING = 1e-9
# At which delta a population without a cap is shown.
DELTA = 1e-5


@dataclass(frozen=True)
class Spent:
    """What a population has spent.

    Attributes:
        epsilon: the total at `delta` of everything reserved or committed; infinite if relations were mixed (public data only).
        cap_epsilon: the cap, or None if none is set.
        left: cap minus epsilon, at least 0. One more release may be larger than this: see `largest`.
        largest: the largest epsilon at `delta` of one more Gaussian release that still fits (see `largest_gaussian`).
        mechanisms: the total of each mechanism alone. These add up to more than epsilon: composition is not addition.
        reserved: spent, but not committed: their processes crashed or are still running.
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


@dataclass(frozen=True)
class Quote:
    """What further releases would cost. The figures are worked out when asked for."""

    account: Account
    asked: tuple[Release, ...]

    @property
    def delta(self) -> float:
        """The delta that totals are taken at."""
        return self.account.cap.delta if self.account.cap else DELTA

    @property
    def before(self) -> float:
        """Spent so far."""
        return total(self.account.charged, self.delta)

    @property
    def alone(self) -> float:
        """What is asked for, by itself."""
        return total(self.asked, self.delta)

    @property
    def together(self) -> float:
        """Spent afterwards."""
        return total((*self.account.charged, *self.asked), self.delta)

    @property
    def fits(self) -> bool:
        """Whether it stays within the cap; a population without one has no bound (only public data get so far)."""
        cap = self.account.cap
        return cap is None or self.together <= cap.epsilon * (1 + ROUNDING)

    @property
    def largest(self) -> float | None:
        """The largest epsilon of one more release that still fits, to three digits, rounded down."""
        return largest_gaussian(self.account) if self.account.cap else None


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
            name: total([release for release in charged if release.mechanism == name], quote.delta)
            for name in names
        },
        releases=len(charged),
        disclosures=len(account.releases) - len(charged),
        reserved=tuple(release for release in account.releases if not release.committed),
        unit=unit,
        neighbours=neighbours,
    )


def total(releases: Iterable[Release], delta: float) -> float:
    """Epsilon at `delta` of all that is charged together; infinite where it does not share one unit and neighbour relation."""
    charged = [release for release in releases if release.charged]
    if len({release.relation for release in charged}) > 1:
        return math.inf
    events = tuple(sorted(canonical_json(release.event) for release in charged))
    return _total(events, delta, charged[0].neighbours if charged else "zero-out")


def largest_gaussian(account: Account) -> float:
    """How large one more Gaussian release may be, to three digits.

    Squared shifts of Gaussians add up, which gives the answer where the history is Gaussian and a good guess where it is not.
    A guess that does not fit gives way to what is left by plain subtraction.
    """
    from airlock.privacy.calibration import gaussian_mu

    cap, charged = account.cap, account.charged
    assert cap is not None
    spent = total(charged, cap.delta)
    if spent >= cap.epsilon:
        return 0.0
    example = (
        charged[0] if charged else Release("", account.population, "", None, "record", "zero-out", 1, False)
    )
    square = gaussian_mu(cap.epsilon, cap.delta) ** 2 - (gaussian_mu(spent, cap.delta) ** 2 if spent else 0.0)
    guess = total([_gaussian(example, math.sqrt(square))], cap.delta) if square > 0 else 0.0
    for candidate in (round_down(guess), round_down(cap.epsilon - spent)):
        if candidate and Quote(account, (_gaussian(example, gaussian_mu(candidate, cap.delta)),)).fits:
            return candidate
    return 0.0


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
    from airlock.privacy.accounting import total_epsilon
    from airlock.privacy.events import from_json

    return total_epsilon(
        [from_json(json.loads(event)) for event in events], delta, neighbours=cast(Neighbours, neighbours)
    )
