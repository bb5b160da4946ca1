"""Softmax residuals on the grid: correctly rounded IEEE operations, element by element, in a fixed order.

Library exponentials may round differently in different lanes of a vector; here the residual of a record is a
function of its row alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from airlock.models.features.rows import Rows
from airlock.privacy.sums import clip_to_norm

BOUND = 2**12
"""Integer residuals have norm at most BOUND, which stands for the clip."""
LEAST_EXPONENT = -40.0
TERMS = 13
LN2_HIGH = float.fromhex("0x1.62e42fefap-1")
LN2_LOW = 1.6465949582897082e-12


def residuals(logits: Rows, targets: Rows, clip: float) -> Rows:
    """y - softmax(logits), clipped to norm `clip`, as integers of norm at most BOUND.

    `targets` is one-hot; a row of zeros gives zeros.
    """
    gap = targets - softmax(logits)
    norms = np.sqrt(row_sums(gap * gap))
    scale = BOUND / np.maximum(norms, clip)
    present = row_sums(targets) > 0
    return clip_to_norm(np.trunc(gap * (scale * present)[:, None]), BOUND)


def surplus(logits: Rows, targets: Rows, factors: Sequence[float]) -> Rows:
    """How often right, less how sure, if scores were multiplied by each of `factors`: BOUND for an answer that is
    right, less BOUND times the probability that is given to it, truncated to integers.

    Every entry lies between -BOUND and BOUND; `targets` is one-hot, and a row of zeros gives zeros.
    """
    present = row_sums(targets)
    right = targets[np.arange(len(targets)), logits.argmax(axis=1)]
    sure = [softmax(logits * factor).max(axis=1) for factor in factors]
    return np.column_stack([np.trunc((right - one) * present * BOUND) for one in sure])


def softmax(logits: Rows) -> Rows:
    """Probabilities of each row."""
    powers = exponential(np.maximum(logits - logits.max(axis=1, keepdims=True), LEAST_EXPONENT))
    return powers / row_sums(powers)[:, None]


def exponential(x: Rows) -> Rows:
    """e^x for LEAST_EXPONENT <= x <= 0, to a relative 1e-15: x = k ln 2 + r, Taylor's series in r."""
    k = np.rint(x * (1 / math.log(2)))
    r = (x - k * LN2_HIGH) - k * LN2_LOW
    series = np.ones_like(r)
    for term in range(TERMS, 0, -1):
        series = series * r / term + 1.0
    return np.ldexp(series, k.astype(np.int32))


def row_sums(rows: Rows) -> Rows:
    """Sum of the columns, first to last."""
    total = rows[:, 0].copy()
    for column in range(1, rows.shape[1]):
        total += rows[:, column]
    return total
