"""Labels of synthetic records, from the law of largest entropy that has the label's tables with all columns: a
tree of columns would let each record's label know one of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.models.shares import Shares

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
RIDGE = 0.3
"""Of the scores of labels, in deviations of the noise of a share; docs/inputs.md says how it was chosen."""
STEPS = 100
MOST_FITTED = 8192
"""Records to which the scores of labels are fitted."""


def labelled(bins: Integers, shares: Shares, random: Any) -> Integers:
    """The records with labels drawn anew, given all other columns."""
    starts = np.cumsum([0, *(len(one) for one in shares.ones[:-1])])
    some = bins if len(bins) <= MOST_FITTED else random.permutation(bins)[:MOST_FITTED]
    weight, offset = _label_scores(some, shares, starts)
    scores = np.broadcast_to(offset, (len(bins), len(offset))).copy()
    for column, start in enumerate(starts[:-1]):
        scores += weight[bins[:, column] + start]
    bins[:, -1] = _drawn(_softmax(scores), random)
    return bins


def _drawn(chances: Floats, random: Any) -> Integers:
    """A label of each record by its chances, class after class among those that have none yet: of records
    with about the same chance as many as it says, or one more or less (systematic sampling, in the order of
    chances).
    """
    rows = len(chances)
    found, left, rest = np.zeros(rows, np.int64), random.permutation(rows), np.ones(rows)
    *most, last = np.argsort(-chances.mean(axis=0), kind="stable")
    for one in most:
        here = np.clip(chances[left, one] / np.maximum(rest[left], 1e-12), 0.0, 1.0)
        order = np.argsort(here, kind="stable")
        left, start = left[order], random.random()
        taken = np.diff(np.floor(np.cumsum(here[order]) + start), prepend=0.0) > 0
        found[left[taken]] = one
        rest -= chances[:, one]
        left = left[~taken]
    found[left] = last
    return found


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
    ridge = max(RIDGE * shares.label_noise, 1e-6)

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
        flat = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": STEPS}).x
    return flat[classes:].reshape(wide, classes), flat[:classes]


def _softmax(scores: Floats) -> Floats:
    chances = np.exp(scores - scores.max(axis=1, keepdims=True))
    found: Floats = chances / chances.sum(axis=1, keepdims=True)
    return found
