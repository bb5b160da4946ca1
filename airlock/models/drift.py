"""Whether records change from night to night, from averages that nights released: post-processing.

Night t told y_t = sum over s <= t of B_s x_s + z_t (airlock/privacy/weighing.py): x_s are sums of columns and classes
over the records of night s, z_t is Gaussian of a known deviation. The mean of a stretch of nights is a difference of
two totals over their weighted number of records, and its noise is known exactly. Two stretches are compared every
night: the earlier half of the nights and the later half. How far the two would differ by chance alone, among records
that do not change, is bounded by what their bounds allow (Bhatia and Davis 2000).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scipy.special import ndtri

HALF = 128
"""The grid of averages: a column goes from -128 to 127, a class counts 128 (stages/release/passes.py)."""
ALARMS = 0.05
"""With which probability there is any false alarm, over all columns and all nights of a horizon."""
SURE = 3.0
"""Deviations of noise that a mean is given, where the largest spread around it is looked for."""


@dataclass(frozen=True)
class Told:
    """What one night told: totals, their noise, and how tonight entered them."""

    night: int
    records: int
    weight: int
    scale: float
    values: tuple[int, ...]


@dataclass(frozen=True)
class Change:
    """One column in two stretches of nights, as parts of its range (a class: as its share).

    Attributes:
        name: of the column or class.
        earlier, later: means of both stretches.
        mean, interval: of all nights so far, and half of its 95 % interval.
        difference: later less earlier.
        threshold: beyond which it is called a change.
    """

    name: str
    earlier: float
    later: float
    mean: float
    interval: float
    threshold: float

    @property
    def difference(self) -> float:
        return self.later - self.earlier

    @property
    def alarm(self) -> bool:
        """Whether it is more than noise and chance explain."""
        return abs(self.difference) > self.threshold


def changes(told: Sequence[Told], names: Sequence[str], columns: int, nights: int) -> list[Change]:
    """The earlier half of the nights beside the later one, for every column and class.

    Args:
        told: of all nights so far, in order.
        names: of columns, then of classes.
        columns: how many of the names are columns.
        nights: of the horizon: as many comparisons are made at most.
    """
    if len(told) < 2:
        return []
    middle = len(told) // 2
    quantile = -float(ndtri(ALARMS / (2 * len(names) * max(nights - 1, 1))))
    weighted, squares = _counts(told), _counts(told, square=True)
    first, last = told[middle - 1], told[-1]
    early, all_ = weighted[middle - 1], weighted[-1]
    late = all_ - early
    if min(early, late) <= 0:
        return []
    noise = math.hypot(last.scale / late, first.scale * (1 / late + 1 / early))
    chance = squares[middle - 1] / early**2 + (squares[-1] - squares[middle - 1]) / late**2
    found = []
    for place, name in enumerate(names):
        unit, start = (2 * HALF - 1, HALF) if place < columns else (HALF, 0)
        before, total = first.values[place], last.values[place]
        mean, wide = (total / all_ + start) / unit, last.scale / all_ / unit
        spread = _spread(mean, SURE * wide)
        found.append(
            Change(
                name,
                (before / early + start) / unit,
                ((total - before) / late + start) / unit,
                mean,
                1.96 * math.hypot(wide, math.sqrt(spread * squares[-1]) / all_),
                quantile * math.hypot(noise / unit, math.sqrt(spread * chance)),
            )
        )
    return found


def _counts(told: Sequence[Told], *, square: bool = False) -> list[int]:
    """Records so far, each by its night's weight (or the square of that)."""
    total, found = 0, []
    for one in told:
        total += one.weight ** (2 if square else 1) * one.records
        found.append(total)
    return found


def _spread(mean: float, around: float) -> float:
    """The largest variance of a number from 0 to 1 whose mean is near `mean`: m (1 - m)."""
    nearest = min(max(0.5, mean - around), mean + around)
    return max(nearest * (1 - nearest), 0.0)


def told_of(rows: Sequence[Mapping[str, Any]]) -> list[Told]:
    """From what the broker keeps of the nights (airlock/run/history.py)."""
    return [
        Told(
            int(row["night"]),
            int(row["records"]),
            int(row["weight"]),
            float(row["scale"]),
            tuple(int(value) for value in row["values"]),
        )
        for row in rows
    ]
