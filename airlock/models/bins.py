"""Columns of a table as bins: public edges, categories as they are, a missing value as a bin of its own.

A record falls into exactly one bin of every column, whatever is in it: that is what the sensitivity of its
tables rests on (docs/proofs/inputs.md#bins). Edges stand in the encoded range [0, 1]; a number that is equal
to an edge belongs to the bin above it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Edges = tuple[float, ...]
WIDE_BINS, FINE = 10, 80
"""Bins of a number at both levels when its histograms are released first."""
WIDE = 1000.0
"""From this ratio of its bounds on, a number is divided evenly in its logarithm."""


@dataclass(frozen=True)
class Column:
    """One column of a table, in public terms.

    Attributes:
        name, type: as in the schema; the label is a category.
        width: how many encoded numbers it has, the indicator of a missing value not counted.
        missing: a value may be missing, which one more encoded number tells.
        bounds: of a number, or of a date in days.
        categories: names, in order; of a hashed category none.
        whole: whole numbers, or days.
        unit, form: of a date.
    """

    name: str
    type: str
    width: int = 1
    missing: bool = False
    bounds: tuple[float, float] | None = None
    categories: tuple[str, ...] = ()
    whole: bool = False
    unit: str | None = None
    form: str | None = None

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Column:
        """The inverse of `dataclasses.asdict`, after a way through JSON."""
        bounds = document.get("bounds")
        return cls(
            **{
                **document,
                "bounds": (float(bounds[0]), float(bounds[1])) if bounds else None,
                "categories": tuple(document.get("categories") or ()),
            }
        )

    @property
    def divided(self) -> bool:
        """Whether its bins are intervals."""
        return self.type != "category"

    @property
    def places(self) -> int:
        """Encoded numbers, the indicator included."""
        return self.width + self.missing


@dataclass(frozen=True)
class Binned:
    """A column and the edges between its bins; a category has none."""

    column: Column
    edges: Edges = ()

    @property
    def values(self) -> int:
        """Bins without that of the missing values."""
        return len(self.edges) + 1 if self.column.divided else self.column.width

    @property
    def bins(self) -> int:
        """All bins; that of the missing values is the last."""
        return self.values + self.column.missing

    def of(self, encoded: NDArray[np.float64]) -> NDArray[np.int64]:
        """The bin of each record, from the column's encoded numbers."""
        if self.column.divided:
            found = np.searchsorted(np.asarray(self.edges), encoded[:, 0], side="right")
        else:
            found = encoded[:, : self.column.width].argmax(axis=1)
        if self.column.missing:
            found = np.where(encoded[:, -1] > 0, self.values, found)
        return found.astype(np.int64)


@dataclass(frozen=True)
class Bins:
    """All columns of a table in the order of the encoded record, and the label as the last one."""

    columns: tuple[Binned, ...]
    starts: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        places = np.cumsum([0, *(one.column.places for one in self.columns[:-1])])
        object.__setattr__(self, "starts", tuple(places.tolist()))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Bins of each column."""
        return tuple(one.bins for one in self.columns)

    def of(self, records: NDArray[np.float64], labels: NDArray[np.integer]) -> NDArray[np.int64]:
        """The bin of each record in each column, (n, columns). Of a null record the numbers mean nothing."""
        found = np.empty((len(records), len(self.columns)), np.int64)
        for place, one in enumerate(self.columns[:-1]):
            start = self.starts[place]
            found[:, place] = one.of(records[:, start : start + one.column.places])
        found[:, -1] = np.maximum(labels, 0)
        return found


def label_column(name: str, labels: Sequence[str]) -> Column:
    """The label as a column."""
    return Column(name, "category", width=len(labels), categories=tuple(labels))


def plain_columns(width: int) -> tuple[Column, ...]:
    """Columns of encoded records of which nothing else is known: numbers from 0 to 1."""
    return tuple(Column(f"column {place + 1}", "number", bounds=(0.0, 1.0)) for place in range(width))


def even_edges(column: Column, bins: int) -> Edges:
    """Edges that divide a number evenly: in its logarithm where its bounds are wide, and between whole
    numbers where it is whole.
    """
    if not column.divided or column.bounds is None:
        return ()
    low, high = column.bounds
    steps = np.arange(1, bins) / bins
    inner = _spread(low, high, steps) if column.type != "date" else low + (high - low) * steps
    if column.whole:
        inner = np.floor(inner) + 0.5
    encoded = (inner - low) / (high - low)
    return tuple(np.unique(encoded[(encoded > 0) & (encoded < 1)]).tolist())


def _spread(low: float, high: float, steps: NDArray[np.float64]) -> NDArray[np.float64]:
    if low > 0 and high / low >= WIDE:
        return np.exp(math.log(low) + (math.log(high) - math.log(low)) * steps)
    if low <= 0 and max(high, -low) >= WIDE:
        # Signed logarithm of 1 + |value|: dense around zero, where generous bounds leave most records.
        first, last = (math.copysign(math.log1p(abs(end)), end) for end in (low, high))
        turned = first + (last - first) * steps
        return np.sign(turned) * np.expm1(np.abs(turned))
    return np.asarray(low + (high - low) * steps)


def merged_edges(fine: Edges, counts: NDArray[np.float64], bins: int) -> Edges:
    """So many of the fine edges that there are `bins` bins, each with about as many of the (noisy) counts.

    There are always as many: how many there are must not depend on counts.
    """
    below = np.cumsum(on_simplex(counts, 1.0))[:-1]
    kept, place = list[float](), -1
    for edge in range(1, bins):
        last = len(fine) - (bins - 1 - edge)
        place += 1 + int(np.abs(below[place + 1 : last] - edge / bins).argmin())
        kept.append(fine[place])
    return tuple(kept)


def on_simplex(values: NDArray[np.float64], total: float) -> NDArray[np.float64]:
    """The nearest point whose entries are not negative and sum to `total` (after scaling to that sum)."""
    flat = np.asarray(values, np.float64).ravel()
    whole = float(np.abs(flat).sum())
    if whole == 0:
        return np.full(np.shape(values), total / flat.size)
    aim = max(float(flat.sum()), 0.05 * whole)
    down = np.sort(flat)[::-1]
    excess = (np.cumsum(down) - aim) / np.arange(1, flat.size + 1)
    shift = excess[np.flatnonzero(down > excess)[-1]]
    found = np.maximum(flat - shift, 0.0)
    return np.asarray(found * (total / found.sum())).reshape(np.shape(values))
