"""How far a released share may be from the true one."""

from __future__ import annotations

import math

NORMAL_QUANTILE = 1.959963984540054


def noisy_share(share: float, n: int, noise: float) -> tuple[float, float]:
    """A 95 % interval of a share of n records that was released with Gaussian noise of deviation `noise`, perhaps none.

    Two errors are independent and add up in squares: the noise, whose deviation is public, and the sample's own,
    p (1 - p) / n for the true share p. The interval has every p that the released share is not too far from by that p's
    own deviation (Wilson 1927). With the released share's in its place it would have no width where all answers
    are right.
    """
    part = NORMAL_QUANTILE**2 / n
    middle = share + part / 2
    spread = math.sqrt(part * (share * (1 - share) + part / 4) + (1 + part) * (NORMAL_QUANTILE * noise) ** 2)
    return max((middle - spread) / (1 + part), 0.0), min((middle + spread) / (1 + part), 1.0)
