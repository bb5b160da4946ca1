"""The convolutional deep belief network of Phan, Wu and Dou (arXiv 1706.08839v2), and the sensitivity of its
energy (Lemma 2).

For MNIST: 32 and 64 groups of 5 x 5 filters, each followed by pooling over 2 x 2, a fully connected layer of
25 units, linear outputs. A network is built from `pcdbn:32-64-25`. Polynomials stand for the sigmoid while a
layer is learned, as in the authors' code; what a learned layer passes on are exact probabilities.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from airlock.models.papers.boltzmann import Machine, normalise, pool
from airlock.models.papers.chebyshev import Polynomial
from airlock.models.papers.networks import Shape, channels_first

if TYPE_CHECKING:
    from collections.abc import Iterator

SIDE, POOL = 5, 2


class Belief(nn.Module):
    """Machines with pooling, one fully connected layer with the sigmoid, linear outputs.

    Attributes:
        maximal: plain maxima of the probabilities are pooled (1), instead of probabilities that any unit of a
            block is on (0).
    """

    maximal: Tensor

    def __init__(self, layers: Shape, shape: Shape, classes: int) -> None:
        super().__init__()
        channels = [shape[2], *layers[:-1]]
        pairs = list(pairwise(channels))
        drawn = [
            torch.randn(groups, below, SIDE, SIDE) / (SIDE * math.sqrt(below)) for below, groups in pairs
        ]
        self.filters = nn.ParameterList(nn.Parameter(one) for one in drawn)
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(groups)) for _, groups in pairs)
        # The authors' code normalises over the batch; a network that is never trained here leaves everything
        # as it is.
        self.hidden = nn.Sequential(
            nn.Linear(_width(shape, layers), layers[-1]), nn.BatchNorm1d(layers[-1], eps=1e-3, affine=False)
        )
        self.outputs = nn.Linear(layers[-1], classes)
        self.register_buffer("maximal", torch.zeros(()))

    def machine(self, depth: int) -> Machine:
        """Layer `depth`, with visible biases of zero."""
        filters = self.filters[depth].detach()
        return Machine(filters, self.biases[depth].detach(), torch.zeros(filters.shape[1]))

    def set_machine(self, depth: int, machine: Machine) -> None:
        """Take over what was learned."""
        with torch.no_grad():
            self.filters[depth].copy_(machine.filters)
            self.biases[depth].copy_(machine.hidden)

    def units(self, records: Tensor, depth: int) -> Tensor:
        """What layer `depth` sees, in [0, 1]: pixels, or pooled units."""
        units = channels_first(records)
        for below in range(depth):
            drive = self.machine(below).drive(units)
            largest = functional.max_pool2d(torch.sigmoid(drive), POOL, ceil_mode=True)
            units = largest if float(self.maximal) else pool(drive, POOL)[1]
        return units

    def top(self, records: Tensor) -> Tensor:
        """p of the paper: the fully connected units, in [0, 1]."""
        return self.last(self.units(records, len(self.filters)).flatten(1))

    def last(self, below: Tensor) -> Tensor:
        """p from the flat units of the layer below it."""
        return torch.sigmoid(self.hidden(below))

    def forward(self, records: Tensor) -> Tensor:
        """Scores of a batch of records in their encoded shape."""
        scores: Tensor = self.outputs(self.top(records))
        return scores


def sides(shape: Shape, depth: int) -> Iterator[tuple[int, int]]:
    """Height and width of what each layer sees, and then of what the last one gives."""
    height, width = shape[0], shape[1]
    for _ in range(depth):
        yield height, width
        height, width = (-(-(side - SIDE + 1) // POOL) for side in (height, width))
    yield height, width


def _width(shape: Shape, layers: Shape) -> int:
    height, width = list(sides(shape, len(layers) - 1))[-1]
    return height * width * (layers[-2] if len(layers) > 1 else shape[2])


def brackets(units: Tensor, sigmoid: Polynomial, *, scale: float | None = None) -> Tensor:
    """What Lemma 2 takes twice the maximum of, for each record: L1 of its energy's coefficients at W = 1 and
    b = 1.

    Eqs. 15 and 16 are missing from the supplied text; this is what its proof describes
    (docs/proofs/pcdbn.md#not-proven), absolute values inside.

    Args:
        units: (n, channels, height, width).
        sigmoid: the polynomial.
        scale: a constant in the place of Z, which depends on the record.
    """
    ones = torch.ones(1, units.shape[1], SIDE, SIDE, dtype=units.dtype)
    inside = functional.conv2d(units, ones)
    argument = (inside + 1) / scale if scale else normalise((inside + 1).expand(-1, 5, -1, -1))[:, 2:3]
    value = Polynomial("absolute", tuple(abs(alpha) for alpha in sigmoid.alphas))(argument)
    bracket: Tensor = (value * (inside + 1)).sum((1, 2, 3)) + units.sum((1, 2, 3))
    return bracket


def code_delta(units: Tensor, sigmoid: Polynomial) -> float:
    """Delta as the authors' code computes it from a batch: the products of hidden and visible units are left
    out.
    """
    inside = functional.conv2d(units, torch.ones(1, units.shape[1], SIDE, SIDE, dtype=units.dtype)) + 1
    hidden = sigmoid(inside / inside.max()).clamp(0, 1)
    return 2.0 * float(hidden.sum((2, 3)).abs().max()) + 2.0 * float(units.sum((2, 3)).abs().max())


def domain_bracket(channels: int, height: int, width: int, sigmoid: Polynomial) -> float:
    """The largest bracket of any record with units in [0, 1] and arguments in [-1, 1]: all units 1, all
    arguments 1.
    """
    positions, patch = (height - SIDE + 1) * (width - SIDE + 1), channels * SIDE * SIDE
    return sigmoid.total * positions * (patch + 1) + channels * height * width


def monomials(channels: int, degree: int) -> int:
    """How many coefficients the energy of one group has: monomials of degree up to L + 1 in its weights and
    bias.
    """
    return math.comb(channels * SIDE * SIDE + 1 + degree + 1, degree + 1)
