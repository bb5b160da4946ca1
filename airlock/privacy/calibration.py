"""From a wanted (epsilon, delta) to noise.

Every answer is on the safe side, and accounting agrees with it to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from airlock.privacy import accounting, gaussian
from airlock.privacy import events as vocabulary
from airlock.privacy.guarantees import Neighbours
from airlock.privacy.rounding import float_above, root_above


def gaussian_mu(epsilon: float, delta: float, draws: int = 0) -> float:
    """The largest shift mu (sensitivity over standard deviation) that is (epsilon, delta)-DP.

    Args:
        epsilon: wanted, positive.
        delta: wanted, in (0, 1).
        draws: how many noise draws the release makes; their distance from the law must stay within the share
            of delta kept for it.
    """
    if not 0 < epsilon < math.inf or not 0 < delta < 1:
        raise ValueError(
            f"calibration needs 0 < epsilon < infinity and 0 < delta < 1, got {epsilon} and {delta}"
        )
    check_draws(draws, epsilon, delta)
    return gaussian.mu_at(epsilon, delta)


def split(mu: float, shares: Sequence[float]) -> list[float]:
    """Noise multipliers (standard deviation per unit of sensitivity) of queries that share the budget `mu`.

    Share f gets 1 / (mu sqrt f), rounded up, so that the exact sum of 1/z^2 never passes mu^2.
    """
    if not shares or not all(0 < share <= 1 for share in shares) or sum(shares) > 1 + len(shares) * 2.0**-52:
        raise ValueError(f"shares must be positive and sum to at most 1, got {list(shares)}")
    exact = [Fraction(share) for share in shares]
    total = sum(exact)
    # Shares like 0.1, 0.2, 0.7 pass 1 by a rounding: they are scaled back, so that the sum is a fact.
    return [root_above(max(total, Fraction(1)) / (Fraction(mu) ** 2 * share)) for share in exact]


def split_rest(mu: float, spent: Sequence[float], shares: Sequence[float]) -> list[float]:
    """Noise multipliers of queries that divide, in proportion to `shares`, what multipliers `spent` before
    have left of the budget `mu`.

    Rounded up, so that the exact sum of 1/z^2 over both never passes mu^2.
    """
    rest = Fraction(mu) ** 2 - sum(1 / Fraction(multiplier) ** 2 for multiplier in spent)
    if rest <= 0 or not shares or not all(share > 0 for share in shares):
        raise ValueError("nothing is left of the budget for what comes later")
    exact = [Fraction(share) for share in shares]
    return [root_above(sum(exact) / (rest * share)) for share in exact]


def noise_scale(sensitivity: float | int, multiplier: float) -> float:
    """sensitivity * multiplier, rounded up."""
    return float_above(Fraction(sensitivity) * Fraction(multiplier))


def sampled_gaussian_multiplier(
    epsilon: float, delta: float, *, rate: float, steps: int, neighbours: Neighbours = "zero-out"
) -> float:
    """The noise multiplier at which `steps` Poisson-sampled Gaussian steps are (epsilon, delta)-DP, to within
    0.1 % and from above.
    """
    dp_event = vocabulary.library()

    def excess(multiplier: float) -> float:
        step = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(multiplier))
        cost = accounting.epsilon(dp_event.SelfComposedDpEvent(step, steps), delta, neighbours=neighbours)
        return math.log(cost / epsilon) if cost > 0 else -math.inf

    # Every cost is a loss distribution: few are made, and none with very little noise, which makes them very
    # large.
    low = high = 1.0
    low_excess = high_excess = excess(1.0)
    while low_excess <= 0 and low > 1 / 64:
        high, high_excess, low = low, low_excess, low / 2
        low_excess = excess(low)
    while high_excess > 0:
        low, low_excess, high = high, high_excess, high * 2
        high_excess = excess(high)
        if high > 1e6:
            raise ValueError(
                f"no noise makes {steps} steps at rate {rate} ({epsilon}, {delta})-DP: raise epsilon or delta"
            )
    while high > low * 1.001:
        # Cost is nearly a power of the multiplier: a secant between logarithms, kept a little inside, needs a
        # few steps.
        part = low_excess / (low_excess - high_excess) if math.isfinite(high_excess) else 0.5
        middle = min(max(low * (high / low) ** part, low * 1.0005), high / 1.0005)
        if (found := excess(middle)) <= 0:
            high, high_excess = middle, found
        else:
            low, low_excess = middle, found
    return high


def check_draws(draws: int, epsilon: float, delta: float) -> None:
    """Refuse what the share of delta kept for the sampler does not cover: (1 + e^epsilon) * draws * distance
    a draw.
    """
    if not draws:
        return
    from airlock.privacy.noise import LOG2_DISTANCE

    if math.log2(draws) + 1 + epsilon / math.log(2) + LOG2_DISTANCE > math.log2(
        delta * gaussian.SAMPLING_SHARE
    ):
        raise ValueError(
            f"{draws} draws at epsilon {epsilon} need more of delta "
            f"{delta} than is kept for sampling: raise delta"
        )
