"""A model on bins, from released tables alone: least squares of the target's bins on the bins of all other
columns (docs/inputs.md).

Least squares needs no more than tables of one and of two columns. Negative eigenvalues can only be noise and
are set to zero, and a ridge in units of the noise's spectral radius holds the rest. The scores of a record
sum to 1; weighted by the middles of the target's bins they are a regression.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.models.bins import Binned, Bins, Column
from airlock.models.bounds import check_data, check_floats
from airlock.models.features.projection import spectral_radius
from airlock.models.marginals import Tables
from airlock.models.model import Model, Scorer, Tensors
from airlock.models.moments import path_of

Floats = NDArray[np.float64]
LEAST_SHARE = 1e-3
"""Of a class, for its logarithm: least squares may say less than nothing."""
RIDGE = 1.0
"""In units of the noise's radius; docs/inputs.md says on which tables it was chosen."""


@dataclass(frozen=True)
class Source:
    """How records of the data set's own schema become records of a model for another target.

    Attributes:
        shape: of a record as it is sealed.
        start, places: where the target stands in it.
    """

    shape: tuple[int, ...]
    start: int
    places: int


@dataclass(frozen=True)
class BinnedModel(Model):
    """A model whose scores are a constant and a number from each column's bin.

    Attributes:
        bins: of the columns; the last is the target, which is not looked at.
        weight: (bins of all columns but the target, bins of the target).
        offset: (bins of the target,).
        values: middles of the target's bins, where it is a number; otherwise empty.
        source: where the target is not the label.
    """

    bins: Bins = field(default_factory=lambda: Bins(()))
    weight: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    offset: Floats = field(default_factory=lambda: np.zeros(0))
    values: Floats = field(default_factory=lambda: np.zeros(0))
    source: Source | None = None

    def scorer(self) -> Scorer:
        """What gives a batch its scores: of a class the logarithm of its share; of a number, how near a bin's
        middle is to what is expected (least squares alone would hardly ever name a bin in between).
        """
        linear = self._linear()
        if not len(self.values):
            return lambda records: np.log(np.maximum(linear(records), LEAST_SHARE))
        middles = self.values[: self.bins.columns[-1].values]
        width = max(float(np.ptp(middles)) / max(len(middles) - 1, 1), 1e-300)

        def nearness(records: NDArray[Any]) -> Floats:
            away = (self._clipped(linear(records))[:, None] - middles) / width
            found = np.full((len(records), len(self.labels)), -2.0 * float(len(middles) + 1) ** 2)
            found[:, : len(middles)] = -(away**2)
            return found

        return nearness

    def _linear(self) -> Scorer:
        """One look into a table for each column."""
        starts = np.cumsum([0, *self.bins.sizes[:-2]])

        def scores(records: NDArray[Any]) -> Floats:
            found = self.bins.of(records, np.zeros(len(records), np.int32))[:, :-1] + starts
            total: Floats = np.broadcast_to(self.offset, (len(records), len(self.labels))).copy()
            for place in range(found.shape[1]):
                total += self.weight[found[:, place]]
            return total

        return scores

    def expected(self, records: NDArray[Any]) -> Floats | None:
        """The expected value of the target for each record; None where it is no number."""
        if not len(self.values):
            return None
        return self._clipped(self._linear()(records))

    def _clipped(self, scores: Floats) -> Floats:
        found: Floats = np.clip(scores @ self.values, self.values.min(), self.values.max())
        return found

    @property
    def record_shape(self) -> tuple[int, ...]:
        return self.source.shape if self.source else self.shape

    def judged(
        self, records: NDArray[Any], labels: NDArray[np.int32]
    ) -> tuple[NDArray[Any], NDArray[np.int32]]:
        """Sealed records as this model takes them, and the right answers."""
        if self.source is None:
            return records, labels
        start, after = self.source.start, self.source.start + self.source.places
        known = np.zeros((len(records), self.bins.columns[-2].column.width))
        present = np.flatnonzero(labels >= 0)
        known[present, labels[present]] = 1.0
        answers = self.bins.columns[-1].of(records[:, start:after]).astype(np.int32)
        kept = np.concatenate([records[:, :start], records[:, after:], known], axis=1)
        return kept, np.where(labels >= 0, answers, -1).astype(np.int32)

    def check(self) -> None:
        """Look at every type, shape and range, so that no record finds out.

        Raises:
            ValueError: this is no model.
        """
        check_data(self.kind, self.shape, self.labels)
        if len(self.bins.columns) < 2:
            raise ValueError("a model has a column and a target at least")
        for one in self.bins.columns:
            check_bins(one)
        places = sum(one.column.places for one in self.bins.columns[:-1])
        if self.shape != (places,) or self.bins.columns[-1].bins != len(self.labels):
            raise ValueError("the bins are not those of such records")
        check_floats(self.weight, (sum(self.bins.sizes[:-1]), len(self.labels)))
        check_floats(self.offset, (len(self.labels),))
        check_floats(self.values, (len(self.labels) if len(self.values) else 0,))
        if self.source:
            target = self.bins.columns[-1].column
            label = self.bins.columns[-2].column
            whole = self.shape[0] - label.width + target.places
            inside = 0 <= self.source.start <= whole - target.places
            if self.source.places != target.places or self.source.shape != (whole,) or not inside:
                raise ValueError("the target is not a part of such records")

    def tensors(self) -> dict[str, NDArray[Any]]:
        """For model.safetensors."""
        return {"weight": self.weight, "offset": self.offset, "values": self.values}

    def describe(self) -> dict[str, Any]:
        """For model.json."""
        source = {"source": asdict(self.source)} if self.source else {}
        return {**super().describe(), "bins": bins_json(self.bins), **source}


def check_bins(one: Binned) -> None:
    """Look at a column and its edges.

    Raises:
        ValueError: they are none.
    """
    edges = np.asarray(one.edges, np.float64)
    if one.column.width < 1 or (one.column.divided and one.column.width != 1):
        raise ValueError("a category has at least one place, a number exactly one")
    rising = bool((np.diff(edges) > 0).all()) and bool(((edges >= 0) & (edges <= 1)).all())
    if not rising or (len(edges) and not one.column.divided):
        raise ValueError("the edges of a number rise from 0 to 1")


def bins_json(bins: Bins) -> list[dict[str, Any]]:
    """Columns and their edges, in plain JSON."""
    return [{"column": asdict(one.column), "edges": list(one.edges)} for one in bins.columns]


def bins_of(document: Sequence[Mapping[str, Any]]) -> Bins:
    """The inverse of `bins_json`."""
    return Bins(
        tuple(
            Binned(Column.from_json(one["column"]), tuple(float(edge) for edge in one["edges"]))
            for one in document
        )
    )


def binned_model(document: Mapping[str, Any], tensors: Tensors) -> BinnedModel:
    """The inverse of `describe` and `tensors`."""
    source = document.get("source")
    return BinnedModel(
        document["features"],
        document["kind"],
        tuple(document["shape"]),
        tuple(document["labels"]),
        [],
        [],
        dict(document),
        bins=bins_of(document["bins"]),
        weight=tensors["weight"],
        offset=tensors["offset"],
        values=tensors["values"],
        source=Source(tuple(source["shape"]), source["start"], source["places"]) if source else None,
    )


@dataclass(frozen=True)
class Fit:
    """Least squares of one column on the others.

    Attributes:
        weight, offset: of the scores.
        ridge: in units of the noise's radius.
        path: mean squared error per record of the damped problem, less a constant, along the way to the one
            that was taken.
    """

    weight: Floats
    offset: Floats
    ridge: float
    path: list[tuple[int, float]]

    @property
    def loss(self) -> float:
        """Of the scores that were taken."""
        return self.path[-1][1]


def fit(tables: Tables, inputs: Sequence[int], target: int, wanted: float | str = "auto") -> Fit:
    """Scores of the target's bins from the bins of `inputs`, in that order."""
    ridge = RIDGE if isinstance(wanted, str) else wanted
    mean, spread = covariance(tables, inputs)
    shares = tables.ones[target] / tables.total
    joint = np.concatenate([tables.pair(column, target) for column in inputs]) / tables.total
    moved = joint - np.outer(mean, shares)
    values, vectors = _eigen((spread + spread.T) / 2)
    radius = spectral_radius(len(mean), float(np.sqrt(2.0)) * tables.deviation / tables.total)
    damped = np.maximum(values, 0.0) + max(ridge * radius, 1e-9)
    turned = vectors.T @ moved
    weight = vectors @ (turned / damped[:, None])
    # Post-processing of the noisy shares: what is negative is none.
    shares = np.maximum(shares, 0.0)
    shares = shares / shares.sum() if shares.sum() > 0 else np.full(len(shares), 1 / len(shares))
    return Fit(weight, shares - mean @ weight, ridge, path_of(damped, turned))


def covariance(tables: Tables, inputs: Sequence[int]) -> tuple[Floats, Floats]:
    """Mean and covariance of the one-hot bins of some columns, per record."""
    mean = np.concatenate([tables.ones[column] for column in inputs]) / tables.total
    starts = np.cumsum([0, *(len(tables.ones[column]) for column in inputs)])
    spread = np.zeros((len(mean), len(mean)))
    for place, first in enumerate(inputs):
        here = slice(starts[place], starts[place + 1])
        spread[here, here] = np.diag(tables.ones[first]) / tables.total
        for later in range(place + 1, len(inputs)):
            there = slice(starts[later], starts[later + 1])
            spread[here, there] = tables.pair(first, inputs[later]) / tables.total
            spread[there, here] = spread[here, there].T
    return mean, spread - np.outer(mean, mean)


def _eigen(matrix: Floats) -> tuple[Floats, Floats]:
    """In one thread, so that the bits do not depend on how many there are."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    with threadpool_limits(1):
        values, vectors = np.linalg.eigh(matrix)
    return values, vectors
