"""What a release of `inputs` says of a table: bins, tables of one and two columns, fine histograms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.models.bins import Binned, Bins, Column
from airlock.models.histograms import Fine, Levels, Measured
from airlock.models.marginals import Layout, Tables, Weights, tables_of
from airlock.records.schema import EPOCH

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Distribution:
    """All that the open room knows.

    Attributes:
        bins: of all columns; the label is the last.
        tables: estimated counts.
        fine: of a column whose histogram was released first, what that says.
        n: records, null ones included.
    """

    bins: Bins
    tables: Tables
    fine: Mapping[int, Fine]
    n: int

    @property
    def names(self) -> list[str]:
        """Of the columns."""
        return [one.column.name for one in self.bins.columns]

    def place(self, name: str) -> int:
        """Where a column stands.

        Raises:
            ValueError: there is none of this name.
        """
        return self.names.index(name)


def distribution_of(details: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> Distribution:
    """From the integers of a release and what its release.json says of them."""
    n = int(details["data"]["n"])
    columns = [Column.from_json(one) for one in details["columns"]]
    edges = [tuple(float(edge) for edge in one) for one in details["edges"]]
    bins = Bins(tuple(Binned(column, one) for column, one in zip(columns, edges, strict=True)))
    layout = Layout(bins.sizes, Weights(**details["weights"]))
    scale = float(details["sums"]["tables"]["scale"])
    tables = tables_of(tensors["tables"], layout, scale=scale, n=n)
    return Distribution(bins, tables, _histograms(details, tensors, columns), n)


def _histograms(
    details: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]], columns: list[Column]
) -> dict[int, Fine]:
    """The histograms of a release. The first version of `inputs` had one level."""
    found, place = dict[int, Fine](), 0
    wide = details.get("wide")
    for column, one in enumerate(details["fine"]):
        if not one:
            continue
        deviation = float(details["sums"]["histograms"]["scale"])
        narrow, missing = tuple(float(edge) for edge in one), columns[column].missing
        levels = Levels(tuple(wide[column]) if wide else (), narrow, missing)
        size = levels.size if wide else len(narrow) + 1 + missing
        noisy = tensors["histograms"][place : place + size]
        measured = (
            levels.measured(noisy, deviation)
            if wide
            else (Measured(np.arange(size), noisy.astype(np.float64), deviation),)
        )
        found[column] = Fine(narrow, measured)
        place += size
    return found


def bin_names(one: Binned) -> list[str]:
    """Each bin in words: a category, an interval in the column's own units, or "missing"."""
    column = one.column
    if column.divided:
        ends = [0.0, *one.edges, 1.0]
        written = [value_text(column, end) for end in ends]
        names = [f"{low} to {high}" for low, high in pairwise(written)]
    else:
        names = list(column.categories) or [f"#{place}" for place in range(column.width)]
    return [*names, "missing"] if column.missing else names


def value_text(column: Column, encoded: float) -> str:
    """A place in the encoded range, in the column's own units."""
    low, high = column.bounds or (0.0, 1.0)
    value = low + (high - low) * encoded
    if column.type == "date":
        return (EPOCH + timedelta(days=round(value))).isoformat()
    return f"{value:.6g}"


def middles(one: Binned) -> Floats:
    """The middle of each bin of a number, in its own units; of the missing bin, the middle of all."""
    low, high = one.column.bounds or (0.0, 1.0)
    ends = np.array([0.0, *one.edges, 1.0])
    inner = (ends[1:] + ends[:-1]) / 2
    whole = [*inner.tolist(), *([0.5] if one.column.missing else [])]
    return np.asarray(low + (high - low) * np.array(whole))
