"""Histograms of a number at two levels, and what all that was released of one column says together.

Counts in few wide bins have little noise; counts in the narrow bins inside them tell where records are when
bounds are wider than the data. Both are released at once, the wide ones louder
(docs/proofs/inputs.md#histograms). Shares are then estimated from both and from the column's table of one
column: least squares by the precision of each, smoothed as much as the noise asks for, nowhere negative.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from airlock.models.bins import Edges, on_simplex

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
LOUD = 2
"""Counts of the wide bins are multiplied by it before the noise, those of the narrow ones are not."""
ENERGY = LOUD**2 + 1
"""Squared length of a record in one column, at most."""
LEAST_DEVIATION = 1e-3
DAMPINGS = np.concatenate([[0.0], 10.0 ** np.arange(-3.0, 9.0, 0.5)])
TOTAL_PRECISION = 1e4
"""Of the number of records, beside that of the counts: it is known."""
TEMPERATURE, TINY = 4.0, 1e-300


@dataclass(frozen=True)
class Levels:
    """The bins of one column: wide ones, narrow ones inside them, and that of missing values.

    Attributes:
        wide, narrow: edges; every wide one is a narrow one too.
        missing: a value may be missing.
    """

    wide: Edges
    narrow: Edges
    missing: bool

    @property
    def size(self) -> int:
        """How many integers are released of it."""
        return self._loud + len(self.narrow) + 1

    @property
    def _loud(self) -> int:
        return len(self.wide) + 1 + self.missing

    def vector(self, counts: Integers) -> Integers:
        """What is released but for the noise, from counts in the narrow bins; missing values are the last."""
        loud = np.zeros(self._loud, np.int64)
        np.add.at(loud, self.owner(), counts)
        return np.concatenate([LOUD * loud, counts[: len(self.narrow) + 1]])

    def owner(self) -> Integers:
        """The wide bin of each narrow one; missing values are a wide bin of their own."""
        found = owner_of(self.narrow, self.wide)
        return np.append(found, len(self.wide) + 1) if self.missing else found

    def measured(self, noisy: NDArray[np.integer], deviation: float) -> tuple[Measured, ...]:
        """Both levels, in records."""
        loud, quiet = (part.astype(np.float64) for part in np.split(noisy, [self._loud]))
        return (
            Measured(self.owner(), loud / LOUD, deviation / LOUD),
            Measured(np.arange(len(quiet)), quiet, deviation),
        )

    def placed(self, noisy: NDArray[np.integer]) -> Floats:
        """Counts of the narrow bins to place edges by: shares of wide ones, divided by the narrow ones in
        them.
        """
        wide, narrow = (one.counts for one in self.measured(noisy, 0.0))
        owner, found = owner_of(self.narrow, self.wide), np.zeros(len(narrow))
        for place, share in enumerate(on_simplex(wide[: len(self.wide) + 1], 1.0)):
            if share > 0:
                found[owner == place] = on_simplex(narrow[owner == place], float(share))
        return found


@dataclass(frozen=True)
class Measured:
    """Noisy counts of cells that narrow bins belong to.

    Attributes:
        owner: the cell of each bin; bins beyond its end belong to none.
        counts: of the cells.
        deviation: of the noise of one.
    """

    owner: Integers
    counts: Floats
    deviation: float


@dataclass(frozen=True)
class Fine:
    """What was released of a column's narrow bins: their edges, and noisy counts."""

    edges: Edges
    measured: tuple[Measured, ...]


def owner_of(narrow: Sequence[float], wide: Sequence[float]) -> Integers:
    """The wide bin of each narrow one, which lies inside it."""
    ends = np.array([0.0, *narrow, 1.0])
    found = np.searchsorted(np.asarray(wide), (ends[1:] + ends[:-1]) / 2, side="right")
    return np.asarray(found, np.int64)


def shares_of_bins(measured: Sequence[Measured], bins: int, missing: bool, total: float) -> Floats:
    """Shares of narrow bins, that of missing values the last, from all counts together.

    Least squares, smoothed, and then replaced by the nearest shares, in the metric of the precision, of which
    none is negative. Without noise the shares are exact.
    """
    from scipy.optimize import nnls
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    size = bins + missing
    rows = np.concatenate([_rows(one, size) for one in measured])
    told = np.concatenate([one.counts / _at_least(one.deviation) for one in measured])
    precision = rows.T @ rows
    sure = TOTAL_PRECISION * float(np.trace(precision)) / size**2
    precision = precision + sure
    with threadpool_limits(1):
        smooth = _smoothed(precision, rows.T @ told + sure * total, bins)
        root = np.linalg.cholesky(precision).T
        found, _ = nnls(root, root @ smooth, maxiter=100 * size)
    # Where noise has drowned all records nothing is left of them: then no bin is likelier than another.
    return np.asarray(found / found.sum() if found.any() else np.full(size, 1.0 / size))


def _smoothed(precision: Floats, told: Floats, bins: int) -> Floats:
    """Counts whose second differences are damped (Whittaker 1923): the mean over many dampings, weighted by
    an unbiased estimate of the error of each (Stein 1981; Leung and Barron 2006).

    Each end may stand out from its neighbours, as what lies beyond the bounds is clipped to them: differences
    at the ends are left out or not, which is weighted in the same way.
    """
    from scipy.linalg import eigh

    found, errors = [], []
    for first, last in product((0, 1), repeat=2):
        differences = np.diff(np.eye(bins, len(told)), 2, axis=0)[first : max(bins - 2 - last, 0)]
        values, vectors = eigh(differences.T @ differences, precision)
        turned = vectors.T @ told
        damped = DAMPINGS[:, None] * np.maximum(values, 0.0) / max(float(values[-1]), TINY)
        gains = 1.0 / (1.0 + damped)
        found.append((gains * turned) @ vectors.T)
        errors.append(((1.0 - gains) ** 2 * turned**2 + 2.0 * gains).sum(axis=1))
    error = np.concatenate(errors)
    weights = np.exp((error.min() - error) / TEMPERATURE)
    return np.asarray((weights / weights.sum()) @ np.concatenate(found))


def _rows(one: Measured, size: int) -> Floats:
    """The linear map from counts of bins to measured counts, in deviations of the noise."""
    rows = np.zeros((len(one.counts), size))
    rows[one.owner, np.arange(len(one.owner))] = 1.0 / _at_least(one.deviation)
    return rows


def _at_least(deviation: float) -> float:
    return max(deviation, LEAST_DEVIATION)
