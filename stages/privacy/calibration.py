"""From a wanted (epsilon, delta) to noise. Every answer is on the safe side, and accounting agrees with it to the last bit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from stages.privacy import accounting, gaussian
from stages.privacy.guarantees import Neighbours
from stages.privacy.rounding import float_above, root_above


def gaussian_mu(epsilon: float, delta: float, draws: int = 0) -> float:
    """The largest shift mu (sensitivity over standard deviation) that is (epsilon, delta)-DP.

    Args:
        epsilon: wanted, positive.
        delta: wanted, in (0, 1).
        draws: how many noise draws the release makes; their distance from the law must stay within the share of delta kept for it.
    """
    if not 0 < epsilon < math.inf or not 0 < delta < 1:
        raise ValueError(f"calibration needs 0 < epsilon < infinity and 0 < delta < 1, got {epsilon} and {delta}")
    check_draws(draws, epsilon, delta)
    return gaussian.mu_at(epsilon, delta)


def split(mu: float, shares: Sequence[float]) -> list[float]:
    """Noise multipliers (standard deviation per unit of sensitivity) of queries that share the budget `mu`.

    Share f gets 1 / (mu sqrt f), rounded up, so that the exact sum of 1/z^2 never passes mu^2.
    """
    exact = [Fraction(share) for share in shares]
    total = sum(exact)
    if not shares or min(shares) <= 0 or total > 1 + Fraction(len(shares), 2**52):
        raise ValueError(f"shares must be positive and sum to at most 1, got {list(shares)}")
    # Shares like 0.1, 0.2, 0.7 pass 1 by a rounding: they are scaled back, so that the sum is a fact.
    return [root_above(max(total, Fraction(1)) / (Fraction(mu) ** 2 * share)) for share in exact]


def laplace_scale(epsilon: float, sensitivity: float) -> float:
    """Scale of Laplace noise for an L1 sensitivity: sensitivity / epsilon, rounded up."""
    if not 0 < epsilon < math.inf or not 0 < sensitivity < math.inf:
        raise ValueError(f"epsilon and sensitivity must be positive and finite, got {epsilon} and {sensitivity}")
    return float_above(Fraction(sensitivity) / Fraction(epsilon))


def noise_scale(sensitivity: float | int, multiplier: float) -> float:
    """sensitivity * multiplier, rounded up."""
    return float_above(Fraction(sensitivity) * Fraction(multiplier))


def sampled_gaussian_multiplier(
    epsilon: float, delta: float, *, rate: float, steps: int, neighbours: Neighbours = "zero-out"
) -> float:
    """The noise multiplier at which `steps` Poisson-sampled Gaussian steps are (epsilon, delta)-DP, to within 0.1 % and from above."""
    from dp_accounting import dp_event

    def event(multiplier: float) -> Any:
        return dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(multiplier)), steps)

    def cost(multiplier: float) -> float:
        return accounting.epsilon(event(multiplier), delta, neighbours=neighbours)

    # Every cost is a privacy loss distribution, which takes a second or more: start where RDP, which is quick, says that it fits.
    high = 0.1
    while accounting.rdp_epsilon(event(high), delta) > epsilon:
        high *= 1.1
        if high > 1e6:
            raise ValueError(f"no noise makes {steps} steps at rate {rate} ({epsilon}, {delta})-DP: raise epsilon or delta")
    while (cost_high := cost(high)) > epsilon:
        high *= 1.1
    low, cost_low = high, cost_high
    while cost_low <= epsilon:
        high, cost_high = low, cost_low
        low = max(low / 2, low * min(0.98, (cost_high / epsilon) ** 0.7))
        cost_low = cost(low)
    while high > low * 1.001:
        # Cost is nearly a power of the multiplier: a secant between logarithms, kept a little inside, needs two or three steps.
        part = math.log(cost_low / epsilon) / math.log(cost_low / cost_high)
        middle = low * (high / low) ** part
        middle = min(max(middle, low * 1.0005), high / 1.0005)
        if (found := cost(middle)) <= epsilon:
            high, cost_high = middle, found
        else:
            low, cost_low = middle, found
    return high


def check_draws(draws: int, epsilon: float, delta: float) -> None:
    """Refuse what the share of delta kept for the sampler does not cover: (1 + e^epsilon) * draws * distance a draw."""
    from stages.privacy.noise import LOG2_DISTANCE

    if draws and math.log2(draws) + 1 + epsilon / math.log(2) + LOG2_DISTANCE > math.log2(delta * gaussian.SAMPLING_SHARE):
        raise ValueError(f"{draws} draws at epsilon {epsilon} need more of delta {delta} than is kept for sampling: raise delta")
