"""Which features matter, from released statistics: post-processing, scale-free, and turned into weights for
the ellipsoid clip.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.models.features.images import cells_down_and_across
from airlock.models.features.rows import LIMIT
from airlock.models.moments import choose_ridge, closed_form, moments_of

EXPONENT = 0.25
FLOOR = 0.1
SAMPLES = 2048

Tensors = Mapping[str, NDArray[np.int64]]
Scores = NDArray[np.float64]


def from_class_statistics(tensors: Tensors, scales: Mapping[str, float]) -> Scores:
    """Between-class variance over total variance of each feature, both without what noise adds to them on
    average (docs/proofs/relevance.md#guarantee).
    """
    counts = np.maximum(tensors["counts"].astype(np.float64), 1.0)
    n = counts.sum()
    means = tensors["classes"] / counts / LIMIT
    mean = (means * counts).sum(axis=1, keepdims=True) / n
    noise = ((scales["classes"] / LIMIT) ** 2 / counts).sum() / n
    between = ((means - mean) ** 2 * counts).sum(axis=1) / n - noise
    total = tensors["squares"] / n / LIMIT**2 - mean[:, 0] ** 2
    # Below its own noise a variance says nothing; dividing by it would make a feature look important by
    # chance.
    least = scales["squares"] / n / LIMIT**2
    scores: Scores = np.maximum(between, 0.0) / np.maximum(total, least)
    return scores


def from_propagation(tensors: Tensors, details: Mapping[str, Any], n: int) -> Scores:
    """Layer-wise relevance propagation on a linear model trained from a small release, over samples of the
    released distribution.

    A feature's relevance a_j w_j does not change when the feature is scaled, since the weight scales the
    other way.
    """
    import torch

    from airlock.models.lrp import relevances

    moments = moments_of(tensors, details, n)
    ridge = choose_ridge(moments, "auto")
    network = torch.nn.Sequential(torch.nn.Linear(moments.size, moments.cross.shape[1], bias=False)).double()
    network[0].weight.data = torch.as_tensor(closed_form(moments, ridge).T.copy())
    root = moments.vectors * np.sqrt(moments.damped(ridge) / n)
    normal = np.random.Generator(np.random.PCG64(0)).standard_normal((SAMPLES, moments.size))
    spread = np.abs(relevances(network, torch.as_tensor(normal @ root.T), stabiliser=1e-6).numpy())
    scores: Scores = (spread / np.maximum(spread.sum(axis=1, keepdims=True), 1e-12)).mean(axis=0)
    return scores


def weights_of(scores: Scores) -> Scores:
    """Weights (score / mean + 0.1)^(1/4): the exponent minimises the weighted squared error of box-bounded
    features (docs/proofs/relevance.md#allocation).
    """
    weights: Scores = (scores / max(float(scores.mean()), 1e-12) + FLOOR) ** EXPONENT
    return weights


def picture_of(scores: Scores, kind: str, shape: tuple[int, ...]) -> Scores:
    """For the report: one score a column of a table; for images the sum over channels in each cell."""
    if kind != "image":
        return scores
    picture: Scores = scores.reshape(-1, *cells_down_and_across(shape)).sum(axis=0)
    return picture
