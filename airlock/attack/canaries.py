"""Auditing a trained model in one run (Steinke, Nasr and Jagielski 2023, arXiv 2305.08846).

Each of m canaries is in the training data or not by a fair coin of its own. The auditor scores all of them and guesses "in" for the
highest and "out" for the lowest; if the training is (epsilon, delta)-DP, the number of right guesses is nearly dominated by a binomial
of probability e^epsilon / (1 + e^epsilon) (their Theorem 5.2), whatever the dependence between canaries.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class CanaryFinding:
    """What one audited run says.

    Attributes:
        epsilon: lower bound at `delta`.
        canaries, guesses, right: how many there were, how many were guessed, how many of these rightly.
    """

    epsilon: float
    delta: float
    confidence: float
    canaries: int
    guesses: int
    right: int

    def to_json(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def p_value(canaries: int, guesses: int, right: int, *, epsilon: float, delta: float) -> float:
    """How likely `right` or more right guesses are, at most, if the training is (epsilon, delta)-DP (their Appendix D)."""
    from scipy.stats import binom

    rate = 1 / (1 + math.exp(-epsilon))
    pure = float(binom.sf(right - 1, guesses, rate))
    # Reaching `right` by delta's help: for each i, the mass just below may be moved up by i.
    near = np.cumsum(binom.pmf(np.arange(right - 1, -1, -1), guesses, rate))
    helped = float((near / np.arange(1, right + 1)).max(initial=0.0))
    return min(1.0, pure + 2 * canaries * delta * helped)


def lower_bound(canaries: int, guesses: int, right: int, *, delta: float, confidence: float = 0.95) -> float:
    """The largest epsilon that `right` right guesses refute, to 1e-6; 0 if they refute nothing."""
    if not 0 <= right <= guesses <= canaries:
        raise ValueError(f"need right <= guesses <= canaries, got {right}, {guesses}, {canaries}")
    low, high = 0.0, 50.0
    if p_value(canaries, guesses, right, epsilon=low, delta=delta) > 1 - confidence:
        return 0.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        refuted = p_value(canaries, guesses, right, epsilon=middle, delta=delta) <= 1 - confidence
        low, high = (middle, high) if refuted else (low, middle)
    return low


def audit(
    scores: NDArray[np.float64],
    present: NDArray[np.bool_],
    *,
    guesses: int,
    delta: float,
    confidence: float = 0.95,
) -> CanaryFinding:
    """Guess half of `guesses` in (the highest scores) and half out (the lowest), and count.

    `guesses` must be fixed before the scores are seen; trying several would need a correction.
    """
    half = guesses // 2
    order = np.argsort(scores, kind="stable")
    right = int(
        np.count_nonzero(present[order[len(order) - half :]]) + np.count_nonzero(~present[order[:half]])
    )
    epsilon = lower_bound(len(scores), 2 * half, right, delta=delta, confidence=confidence)
    return CanaryFinding(epsilon, delta, confidence, len(scores), 2 * half, right)
