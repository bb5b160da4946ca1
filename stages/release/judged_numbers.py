"""The sums behind a private evaluation of a number: how far answers are from the truth, and how far the truth
spreads (docs/proofs/evaluation.md#numbers).

A record adds four integers from 0 to UNIT: squared and absolute error of its answer, and its label and that
squared, all in parts of the bounds' range. They are functions of that record and the model. A record without an
answer is as wrong as can be.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.models.numbers import HALF, Bounds
from stages.release.noisy_sums import Query

ARGUMENT = "docs/proofs/evaluation.md#numbers"
UNIT = 2**15
SUMS = 4
Integers = NDArray[np.int64]


def queries() -> list[Query]:
    """One query: each of the four moves by at most UNIT under either relation, together by twice that."""
    return [Query("errors", 1, float(math.isqrt(SUMS) * UNIT), "gaussian", SUMS, share=1.0)]


def sums_of(
    scores: NDArray[np.float64], actual: Integers, known: NDArray[np.bool_], bounds: Bounds
) -> Mapping[str, Integers]:
    """The exact sums of a batch. Each score was computed by itself; NaN where there is no answer."""
    low, high = bounds
    truth = actual / (2 * HALF)
    answer = (scores[:, 0] - low) / (high - low)
    answered = np.isfinite(answer)
    gap = np.where(answered, np.abs(np.clip(np.where(answered, answer, 0.0), 0.0, 1.0) - truth), 1.0)
    parts = np.stack([gap * gap, gap, truth, truth * truth], axis=1)
    whole = np.floor(np.clip(parts, 0.0, 1.0) * UNIT).astype(np.int64)
    return {"errors": (whole * known[:, None]).sum(axis=0)}


def figures(noisy: Integers, scale: float, bounds: Bounds) -> dict[str, Any]:
    """What is written down: the noisy sums, from which R^2 and errors follow (airlock/models/numbers.py)."""
    return {
        "errors": [int(one) for one in noisy],
        "noise_of_errors": scale,
        "unit": UNIT,
        "low": bounds[0],
        "high": bounds[1],
    }
