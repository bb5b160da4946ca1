"""Tables of one and of two columns as one vector of integers, and back.

The vector has the number of records, what each column has in its bins beyond an even spread, and what each
pair of columns has in its cells beyond what the two columns alone say: sums over records of 1, of B e - 1 and
of (B e - 1)(B' e' - 1)^T, each in units that make its noise the same (e is the bin of a record in a column of
B bins). All one-way and two-way tables follow from it linearly. Written so, a record is shorter than in plain
counts, and so is the noise (docs/proofs/inputs.md#sensitivity).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
GRID = 2**30
"""Steps to one record."""


@dataclass(frozen=True)
class Weights:
    """How loud the parts of the vector are beside each other; the louder, the less noise.

    Attributes:
        single: tables of one column.
        label: tables of the label and another column.
        pair: other tables of two columns.
    """

    single: float = 1.0
    label: float = 1.0
    pair: float = 1.0

    def of_pair(self, second: int, columns: int) -> float:
        """Of a pair whose later column is `second`; the label is the last column."""
        return self.label if second == columns - 1 else self.pair


@dataclass(frozen=True)
class Layout:
    """Where each table stands in the vector."""

    sizes: tuple[int, ...]
    weights: Weights = Weights()

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """All pairs of columns, in order."""
        return list(combinations(range(len(self.sizes)), 2))

    @property
    def cells(self) -> int:
        """Length of the vector."""
        squares = sum(size * size for size in self.sizes)
        return 1 + sum(self.sizes) + (sum(self.sizes) ** 2 - squares) // 2

    def scale(self, *columns: int) -> int:
        """Grid steps by which the integers of a table are multiplied: one record is then no longer than its
        weight on the grid.
        """
        cells = int(np.prod([self.sizes[column] for column in columns], dtype=np.int64))
        weight = (
            self.weights.of_pair(columns[1], len(self.sizes)) if len(columns) == 2 else self.weights.single
        )
        return int(weight * GRID) // cells

    def parts(self, vector: NDArray[Any]) -> Iterator[tuple[tuple[int, ...], NDArray[Any]]]:
        """The tables of a vector, by their columns; the first is the total."""
        yield (), vector[:1].reshape(())
        place = 1
        for column, size in enumerate(self.sizes):
            yield (column,), vector[place : place + size]
            place += size
        for first, second in self.pairs:
            shape = self.sizes[first], self.sizes[second]
            yield (first, second), vector[place : place + shape[0] * shape[1]].reshape(shape)
            place += shape[0] * shape[1]


def one_hot(bins: Integers, valid: NDArray[Any], sizes: Sequence[int]) -> Floats:
    """One-hot rows of records, from their bins: (n, all bins); a null record is a row of zeros."""
    starts = np.cumsum([0, *sizes[:-1]])
    rows = np.zeros((len(bins), int(np.sum(sizes))))
    present = np.flatnonzero(valid)
    rows[present[:, None], bins[present] + starts] = 1.0
    return rows


def vector_of(gram: Integers, layout: Layout) -> Integers:
    """The vector, from the Gram matrix of one-hot rows: exact integers."""
    sizes, starts = layout.sizes, np.cumsum([0, *layout.sizes])
    vector = np.empty(layout.cells, np.int64)
    counts = np.diag(gram)
    total = counts[: sizes[0]].sum()
    for columns, out in layout.parts(vector):
        if not columns:
            out[...] = GRID * total
            continue
        ones = [counts[starts[column] : starts[column] + sizes[column]] for column in columns]
        if len(columns) == 1:
            out[:] = layout.scale(*columns) * (sizes[columns[0]] * ones[0] - total)
            continue
        first, second = columns
        table = gram[
            starts[first] : starts[first] + sizes[first], starts[second] : starts[second] + sizes[second]
        ]
        centred = (
            sizes[first] * sizes[second] * table
            - sizes[first] * ones[0][:, None]
            - sizes[second] * ones[1][None, :]
            + total
        )
        out[:] = layout.scale(*columns) * centred
    return vector


@dataclass(frozen=True)
class Tables:
    """Estimated tables, in records; entries may be negative.

    Attributes:
        total: number of records that are not null.
        ones: counts of each column.
        pairs: counts of each pair of columns.
        deviation: of the noise of one cell of a pair of other columns than the label.
        label_deviation: of a pair with the label.
        single_deviation: of one cell of a single column.
    """

    total: float
    ones: tuple[Floats, ...]
    pairs: dict[tuple[int, int], Floats]
    deviation: float
    label_deviation: float
    single_deviation: float

    def pair(self, first: int, second: int) -> Floats:
        """The table of two columns, in this order."""
        return self.pairs[first, second] if first < second else self.pairs[second, first].T


def tables_of(vector: Integers, layout: Layout, *, scale: float, n: int) -> Tables:
    """All tables, from the noisy vector.

    Noise outside of what exact tables can be is taken away (rows and columns of interactions sum to zero),
    and there are no more records than n, which is public.
    """
    sizes = layout.sizes
    total, beyond = float(n), dict[int, Floats]()
    pairs: dict[tuple[int, int], Floats] = {}
    for columns, part in layout.parts(vector):
        if not columns:
            noisy = float(part) / GRID
            # Hardly any record is null as a rule: what the noise may have made is not believed. Of releases
            # without one, one in 740 would seem to have some.
            total = float(n) if n - noisy < 3 * scale / GRID else max(noisy, 1.0)
            continue
        unit = layout.scale(*columns) * int(np.prod([sizes[column] for column in columns]))
        found = part / max(unit, 1)
        if len(columns) == 1:
            beyond[columns[0]] = found - found.mean()
        else:
            pairs[columns[0], columns[1]] = found - found.mean(0) - found.mean(1)[:, None] + found.mean()
    for (first, second), table in pairs.items():
        table += (
            total / table.size
            + beyond[first][:, None] / sizes[second]
            + beyond[second][None, :] / sizes[first]
        )
    ones = tuple(total / size + beyond[column] for column, size in enumerate(sizes))
    noise = (
        scale / (GRID * one) for one in (layout.weights.pair, layout.weights.label, layout.weights.single)
    )
    return Tables(total, ones, pairs, *noise)
