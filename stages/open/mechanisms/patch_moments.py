"""Training from `patch-moments`: the head as from `coefficients`, on the filters that the released moments
gave. No record is read.
"""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

from airlock.inside.manifest import Manifest
from airlock.models.model import Model
from airlock.models.moments import Tensors
from airlock.models.papers.patches import LearnedModel, layers_of
from airlock.params import TrainParams
from stages.mechanisms import Trained
from stages.open.mechanisms import coefficients


def train(
    params: TrainParams, release: Manifest, tensors: Tensors, *, checkpoint: Path | None = None
) -> Trained:
    """Train the head in closed form or by gradient descent, and put it on the learned filters."""
    trained = coefficients.train(params, release, tensors, checkpoint=checkpoint)
    given = {one.name: getattr(trained.model, one.name) for one in fields(Model)}
    return replace(trained, model=LearnedModel(**given, banks=layers_of(tensors)))
