"""How sure a head of residual rounds may be: one factor for its scores, from what the last round asked beside its
residuals.

The release holds noisy sums of (right - sure) over the records, for the head's scores times each of FACTORS. At
the factor where that sum is zero a model says of itself what is true of it on the average: accuracy is confidence.
The noise is known, so a factor is believed as far as it stands out: its logarithm is shrunk toward 0, where
probabilities are what the rounds left.

Differential privacy is why the records that a head was trained on may judge it: it knows too little of any one of
them to be surer there than elsewhere.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from airlock.models.features.softmax import BOUND

FACTORS = (0.35, 0.7, 1.4, 2.8)
SLOPE, SPREAD = 0.15, 0.6
"""How fast confidence rises with the logarithm of the factor, and how far from 0 that logarithm is: both about what
development tables show (bench/results/tables/rule.md)."""


def norm() -> int:
    """The largest length of one record's part in the sums: BOUND in each of them."""
    return math.isqrt(len(FACTORS) * BOUND**2 - 1) + 1


def factor_of(noisy: NDArray[np.int64], n: int, noise: float) -> float:
    """The factor for the head's scores.

    Args:
        noisy: sums of `airlock.models.features.softmax.surplus`, for FACTORS.
        n: records, which is public.
        noise: deviation of the noise in each sum.
    """
    # More factor, more confidence: what rises again is noise.
    falling = np.minimum.accumulate(noisy.astype(np.float64)) / (n * BOUND)
    logarithm = float(np.interp(0.0, -falling, np.log(FACTORS)))
    doubt = noise / (n * BOUND * SLOPE)
    return math.exp(logarithm * SPREAD**2 / (SPREAD**2 + doubt**2))
