"""Contribution ratios at every layer, held against Eqs. 4-15; and what a constant on a neuron is: a bias."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from airlock.models.classifier import network_model
from airlock.models.papers import networks, neurons

BETA = 0.05


def affine(module: nn.Module, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Any affine layer, batch normalisation as it predicts among them, as a matrix and an offset."""
    size = int(np.prod(shape))
    with torch.no_grad():
        offset = module(torch.zeros(1, *shape)).reshape(-1)
        columns = module(torch.eye(size).reshape(size, *shape)).reshape(size, -1) - offset
    return columns.T.double().numpy(), offset.double().numpy()


def pass_back(matrix: np.ndarray, offset: np.ndarray, below: np.ndarray, above: np.ndarray) -> np.ndarray:
    """Eqs. 8-11: from the ratios of a layer's neurons to those of the neurons below, one by one."""
    ratios = np.zeros(len(below))
    for n in range(len(matrix)):
        forwarded = below * matrix[n]
        received = forwarded.sum() + offset[n]
        ratios += forwarded / (received + (BETA if received >= 0 else -BETA)) * above[n]
    return ratios


def slow(ordered: networks.Ordered, record: torch.Tensor) -> list[np.ndarray]:
    """The buffers of Sec. 3.3 for one record, from the last layer down."""
    layers = [layer.eval() for layer in ordered.layers if not isinstance(layer, neurons.Offset)]
    inputs = [networks.channels_first(record[None])]
    with torch.no_grad():
        for layer in layers:
            inputs.append(layer(inputs[-1]))
    outputs = inputs.pop()[0].double().numpy()
    ratio = np.where(np.arange(len(outputs)) == outputs.argmax(), outputs, 0.0)
    buffers = [ratio]
    for layer, given in zip(reversed(layers), reversed(inputs), strict=True):
        if isinstance(layer, nn.ReLU):
            buffers.insert(0, ratio)
        elif isinstance(layer, nn.MaxPool2d):
            _, places = nn.functional.max_pool2d(given, 2, return_indices=True)
            lower = np.zeros(given[0].numel())
            offsets = np.repeat(np.arange(given.shape[1]), places[0, 0].numel()) * given[0, 0].numel()
            lower[places[0].reshape(-1).numpy() + offsets] = ratio
            ratio = lower
        elif not isinstance(layer, nn.Flatten):
            matrix, offset = affine(layer, tuple(given.shape[1:]))
            ratio = pass_back(matrix, offset, given.reshape(-1).double().numpy(), ratio)
    return buffers


@pytest.mark.parametrize(("name", "shape"), [("neurons:7-6-5", (9,)), ("neurons:6-5", (8, 8, 1))])
def test_ratios_of_every_layer_agree_with_the_equations(name: str, shape: tuple[int, ...]) -> None:
    ordered = networks.build(name, shape, 3, seed=0)
    assert isinstance(ordered, networks.Ordered)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for module in ordered.modules():
            if isinstance(module, nn.BatchNorm1d):
                module.running_mean.copy_(torch.rand(6, generator=generator))
                module.running_var.copy_(torch.rand(6, generator=generator) + 0.5)
    records = torch.rand(3, *shape, generator=generator)
    found = neurons.contributions(ordered, records, stabiliser=BETA)
    assert [layer[0].numel() for layer in found] == [
        module.noise.numel() for module in neurons.offsets(ordered)
    ]
    for number, record in enumerate(records):
        for layer, expected in zip(found, slow(ordered, record), strict=True):
            assert layer[number].reshape(-1).numpy() == pytest.approx(
                expected, abs=1e-4 * max(1.0, np.abs(expected).max())
            )


def test_offsets_survive_a_release() -> None:
    ordered = networks.build("neurons:4-3", (8, 8, 1), 3, seed=0)
    for module in neurons.offsets(ordered):
        module.noise.add_(1.5)
    state = {f"network.{name}": value.numpy() for name, value in ordered.state_dict().items()}
    model = network_model(
        "neurons:4-3", {"kind": "image", "shape": [8, 8, 1], "labels": ["a", "b", "c"]}, state
    )
    records = np.random.default_rng(0).integers(0, 256, (5, 8, 8, 1)).astype(np.uint8)
    with torch.no_grad():
        expected = ordered.eval()(torch.from_numpy(records).float() / 255)
    assert model.logits(records) == pytest.approx(expected.double().numpy(), abs=1e-6)
