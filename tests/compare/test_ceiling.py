"""The bound of docs/proofs/small-tables.md against learners whose accuracy is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from airlock.compare import ceiling


@pytest.mark.parametrize("k", [1, 5, 40])
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_the_bound_is_what_the_best_learner_of_two_labels_reaches(k: int, epsilon: float) -> None:
    laplace = 1 - math.exp(-k * epsilon) / 2
    assert ceiling.approximate(epsilon, 0.0)(0.5, k) == pytest.approx(laplace)
    assert ceiling.gaussian(epsilon)(0.5, k) == pytest.approx(norm.cdf(k * epsilon))
    # Slack in delta only helps, and nobody is right more often than always.
    assert laplace <= ceiling.approximate(epsilon, 1e-3)(0.5, k) <= 1


@pytest.mark.parametrize("labels", [2, 3, 6])
def test_no_learner_that_counts_is_above_the_bound(labels: int) -> None:
    """Noisy counts of every label, the largest wins: a learner that has no favourite, so each label is alike."""
    drawn, k, mu = np.random.default_rng(0), 18, 0.1
    counts = drawn.normal(0, 1 / mu, (200_000, labels))
    counts[:, 0] += k
    right = float((counts.argmax(1) == 0).mean())
    assert 1 / labels < right <= ceiling.gaussian(mu)(1 / labels, k) + 0.005
    noise = drawn.laplace(0, 1 / mu, (200_000, labels))
    noise[:, 0] += k
    pure = float((noise.argmax(1) == 0).mean())
    assert pure <= ceiling.approximate(mu, 0.0)(1 / labels, k) + 0.005
    # Half the bound's records would not allow that: the test above could fail.
    assert right > ceiling.gaussian(mu)(1 / labels, k / 2)


def test_the_page_has_the_figures() -> None:
    any_learner, gaussian = ceiling.ceilings("dermatology", 0.1, 1e-5) or (0, 0)
    assert (round(100 * any_learner, 1), round(100 * gaussian, 1)) == (98.9, 82.0)
    assert ceiling.ceilings("wdbc", 0.1, 1e-5) == pytest.approx((1, 1), abs=1e-3)
    assert ceiling.ceilings("mnist", 0.1, 1e-5) is None
    assert ceiling.records_needed(0.96, 2, 0.1) == pytest.approx(25.26, abs=0.01)
