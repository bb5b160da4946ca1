"""Training AdLM's network from perturbed inputs and coefficients (Algorithm 1, lines 20-29). No record is read, whatever the epochs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.boundary.manifest import Manifest
from stages.models import taylor
from stages.models.classifier import PREFIX, network_model
from stages.open.train import Trained
from stages.params import TrainParams


def train(params: TrainParams, release: Manifest, tensors: Mapping[str, NDArray[Any]], *, checkpoint: Path | None = None) -> Trained:
    """Minimise the perturbed degree-2 loss by Adam."""
    import torch

    from stages.models.networks import build

    details, data = release.details, release.details["data"]
    network: Any = build("adlm", tuple(data["shape"]), len(data["labels"]), seed=params.seed)
    network.bias.copy_(torch.from_numpy(bounded(tensors["bias"] / details["fine"], details["clip"])))
    order = torch.Generator().manual_seed(params.seed)
    optimiser = torch.optim.Adam(network.parameters(), lr=params.learning_rate)
    curve = []
    for epoch in range(params.epochs):
        network.train()
        total = 0.0
        for rows in torch.split(torch.randperm(len(tensors["inputs"]), generator=order), params.batch):
            inputs, table = batch_of(tensors, details, rows.numpy())
            loss = taylor.polynomial(network(torch.from_numpy(inputs)), torch.from_numpy(table)).mean()
            optimiser.zero_grad()
            torch.autograd.backward(loss)
            optimiser.step()
            total += float(loss.detach()) * len(rows)
        curve.append((epoch + 1, total / len(tensors["inputs"])))
    state = {PREFIX + name: value.detach().numpy() for name, value in network.state_dict().items()}
    metrics = {"loss": curve[-1][1], "epochs": params.epochs, "epsilon": _number(release.proven.epsilon)}
    return Trained(network_model("adlm", data, state), curve, metrics)


def batch_of(
    tensors: Mapping[str, NDArray[Any]], details: Mapping[str, Any], rows: NDArray[Any]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Perturbed inputs in units of x, cut off at +-clip as in the authors' code, and their coefficients."""
    inputs = bounded(tensors["inputs"][rows] / details["grid"], details["clip"]).reshape(-1, *details["data"]["shape"])
    return inputs, (tensors["coefficients"][rows] / details["fine"]).astype(np.float32)


def bounded(values: NDArray[Any], clip: float) -> NDArray[np.float32]:
    """Cut off at +-clip."""
    cut: NDArray[np.float32] = np.clip(values, -clip, clip).astype(np.float32)
    return cut


def _number(epsilon: float) -> float | str:
    """JSON has no infinity."""
    return "infinity" if np.isinf(epsilon) else epsilon
