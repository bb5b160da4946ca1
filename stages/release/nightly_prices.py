"""What the nights of a horizon ask by weighted running totals, and what each costs
(docs/proofs/continual.md#weighted-totals).

A record is on one night, so that each of them may spend all of the budget: the first one as any release does, later
ones on the coefficients alone, or on the columns beside them until the last chapter begins.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from airlock.errors import ParamsError
from airlock.params import Params
from airlock.privacy import calibration, weighing
from airlock.privacy.weighing import Weighing
from stages.release.noisy_sums import Priced, Query

SUMS = ("gram", "cross")
AVERAGES, COLUMNS = "averages", "columns"
AVERAGES_SHARE = 0.02
"""Of mu squared, for what tells whether records change from night to night."""
ARGUMENT = "docs/proofs/continual.md#weighted-totals"


def check(params: Params) -> None:
    """Refuse a price for what is asked first: over many nights the first one asks it itself.

    Raises:
        ParamsError: relevance.share or relevance.epsilon is set.
    """
    if params.relevance.share != "auto" or params.relevance.epsilon != "auto":
        raise ParamsError(
            "params.yaml: release.horizon divides the budget of its first night by itself: set relevance.share and "
            "relevance.epsilon to auto"
        )


@dataclass(frozen=True)
class Place:
    """Where a night is.

    Attributes:
        chapter: from 0.
        length: of the chapter.
        number: in it, from 1.
        night: in the horizon, from 1.
        ends: the chapter is the last one, and emphasises its end: columns are no longer asked for.
    """

    chapter: int
    length: int
    number: int
    night: int
    ends: bool = False

    def of(self, purpose: str, nights: int) -> tuple[Weighing, int] | None:
        """By which weights a sum is added up, and the number of this night among them; None for what is asked once."""
        if purpose == AVERAGES:
            return weighing.weighing(nights), self.night
        summed = purpose in (*SUMS, COLUMNS)
        return (weighing.weighing(self.length, self.ends), self.number) if summed else None


def _at(query: Query, multiplier: float, place: tuple[Weighing, int] | None) -> Priced:
    if place is None:
        return Priced(query, multiplier, calibration.noise_scale(query.sensitivity, multiplier))
    weights, number = place
    query = replace(query, sensitivity=weights.of_sum(query.sensitivity))
    first = calibration.noise_scale(query.sensitivity, multiplier)
    return Priced(query, multiplier, weights.scale(first, number))


@dataclass(frozen=True)
class Nightly:
    """The prices of all nights.

    Attributes:
        queries: of the first night, with its shares; sensitivities are those of one night's sum.
        mu: the budget of all.
        nights: the horizon.
        turned: rows are whitened, and whitened anew where a chapter begins.
        prepared: at first by public facts; anew where the last chapter begins, if noise allows.
        columns: the map, where all nights before the last chapter tell the columns of the table.
    """

    queries: tuple[Query, ...]
    mu: float
    nights: int
    turned: bool
    prepared: bool = False
    columns: str = ""

    def priced(self, night: int, place: Place | None = None) -> list[Priced]:
        """What a night asks, with the noise of its place in a chapter (without one, with the most that there can be).
        On later nights (of the last chapter, where columns are told before it) the shares of what is not asked any
        more go to the coefficients.
        """
        asked = list(self.queries)
        place = place or self._noisiest(night)
        if place.ends if self.columns else night > 1:
            kept = [query for query in asked if query.purpose in (*SUMS, AVERAGES)]
            sums = [query for query in kept if query.purpose in SUMS]
            rest = (1 - AVERAGES_SHARE) / math.fsum(query.share for query in sums)
            asked = [
                replace(query, share=query.share * rest if query in sums else query.share, release_pass=1)
                for query in kept
            ]
        multipliers = calibration.split(self.mu, [query.share for query in asked])
        return [
            _at(query, multiplier, place.of(query.purpose, self.nights))
            for query, multiplier in zip(asked, multipliers, strict=True)
        ]

    def _noisiest(self, night: int) -> Place:
        """Where a night would have the most noise: where the end is emphasised not at the very end."""
        ends = bool(self.columns) and night > 1
        widths = weighing.weighing(self.nights, ends).widths
        return Place(0, self.nights, 1 + widths.index(max(widths)), night, ends)

    def dearest(self) -> list[Priced]:
        """What the first night asks, or a later one, whichever costs a record more: a record is on one of them."""
        offered = [self.priced(1), *([self.priced(2)] if self.nights > 1 else [])]
        return max(offered, key=lambda priced: math.fsum(one.multiplier**-2 for one in priced))
