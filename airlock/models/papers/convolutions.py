"""Six convolutions and three fully connected layers, as Xiang et al. have them for CIFAR-10 (Table II).

Widths, strides and units are not in the paper. These are ours: every second convolution halves the sides, and
the whole is small enough to be trained for 20 epochs on one core in ten minutes.
"""

from __future__ import annotations

from torch import nn

from airlock.models.papers.networks import Ordered, Shape, _width

MAPS = (16, 16, 32, 32, 64, 64)
HIDDEN_SIZES = (64, 32)


def network(shape: Shape, classes: int) -> Ordered:
    """For images of any size."""
    layers: list[nn.Module] = []
    inputs = shape[2]
    for number, maps in enumerate(MAPS):
        layers += [nn.Conv2d(inputs, maps, 3, 1 + number % 2, padding=1), nn.ReLU()]
        inputs = maps
    layers.append(nn.Flatten())
    inputs = _width(nn.Sequential(*layers), shape)
    for units in HIDDEN_SIZES:
        layers += [nn.Linear(inputs, units), nn.ReLU()]
        inputs = units
    return Ordered(nn.Sequential(*layers, nn.Linear(inputs, classes)))
