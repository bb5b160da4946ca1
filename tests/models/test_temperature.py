"""Probabilities of a least-squares head: believable on records that it has not seen, from moments alone."""

from __future__ import annotations

import numpy as np
import pytest

from airlock.models.features.softmax import softmax
from airlock.models.measures import calibration_error
from airlock.models.moments import Moments, closed_form
from airlock.models.temperature import score_law, temperature


def drawn(classes: int, shares: list[float], n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of norm 1 with a constant last, of classes that overlap."""
    means = np.random.default_rng(7).normal(size=(classes, 6)) * 0.9
    generator = np.random.default_rng(seed)
    labels = generator.choice(classes, n, p=shares)
    rows = np.column_stack([means[labels] + generator.normal(size=(n, 6)), np.ones(n)])
    return rows / np.linalg.norm(rows, axis=1, keepdims=True), labels


def moments_of(rows: np.ndarray, labels: np.ndarray, classes: int, noise: float) -> Moments:
    generator = np.random.default_rng(3)
    values, vectors = np.linalg.eigh(rows.T @ rows)
    targets = np.eye(classes)[labels] - 1.0 / classes
    cross = rows.T @ targets + noise * generator.normal(size=(rows.shape[1], classes))
    return Moments(values, vectors, cross, radius=1.0, n=len(rows))


@pytest.mark.parametrize("shares", [[0.5, 0.5], [0.85, 0.15], [0.4, 0.3, 0.2, 0.1]])
@pytest.mark.parametrize("noise", [0.0, 20.0])
def test_probabilities_can_be_believed(shares: list[float], noise: float) -> None:
    classes = len(shares)
    moments = moments_of(*drawn(classes, shares, 6000, 0), classes, noise)
    weights = closed_form(moments, 0.3)
    factor = temperature(moments, weights, noise=noise, ridge=0.3, bias=True)
    rows, labels = drawn(classes, shares, 20_000, 1)
    plain, sure = (calibration_error(softmax(rows @ weights * times), labels) for times in (1.0, factor))
    assert sure < 0.05
    assert sure < plain / 2


def test_agreement_with_noise_is_taken_off() -> None:
    """Where the cross moments are noise alone, classes lie no further apart than chance has it."""
    rows, labels = drawn(2, [0.5, 0.5], 6000, 0)
    shuffled = np.random.default_rng(5).permutation(labels)
    moments = moments_of(rows, shuffled, 2, 200.0)
    weights = closed_form(moments, 0.3)
    bold, fair = (score_law(moments, weights, noise=noise, ridge=0.3, bias=True)[0] for noise in (0.0, 200.0))
    assert abs(fair[0, 0] - fair[1, 0]) < abs(bold[0, 0] - bold[1, 0])


def test_the_order_of_classes_and_the_bytes_stay() -> None:
    moments = moments_of(*drawn(3, [0.5, 0.3, 0.2], 500, 0), 3, 5.0)
    weights = closed_form(moments, 0.3)
    factors = {temperature(moments, weights, noise=5.0, ridge=0.3, bias=bias) for bias in (True, True)}
    assert len(factors) == 1 and factors.pop() >= 3.0
