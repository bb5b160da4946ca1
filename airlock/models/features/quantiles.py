"""Numbers through their private quantiles: what makes generous bounds harmless.

Noisy counts of every number on one public grid, dense toward both bounds and the middle, tell about where its values
lie. Each number then goes through the piecewise linear distribution function of its own counts, so that rows are
as if the bounds fitted. The step holds integers that follow from released counts; what it does to a record is a
function of that record, by correctly rounded operations per element (docs/proofs/relevance.md#quantiles).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.models.bins import on_simplex
from airlock.models.bounds import check_integers

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
OCTAVES = 10
UNIT = 2**20
"""Of the distribution functions' values."""
KEPT = 0.02
"""Part of a number that stays as it was, so that no two values become one."""


def _grid() -> Floats:
    halves = 2.0 ** -np.arange(1, OCTAVES + 1)
    low = np.concatenate([halves, 0.75 * halves[:-1]])
    return np.unique(np.concatenate([low, 1 - low, 0.5 + halves[1:] / 2, 0.5 - halves[1:] / 2, [0.0, 1.0]]))


ENDS = _grid()
"""Ends of the bins, from 0 to 1; each is a sum of few powers of two."""
BINS = len(ENDS) - 1


@dataclass(frozen=True)
class Quantiles:
    """A step before the feature map.

    Attributes:
        columns: which encoded columns go through it.
        levels: of each, the distribution function at ENDS in parts of UNIT; it never falls.
    """

    columns: Integers
    levels: Integers

    def __call__(self, records: Floats) -> Floats:
        """Squares of the distribution functions' values: feature maps of tables take the root of a number."""
        changed = np.array(records, dtype=np.float64)
        for place, column in enumerate(self.columns):
            values, levels = changed[:, column], self.levels[place].astype(np.float64)
            bin_of = bins_of(values)
            rise = (levels[1:] - levels[:-1]) / (ENDS[1:] - ENDS[:-1])
            found = (levels[bin_of] + (values - ENDS[bin_of]) * rise[bin_of]) * (1.0 / UNIT)
            changed[:, column] = np.clip(found * found, 0.0, 1.0)
        return changed

    def check(self, width: int) -> None:
        """Look at types, shapes and ranges.

        Raises:
            ValueError: this is no such step.
        """
        check_integers(self.columns, (len(self.columns),), width - 1)
        check_integers(self.levels, (len(self.columns), BINS + 1), UNIT)
        ends = self.levels[:, 0].any() or (self.levels[:, -1] != UNIT).any()
        if (self.columns < 0).any() or ends or (np.diff(self.levels, axis=1) < 0).any():
            raise ValueError("quantiles of a model rise from 0 to 1")


def bins_of(values: Floats) -> NDArray[np.int64]:
    """The bin of each value in [0, 1]; an end belongs to the bin above it."""
    return np.clip(np.searchsorted(ENDS, values, side="right") - 1, 0, BINS - 1).astype(np.int64)


def counts(records: Floats, valid: NDArray[np.uint8], columns: Integers) -> Integers:
    """How many valid records are in each bin of each column, (columns, BINS)."""
    known = records[valid > 0]
    found = [np.bincount(bins_of(known[:, column]), minlength=BINS) for column in columns]
    return np.array(found, np.int64).reshape(len(columns), BINS)


def quantiles(noisy: Integers, columns: Integers, n: int, noise: float) -> Quantiles:
    """From noisy counts of `n` records: the distribution of each column that is nearest to what is likely of them."""
    # What stays as it was is the root, which is what the feature map would have taken.
    plain, levels = np.sqrt(ENDS), np.zeros((len(columns), BINS + 1))
    for place, own in enumerate(noisy.astype(np.float64)):
        share = np.concatenate([[0.0], np.cumsum(on_simplex(likely(own, n, noise), 1.0))])
        levels[place] = (1 - KEPT) * share + KEPT * plain
    whole = np.rint(levels * UNIT).astype(np.int64)
    whole[:, 0], whole[:, -1] = 0, UNIT
    return Quantiles(np.asarray(columns, np.int64), np.minimum(np.maximum.accumulate(whole, axis=1), UNIT))


def likely(noisy: Floats, n: int, noise: float) -> Floats:
    """Counts without most of their noise: the mean of `shapes` by their likelihood, and what the counts have
    besides, shrunk by what of it is noise (James and Stein).

    Where noise drowns the single bins, as it does for some hundred records in many columns, a place and a width can
    still be told.
    """
    known, square = shapes(), max(noise, 1.0) ** 2
    fit = n * (known @ noisy) - 0.5 * n * n * (known * known).sum(axis=1)
    weights = np.exp((fit - fit.max()) / square)
    expected = n * (weights / weights.sum()) @ known
    gap = noisy - expected
    kept = max(0.0, 1.0 - BINS * square / max(float(gap @ gap), 1.0))
    return np.asarray(expected + kept * gap)


@lru_cache
def shapes() -> Floats:
    """Parts of the bins under normal laws of many places and widths, cut to [0, 1], and under the even one."""
    from scipy.special import ndtr

    places = np.unique(np.concatenate([ENDS, (ENDS[1:] + ENDS[:-1]) / 2]))
    widths = 2.0 ** -np.arange(OCTAVES + 2)
    below = ndtr((ENDS - places[:, None, None]) / widths[:, None]).reshape(-1, BINS + 1)
    whole = below[:, -1:] - below[:, :1]
    return np.vstack([np.diff(below, axis=1) / whole, np.diff(ENDS)])


def tensors_of(step: Quantiles | None) -> dict[str, Integers]:
    """As a release and a model keep it."""
    return {} if step is None else {"quantiles": step.levels, "quantiles.columns": step.columns}


def step_of(tensors: Mapping[str, NDArray[Any]]) -> Quantiles | None:
    """The inverse of `tensors_of`."""
    return Quantiles(tensors["quantiles.columns"], tensors["quantiles"]) if "quantiles" in tensors else None
