"""Training from an iterated release: the released head is the model; any other head is trained from the same
moments.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from airlock.errors import ParamsError
from airlock.inside.manifest import Manifest
from airlock.models import sureness
from airlock.models.moments import Tensors
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
    # What was left unexplained before each round, as the noisy sums of the rounds tell it.
    curve = list(enumerate(release.details.get("residuals", [0.0])))
    return coefficients.trained_of(release, tensors, layers, curve, {})


def _sureness(release: Manifest, tensors: Tensors) -> float:
    """The factor that makes scores probabilities, where the last round asked for it."""
    if "sureness" not in tensors:
        return 1.0
    noise = float(release.details["sums"]["sureness"]["scale"])
    return sureness.factor_of(tensors["sureness"], int(release.details["data"]["n"]), noise)
