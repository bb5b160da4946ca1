"""The behaviour model as published: it was trained where the records are, and is only unpacked here."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from airlock.inside.manifest import Manifest
from airlock.models.moments import Tensors
from airlock.params import TrainParams
from stages.mechanisms import Trained, told_curve
from stages.open.mechanisms.behaviour import model_on


def train(
    params: TrainParams, release: Manifest, tensors: Tensors, *, checkpoint: Path | None = None
) -> Trained:
    """The released head on the released machine."""
    layer = (tensors["head"].astype(np.float64), tensors["head_offset"].astype(np.float64))
    model = model_on(release, tensors, [layer])
    metrics = {
        "epochs": release.details["epochs"],
        "epsilon": "infinity",
        "claimed": release.claimed.epsilon if release.claimed else None,
    }
    return Trained(model, told_curve(release), metrics)
