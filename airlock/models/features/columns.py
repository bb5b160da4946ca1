"""Where the rows of a hybrid map lie, from a table's columns: their noisy Gram matrix tells means and covariances, and
rows are those of made-up records that are normal with these.

A table has few columns where its map has many, so that a few nights tell the columns' law well. What follows from it is
post-processing (docs/nights.md says how it was chosen, docs/proofs/continual.md#weighted-totals what it costs).
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from airlock.models.features import public
from airlock.models.features.features import feature_map
from airlock.models.features.hybrid import NAME, runs_of
from airlock.models.features.projection import Whiten, eigen, spectral_radius, turned
from airlock.models.features.rows import LIMIT, Rows, normalise

Reals = NDArray[np.float64]

HALF = 2**10
"""A column goes from -HALF to HALF in its row of integers."""
BIAS = 591
"""The constant beside the columns, HALF / sqrt 3: as long as the deviation of an even column."""
COUNT, CHUNK, WORDS = 2**13, 2**11, 12
"""Made-up records, how many at a time, and the even numbers whose sum is a normal one."""
LEAST = 0.02
"""Of the trace: what eigenvalues that noise covers have at least, together."""


def is_offered(name: str, most: int) -> bool:
    """Whether a map is of up to so many columns that are all numbers."""
    found = NAME.fullmatch(name)
    runs = runs_of(found[2]) if found and found[2] else ()
    return bool(runs) and all(run.kind != "c" for run in runs) and sum(run.count for run in runs) <= most


def rows_of(inputs: Reals, valid: NDArray[np.uint8]) -> Rows:
    """Encoded columns, from 0 to 1, as rows of integers of norm at most LIMIT; a null record is zero."""
    rows = np.empty((len(inputs), inputs.shape[1] + 1))
    rows[:, :-1] = np.rint((2.0 * np.clip(inputs, 0.0, 1.0) - 1.0) * HALF)
    rows[:, -1] = BIAS
    return normalise(rows * valid.astype(np.float64)[:, None])


def cleaned(gram: Reals, noise: float) -> Reals:
    """A mean of a a^T without its noise, of trace 1: eigenvalues beyond the noise's radius as they were before it (as
    airlock/models/moments.py has them), and what is left of the trace evenly among the others.
    """
    values, vectors = eigen(gram)
    radius = spectral_radius(len(values), noise)
    beyond = values > radius
    found = np.where(beyond, (values + np.sqrt(np.maximum(values**2 - radius**2, 0.0))) / 2, 0.0)
    if not beyond.all():
        found[~beyond] = max(1.0 - float(found.sum()), LEAST) / int((~beyond).sum())
    whole: Reals = (vectors * (found / found.sum())) @ vectors.T
    return whole


def law_of(gram: Reals) -> tuple[Reals, Reals]:
    """Means and a factor L of the covariances L L^T of the columns, from -1 to 1, whose rows have a mean of a a^T like
    `gram`: the constant beside the columns says how long rows were before they were scaled.
    """
    bias = BIAS / HALF
    moments = gram * (bias**2 / max(float(gram[-1, -1]), 1e-9))
    mean = moments[:-1, -1] / bias
    values, vectors = eigen(moments[:-1, :-1] - np.outer(mean, mean))
    return mean, vectors * np.sqrt(np.maximum(values, 0.0))


@lru_cache(maxsize=4)
def normal(columns: int) -> Reals:
    """COUNT records of independent normal columns, from a public hash: the same ones everywhere."""
    seed = f"airlock normal columns 1 {columns}".encode()
    words = np.frombuffer(hashlib.shake_256(seed).digest(4 * WORDS * COUNT * columns), dtype="<u4")
    made: Reals = words.reshape(WORDS, COUNT, columns).sum(axis=0, dtype=np.int64) / 2.0**32 - WORDS / 2
    return made


def whitening(name: str, shape: tuple[int, ...], gram: Reals, noise: float, ridge: float) -> Whiten:
    """The step that whitens rows of a hybrid map, centred as public facts have it.

    Args:
        name: of the map.
        shape: of its records.
        gram: the noisy mean of a a^T of the columns' rows, where these have norm at most 1.
        noise: its deviation.
        ridge: added to the eigenvalues of the rows, in units of their mean.
    """
    mean, factor = law_of(cleaned(gram, noise))
    records = np.clip((1.0 + mean + normal(len(mean)) @ factor.T) / 2.0, 0.0, 1.0)
    rows = feature_map(name, "tabular", shape)
    steps = public.preparation(name, shape)
    total, valid = np.zeros((0, 0)), np.ones(CHUNK, np.uint8)
    for at in range(0, COUNT, CHUNK):
        part = rows(records[at : at + CHUNK], valid)
        for step in steps:
            part = step(part, valid)
        total = part.T @ part + (total if len(total) else 0.0)
    found = total / (COUNT * float(LIMIT) ** 2)
    return turned(steps[1], found, ridge / len(found))
