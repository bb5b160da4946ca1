"""From a trained torch module to dense layers with rectifiers between them: a model is tensors, never code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.errors import ParamsError
from airlock.models.model import forward

Layer = tuple[NDArray[np.float64], NDArray[np.float64]]
KINDS = "Linear, ReLU, BatchNorm1d, Dropout and Identity, one after another"


def dense_layers(network: Any, width: int) -> list[Layer]:
    """The layers of a module, normalisation folded in; checked against the module itself.

    Raises:
        ParamsError: it does something else than dense layers and rectifiers do.
    """
    import torch

    network.eval()
    layers = _merged(network)
    rows = torch.randn(64, width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with torch.no_grad():
        expected = network(rows.float()).double().numpy()
    if not layers or not np.allclose(forward(rows.numpy(), layers), expected, rtol=1e-3, atol=1e-3):
        raise ParamsError(
            f"params.yaml: train.network '{type(network).__name__}' is more than its layers: a model is tensors, "
            f"so use {KINDS}"
        )
    return layers


def _merged(network: Any) -> list[Layer]:
    from torch import nn

    layers: list[Layer] = []
    rectified = True
    for one in _leaves(network):
        if isinstance(one, nn.Linear):
            weight = one.weight.detach().double().numpy().T.copy()
            offset = (
                np.zeros(weight.shape[1]) if one.bias is None else one.bias.detach().double().numpy().copy()
            )
            if rectified:
                layers.append((weight, offset))
            else:
                before = layers.pop()
                layers.append((before[0] @ weight, before[1] @ weight + offset))
            rectified = False
        elif isinstance(one, nn.BatchNorm1d) and layers and not rectified:
            gain, shift = _normalised(one)
            layers[-1] = (layers[-1][0] * gain, layers[-1][1] * gain + shift)
        elif isinstance(one, nn.ReLU) and layers:
            rectified = True
        elif not isinstance(one, nn.Dropout | nn.Identity):
            raise ParamsError(f"params.yaml: train.network has a layer '{type(one).__name__}': use {KINDS}")
    return layers


def _normalised(layer: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What a trained normalisation multiplies by and adds."""
    mean, variance = (one.detach().double().numpy() for one in (layer.running_mean, layer.running_var))
    weight = layer.weight.detach().double().numpy() if layer.affine else np.ones_like(mean)
    bias = layer.bias.detach().double().numpy() if layer.affine else np.zeros_like(mean)
    gain = weight / np.sqrt(variance + layer.eps)
    return gain, bias - mean * gain


def _leaves(network: Any) -> Iterator[Any]:
    children = list(network.children())
    if not children:
        yield network
    for child in children:
        yield from _leaves(child)
