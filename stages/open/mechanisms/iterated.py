"""Training from an iterated release: the released head is the model; any other head is trained from the same
moments.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from airlock.errors import ParamsError
from airlock.inside.manifest import Manifest
from airlock.models import sureness
from airlock.models.moments import Tensors, choose_damping, moments_of, ridge_path
from airlock.params import TrainParams
from stages.mechanisms import Trained
from stages.open.mechanisms import coefficients

NO_MOMENTS = (
    "params.yaml: after a public preparation there are no moments to train another head from: set train.method to "
    "closed-form, train.head to linear and train.network to null, or release.options.preparation to private"
)


def train(
    params: TrainParams, release: Manifest, tensors: Tensors, *, checkpoint: Path | None = None
) -> Trained:
    """Take the last head of the release, or train another by gradient descent on samples."""
    coefficients.check_offered(params, release)
    if params.method == "sgd" or params.head != "linear" or params.network is not None:
        if "gram" not in tensors:
            raise ParamsError(NO_MOMENTS)
        return coefficients.train(params, release, tensors, checkpoint=checkpoint)
    weights = tensors["head"].astype(np.float64) * float(release.details["head_unit"])
    weights = weights * _sureness(release, tensors)
    layers = [(weights, np.zeros(weights.shape[1]))]
    return coefficients.trained_of(release, tensors, layers, _curve(params, release, tensors), {})


def _curve(params: TrainParams, release: Manifest, tensors: Tensors) -> list[tuple[int, float]]:
    """What was left unexplained before each round, as the noisy sums of the rounds tell it; where they tell it of
    one round at most, the way to the head that the rounds began with.
    """
    told: list[float] = release.details.get("residuals", [])
    if len(told) > 1 or "gram" not in tensors:
        return list(enumerate(told or [0.0]))
    moments = moments_of(tensors, release.details, release.details["data"]["n"])
    return ridge_path(moments, choose_damping(moments, params.ridge))


def _sureness(release: Manifest, tensors: Tensors) -> float:
    """The factor that makes scores probabilities, where the last round asked for it."""
    if "sureness" not in tensors:
        return 1.0
    noise = float(release.details["sums"]["sureness"]["scale"])
    return sureness.factor_of(tensors["sureness"], int(release.details["data"]["n"]), noise)
