"""The hybrid map of tables: random cosines of all columns beside the columns themselves.

Its name says all that it computes from: `hybrid-WIDTH-1@LAYOUT`, where the layout lists the kinds of the
encoded columns in order. A layout comes from the schema, so it is public. Columns are counted before one-hot
encoding: a category of a hundred levels has the say of one column.
"""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from airlock.models.features.rows import LIMIT, Rows, normalise
from airlock.models.features.tables import PHASES, STEPS, cosines

NAME = re.compile(r"hybrid-(\d{1,5})-1(?:@([a-z0-9.]+))?")
RUN = re.compile(r"(n|g|c)(\d{0,5})(?:x(\d{1,6}))?")
GRID = range(2, 12)
"""A number whose public bounds are whole and so far apart is also read as a code: each whole value by itself."""
BANDWIDTHS = (0.3, 0.6)
NARROW, LINEAR = 67, (4.0, 2.0)
"""Weight of the columns themselves, beside up to so many cosines and beside more."""
BIAS = 0.2
"""bench/results/tables/rule.md says how these constants were chosen."""
UNIT, LARGEST = 2.0**10, 2**17
"""Grid of the blocks' weights; features at most, so that products and squared norms before scaling are exact
(docs/proofs/exact-sums.md#rows)."""


@dataclass(frozen=True)
class Run:
    """Neighbouring columns of one kind.

    Attributes:
        kind: "n" a number, "g" a number on a grid of `size` steps, "c" a category of `size` encoded columns.
        count: how many such columns.
    """

    kind: str
    size: int
    count: int

    @property
    def encoded(self) -> int:
        """Encoded columns of the run."""
        return self.count * (self.size if self.kind == "c" else 1)

    @property
    def spread(self) -> int:
        """Columns of the run inside the map: a grid has one for each of its points."""
        return self.count * {"n": 1, "g": self.size + 1, "c": self.size}[self.kind]

    def __str__(self) -> str:
        size = "" if self.kind == "n" else str(self.size)
        return f"{self.kind}{size}" + (f"x{self.count}" if self.count > 1 else "")


def layout(columns: list[tuple[str, int]]) -> str:
    """Kinds and sizes of the columns, in order, as the text that a map's name carries."""
    return ".".join(str(Run(*column, len(list(same)))) for column, same in groupby(columns))


@lru_cache
def runs_of(text: str) -> tuple[Run, ...]:
    """The inverse of `layout`.

    Raises:
        ValueError: it is not a layout.
    """
    found = [RUN.fullmatch(part) for part in text.split(".")]
    runs = [Run(part[1], int(part[2] or 0), int(part[3] or 1)) for part in found if part]
    sizes = {"n": range(1), "g": GRID, "c": range(1, 2**16)}
    if len(runs) < len(found) or not all(run.size in sizes[run.kind] and run.count for run in runs):
        raise ValueError(f"'{text}' is not a layout of columns")
    return tuple(runs)


def without_grids(text: str) -> str:
    """The layout of the same columns, with codes as plain numbers."""
    kinds = [
        ("n", 0) if run.kind == "g" else (run.kind, run.size)
        for run in runs_of(text)
        for _ in range(run.count)
    ]
    return layout(kinds)


def columns_of(text: str) -> int:
    """Columns before one-hot encoding."""
    return sum(run.count for run in runs_of(text))


def width_of(text: str, width: int) -> int:
    """Features of the map."""
    return width + sum(run.spread for run in runs_of(text))


def owners(name: str) -> NDArray[np.int64] | None:
    """Of each feature of a map the encoded column that it is of, -1 for a cosine, which is of all; None for
    another map.
    """
    matched = NAME.fullmatch(name)
    if not matched or not matched[2]:
        return None
    counts = [run.spread // run.encoded for run in runs_of(matched[2]) for _ in range(run.encoded)]
    return np.concatenate([np.full(int(matched[1]), -1), np.repeat(np.arange(len(counts)), counts)])


def shares(name: str, spreads: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """How much of each feature belongs to each encoded column, (columns, features): a column's own features to
    itself, a cosine to all by what each adds to the spread of its phase (the w^2 rule of relevance propagation,
    in units of the columns' spread); None for another map.

    Args:
        name: of the map, with its layout.
        spreads: variance of each feature over the records.
    """
    groups, matched = owners(name), NAME.fullmatch(name)
    if groups is None or not matched:
        return None
    width, runs = int(matched[1]), runs_of(matched[2])
    factors = np.concatenate([np.full(run.spread, 1.0 if run.kind == "n" else 0.5) for run in runs])
    frequencies, _ = directions(matched[2], width)
    parts = (frequencies * factors[:, None]) ** 2 * np.maximum(spreads[width : len(groups)], 0.0)[:, None]
    columns = np.zeros((groups.max() + 1, len(groups)))
    np.add.at(columns[:, :width], groups[width:], parts / np.maximum(parts.sum(axis=0), 1e-300))
    columns[groups[width:], np.arange(width, len(groups))] = 1.0
    return columns


def bias() -> int:
    """The constant that stands beside the centred rows."""
    return math.floor(BIAS * LIMIT)


def hybrid(records: NDArray[np.float64], *, width: int, layout: str) -> Rows:
    """cos(z W + b) / sqrt(width / 2) beside w z / sqrt(columns), scaled to norm LIMIT.

    z is 2 sqrt(x) - 1 for numbers, 0 or 1 for categories (half of that inside the cosines, so that two levels
    are as far apart as the ends of a number) and tents around the points of a grid. Phases are exact
    integers, a cosine is one look into a table, and both blocks are weighed by integers.
    """
    runs, columns = runs_of(layout), columns_of(layout)
    z, halved = _spread(records, runs)
    frequencies, offsets = directions(layout, width)
    turns = (z * halved) @ frequencies
    turns *= 1 / STEPS
    phases = np.floor(turns, out=turns).astype(np.int64)
    phases += offsets
    phases &= PHASES - 1
    linear = LINEAR[width > NARROW]
    rows = np.empty((len(z), width + z.shape[1]))
    np.multiply(cosines().take(phases), np.rint(UNIT * math.sqrt(2 / width)), out=rows[:, :width])
    np.multiply(z, np.rint(UNIT * linear / math.sqrt(columns)), out=rows[:, width:])
    return normalise(rows)


def _spread(records: NDArray[np.float64], runs: tuple[Run, ...]) -> tuple[Rows, Rows]:
    """Integers for the columns inside the map, STEPS to a unit, and the factor of each inside the cosines."""
    parts, factors, place = [], list[float](), 0
    for run in runs:
        found = records[:, place : place + run.encoded]
        place += run.encoded
        if run.kind == "n":
            part = 2.0 * np.sqrt(found) - 1.0
        elif run.kind == "g":
            points = np.arange(run.size + 1.0)
            tents = 1.0 - np.abs(found[:, :, None] * float(run.size) - points)
            part = np.maximum(tents, 0.0).reshape(len(records), -1)
        else:
            part = found
        parts.append(np.trunc(part * STEPS))
        factors += [1.0 if run.kind == "n" else 0.5] * run.spread
    return np.hstack(parts), np.array(factors)


@lru_cache
def directions(layout: str, width: int) -> tuple[Rows, NDArray[np.int64]]:
    """Integer frequencies (PHASES to a turn, per unit of a column) and offsets from a public hash."""
    from scipy.special import ndtri

    spread, columns = width_of(layout, 0), columns_of(layout)
    seed = f"airlock hybrid 1 {spread} {width}".encode()
    words = np.frombuffer(hashlib.shake_256(seed).digest(4 * (spread + 1) * width), dtype="<u4")
    uniform = (words.reshape(spread + 1, width).astype(np.float64) + 0.5) / 2.0**32
    reach = np.resize(np.array(BANDWIDTHS), width) * (2 * math.pi * math.sqrt(columns))
    frequencies = np.rint(ndtri(uniform[:-1]) * (PHASES / reach))
    return frequencies, np.floor(uniform[-1] * PHASES).astype(np.int64)
