"""Synthetic records from a release of `inputs`: bins that agree with the noisy tables, drawn from a tree of
columns and then moved until all pairs agree as far as they can (docs/inputs.md#synthetic-records).

Everything here is post-processing of the release. The tables are first made into shares that agree with each
other (airlock/models/shares.py). The tree is the one of Chow and Liu (1968); how records are moved follows
Zhang et al. 2021 (PrivSyn, arXiv 2012.15128). Labels come last (airlock/models/labels.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.models.bins import Binned
from airlock.models.distribution import Distribution
from airlock.models.histograms import Fine, owner_of
from airlock.models.labels import labelled
from airlock.models.shares import Shares, shares_of
from airlock.records.encoding import encode
from airlock.records.generation import Drawn, records_of
from airlock.records.schema import Schema

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
SWEEPS = 12
LEAST_DRAWN = 4096
"""Records that are drawn at once for batches: few of them could not follow the tables."""


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
            bins[here, column] = _spread(table[value], len(here), random)
    return labelled(_even(_moved(bins, shares, random, sweeps), shares, random), shares, random)


def _even(bins: Integers, shares: Shares, random: Any) -> Integers:
    """The records with as few moved as bring every column to its shares, as near as whole numbers can be."""
    for column, share in enumerate(shares.ones):
        size = len(share)
        excess = np.bincount(bins[:, column], minlength=size)
        excess -= np.bincount(_spread(share, len(bins), random), minlength=size)
        gone = _some_of(bins[:, column], np.maximum(excess, 0), random)
        bins[gone, column] = random.permutation(np.repeat(np.arange(size), np.maximum(-excess, 0)))
    return bins


def _spread(shares: Floats, rows: int, random: Any) -> Integers:
    """So many bins in random order: of any bins side by side as many as their shares say, or one more or
    less (systematic sampling, Madow and Madow 1944).
    """
    below = np.floor(np.cumsum(shares) * (rows / shares.sum()) + random.random()).astype(np.int64)
    below[-1] = rows
    found = np.repeat(np.arange(len(shares)), np.diff(np.minimum(below, rows), prepend=0))
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
            wanted = _spread(lacking, len(gone), random)
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


def drawn_of(
    known: Distribution, shares: Shares, bins: Integers, random: Any
) -> tuple[list[Drawn], Integers]:
    """What each column of a record is, from its bins: an interval within its bin, by the histograms where
    there are some, or a category.
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
        ends = _within(one, inner, fine, shares.fine[place], random) if fine else _ends(one.edges, inner)
        drawn.append(Drawn(interval=ends, missing=missing))
    return drawn, bins[:, -1]


def _ends(edges: Sequence[float], inner: Integers) -> tuple[Floats, Floats]:
    ends = np.array([0.0, *edges, 1.0])
    return ends[inner], ends[inner + 1]


def _within(one: Binned, inner: Integers, fine: Fine, shares: Floats, random: Any) -> tuple[Floats, Floats]:
    """A narrow bin within each bin, as often as its share says."""
    owner = owner_of(fine.edges, one.edges)
    chosen = np.zeros(len(inner), np.int64)
    for value in np.unique(inner):
        here, parts = np.flatnonzero(inner == value), np.flatnonzero(owner == value)
        chosen[here] = parts[_spread(shares[parts] + 1e-9, len(here), random)]
    return _ends(fine.edges, chosen)


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
        encoded = encode(records_of(schema, *drawn_of(known, shares, bins, random), random), schema)
        for start in range(0, len(bins) - batch + 1, batch):
            yield encoded.x[start : start + batch], encoded.y[start : start + batch]
