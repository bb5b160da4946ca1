"""Shares that agree with each other, from the noisy tables of a release of `inputs`.

A column's shares come from all that was released of it (airlock/models/histograms.py). Interactions of two
columns are shrunk by how much of them is noise (James and Stein 1961), and each pair is fitted to the shares
of its two columns (Deming and Stephan 1940). Everything here is post-processing of the release.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from airlock.models.bins import on_simplex
from airlock.models.distribution import Distribution
from airlock.models.histograms import Measured, owner_of, shares_of_bins

Floats = NDArray[np.float64]
FITTING_STEPS = 30


@dataclass(frozen=True)
class Shares:
    """Shares of records in bins and in pairs of bins, which agree with each other.

    Attributes:
        ones: of each column.
        fine: of the narrow bins of a column whose histograms were released, missing values left out.
        pairs: of each pair of columns.
        strength: of each pair, how much it says beyond its columns; 0 where that is no more than noise.
        label_noise: deviation of a share of a pair with the label.
    """

    ones: tuple[Floats, ...]
    fine: dict[int, Floats]
    pairs: dict[tuple[int, int], Floats]
    strength: dict[tuple[int, int], float]
    label_noise: float

    def pair(self, first: int, second: int) -> Floats:
        """The shares of two columns, in this order."""
        return self.pairs[first, second] if first < second else self.pairs[second, first].T


def shares_of(known: Distribution) -> Shares:
    """Shares from noisy tables."""
    tables = known.tables
    ones, fine = _single(known)
    last = len(ones) - 1
    better = [one - counts / tables.total for one, counts in zip(ones, tables.ones, strict=True)]
    pairs, strength = dict[tuple[int, int], Floats](), dict[tuple[int, int], float]()
    for (first, second), counts in tables.pairs.items():
        noise = tables.label_deviation if second == last else tables.deviation
        # The same interactions, between columns that are known better.
        table = counts / tables.total
        table = table + better[first][:, None] / counts.shape[1] + better[second] / counts.shape[0]
        beyond = table - np.outer(ones[first], ones[second])
        free = (counts.shape[0] - 1) * (counts.shape[1] - 1)
        expected = free * (noise / tables.total) ** 2
        energy = float((beyond**2).sum())
        kept = max(0.0, 1.0 - expected / energy) if energy > 0 else 0.0
        found = np.outer(ones[first], ones[second]) + kept * beyond
        pairs[first, second] = _fitted(np.maximum(found, 0.0), ones[first], ones[second])
        apart = pairs[first, second] - np.outer(ones[first], ones[second])
        sure = energy > expected * (1.0 + 2.0 * np.sqrt(2.0 / max(free, 1)))
        strength[first, second] = float(np.abs(apart).sum()) / 2 if sure else 0.0
    return Shares(tuple(ones), fine, pairs, strength, tables.label_deviation / tables.total)


def _single(known: Distribution) -> tuple[list[Floats], dict[int, Floats]]:
    """Shares of each column's bins, and of the narrow bins inside them: from histograms and tables together."""
    ones, fine = [], dict[int, Floats]()
    for column, counts in enumerate(known.tables.ones):
        one, first = known.bins.columns[column], known.fine.get(column)
        if first is None:
            ones.append(_positive(on_simplex(counts, 1.0)))
            continue
        owner, missing = owner_of(first.edges, one.edges), one.column.missing
        every = np.append(owner, one.values) if missing else owner
        table = Measured(every, counts, known.tables.single_deviation)
        shares = shares_of_bins((*first.measured, table), len(owner), missing, known.tables.total)
        ones.append(_positive(np.asarray(np.bincount(every, shares, one.bins), np.float64)))
        fine[column] = shares[: len(owner)]
    return ones, fine


def _positive(shares: Floats) -> Floats:
    """A trace in every bin, so that nothing is divided by zero."""
    found: Floats = (shares + 1e-9) / (shares + 1e-9).sum()
    return found


def _fitted(table: Floats, rows: Floats, columns: Floats) -> Floats:
    """The table scaled until its sums are those of its two columns."""
    found = table + 1e-12
    for _ in range(FITTING_STEPS):
        found = found * (rows / found.sum(1))[:, None]
        found = found * (columns / found.sum(0))[None, :]
    return found
