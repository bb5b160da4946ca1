"""Where the rows of a hybrid map lie before any record is seen: if columns were independent, numbers spread evenly
between their bounds and categories alike.

It follows from the map's name, which holds the layout of the columns, so it is public and costs nothing. Records are
not like that; but rows of one norm, whitened by it, have no direction that only the map makes small.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from airlock.models.features.features import feature_map
from airlock.models.features.hybrid import NAME, runs_of
from airlock.models.features.projection import Centre, Whiten, centre, eigen, whitened

COUNT, CHUNK = 2**14, 2**11
"""Made-up records, and how many at a time."""
RIDGE = 0.1
"""Of the mean eigenvalue; docs/nights.md says how it was chosen."""


def is_known(name: str) -> bool:
    """Whether a map's name says all that is needed."""
    found = NAME.fullmatch(name)
    return bool(found and found[2])


def records_of(layout: str, count: int) -> NDArray[np.float64]:
    """So many encoded records of independent, even columns, from a public hash: the same ones everywhere."""
    parts = []
    for place, run in enumerate(runs_of(layout)):
        seed = f"airlock even columns 1 {place}".encode()
        words = np.frombuffer(hashlib.shake_256(seed).digest(4 * count * run.count), dtype="<u4")
        words = words.reshape(count, run.count)
        if run.kind == "n":
            parts.append(words / 2.0**32)
        elif run.kind == "g":
            parts.append(words % (run.size + 1) / run.size)
        else:
            parts.append((words[:, :, None] % run.size == np.arange(run.size)).reshape(count, -1) * 1.0)
    return np.hstack(parts)


@lru_cache(maxsize=8)
def preparation(name: str, shape: tuple[int, ...]) -> tuple[Centre, Whiten]:
    """The steps that centre and whiten rows of a hybrid map as such records would have it."""
    found, rows = NAME.fullmatch(name), feature_map(name, "tabular", shape)
    assert found is not None
    made = records_of(found[2], COUNT)
    valid = np.ones(CHUNK, np.uint8)
    cuts = range(0, COUNT, CHUNK)
    total = sum(rows(made[at : at + CHUNK], valid).sum(axis=0) for at in cuts)
    first = centre(np.asarray(total).astype(np.int64), COUNT, bias=rows.bias)
    # Whole numbers below 2^53: the same sums in whatever order.
    parts = (first(rows(made[at : at + CHUNK], valid), valid) for at in cuts)
    values, vectors = eigen(np.asarray(sum(part.T @ part for part in parts)))
    return first, whitened(values, vectors, RIDGE * float(values.mean()))
