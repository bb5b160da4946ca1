"""Networks whose neurons carry a constant offset, and what each neuron contributes (neuron noise injection,
Eqs. 3-21).

Tables: hidden layers with rectifiers. Images: 3x3 convolutions of 32 and 64 maps, each halved by pooling,
then hidden layers, the first of which is batch-normalised. Widths of hidden layers and sizes of kernels are
not in the paper.
"""

from __future__ import annotations

from itertools import pairwise
from math import prod

import torch
from torch import Tensor, nn

from airlock.models.lrp import relevances
from airlock.models.papers.networks import Ordered, Shape, channels_first

MAPS = (32, 64)


class Offset(nn.Module):
    """omega + delta: a constant on every neuron of a layer, the same for every record.

    Zero until it is set.
    """

    noise: Tensor

    def __init__(self, *neurons: int) -> None:
        super().__init__()
        self.register_buffer("noise", torch.zeros(neurons))

    def forward(self, affine: Tensor) -> Tensor:
        """Before the rectifier (Eq. 21)."""
        return affine + self.noise


def network(hidden: Shape, shape: Shape, classes: int) -> Ordered:
    """The paper's network for tables (three hidden layers) or for images (two)."""
    image = len(shape) == 3
    layers: list[nn.Module] = []
    for number, (inputs, maps) in enumerate(pairwise((shape[2], *MAPS)) if image else ()):
        sides = (shape[0] >> number, shape[1] >> number)
        layers += [nn.Conv2d(inputs, maps, 3, padding=1), Offset(maps, *sides), nn.ReLU(), nn.MaxPool2d(2)]
    layers.append(nn.Flatten())
    width = MAPS[-1] * (shape[0] >> 2) * (shape[1] >> 2) if image else prod(shape)
    for number, (inputs, outputs) in enumerate(pairwise((width, *hidden))):
        layers += [nn.Linear(inputs, outputs), Offset(outputs), nn.ReLU()]
        layers += [nn.BatchNorm1d(outputs)] if image and not number else []
    return Ordered(nn.Sequential(*layers, nn.Linear(hidden[-1], classes), Offset(classes)))


def offsets(ordered: Ordered) -> list[Offset]:
    """One a layer of neurons, from the first to the output."""
    return [layer for layer in ordered.layers if isinstance(layer, Offset)]


def contributions(ordered: Ordered, records: Tensor, *, stabiliser: float) -> list[Tensor]:
    """Cr of every neuron of every layer for each record (Eqs. 4-15), buffered layer by layer (Sec. 3.3).

    A neuron's ratio is the relevance of its activation, which is that of an input to the layers above it. The
    output layer's is F: the largest output, and 0 for the others. Offsets are left out: ratios come from a
    network before it has noise.
    """
    layers = [layer for layer in ordered.layers if not isinstance(layer, Offset)]
    activations, found = channels_first(records), []
    for place, layer in enumerate(layers):
        with torch.no_grad():
            activations = layer.eval()(activations)
        if isinstance(layer, nn.ReLU):
            found.append(relevances(nn.Sequential(*layers[place + 1 :]), activations, stabiliser=stabiliser))
    largest = activations == activations.amax(1, keepdim=True)
    return [*found, torch.where(largest, activations, 0.0)]
