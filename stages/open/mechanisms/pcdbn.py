"""Training from `pcdbn`: the softmax layer from its released coefficients, or nothing where the release is a
trained network.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.inside.manifest import Manifest
from airlock.models.classifier import PREFIX, network_model
from airlock.models.features.projection import eigen, spectral_radius
from airlock.models.moments import Moments, choose_ridge, closed_form, ridge_path
from airlock.params import TrainParams
from stages.mechanisms import Trained, told_curve


def train(
    params: TrainParams,
    release: Manifest,
    tensors: Mapping[str, NDArray[Any]],
    *,
    checkpoint: Path | None = None,
) -> Trained:
    """Minimise the perturbed Taylor loss of Eq. 18; filters and the fully connected layer are as released.

    No record is read.
    """
    details = release.details
    epsilon = "infinity" if math.isinf(release.proven.epsilon) else release.proven.epsilon
    if details["trained"]:
        curve = told_curve(release)
        model = network_model(details["network"], details["data"], tensors)
        return Trained(model, curve, {"loss": curve[-1][1], "epochs": 0, "epsilon": epsilon})
    moments = moments_of(tensors, details)
    ridge = choose_ridge(moments, params.ridge)
    weights = closed_form(moments, ridge)
    state = {**tensors, f"{PREFIX}outputs.weight": weights.T.astype(np.float32)}
    state[f"{PREFIX}outputs.bias"] = np.zeros(weights.shape[1], np.float32)
    curve = ridge_path(moments, ridge)
    metrics = {"loss": curve[-1][1], "epochs": 0, "epsilon": epsilon, "ridge": ridge}
    return Trained(network_model(details["network"], details["data"], state), curve, metrics)


def moments_of(tensors: Mapping[str, NDArray[Any]], details: Mapping[str, Any]) -> Moments:
    """Sum of (1/2 - y) p.w + (p.w)^2 / 8 is a quarter of <G w, w> / 2 - <B, w>, G = sum of p p^T and B = 4
    sum of (y - 1/2) p.
    """
    grid = details["grid"]
    values, vectors = eigen(tensors["softmax2"])
    # Laplace noise of scale 8 b on the diagonal has this standard deviation, and off it half of that.
    noise = math.sqrt(2) * 8 * details["scales"]["softmax"]
    cross = -4 * tensors["softmax1"].T.astype(np.float64) / (2 * grid)
    return Moments(values / grid**2, vectors, cross, spectral_radius(len(values), noise), details["n"])
