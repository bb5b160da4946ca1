"""Bounds are no moments: there is nothing to train from them."""

from __future__ import annotations

from pathlib import Path

from airlock.errors import ParamsError
from airlock.inside.manifest import Manifest
from airlock.models.moments import Tensors
from airlock.params import TrainParams
from stages.mechanisms import Trained


def train(
    params: TrainParams, release: Manifest, tensors: Tensors, *, checkpoint: Path | None = None
) -> Trained:
    """Refuse.

    Raises:
        ParamsError: always.
    """
    raise ParamsError(
        "params.yaml: a release of 'bounds' holds bounds and no model: `airlock bounds` makes it and puts "
        "release.mechanism back"
    )
