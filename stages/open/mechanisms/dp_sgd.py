"""DP-SGD's release is the trained network: there is nothing left to train."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from airlock.inside.manifest import Manifest
from airlock.models.classifier import network_model
from airlock.params import TrainParams
from stages.mechanisms import Trained, told_curve


def train(
    params: TrainParams,
    release: Manifest,
    tensors: Mapping[str, NDArray[Any]],
    *,
    checkpoint: Path | None = None,
) -> Trained:
    """Take the released network as it is."""
    model = network_model(release.details["network"], release.details["data"], tensors)
    told = {"epochs": 0, "epsilon": release.proven.epsilon, "steps": release.details["steps"]}
    return Trained(model, told_curve(release), told)
