"""Feature maps for tables. A record arrives as numbers in [0, 1]: bounded columns, one-hot categories,
missing indicators.
"""

from __future__ import annotations

import hashlib
import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from airlock.models.features.rows import LIMIT, Rows, normalise
from airlock.privacy.sums import clip_to_norm

PHASES = 2**12
STEPS = 2.0**12
REACH = 2.0
BIAS = 0.2
"""bench/flagship/choose.py chooses both constants; docs/mechanism.md, section 5."""
BANDWIDTH = 0.25


def linear(records: NDArray[np.float64], *, reach: float = REACH) -> Rows:
    """2 sqrt(x) - 1 in every column, each record shortened to norm LIMIT if it is longer.

    The root spreads what generous public bounds press toward zero, and leaves 0 and 1 where they are. A
    record in which every column is
    at half of its half range has norm LIMIT: few are longer, and noise need not cover corners where no record
    is.
    """
    rows = np.trunc((2.0 * np.sqrt(records) - 1.0) * (reach * LIMIT / math.sqrt(records.shape[1])))
    return clip_to_norm(rows, LIMIT)


def bias(columns: int, *, reach: float = REACH, part: float = BIAS) -> int:
    """The constant that stands beside `columns` centred columns: a part of one column's half range."""
    return math.floor(part * reach * LIMIT / math.sqrt(columns))


def cosine(records: NDArray[np.float64], width: int, *, bandwidth: float = BANDWIDTH) -> Rows:
    """Random cosine features (Rahimi and Recht, 2007) of the same columns: cos(w.x + b), directions and
    phases public and fixed.

    Phases are exact integers, so the cosine is one look into a table.
    """
    frequencies, offsets = directions(records.shape[1], width, bandwidth)
    steps = np.trunc((2.0 * np.sqrt(records) - 1.0) * STEPS)
    phases = np.floor((steps @ frequencies) / STEPS) + offsets
    return normalise(cosines()[np.mod(phases, PHASES).astype(np.int64)])


@lru_cache
def directions(columns: int, width: int, bandwidth: float) -> tuple[Rows, Rows]:
    """Integer frequencies (PHASES to a turn, per unit of a column) and offsets from a public hash."""
    from scipy.special import ndtri

    seed = f"airlock cosine 1 {columns} {width}".encode()
    words = np.frombuffer(hashlib.shake_256(seed).digest(4 * (columns + 1) * width), dtype="<u4").reshape(
        columns + 1, width
    )
    uniform = (words.astype(np.float64) + 0.5) / 2.0**32
    frequencies = ndtri(uniform[:-1]) * (PHASES / (2 * math.pi * bandwidth * math.sqrt(columns)))
    return np.rint(frequencies), np.floor(uniform[-1] * PHASES)


@lru_cache
def cosines() -> Rows:
    """One turn of the cosine in PHASES steps, STEPS to a unit."""
    turn: Rows = np.rint(STEPS * np.cos(np.arange(PHASES) * (2 * math.pi / PHASES)))
    return turn
