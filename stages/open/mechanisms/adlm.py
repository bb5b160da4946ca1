"""Training AdLM's network from perturbed inputs and coefficients (Algorithm 1, lines 20-29). No record is
read, whatever the epochs.

Each epoch has a seed of its own, so that a run that goes on from a checkpoint ends in the same bytes as one
that never stopped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.inside.manifest import Manifest
from airlock.models.classifier import PREFIX, network_model
from airlock.models.papers import taylor
from airlock.params import TrainParams
from stages.mechanisms import Trained
from stages.open.training_state import TrainingState


def train(
    params: TrainParams,
    release: Manifest,
    tensors: Mapping[str, NDArray[Any]],
    *,
    checkpoint: Path | None = None,
) -> Trained:
    """Minimise the perturbed degree-2 loss by Adam."""
    import torch

    from airlock.models.papers.networks import build

    details, data = release.details, release.details["data"]
    network: Any = build("adlm", tuple(data["shape"]), len(data["labels"]), seed=params.seed)
    network.bias.copy_(torch.from_numpy(bounded(tensors["bias"] / details["fine"], details["clip"])))
    optimiser = torch.optim.Adam(network.parameters(), lr=params.learning_rate)
    keeper = TrainingState(checkpoint, _identity(params, release))
    curve = keeper.resume(network, optimiser, params.epochs)
    network.train()
    for epoch in range(len(curve), params.epochs):
        curve.append((epoch + 1, _epoch(network, optimiser, tensors, details, params, epoch)))
        keeper.keep(network, optimiser, curve)
    state = {PREFIX + name: value.detach().numpy() for name, value in network.state_dict().items()}
    metrics = {"loss": curve[-1][1], "epochs": params.epochs, "epsilon": _number(release.proven.epsilon)}
    return Trained(network_model("adlm", data, state), curve, metrics)


def _epoch(
    network: Any,
    optimiser: Any,
    tensors: Mapping[str, NDArray[Any]],
    details: Mapping[str, Any],
    params: TrainParams,
    epoch: int,
) -> float:
    """Once through the perturbed records, in an order of this epoch's own; the mean loss."""
    import torch

    order = torch.randperm(
        len(tensors["inputs"]), generator=torch.Generator().manual_seed(params.seed * 1_000_003 + epoch)
    )
    total = 0.0
    for rows in torch.split(order, params.batch):
        inputs, table = batch_of(tensors, details, rows.numpy())
        loss = taylor.polynomial(network(torch.from_numpy(inputs)), torch.from_numpy(table)).mean()
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
        total += float(loss.detach()) * len(rows)
    return total / len(order)


def _identity(params: TrainParams, release: Manifest) -> str:
    """A checkpoint belongs to one training of one release; the number of epochs may grow."""
    named = params.model_dump(exclude={"epochs", "device"})
    return sha256(json.dumps([named, release.release_id], sort_keys=True).encode()).hexdigest()


def batch_of(
    tensors: Mapping[str, NDArray[Any]], details: Mapping[str, Any], rows: NDArray[Any]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Perturbed inputs in units of x, cut off at +-clip as in the authors' code, and their coefficients."""
    inputs = bounded(tensors["inputs"][rows] / details["grid"], details["clip"]).reshape(
        -1, *details["data"]["shape"]
    )
    return inputs, (tensors["coefficients"][rows] / details["fine"]).astype(np.float32)


def bounded(values: NDArray[Any], clip: float) -> NDArray[np.float32]:
    """Cut off at +-clip."""
    cut: NDArray[np.float32] = np.clip(values, -clip, clip).astype(np.float32)
    return cut


def _number(epsilon: float) -> float | str:
    """JSON has no infinity."""
    return "infinity" if np.isinf(epsilon) else epsilon
