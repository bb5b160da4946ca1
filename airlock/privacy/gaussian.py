"""The Gaussian mechanism, exactly: delta as a function of shift and epsilon, and its two inverses.

    delta(mu, epsilon) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)

Balle and Wang 2018 (arXiv 1805.06530), Theorem 8; Dong, Roth and Su 2019 (arXiv 1905.02383), Corollary 2.13.
mu is sensitivity over standard deviation. Adaptive compositions of Gaussians are Gaussians: mu^2 adds up.
Both inverses ask the same question, `fits`, and answer with floats, so no rounding comes between them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any

from airlock.privacy.rounding import least_float

# This part of every delta is kept for the noise sampler's distance from its law (privacy/noise.py: DISTANCE a
# draw).
SAMPLING_SHARE = Fraction(1, 2**30)
# Bits of working precision: the two terms of delta may agree in more digits than a float has.
PRECISION = 256


def fits(mu: float, epsilon: float, delta: float, slack: float = 0.0) -> bool:
    """Whether the Gaussian mechanism of shift `mu` is (epsilon, delta)-DP, the sampler's share of delta and
    `slack` taken off.
    """
    import mpmath

    usable = Fraction(delta) * (1 - SAMPLING_SHARE) - Fraction(slack)
    with mpmath.workprec(PRECISION):
        return bool(_tail(mu, epsilon) * usable.denominator <= usable.numerator)


def delta_at(mu: float, epsilon: float) -> float:
    """The smallest float delta at which shift `mu` is (epsilon, delta)-DP."""
    if mu == 0 or math.isinf(epsilon):
        return 0.0
    return (
        1.0
        if math.isinf(mu)
        else least_float(lambda delta: delta >= 1 or (delta > 0 and fits(mu, epsilon, delta)))
    )


@lru_cache(maxsize=4096)
def epsilon_at(mu: float, delta: float, slack: float = 0.0) -> float:
    """The smallest float epsilon at which shift `mu` is (epsilon, delta)-DP, `slack` of delta being used
    otherwise.
    """
    usable = Fraction(delta) * (1 - SAMPLING_SHARE) - Fraction(slack)
    if slack and usable < 0:
        return math.inf
    if mu == 0 or delta >= 1:
        return 0.0
    if usable == 0 or math.isinf(mu):
        return math.inf
    near = _guess(lambda epsilon: _rough_delta(mu, epsilon) <= usable)
    return least_float(lambda epsilon: fits(mu, epsilon, delta, slack), near)


@lru_cache(maxsize=4096)
def mu_at(epsilon: float, delta: float, slack: float = 0.0) -> float:
    """The largest float shift that is (epsilon, delta)-DP when
    `slack` of delta is kept for something else.
    """
    usable = float(delta) - slack
    near = _guess(lambda mu: mu > 0 and _rough_delta(mu, epsilon) > usable)
    return math.nextafter(least_float(lambda mu: mu > 0 and not fits(mu, epsilon, delta, slack), near), 0.0)


def _guess(holds: Callable[[float], bool]) -> float | None:
    """Where an answer lies by floats alone: only a place to begin the exact search at."""
    try:
        return least_float(holds)
    except (OverflowError, ZeroDivisionError):
        return None


def _rough_delta(mu: float, epsilon: float) -> float:
    shift, cut, root = mu / 2, epsilon / mu, math.sqrt(2)
    return (math.erfc((cut - shift) / root) - math.exp(epsilon) * math.erfc((cut + shift) / root)) / 2


def _tail(mu: float, epsilon: float) -> Any:
    import mpmath

    shift, cut, root = mpmath.mpf(mu) / 2, mpmath.mpf(epsilon) / mpmath.mpf(mu), mpmath.sqrt(2)
    if cut - shift > 1000:  # the tail is below every positive float, and mpmath overflows further out
        return mpmath.mpf(0)
    return (mpmath.erfc((cut - shift) / root) - mpmath.exp(epsilon) * mpmath.erfc((cut + shift) / root)) / 2
