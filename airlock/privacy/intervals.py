"""How far a released share may be from the true one."""

from __future__ import annotations

import math

NORMAL_QUANTILE = 1.959963984540054


def noisy_share(share: float, n: int, noise: float) -> tuple[float, float]:
    """A 95 % interval of a share of n records that was released with Gaussian noise.

    Two errors are independent and add up in squares: the noise, whose deviation is public, and the sample's
    own.
    """
    spread = NORMAL_QUANTILE * math.sqrt(share * (1 - share) / n + noise * noise)
    return max(share - spread, 0.0), min(share + spread, 1.0)
