"""A private profile of a table, from a release of `inputs`: post-processing, at no charge (docs/inputs.md).

Intervals are of the noise alone: 95 % of the draws of the Gaussian noise leave the true share of these very
records inside. They do not say how these records differ from others.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.models.distribution import Distribution, bin_names, middles
from airlock.models.shares import Shares, shares_of

Floats = NDArray[np.float64]
DEVIATIONS = 1.959963984540054
NAMES = ("kind", "column", "bin", "other", "label", "value", "low", "high")


@dataclass(frozen=True)
class Row:
    """One figure of the profile.

    Attributes:
        kind: histogram (share of records in a bin), missing (share without a value), association (of two
            columns, Cramer's V), correlation (of two numbers), difference (of a class from all records in a
            column, total variation), mean (of a number, in a class or in all).
        column, bin, other, label: what it is of; None where that does not apply.
        value: the figure.
        low, high: 95 % interval of the noise, where there is one.
    """

    kind: str
    column: str
    value: float
    bin: str | None = None
    other: str | None = None
    label: str | None = None
    low: float | None = None
    high: float | None = None


def rows_of(known: Distribution) -> list[Row]:
    """All figures of the profile."""
    shares = shares_of(known)
    return [
        *_histograms(known),
        *_associations(known, shares),
        *_classes(known, shares),
    ]


def table_of(rows: list[Row]) -> Any:
    """As an Arrow table."""
    import pyarrow as pa

    kinds = dict.fromkeys(NAMES, pa.string()) | dict.fromkeys(("value", "low", "high"), pa.float64())
    found = [asdict(row) for row in rows]
    return pa.table({name: pa.array([row[name] for row in found], kinds[name]) for name in NAMES})


def _histograms(known: Distribution) -> list[Row]:
    tables, rows = known.tables, list[Row]()
    for one, counts in zip(known.bins.columns, tables.ones, strict=True):
        # The noise of a bin beyond an even spread: one of B directions is taken away.
        noise = tables.single_deviation * float(np.sqrt(1 - 1 / len(counts)))
        reach = DEVIATIONS * noise / tables.total
        for name, share in zip(bin_names(one), counts / tables.total, strict=True):
            missing = one.column.missing and name == "missing"
            rows.append(
                Row(
                    "missing" if missing else "histogram",
                    one.column.name,
                    _share(share),
                    bin=name,
                    low=_share(share - reach),
                    high=_share(share + reach),
                )
            )
    return rows


def _share(value: float) -> float:
    return float(min(max(value, 0.0), 1.0))


def _associations(known: Distribution, shares: Shares) -> list[Row]:
    rows = []
    for (first, second), table in shares.pairs.items():
        one, other = known.bins.columns[first], known.bins.columns[second]
        expected = np.outer(shares.ones[first], shares.ones[second])
        square = float(((table - expected) ** 2 / expected).sum()) if shares.strength[first, second] else 0.0
        most = max(min(table.shape) - 1, 1)
        of_two = partial(Row, column=one.column.name, other=other.column.name)
        rows.append(of_two("association", value=min(float(np.sqrt(square / most)), 1.0)))
        if one.column.divided and other.column.divided:
            # Linear in the noisy table, so that noise averages out instead of being cut off at zero.
            inner = known.tables.pair(first, second)[: one.values, : other.values] / known.tables.total
            rows.append(of_two("correlation", value=_correlation(inner, middles(one), middles(other))))
    return rows


def _correlation(table: Floats, first: Floats, second: Floats) -> float:
    """Of two numbers at the middles of their bins, where neither is missing."""
    table = table / max(float(table.sum()), 1e-12)
    first, second = first[: table.shape[0]], second[: table.shape[1]]
    left, right = first - table.sum(1) @ first, second - table.sum(0) @ second
    spread = float((table.sum(1) @ left**2) * (table.sum(0) @ right**2))
    found = float(left @ table @ right) / float(np.sqrt(spread)) if spread > 0 else 0.0
    return min(max(found, -1.0), 1.0)


def _classes(known: Distribution, shares: Shares) -> list[Row]:
    """How each class differs from all records, column by column."""
    last, rows = len(known.names) - 1, list[Row]()
    labels = bin_names(known.bins.columns[last])
    for place, one in enumerate(known.bins.columns[:-1]):
        table = shares.pair(place, last)
        for number, label in enumerate(labels):
            within = table[:, number] / table[:, number].sum()
            apart = float(np.abs(within - shares.ones[place]).sum()) / 2
            rows.append(Row("difference", one.column.name, apart, label=label))
            if one.column.divided:
                rows.append(
                    Row("mean", one.column.name, _mean(within[: one.values], middles(one)), label=label)
                )
        if one.column.divided:
            rows.append(Row("mean", one.column.name, _mean(shares.ones[place][: one.values], middles(one))))
    return rows


def _mean(shares: Floats, values: Floats) -> float:
    return float(shares @ values[: len(shares)] / max(float(shares.sum()), 1e-12))
