"""Training the behaviour model's head from released coefficients: no record, no budget, no limit on epochs."""

from __future__ import annotations

from pathlib import Path

from stages.boundary.manifest import Manifest
from stages.models.behaviour import NAME, BehaviourModel
from stages.models.moments import Tensors
from stages.open.coefficients import head
from stages.open.train import Trained
from stages.params import TrainParams


def train(params: TrainParams, release: Manifest, tensors: Tensors, *, checkpoint: Path | None = None) -> Trained:
    """Train as `coefficients` does, on the released rows of windows."""
    layers, curve, ridge = head(params, release, tensors, checkpoint=checkpoint)
    data, details = release.details["data"], release.details
    units = {name: value for name, value in tensors.items() if name not in ("gram", "cross")}
    window = {**details["layout"], **details["scales"]}
    model = BehaviourModel(NAME, data["kind"], tuple(data["shape"]), tuple(data["labels"]), [], layers, window=window, units=units)
    metrics = {"loss": curve[-1][1], "epochs": curve[-1][0], "epsilon": release.proven.epsilon, "unit": release.unit, "ridge": ridge}
    return Trained(model, curve, metrics)
