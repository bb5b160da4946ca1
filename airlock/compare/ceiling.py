"""How accurate a private learner can be at most where classes have few records: docs/proofs/small-tables.md.

The records of one kind (here: of one class) carry one of M labels, and the learner does not know beforehand
which. All k of them are k steps of zero-out away from not being there, and then every label is as good a guess
as any other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

TRAINED = 0.9
"""Of a table's records, where ten folds are held out in turn."""
RECORDS = {"dermatology": (112, 72, 61, 52, 49, 20), "wdbc": (357, 212)}
"""Of each class; public facts of public data sets."""
Bound = Callable[[float, float], float]


def approximate(epsilon: float, delta: float) -> Bound:
    """The largest chance of a right answer under (epsilon, delta)-DP: from that of the same answer when k
    records are gone.
    """

    def bound(before: float, k: float) -> float:
        odds = math.exp(k * epsilon)
        slack = delta * (odds - 1) / math.expm1(epsilon)
        return min(odds * before + slack, 1 - (1 - before - slack) / odds, 1.0)

    return bound


def gaussian(mu: float) -> Bound:
    """The same under mu-GDP."""

    def bound(before: float, k: float) -> float:
        from scipy.special import ndtr, ndtri

        return float(ndtr(ndtri(before) + k * mu))

    return bound


def ceiling(records: Sequence[int], bound: Bound, trained: float = TRAINED) -> float:
    """Accuracy, averaged over all ways to name the kinds, of any learner with such a bound.

    Args:
        records: of each kind in the whole data set; as many labels as kinds.
        bound: what privacy allows.
        trained: the part of them that is trained on.
    """
    right = [count * bound(1 / len(records), math.ceil(trained * count)) for count in records]
    return sum(right) / sum(records)


def records_needed(accuracy: float, labels: int, epsilon: float) -> float:
    """Records that a kind must have for that accuracy on it, at a pure epsilon."""
    return math.log((1 - 1 / labels) / (1 - accuracy)) / epsilon


@cache
def ceilings(dataset: str, epsilon: float, delta: float) -> tuple[float, float] | None:
    """Of any (epsilon, delta)-DP learner, and of any Gaussian one with that guarantee; None where nobody
    counted the classes.
    """
    if dataset not in RECORDS:
        return None
    from airlock.privacy.gaussian import mu_at

    kinds = RECORDS[dataset]
    return ceiling(kinds, approximate(epsilon, delta)), ceiling(kinds, gaussian(mu_at(epsilon, delta)))
