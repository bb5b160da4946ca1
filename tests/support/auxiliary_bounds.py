"""Sensitivities of DP-MAC's coefficients, without clipping: as published (Apps. E to G), and with what those
inequalities need.

|z_k| <= T for every layer, w_h are the columns of a layer's weights, alpha_h = softplus(T |w_h|), beta_h = sigmoid(T
|w_h|); f' <= beta and
f f' <= alpha beta on |a| <= T |w_h|, and f'' <= 1/4. Each bound is on N times the sensitivity under
replace-one. Half of it bounds one record's contribution, the sensitivity under zero-out with a fixed
denominator.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def _terms(lengths: Array, bound: float) -> tuple[Array, Array]:
    reach = bound * lengths
    return np.logaddexp(0.0, reach), 1 / (1 + np.exp(-reach))


def published_linear(lengths: Array, bound: float) -> float:
    """App. E: the root of a sum of squares that are not added up rightly.

    |p + q|^2 <= |p|^2 + |q|^2 does not hold.
    """
    alpha, beta = _terms(lengths, bound)
    first = 2 * bound**2 * (bound**2 + float(((alpha * beta) ** 2).sum()))
    second = (
        bound**4
        / 8
        * (bound**2 * float((lengths**2).sum()) + float((((4 * beta**2 + alpha) * lengths) ** 2).sum()))
    )
    return math.sqrt(first + second)


def linear(lengths: Array, bound: float) -> float:
    """Of b of a hidden layer or of an output layer with squared error, by the triangle inequality.

    |e z| <= T (T + |alpha beta|), and |s a z| <= T^2 (T / 4 max |w_h| + |(alpha / 4 + beta^2) |w_h||).
    """
    alpha, beta = _terms(lengths, bound)
    first = bound * (bound + float(np.linalg.norm(alpha * beta)))
    second = bound**2 * (
        bound / 4 * float(lengths.max()) + float(np.linalg.norm((alpha / 4 + beta**2) * lengths))
    )
    return 2 * (first + second)


def published_curvature(lengths: Array, bound: float) -> float:
    """App. F."""
    alpha, beta = _terms(lengths, bound)
    return bound**2 / 4 * math.sqrt(bound**2 + float(((4 * beta**2 + alpha) ** 2).sum()))


def curvature(lengths: Array, bound: float) -> float:
    """Of C: |s| / 2 |z|^2 with |s| <= T / 4 + |alpha / 4 + beta^2|."""
    alpha, beta = _terms(lengths, bound)
    return bound**2 * (bound / 4 + float(np.linalg.norm(alpha / 4 + beta**2)))


def output_linear(lengths: Array, bound: float) -> float:
    """Of b of a logistic output layer: |sigmoid - y| <= 1 a unit, sigmoid' <= 1/4 and |a| <= T |w_h|."""
    return bound * (math.sqrt(len(lengths)) + bound / 4 * float(np.linalg.norm(lengths)))


def output_curvature(lengths: Array, bound: float) -> float:
    """Of C of a logistic output layer: sigmoid' / 4 |z|^2 a unit; one record's is App.

    G's bound, twice is replace-one.
    """
    return math.sqrt(len(lengths)) * bound**2 / 8
