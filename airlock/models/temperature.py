"""How sure a linear head may be: one factor for its scores, from released moments alone.

Under the class-conditional Gaussian model of a release the scores z = W^T a of class c are Gaussian, with mean
W^T mu_c and the covariance W^T D W / n less that of the means (D: the Gram matrix, damped as the head's was).
That is a law in as many dimensions as there are classes, whatever the rows are. The factor that makes labels
drawn from it likeliest (temperature scaling, Guo et al. 2017) multiplies the head, so that softmax of its scores
is a probability. The order of classes, and so every prediction, stays as it was.

A head that was solved from noisy cross moments agrees with their noise E: W^T E has mean tr(D^-1) s^2 for noise
of deviation s, which is taken off before anybody is sure of it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from airlock.models.features.softmax import softmax
from airlock.models.moments import Moments

DRAWS = 4096
FACTORS = np.geomspace(1.0, 2.5, 33)
"""Candidates, in units of the factor at which scores minimise the logistic loss to second order. On scikit-learn's
digits, wine and iris and on generated tables the best ones were between 1.2 and 3.2.
"""
Matrix = NDArray[np.float64]


def temperature(moments: Moments, weights: Matrix, *, noise: float, ridge: float | None, bias: bool) -> float:
    """The factor for a least-squares head.

    Args:
        moments: as released.
        weights: of the head, for scores `rows @ weights`.
        noise: deviation of the noise in `moments.cross`.
        ridge: how the head was damped (models/moments.py).
        bias: whether the last column of the rows is a constant, which tells how common each class is.
    """
    means, covariance, shares = score_law(moments, weights, noise=noise, ridge=ridge, bias=bias)
    generator = np.random.default_rng(0)
    labels = generator.choice(len(shares), DRAWS, p=shares)
    values, vectors = np.linalg.eigh(covariance)
    spread = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    scores = means[labels] + generator.normal(size=(DRAWS, len(shares))) @ spread
    factors = FACTORS * weights.shape[1]
    return float(min(factors, key=lambda factor: _loss(scores * factor, labels)))


def score_law(
    moments: Moments, weights: Matrix, *, noise: float, ridge: float | None, bias: bool
) -> tuple[Matrix, Matrix, NDArray[np.float64]]:
    """Mean scores of each class (a row each), covariance of scores within classes, and share of each class."""
    classes = weights.shape[1]
    flat = np.full(classes, 1.0 / classes)
    shares, overall = _by_constant(moments, weights, flat) if bias else (flat, np.zeros(classes))
    damped = moments.damped(ridge)
    agreed = noise**2 * float((1.0 / damped).sum()) * (np.eye(classes) - 1.0 / classes)
    # moments.cross is sum a (e_y - 1/M)^T: the sum over class c, less its share of the sum over all.
    apart = ((weights.T @ moments.cross).T - agreed) / moments.n
    means = (apart + overall / classes) / shares[:, None]
    turned = moments.vectors.T @ weights
    second = turned.T @ (damped[:, None] * turned) / moments.n
    return means, second - (means.T * shares) @ means, shares


def _by_constant(
    moments: Moments, weights: Matrix, flat: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Shares of classes (never below a tenth of an even one) and mean scores over all records, by the rows'
    constant column; what it is after rows were scaled to one norm is known on the average.
    """
    last = moments.vectors[-1]
    constant = float(np.sqrt(max(float((last**2 * moments.values).sum()) / moments.n, 1e-6)))
    found = np.clip(flat + moments.cross[-1] / (constant * moments.n), 0.1 * flat, 1.0)
    column = (moments.vectors * moments.values) @ last
    return found / found.sum(), weights.T @ column / (constant * moments.n)


def _loss(scores: Matrix, labels: NDArray[np.int64]) -> float:
    likely = softmax(scores)[np.arange(len(labels)), labels]
    return float(-np.log(np.maximum(likely, 1e-12)).mean())
