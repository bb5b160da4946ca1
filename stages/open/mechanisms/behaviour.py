"""Training the behaviour model's head from released coefficients:
no record, no budget, no limit on epochs.
"""

from __future__ import annotations

from pathlib import Path

from airlock.inside.manifest import Manifest
from airlock.models.model import Layers
from airlock.models.moments import Tensors
from airlock.models.papers.behaviour import NAME, BehaviourModel
from airlock.params import TrainParams
from stages.mechanisms import Trained
from stages.open.mechanisms.coefficients import head


def train(
    params: TrainParams, release: Manifest, tensors: Tensors, *, checkpoint: Path | None = None
) -> Trained:
    """Train as `coefficients` does, on the released rows of windows."""
    layers, curve, ridge = head(params, release, tensors, checkpoint=checkpoint)
    metrics = {
        "loss": curve[-1][1],
        "epochs": curve[-1][0],
        "epsilon": release.proven.epsilon,
        "unit": release.unit,
        "ridge": ridge,
    }
    return Trained(model_on(release, tensors, layers), curve, metrics)


def model_on(release: Manifest, tensors: Tensors, layers: Layers) -> BehaviourModel:
    """Layers on the released rows."""
    data, details = release.details["data"], release.details
    units = {
        name: value
        for name, value in tensors.items()
        if name == "attribute_centre" or name.startswith("machine.")
    }
    window, shape = {**details["layout"], **details["scales"]}, tuple(data["shape"])
    return BehaviourModel(
        NAME, data["kind"], shape, tuple(data["labels"]), [], layers, window=window, units=units
    )
