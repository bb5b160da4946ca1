"""A factor for scores from noisy sums of right less sure."""

from __future__ import annotations

import numpy as np
import pytest

from airlock.models.features.softmax import BOUND, softmax, surplus
from airlock.models.sureness import FACTORS, factor_of


def sums_at(stretched: float) -> tuple[np.ndarray, int]:
    """Of scores that are `stretched` times what their labels were drawn by."""
    random = np.random.default_rng(1)
    scores = random.standard_normal((20000, 3)) * 2
    drawn = (softmax(scores).cumsum(axis=1) < random.random((20000, 1))).sum(axis=1)
    return surplus(scores * stretched, np.eye(3)[drawn], FACTORS).sum(axis=0).astype(np.int64), 20000


@pytest.mark.parametrize("stretched", [0.5, 1.0, 2.0])
def test_the_factor_undoes_a_wrong_scale(stretched: float) -> None:
    assert factor_of(*sums_at(stretched), noise=0.0) == pytest.approx(1 / stretched, rel=0.12)


def test_noise_leaves_probabilities_as_they_are() -> None:
    sums, n = sums_at(2.0)
    believed = [factor_of(sums, n, noise=part * n * BOUND) for part in (0.0, 0.05, 0.2, 5.0)]
    assert believed == sorted(believed)
    assert believed[-1] == pytest.approx(1.0, abs=0.01)


def test_sums_of_pure_noise_give_a_factor_within_the_candidates() -> None:
    random = np.random.default_rng(2)
    for _ in range(20):
        noisy = np.rint(random.standard_normal(4) * 1e6).astype(np.int64)
        assert FACTORS[0] <= factor_of(noisy, 10, 1.0) <= FACTORS[-1]
