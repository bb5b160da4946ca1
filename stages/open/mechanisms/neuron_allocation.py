"""Training from the moments of neurons: as from any moments, but drawn toward what the first release expects
instead of toward zero.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from airlock.inside.manifest import Manifest
from airlock.models.features.projection import spectral_radius
from airlock.models.features.rows import LIMIT
from airlock.models.moments import Tensors
from airlock.params import TrainParams
from stages.mechanisms import Trained
from stages.open.mechanisms import coefficients

PULL_STRENGTH = 2.0
"""How many expected records are added, in units of the noise's radius times the number of neurons."""


def train(
    params: TrainParams, release: Manifest, tensors: Tensors, *, checkpoint: Path | None = None
) -> Trained:
    """Add expected records (airlock/models/papers/hidden_layer.py) to the noisy moments, the more the more noise
    there is; then as `coefficients`.

    A ridge adds the same to every direction, as much as the noise's radius; this adds as much in all, where
    the released model has records.
    """
    size = len(tensors["gram"])
    radius = spectral_radius(size, float(release.details["sums"]["gram"]["scale"])) / LIMIT**2
    weight = PULL_STRENGTH * radius * size / release.details["samples"]
    added = {
        name: tensors[name] + np.rint(weight * tensors[f"expected.{name}"]).astype(np.int64)
        for name in ("gram", "cross")
    }
    return coefficients.train(params, release, {**tensors, **added}, checkpoint=checkpoint)
