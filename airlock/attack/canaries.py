"""Auditing a trained model in one run (Steinke, Nasr and Jagielski 2023, arXiv 2305.08846).

Each of m canaries is in the training data or not by a fair coin of its own. The auditor scores all of them
and guesses "in" for the highest and "out" for the lowest; if the training is (epsilon, delta)-DP, the number
of right guesses is nearly dominated by a binomial of probability e^epsilon / (1 + e^epsilon) (their Theorem
5.2), whatever the dependence between canaries.
"""

from __future__ import annotations

import math
from collections.abc import Callable
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
        shift: lower bound on mu, if the mechanism's trade-off curve is that of a Gaussian shift.
    """

    epsilon: float
    delta: float
    confidence: float
    canaries: int
    guesses: int
    right: int
    shift: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def p_value(canaries: int, guesses: int, right: int, *, epsilon: float, delta: float) -> float:
    """How likely `right` or more right guesses are, at most, if the training is (epsilon, delta)-DP (their
    Appendix D).
    """
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


def curve_refutes(
    canaries: int, guesses: int, right: int, *, inverse: Callable[[float], float], error: float
) -> bool:
    """Whether `right` or more right guesses are less likely than `error` for every mechanism with this
    trade-off curve.

    Mahloujifar, Melis and Chaudhuri 2024 (arXiv 2410.22235, Algorithm 3). Let p_i be the probability of i
    right guesses, r_j the sum of p_i i / m over i >= j, and h_j that of p_i (g - i) / m. A guess that is
    right in the world of i + 1 would be wrong in the neighbouring one, so r_{i+1} <= 1 - f(h_i), that is h_i
    >= inverse(r_{i+1}). Going down from a tail of `error` at `right`, the mass that must lie below passes the
    g / m that there is: then no such mechanism exists.

    Args:
        canaries, guesses, right: m, g and how many of them were right.
        inverse: the inverse of x -> 1 - f(x) for the trade-off curve f; for a Gaussian of shift mu, y ->
            Phi(Phi^-1(y) - mu).
        error: one minus the confidence.
    """
    above, beside = error * right / canaries, error * (guesses - right) / canaries
    for count in range(right - 1, -1, -1):
        lower = max(beside, inverse(above))
        above, beside = above + count / (guesses - count) * (lower - beside), lower
        if above + beside > guesses / canaries:
            return True
    return False


def shift_bound(canaries: int, guesses: int, right: int, *, confidence: float = 0.95) -> float:
    """The largest Gaussian shift mu whose trade-off curve the
    guesses refute, to 1e-4; 0 if they refute none.
    """
    from scipy.special import ndtr, ndtri

    def refuted(mu: float) -> bool:
        def inverse(probability: float) -> float:
            return float(ndtr(ndtri(min(probability, 1.0)) - mu))

        return curve_refutes(canaries, guesses, right, inverse=inverse, error=1 - confidence)

    low, high = 0.0, 16.0
    if right == 0 or not refuted(1e-4):
        return 0.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
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
    shift = shift_bound(len(scores), 2 * half, right, confidence=confidence)
    return CanaryFinding(epsilon, delta, confidence, len(scores), 2 * half, right, shift)
