"""A trained distinguisher, for releases whose law is not known: a linear score learned on runs of its own.

Learning needs no privacy argument: whatever score comes out, counting it on other runs gives a valid bound
(airlock/attack/targets.py).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from airlock.attack.samplers import Sampler
from airlock.attack.targets import Law, Scores

Matrix = NDArray[np.float64]
Observe = Callable[[int, bool], Matrix]
"""(runs, present) -> one row of released numbers a run, on the data set with the record or on the one without
it.
"""


def train(observe: Observe, *, runs: int, name: str, pair: str) -> Law:
    """Learn on `runs` runs a side the direction in which the two clouds of releases lie apart; score by it.

    Fisher's direction with a ridge: for Gaussian noise it converges to the log likelihood ratio.
    """
    present, absent = observe(runs, True), observe(runs, False)
    both = np.concatenate([present - present.mean(0), absent - absent.mean(0)])
    scale = np.sqrt((both**2).mean(0)) + 1e-12
    apart = (present.mean(0) - absent.mean(0)) / scale
    covariance = (
        (both / scale).T @ (both / scale) / len(both) if both.shape[1] <= runs // 2 else np.eye(both.shape[1])
    )
    direction = np.linalg.solve(covariance + 0.1 * np.eye(len(apart)), apart) / scale

    def score(sampler: Sampler, count: int, is_present: bool) -> Scores:
        scores: Scores = observe(count, is_present) @ direction
        return scores

    return Law(name, pair, score, draws=len(direction))
