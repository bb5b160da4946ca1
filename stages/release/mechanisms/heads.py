"""Linear heads in integers: products with rows are exact, so that what a record adds to the next pass is a function
of that record.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from airlock.models.features.rows import LIMIT, Rows, quantise

# A head's longest column, in its integers: products with rows stay below 2^45.
COLUMN = 2.0**30
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Head:
    """A linear head in integers: weights = integers * unit, for rows of norm 1."""

    integers: Integers
    unit: float

    @classmethod
    def of(cls, weights: NDArray[np.float64]) -> Head:
        """The nearest head on its grid.

        A constant added to all classes changes no probability, so the mean is taken out.
        """
        return cls.of_number(weights - weights.mean(axis=1, keepdims=True))

    @classmethod
    def of_number(cls, weights: NDArray[np.float64]) -> Head:
        """The nearest head on its grid, of one column that is a number."""
        integers = quantise(weights, COLUMN)
        longest = float(np.sqrt((weights * weights).sum(axis=0).max()))
        return cls(integers.astype(np.int64), longest / COLUMN)

    @property
    def weights(self) -> NDArray[np.float64]:
        return self.integers.astype(np.float64) * self.unit

    def scores(self, rows: Rows) -> Rows:
        """Of rows on their grid: one exact product, scaled once."""
        scores: Rows = (rows @ self.integers.astype(np.float64)) * (self.unit / LIMIT)
        return scores
