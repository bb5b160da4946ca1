"""A hidden layer that was trained without data, and how noise is divided among its neurons
(docs/proofs/neuron-noise.md#allocation).

Everything here is a function of released sums. A first release of moments gives M - 1 discriminant
coordinates c = a P of a row a, of unit variance under the released model; a network of one hidden layer is
trained on samples of that model (by the caller) and becomes the lower network z = relu(c W + b), whose output
weights V say what a neuron contributes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from airlock.models.features.projection import SYNAPSE, Centre, Neurons, centre
from airlock.models.features.rows import LIMIT, Rows
from airlock.models.model import Layers
from airlock.models.moments import Moments, choose_ridge, closed_form
from airlock.privacy import sums

Direction = Literal["important", "opposite", "equal"]
Array = NDArray[np.float64]

SAMPLES = 4096
OUTPUT = 2.0**12
"""The largest output weight, as an integer."""
FLOOR = 0.1
"""Of an equal share: the least contribution ratio, and of the mean: the least variance of a neuron."""
SAMPLE_LENGTH = 0.5
"""Mean length of a row of neurons, as a part of LIMIT: few are longer than LIMIT, which would shorten them.
"""
LARGEST_WEIGHT = 2.0**32
"""Norm of a neuron's incoming weights, and size of its offset, at most."""
LENGTH_FLOOR = 1e-12
BIAS = 0.3
"""The constant column, in units of a neuron's mean deviation."""


@dataclass(frozen=True)
class Discriminant:
    """The released model in its discriminant coordinates: c = a P has identity covariance, `means` (classes,
    M - 1) and n records.
    """

    matrix: Array
    means: Array
    n: int

    def moments(self) -> Moments:
        """For training on samples (models/descent.py)."""
        size = self.matrix.shape[1]
        return Moments(
            np.full(size, float(self.n)), np.eye(size), self.means.T * self.n / len(self.means), 0.0, self.n
        )

    def sample(self) -> tuple[Array, NDArray[np.int64]]:
        """Coordinates and labels of made-up records, always the same."""
        generator = np.random.Generator(np.random.PCG64(0))
        labels = generator.integers(len(self.means), size=SAMPLES)
        return self.means[labels] + generator.standard_normal((SAMPLES, self.means.shape[1])), labels


def discriminant(moments: Moments, noise: float) -> Discriminant:
    """The M - 1 strongest directions of K = B^T G^-1 B, scaled to unit variance under the damped model.

    With noise of standard deviation `noise` in B, every eigenvalue of K has noise^2 tr G^-1 in it that is not
    there: classes would look further apart than they are. It is taken off the means, and a direction that has
    no more than that keeps none.
    """
    ridge, classes = choose_ridge(moments, "auto"), moments.cross.shape[1]
    weights = closed_form(moments, ridge)
    spread = weights.T @ moments.cross
    values, vectors = (part[..., 1:] for part in np.linalg.eigh((spread + spread.T) / 2))
    values = np.maximum(values, 1e-12 * max(float(values.max()), 1e-300))
    kept = np.maximum(values - noise**2 * float((1 / moments.damped(ridge)).sum()), 0.0)
    means = vectors * (kept / np.sqrt(values)) * (classes / math.sqrt(moments.n))
    return Discriminant(
        weights @ (vectors * np.sqrt(moments.n / values)), means - means.mean(axis=0), moments.n
    )


@dataclass(frozen=True)
class Lower:
    """The lower network on its grid.

    Attributes:
        step: from rows to neurons.
        output, offset: integer output weights (neurons, classes) and offsets, on one grid.
        samples: neurons of made-up records, in units of LIMIT, and their `labels`.
    """

    step: Neurons
    output: NDArray[np.int64]
    offset: NDArray[np.int64]
    samples: Array
    labels: NDArray[np.int64]


def lower_of(space: Discriminant, layers: Layers) -> Lower:
    """From a trained network of one hidden layer to integers. `layers` take coordinates divided by sqrt(M -
    1), as samples come.

    However the training ended (all neurons dead, say), the integers stay within what exact products need.
    """
    (incoming, bias), (outgoing, constant) = layers
    scale = math.sqrt(space.matrix.shape[1])
    made_up, labels = space.sample()
    samples = np.maximum(made_up / scale @ incoming + bias, 0.0)
    matrix = space.matrix / scale @ incoming
    longest = float(np.sqrt((matrix * matrix).sum(axis=0).max()))
    wanted = SAMPLE_LENGTH / max(float(np.sqrt((samples * samples).sum(axis=1).mean())), LENGTH_FLOOR)
    gain = min(
        wanted,
        LARGEST_WEIGHT / (SYNAPSE * max(longest, LENGTH_FLOOR)),
        LARGEST_WEIGHT / (LIMIT * max(float(np.abs(bias).max()), LENGTH_FLOOR)),
    )
    unit = OUTPUT / max(float(np.abs(outgoing).max()), LENGTH_FLOOR)
    return Lower(
        Neurons(_integers(matrix * (gain * SYNAPSE)), _integers(bias * (gain * LIMIT))),
        _integers(outgoing * unit),
        _integers(np.clip(constant * (unit * gain * LIMIT), -(2.0**50), 2.0**50)),
        samples * gain,
        labels,
    )


def _integers(values: Array) -> NDArray[np.int64]:
    integers: NDArray[np.int64] = np.rint(values).astype(np.int64)
    return integers


def ratios(rows: Rows, output: NDArray[np.int64], offset: NDArray[np.int64]) -> Rows:
    """|Cr| / sum |Cr| of every neuron for the largest output, as integers whose sum is at most LIMIT; a row
    of zeros gives zeros.

    By the epsilon rule a neuron's relevance for output k is z_I V_Ik / (F_k +- mu) F_k (Eqs. 6 and 7), so the
    ratio is |z_I V_Ik| / sum_J |z_J V_Jk| whatever mu is. Products and sums are exact, the quotient is
    rounded once and cut off: LIMIT (1 + 2^-53) < LIMIT + 1.
    """
    weights = output.astype(np.float64)
    chosen = (rows @ weights + offset.astype(np.float64)).argmax(axis=1)
    parts = np.abs(rows * weights.T[chosen])
    totals = parts.sum(axis=1, keepdims=True)
    shares: Rows = np.floor(np.divide(parts * LIMIT, totals, out=np.zeros_like(parts), where=totals > 0))
    return shares


def sum_of_ratios(rows: Rows, lower: Lower) -> NDArray[np.int64]:
    """Exact, over a chunk of rows of neurons."""
    return sums.Sum(rows.shape[1], LIMIT).add(ratios(rows, lower.output, lower.offset)).result()


def allocate(lower: Lower, noisy: NDArray[np.int64], direction: Direction) -> Centre:
    """The step behind the neurons: centre them, and clip in an ellipsoid with axes C_I^2 ~ sqrt(m_I / r_I)
    (docs/proofs/neuron-noise.md#allocation, d_I = 1).

    Noise of the same size on rows divided by C is noise C_I on neuron I. The mean and the variance m of a
    neuron are those of made-up records; r is the released ratio in units of an equal share (at least FLOOR),
    or its inverse, or 1. Whatever they are, rows have norm LIMIT.
    """
    positive = np.maximum(noisy.astype(np.float64), 0.0)
    shares = np.maximum(positive / max(float(positive.mean()), 1.0), FLOOR)
    importance = {"important": shares, "opposite": 1 / shares, "equal": np.ones(len(noisy))}[direction]
    mean = lower.samples.mean(axis=0)
    variances = ((lower.samples - mean) ** 2).mean(axis=0)
    axes = (np.maximum(variances, FLOOR * max(float(variances.mean()), 1e-12)) / importance) ** 0.25
    deviation = math.sqrt(float(((lower.samples - mean) ** 2 / axes**2).mean()))
    bias = min(LIMIT, max(1, round(BIAS * deviation * LIMIT / float((1 / axes).mean()))))
    return centre(np.rint(mean * LIMIT).astype(np.int64), 1, bias=bias, weights=1 / axes)


def expectation(lower: Lower, step: Centre, classes: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Gram matrix and cross moments that the released model expects: those of made-up records, summed over
    all SAMPLES of them.
    """
    rows = step(np.trunc(lower.samples * LIMIT), np.ones(len(lower.samples), np.uint8))
    labels = sums.label_rows(lower.labels, classes, centred=True)
    return sums.multiply(rows, rows, (LIMIT, LIMIT)), sums.multiply(rows, labels, (LIMIT, classes))
