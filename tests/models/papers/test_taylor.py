"""The degree-2 loss and its error bound, against exact cross-entropy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from airlock.models.papers import taylor


@given(st.lists(st.floats(-30, 30), min_size=3, max_size=3), st.integers(-1, 2))
def test_polynomial_is_above_cross_entropy_by_at_most_the_bound(scores: list[float], label: int) -> None:
    z, y = np.array([scores]), np.array([label])
    error = taylor.polynomial(z, taylor.coefficients(y, 3)) - taylor.cross_entropy(z, y)
    assert -1e-9 <= error[0] <= taylor.error_bound(z)[0] + 1e-9


def test_bound_is_tight_near_zero() -> None:
    z, y = np.array([[0.05]]), np.array([0])
    error = taylor.polynomial(z, taylor.coefficients(y, 1)) - taylor.cross_entropy(z, y)
    assert error[0] == pytest.approx(taylor.error_bound(z)[0], rel=1e-2)


def test_only_the_linear_coefficients_depend_on_the_label() -> None:
    table = taylor.coefficients(np.array([0, 2, -1]), 3)
    assert np.ptp(table[:, [0, 2]], axis=0).max() == 0
    assert np.abs(table[0, 1] - table[1, 1]).tolist() == [1, 0, 1]
    assert np.abs(table[0, 1] - table[2, 1]).tolist() == [1, 0, 0]


def test_minimisers_differ_by_less_than_the_corrected_and_the_published_bound() -> None:
    """Lemma 7 for one class, |z| <= 1: the loss at the polynomial's minimiser against the best loss."""
    generator = np.random.default_rng(0)
    rows, labels = generator.normal(size=(200, 3)), generator.integers(0, 2, 200) - 1
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    table = taylor.coefficients(labels, 1)
    inside = {"type": "ineq", "fun": lambda w: 1 - w @ w}
    exact = lambda w: taylor.cross_entropy((rows @ w)[:, None], labels).mean()  # noqa: E731
    found = minimize(
        lambda w: taylor.polynomial((rows @ w)[:, None], table).mean(), np.zeros(3), constraints=inside
    ).x
    best = minimize(exact, np.zeros(3), constraints=inside).x
    gap = exact(found) - exact(best)
    assert gap <= 1 / 192 < (math.e**2 + 2 * math.e - 1) / (math.e * (1 + math.e) ** 2)
