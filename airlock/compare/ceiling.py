"""How accurate a private learner can be at most where there are few records: docs/proofs/small-tables.md.

The records of one kind carry one of M labels, and the learner does not know beforehand
which. All k of them are k steps of zero-out away from not being there, and then every label is as good a guess
as any other. Two tables whose labels differ in k records are as far from one in which those are gone: `least_error`
is what that means for a record that has another label in each of them (bench/papers/small_tables.py).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

KINDS = "papers/small-kinds.json"
"""Of the results, the bounds of bench/papers/small_kinds.py."""
RULES = "papers/small-tables.json"
"""Of the results, the bounds of bench/papers/small_tables.py."""
Bound = Callable[[float, float], float]
Numbers = NDArray[np.float64]
Ceilings = dict[tuple[str, float], tuple[float, float]]
"""By data set and epsilon: of any learner, and of any Gaussian one."""


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


def ceiling(records: Sequence[int], labels: int, bound: Bound, held: int) -> float:
    """Accuracy, averaged over all ways to give the kinds labels, of any learner with such a bound.

    Args:
        records: of each kind in the whole table.
        labels: how many there are.
        bound: what privacy allows.
        held: records that are held out, drawn from all. Of a held-out record's own kind the rest are trained on, but
            for those that are held out with it.
    """
    from scipy.stats import hypergeom

    total = sum(records)
    right = 0.0
    for count in records:
        trained = np.arange(count)
        chances = hypergeom.pmf(trained, total - 1, count - 1, total - held)
        right += count * sum(
            chance * bound(1 / labels, int(k)) for k, chance in zip(trained, chances, strict=True)
        )
    return right / total


def records_needed(accuracy: float, labels: int, epsilon: float) -> float:
    """Records that a kind must have for that accuracy on it, at a pure epsilon."""
    return math.log((1 - 1 / labels) / (1 - accuracy)) / epsilon


def least_error(k: Numbers, log_odds: Numbers, epsilon: float, delta: float) -> Numbers:
    """The least chance of a wrong answer under (epsilon, delta)-DP to a record that has one label in one table and
    another in a second one, of which the second is exp(log_odds) times as likely and differs in k records.

    The learner answers with the first label with some chance p where the k records are gone, with the second one with
    at most 1 - p; the error is convex and piecewise linear in p, so the least is at an end or where a piece begins.
    """
    steps, odds = np.minimum(k * epsilon, 500.0), np.exp(np.clip(log_odds, -500, 500))
    slack = delta * np.expm1(steps) / np.expm1(epsilon)

    def wrong(before: Numbers) -> Numbers:
        right = np.minimum(np.exp(steps) * before + slack, 1 - np.exp(-steps) * (1 - before - slack))
        return np.asarray(1 - np.minimum(right, 1.0))

    # Where the two forms of `right` meet, and where the second one is 1.
    bend = (1 - slack - np.exp(-steps) * (1 - slack)) / np.maximum(2 * np.sinh(steps), 1e-300)
    ends = (np.zeros_like(steps), np.clip(bend, 0, 1), np.clip(1 - slack, 0, 1))
    candidates = [(wrong(p) + odds * wrong(1 - p)) / (1 + odds) for one in ends for p in (one, 1 - one)]
    return np.asarray(np.minimum.reduce(candidates))


def least_gaussian_error(k: Numbers, log_odds: Numbers, mu: float) -> Numbers:
    """The same under mu-GDP: the best learner compares a number of deviation 1/mu with where the two meet."""
    from scipy.special import ndtr

    apart, odds = np.maximum(k * mu, 1e-12), np.exp(np.clip(log_odds, -500, 500))
    middle = np.clip(log_odds, -500, 500) / (2 * apart)
    return np.asarray((ndtr(middle - apart) + odds * ndtr(-middle - apart)) / (1 + odds))


def load(results: Path) -> tuple[Ceilings, Ceilings]:
    """By kinds and by rules: of each table the lowest bound of the families that bench/papers/small_kinds.py and
    small_tables.py name, three standard errors added where rules were drawn; nothing where they have not been run.
    """
    return _load(results / KINDS), _load(results / RULES)


def _load(file: Path) -> Ceilings:
    return lowest(json.loads(file.read_text())["families"] if file.exists() else [])


def lowest(families: Sequence[Mapping[str, Any]]) -> Ceilings:
    """Of those that are named."""
    found: Ceilings = {}
    for one in families:
        for bound in one["bounds"] if one["named"] else ():
            most, gaussian = found.get((one["dataset"], bound["epsilon"]), (1.0, 1.0))
            own = min(most, _above(bound, "any")), min(gaussian, _above(bound, "gaussian"))
            found[one["dataset"], bound["epsilon"]] = own
    return found


def _above(bound: Mapping[str, float], name: str) -> float:
    return bound[name] + 3 * bound.get(f"{name}_error", 0.0)
