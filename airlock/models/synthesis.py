"""Synthetic records from a release of `inputs`: bins that agree with the noisy tables, drawn from a tree of
columns and then moved until all pairs agree as far as they can (docs/inputs.md#synthetic-records).

Everything here is post-processing of the release. The tables are first made into shares that agree with each
other: interactions are shrunk by how much of them is noise (James and Stein 1961), and each pair is fitted to
the shares of its two columns (Deming and Stephan 1940). The tree is the one of Chow and Liu (1968); how
records are moved follows Zhang et al. 2021 (PrivSyn, arXiv 2012.15128). Labels come last, from the law of
largest entropy that has the label's tables with all columns: a tree would let each record know one of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.models.bins import Binned, on_simplex
from airlock.models.distribution import Distribution
from airlock.records.encoding import encode
from airlock.records.generation import Drawn, records_of
from airlock.records.schema import Schema

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
SWEEPS = 12
FITTING_STEPS = 30
LABEL_RIDGE = 0.3
"""Of the scores of labels, in deviations of the noise of a share; docs/inputs.md says how it was chosen."""
LABEL_STEPS = 100
MOST_FITTED = 8192
"""Records to which the scores of labels are fitted."""
DAMPINGS = np.concatenate([[0.0], 10.0 ** np.arange(-3.0, 9.0, 0.5)])
LEAST_DRAWN = 4096
"""Records that are drawn at once for batches: few of them could not follow the tables."""


@dataclass(frozen=True)
class Shares:
    """Shares of records in bins and in pairs of bins, which agree with each other.

    Attributes:
        ones: of each column.
        pairs: of each pair of columns.
        strength: of each pair, how much it says beyond its columns; 0 where that is no more than noise.
        label_noise: deviation of a share of a pair with the label.
    """

    ones: tuple[Floats, ...]
    pairs: dict[tuple[int, int], Floats]
    strength: dict[tuple[int, int], float]
    label_noise: float

    def pair(self, first: int, second: int) -> Floats:
        """The shares of two columns, in this order."""
        return self.pairs[first, second] if first < second else self.pairs[second, first].T


def shares_of(known: Distribution) -> Shares:
    """Shares from noisy tables."""
    tables = known.tables
    ones = tuple(_positive(on_simplex(counts, 1.0)) for counts in tables.ones)
    last = len(ones) - 1
    pairs, strength = dict[tuple[int, int], Floats](), dict[tuple[int, int], float]()
    for (first, second), counts in tables.pairs.items():
        noise = tables.label_deviation if second == last else tables.deviation
        table = counts / tables.total
        beyond = table - np.outer(table.sum(1), table.sum(0))
        free = (counts.shape[0] - 1) * (counts.shape[1] - 1)
        expected = free * (noise / tables.total) ** 2
        energy = float((beyond**2).sum())
        kept = max(0.0, 1.0 - expected / energy) if energy > 0 else 0.0
        found = np.outer(ones[first], ones[second]) + kept * beyond
        pairs[first, second] = _fitted(np.maximum(found, 0.0), ones[first], ones[second])
        apart = pairs[first, second] - np.outer(ones[first], ones[second])
        sure = energy > expected * (1.0 + 2.0 * np.sqrt(2.0 / max(free, 1)))
        strength[first, second] = float(np.abs(apart).sum()) / 2 if sure else 0.0
    return Shares(ones, pairs, strength, tables.label_deviation / tables.total)


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


def tree_of(shares: Shares) -> list[tuple[int, int | None]]:
    """Columns in an order in which each has its parent before it (None: it stands alone), so that parents
    say as much as possible.
    """
    count = len(shares.ones)
    order: list[tuple[int, int | None]] = [(count - 1, None)]
    inside, outside = {count - 1}, set(range(count - 1))
    while outside:
        strength, parent, child = max(
            (shares.strength[min(one, other), max(one, other)], -one, -other)
            for one in inside
            for other in outside
        )
        order.append((-child, -parent if strength > 0 else None))
        inside.add(-child)
        outside.discard(-child)
    return order


def draw_bins(shares: Shares, rows: int, random: Any, sweeps: int = SWEEPS) -> Integers:
    """The bin of each synthetic record in each column, (rows, columns)."""
    bins = np.zeros((rows, len(shares.ones)), np.int64)
    for column, parent in tree_of(shares):
        if parent is None:
            bins[:, column] = _spread(shares.ones[column], rows, random)
            continue
        table = shares.pair(parent, column)
        for value in np.unique(bins[:, parent]):
            here = np.flatnonzero(bins[:, parent] == value)
            bins[here, column] = _spread(table[value] / table[value].sum(), len(here), random)
    return _labelled(_moved(bins, shares, random, sweeps), shares, random)


def _labelled(bins: Integers, shares: Shares, random: Any) -> Integers:
    """The records with labels drawn anew, given all other columns."""
    starts = np.cumsum([0, *(len(one) for one in shares.ones[:-1])])
    some = bins if len(bins) <= MOST_FITTED else random.permutation(bins)[:MOST_FITTED]
    weight, offset = _label_scores(some, shares, starts)
    scores = np.broadcast_to(offset, (len(bins), len(offset))).copy()
    for column, start in enumerate(starts[:-1]):
        scores += weight[bins[:, column] + start]
    chances = _softmax(scores).cumsum(axis=1)
    labels = (chances < random.random(len(bins))[:, None]).sum(axis=1)
    bins[:, -1] = np.minimum(labels, len(offset) - 1)
    return bins


def _label_scores(bins: Integers, shares: Shares, starts: Integers) -> tuple[Floats, Floats]:
    """Logistic regression whose sums are not counted over labels but given: the label's shares in each bin."""
    from scipy.optimize import minimize
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    wide, classes = int(starts[-1]), len(shares.ones[-1])
    rows = np.zeros((len(bins), wide))
    rows[np.arange(len(bins))[:, None], bins[:, :-1] + starts[:-1]] = 1.0
    inside = np.concatenate(
        [shares.pair(column, len(starts) - 1) / one[:, None] for column, one in enumerate(shares.ones[:-1])]
    )
    wanted = inside * rows.mean(axis=0)[:, None]
    ridge = max(LABEL_RIDGE * shares.label_noise, 1e-6)

    def loss(flat: Floats) -> tuple[float, Floats]:
        weight, offset = flat[classes:].reshape(wide, classes), flat[:classes]
        scores = rows @ weight + offset
        top = scores.max(axis=1, keepdims=True)
        normal = top[:, 0] + np.log(np.exp(scores - top).sum(axis=1))
        chances = np.exp(scores - normal[:, None])
        value = normal.mean() - (weight * wanted).sum() - offset @ shares.ones[-1]
        slope = rows.T @ chances / len(rows) - wanted + ridge * weight
        found = np.concatenate([chances.mean(axis=0) - shares.ones[-1], slope.ravel()])
        return float(value + ridge / 2 * (weight**2).sum()), found

    start = np.concatenate([np.log(shares.ones[-1]), np.zeros(wide * classes)])
    with threadpool_limits(1):
        flat = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": LABEL_STEPS}).x
    return flat[classes:].reshape(wide, classes), flat[:classes]


def _softmax(scores: Floats) -> Floats:
    chances = np.exp(scores - scores.max(axis=1, keepdims=True))
    found: Floats = chances / chances.sum(axis=1, keepdims=True)
    return found


def _spread(shares: Floats, rows: int, random: Any) -> Integers:
    """So many bins, as near to the shares as whole numbers can be, in random order."""
    exact = shares * rows
    counts = np.floor(exact).astype(np.int64)
    rest = rows - int(counts.sum())
    if rest > 0:
        left = np.maximum(exact - counts, 1e-12)
        counts += random.multinomial(rest, left / left.sum())
    found = np.repeat(np.arange(len(shares)), counts)
    random.shuffle(found)
    return found


def _moved(bins: Integers, shares: Shares, random: Any, sweeps: int) -> Integers:
    """Records moved so that every pair that says something comes nearer to its shares.

    Of cells with too many records some are overwritten: by whole records of cells with too few where there
    are some, which keeps what else these say, or in the two columns alone.
    """
    rows = len(bins)
    telling = [pair for pair, strength in shares.strength.items() if strength > 0]
    for sweep in range(sweeps):
        part = 0.5 * (1.0 - sweep / sweeps)
        for place in random.permutation(len(telling)):
            first, second = telling[place]
            table = shares.pairs[first, second]
            cells = bins[:, first] * table.shape[1] + bins[:, second]
            counts = np.bincount(cells, minlength=table.size)
            excess = counts - table.ravel() * rows
            out = np.floor(np.maximum(excess, 0.0) * part + random.random(table.size)).astype(np.int64)
            out = np.minimum(out, np.maximum(np.ceil(excess), 0).astype(np.int64))
            total = int(out.sum())
            lacking = np.maximum(-excess, 0.0)
            if total == 0 or lacking.sum() == 0:
                continue
            gone = _some_of(cells, out, random)
            wanted = _spread(lacking / lacking.sum(), len(gone), random)
            whole = (counts[wanted] > 0) & (random.random(len(gone)) < 0.5)
            if whole.any():
                bins[gone[whole]] = bins[_one_of_each(cells, counts, wanted[whole], random)]
            bins[gone[~whole], first] = wanted[~whole] // table.shape[1]
            bins[gone[~whole], second] = wanted[~whole] % table.shape[1]
    return bins


def _some_of(cells: Integers, counts: Integers, random: Any) -> Integers:
    """Places of so many records of each cell, chosen at random."""
    order = random.permutation(len(cells))
    by_cell = order[np.argsort(cells[order], kind="stable")]
    sorted_cells = cells[by_cell]
    starts = np.searchsorted(sorted_cells, sorted_cells)
    rank = np.arange(len(cells)) - starts
    found: Integers = by_cell[rank < counts[sorted_cells]]
    return found


def _one_of_each(cells: Integers, counts: Integers, wanted: Integers, random: Any) -> Integers:
    """For each wanted cell the place of a record in it."""
    by_cell = np.argsort(cells, kind="stable")
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    found: Integers = by_cell[
        starts[wanted] + np.floor(random.random(len(wanted)) * counts[wanted]).astype(int)
    ]
    return found


def drawn_of(known: Distribution, bins: Integers, random: Any) -> tuple[list[Drawn], Integers]:
    """What each column of a record is, from its bins: an interval within its bin, by the fine histogram where
    there is one, or a category.
    """
    drawn = []
    for place, one in enumerate(known.bins.columns[:-1]):
        found = bins[:, place]
        missing = found == one.values if one.column.missing else None
        inner = np.minimum(found, one.values - 1)
        if not one.column.divided:
            drawn.append(Drawn(choice=inner, missing=missing))
            continue
        fine = known.fine.get(place)
        ends = _within(one, inner, fine, known.fine_deviation, random) if fine else _ends(one.edges, inner)
        drawn.append(Drawn(interval=ends, missing=missing))
    return drawn, bins[:, -1]


def _ends(edges: Sequence[float], inner: Integers) -> tuple[Floats, Floats]:
    ends = np.array([0.0, *edges, 1.0])
    return ends[inner], ends[inner + 1]


def _within(
    one: Binned, inner: Integers, fine: tuple[Sequence[float], Floats], deviation: float, random: Any
) -> tuple[Floats, Floats]:
    """A fine bin within each bin, as often as the released histogram says."""
    edges, counts = fine
    shares = on_simplex(_smoothed(counts, deviation), 1.0)
    # Edges of bins are edges of the fine ones: each of these is in one bin.
    ends = np.array([0.0, *edges, 1.0])
    middle = (ends[1:] + ends[:-1]) / 2
    owner = np.searchsorted(np.asarray(one.edges), middle, side="right")
    chosen = np.zeros(len(inner), np.int64)
    for value in np.unique(inner):
        here, parts = np.flatnonzero(inner == value), np.flatnonzero(owner == value)
        weight = shares[parts] + 1e-9
        chosen[here] = parts[_spread(weight / weight.sum(), len(here), random)]
    return ends[chosen], ends[chosen + 1]


def _smoothed(counts: Floats, deviation: float) -> Floats:
    """Noisy counts without most of the noise: second differences are damped (Whittaker 1923) as much as makes
    the error least, by its unbiased estimate (Stein 1981).
    """
    values, vectors = _roughness(len(counts))
    turned = vectors.T @ counts
    gains = 1.0 / (1.0 + DAMPINGS[:, None] * values)
    errors = ((1.0 - gains) ** 2 * turned**2 + 2.0 * deviation**2 * gains).sum(axis=1)
    found: Floats = vectors @ (gains[errors.argmin()] * turned)
    return found


@cache
def _roughness(size: int) -> tuple[Floats, Floats]:
    """Eigenvalues and eigenvectors of the sum of squared second differences."""
    differences = np.diff(np.eye(size), 2, axis=0)
    values, vectors = np.linalg.eigh(differences.T @ differences)
    return np.maximum(values, 0.0), vectors


def stream(
    known: Distribution, schema: Schema, *, batch: int, seed: int = 0, shares: Shares | None = None
) -> Iterator[tuple[Floats, NDArray[np.int32]]]:
    """Batches of encoded synthetic records and labels without end, for networks: none comes twice.

    Whoever asks for many streams of one release makes its `shares` once.
    """
    shares = shares or shares_of(known)
    for number in itertools.count():
        random = np.random.default_rng([seed, number])
        bins = draw_bins(shares, max(batch, LEAST_DRAWN), random)
        encoded = encode(records_of(schema, *drawn_of(known, bins, random), random), schema)
        for start in range(0, len(bins) - batch + 1, batch):
            yield encoded.x[start : start + batch], encoded.y[start : start + batch]
