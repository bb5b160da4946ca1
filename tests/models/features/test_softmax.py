"""Softmax residuals: right to the last digits, bounded as integers, the same in any batch."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from airlock.models.features.softmax import BOUND, exponential, residuals, softmax, surplus
from airlock.models.sureness import FACTORS, norm

logits = arrays(np.float64, (5, 4), elements=st.floats(-60, 60))


@given(st.floats(-40, 0))
def test_the_exponential_is_right_to_1e_15(x: float) -> None:
    made = float(exponential(np.array([[x]]))[0, 0])
    assert abs(made - math.exp(x)) <= 4e-15 * math.exp(x)


@given(logits)
def test_probabilities_sum_to_one(z: np.ndarray) -> None:
    assert np.abs(softmax(z).sum(axis=1) - 1).max() < 1e-14


@given(logits, st.lists(st.integers(-1, 3), min_size=5, max_size=5), st.sampled_from([0.1, 0.3, 0.5, 1.4]))
def test_residuals_are_clipped_integers_and_nulls_have_none(
    z: np.ndarray, labels: list[int], clip: float
) -> None:
    targets = np.array([[float(label == c) for c in range(4)] for label in labels])
    made = residuals(z, targets, clip)
    assert np.array_equal(made, np.trunc(made))
    for row, label, probabilities, target in zip(made, labels, softmax(z), targets, strict=True):
        assert sum(int(value) ** 2 for value in row) <= BOUND**2
        if label < 0:
            assert not row.any()
        else:
            gap = target - probabilities
            expected = gap * min(1.0, clip / max(np.linalg.norm(gap), 1e-300)) * BOUND / clip
            assert np.abs(row - expected).max() <= 1 + 1e-6


@given(logits, st.permutations(range(5)))
def test_a_residual_does_not_depend_on_the_batch(z: np.ndarray, order: list[int]) -> None:
    targets = np.eye(4)[[0, 1, 2, 3, 0]]
    made = residuals(z, targets, 0.3)
    assert np.array_equal(residuals(z[order], targets[order], 0.3), made[order])
    assert np.array_equal(residuals(z[:1], targets[:1], 0.3), made[:1])


@given(logits, st.lists(st.integers(-1, 3), min_size=5, max_size=5), st.permutations(range(5)))
def test_a_surplus_is_right_less_sure_within_its_norm(
    z: np.ndarray, labels: list[int], order: list[int]
) -> None:
    targets = np.array([[float(label == c) for c in range(4)] for label in labels])
    made = surplus(z, targets, FACTORS)
    assert np.array_equal(made, np.trunc(made))
    assert np.array_equal(surplus(z[order], targets[order], FACTORS), made[order])
    for row, label, scores in zip(made, labels, z, strict=True):
        assert sum(int(value) ** 2 for value in row) <= norm() ** 2
        if label < 0:
            assert not row.any()
            continue
        sure = [max(softmax(scores[None] * factor)[0]) for factor in FACTORS]
        expected = [((scores.argmax() == label) - one) * BOUND for one in sure]
        assert np.abs(row - expected).max() <= 1 + 1e-9
