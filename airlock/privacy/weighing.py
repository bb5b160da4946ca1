"""Weighted running totals over many nights: what `release.horizon` releases by default.

Night t has an integer vector x_t, the sum over the records of that night. Of the nights of one chapter is told

    y_t = sum over s <= t of B_s x_s + z_t

with whole weights B_s and fresh Gaussian z_t whose deviation grows as the square root of t. A record of night s moves
every later y_t by B_s times what it adds, so all nights together cost it B_s^2 times the sum of 1 / deviation^2 from s
on: B_s is chosen so that this is the same for every s, and so every record spends all of its budget. Nothing of an
earlier night's records is needed for it: y_t = y_(t-1) + B_t x_t + z_t - z_(t-1), where y_(t-1) is public, and z_(t-1)
is noise (docs/proofs/continual.md#weighted-totals).

What is estimated is the mean of a record's contribution, not the running total: the y_t, each weighted by how much
it tells, have together 1.3 times the noise of one release of all records, after the last of 64 equal nights, where the
total of the square-root strategy has 2.4 times (airlock/privacy/continual.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import accumulate

from airlock.privacy.continual import MOST_NIGHTS
from airlock.privacy.rounding import float_above, root_above

NAME = "weighted-totals"
UNIT = 1024
"""Deviations of fresh noise are whole multiples of 1 / UNIT of the first night's."""
FIRST, MOST = 32, 512
"""The weight of the first night, and the largest of any."""
FEWEST = 16
"""Nights of a horizon in which rows are whitened anew."""
BITS = 40
"""Inverse squares of deviations are rounded up to multiples of 2^-BITS."""
ENDING, EMPHASIS = 8, Fraction(1, 2)
"""Where the end is emphasised: the last eighth of the nights, and what their inverse squares have more, together."""
EARLY = 16
"""Of the nights, or of the records: the part by which columns are told before rows are whitened by them."""


@dataclass(frozen=True)
class Weighing:
    """The weights and deviations of a chapter of so many nights.

    Attributes:
        nights: of the chapter.
        ends: the last eighth of the nights is told with less noise, and those before with more.
    """

    nights: int
    ends: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.nights <= MOST_NIGHTS:
            raise ValueError(f"a horizon has 1 to {MOST_NIGHTS} nights, got {self.nights}")

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Deviation of each night's fresh noise, in 1 / UNIT, rounded up: the root of its number, less at the end."""
        squares = (math.ceil(UNIT * UNIT / self._told(night)) for night in range(1, self.nights + 1))
        return tuple(math.isqrt(square - 1) + 1 for square in squares)

    def _told(self, night: int) -> Fraction:
        """What a night tells: the inverse square of its deviation, before rounding."""
        last = -(-self.nights // ENDING)
        emphasis = EMPHASIS / last if self.ends and night > self.nights - last else 0
        return Fraction(1, night) + emphasis

    @cached_property
    def tails(self) -> tuple[int, ...]:
        """For each night the sum of 1 / deviation^2 from it to the last one, rounded up, in 2^-BITS."""
        squares = [-(-(UNIT * UNIT << BITS) // (width * width)) for width in self.widths]
        return tuple(reversed(tuple(accumulate(reversed(squares)))))

    @cached_property
    def weights(self) -> tuple[int, ...]:
        """B: by which every night's sum enters the totals."""
        first = self.tails[0]
        return tuple(min(MOST, math.isqrt(FIRST * FIRST * first // tail)) for tail in self.tails)

    @cached_property
    def longest(self) -> Fraction:
        """The largest B_s^2 times its tail: the square of `reach`, exact."""
        return Fraction(
            max(weight * weight * tail for weight, tail in zip(self.weights, self.tails, strict=True)),
            1 << BITS,
        )

    @property
    def reach(self) -> float:
        """How far one record moves all nights together, in units of how far it moves its own night's sum; over noise
        of deviation 1 on the first night. Rounded up.
        """
        return root_above(self.longest)

    def of_sum(self, sensitivity: float) -> float:
        """L2 sensitivity of all nights together, from that of one night's sum."""
        return float_above(Fraction(sensitivity) * Fraction(self.reach))

    def scale(self, scale: float, night: int) -> float:
        """Deviation of the fresh noise of a night (from 1), where the first one's is `scale`."""
        return float_above(Fraction(scale) * Fraction(self.widths[night - 1], UNIT))

    def error(self, night: int) -> float:
        """Noise of the mean after a night (from 1), against one release of the same price, for equal nights."""
        counts = list(accumulate(self.weights[:night]))
        told = sum((count * UNIT / width) ** 2 for count, width in zip(counts, self.widths, strict=False))
        return night * self.reach / math.sqrt(told)


@lru_cache(maxsize=256)
def weighing(nights: int, ends: bool = False) -> Weighing:
    """The weights of so many nights; asking again costs nothing."""
    return Weighing(nights, ends)


def last_of_chapter(night: int, nights: int, *, turned: bool, before: int, first: int) -> int:
    """The last night of the chapter that begins with a night (from 1), from public numbers.

    The first night stands alone: it is a release like any other. Where rows are whitened (`turned`), what a chapter
    released says how to whiten the rows of the next one: one ends after a sixteenth of the nights (where there are
    enough of them), and one with a quarter of the records, if later nights bring as many as those so far.

    Args:
        night: the first of the chapter.
        nights: the horizon.
        turned: rows are whitened.
        before: records of all nights before it.
        first: of the first one.
    """
    if night == 1:
        return 1
    if not turned or nights < FEWEST:
        return nights
    if night == 2:
        return -(-nights // (16 if nights >= 2 * FEWEST else 4))
    nightly = Fraction(before - first, night - 2)
    wanted = (before + nightly * (nights - night + 1)) / 4
    if before >= wanted:
        return nights
    return min(nights, night - 1 + math.ceil((wanted - before) / nightly))


def last_with_columns(night: int, nights: int, *, first: int, nightly: int) -> int:
    """The same where columns are told until rows are whitened by them: the first night stands alone, then come the
    nights up to a sixteenth of all (none, if the first one has a sixteenth of the records), then all others.

    Args:
        night: the first of the chapter.
        nights: the horizon.
        first: records of the first night.
        nightly: of a later one.
    """
    early = -(-nights // EARLY)
    if night == 1:
        return 1
    return nights if night > early or first * (EARLY - 1) >= nightly * (nights - 1) else early


def chapters(nights: int, *, turned: bool, columns: bool = False) -> tuple[int, ...]:
    """The last nights of all chapters, where all nights bring as many records."""
    ends = [1]
    while ends[-1] < nights:
        begins = ends[-1] + 1
        ends.append(
            last_with_columns(begins, nights, first=1, nightly=1)
            if columns
            else last_of_chapter(begins, nights, turned=turned, before=ends[-1], first=1)
        )
    return tuple(ends)


def error(
    night: int, nights: int, *, turned: bool = True, prepared: bool = False, columns: bool = False
) -> float:
    """Noise of what is told after a night (from 1), against one release of all records at the same price, for equal
    nights: of the chapter that is told; chapters with the same rows (all, where rows are not whitened; all but the
    last, where public facts whiten them at first: `prepared`) are told together. Where `columns` are told, the last
    chapter emphasises its end.
    """
    begun, signal = 0, 0.0
    for end in chapters(nights, turned=turned, columns=columns):
        count = min(end, night) - begun
        if count < 1:
            break
        own = count / weighing(end - begun, columns and 1 < end == nights).error(count)
        anew = turned and not (prepared and end < nights)
        signal = max(own, signal) if anew else math.hypot(own, signal)
        begun = end
    return night / signal
