"""The convolutional deep belief network of Phan, Wu and Dou (arXiv 1706.08839v2), and the sensitivity of its energy (Lemma 2).

For MNIST: 32 and 64 groups of 5 x 5 filters, each followed by pooling over 2 x 2, a fully connected layer of 25 units, linear outputs.
A network is built from `pcdbn:32-64-25`. Activations go through a polynomial in the place of the sigmoid, whose (perhaps perturbed)
constants are part of the network's state.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from stages.models.boltzmann import Machine, normalise, pool
from stages.models.chebyshev import LARGEST_DEGREE, Polynomial, polynomial
from stages.models.networks import Shape, channels_first

if TYPE_CHECKING:
    from collections.abc import Iterator

SIDE, POOL = 5, 2
SMALLEST = 16


class Belief(nn.Module):
    """Machines with pooling, one fully connected layer with the sigmoid, linear outputs.

    Attributes:
        constants: alpha_0, alpha_1, ... of the activation, zeros beyond its degree.
        maximal: plain maxima of the activations are pooled (1), instead of probabilities that any unit of a block is on (0).
    """

    constants: Tensor
    maximal: Tensor

    def __init__(self, layers: Shape, shape: Shape, classes: int) -> None:
        super().__init__()
        channels = [shape[2], *layers[:-1]]
        pairs = list(pairwise(channels))
        self.filters = nn.ParameterList(nn.Parameter(0.1 * torch.randn(groups, below, SIDE, SIDE)) for below, groups in pairs)
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(groups)) for _, groups in pairs)
        self.hidden = nn.Linear(_width(shape, layers), layers[-1])
        self.outputs = nn.Linear(layers[-1], classes)
        self.register_buffer("constants", torch.zeros(LARGEST_DEGREE + 1))
        self.register_buffer("maximal", torch.zeros(()))
        self.set_activation(polynomial("chebyshev-7").alphas)

    def set_activation(self, alphas: Sequence[float]) -> None:
        """Another polynomial for the hidden units."""
        self.constants.zero_()[: len(alphas)] = torch.tensor(alphas)

    @property
    def activation(self) -> Polynomial:
        last = int(torch.nonzero(self.constants).max())
        return Polynomial("state", tuple(self.constants[: last + 1].tolist()))

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
        units, activation = channels_first(records), self.activation
        for below in range(depth):
            drive = self.machine(below).drive(units)
            if float(self.maximal):
                units = functional.max_pool2d(activation(normalise(drive)), POOL, ceil_mode=True).clamp(0, 1)
            else:
                units = pool(drive, POOL)[1]
        return units

    def top(self, records: Tensor) -> Tensor:
        """p of the paper: the fully connected units, in [0, 1]."""
        below = self.units(records, len(self.filters)).flatten(1)
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
    """What Lemma 2 takes twice the maximum of, for each record: L1 of its energy's coefficients at W = 1 and b = 1.

    Eqs. 15 and 16 are missing from the supplied text; this is what its proof describes (MECHANISMS.md 4a), absolute values inside.

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


def domain_bracket(channels: int, height: int, width: int, sigmoid: Polynomial) -> float:
    """The largest bracket of any record with units in [0, 1] and arguments in [-1, 1]: all units 1, all arguments 1."""
    positions, patch = (height - SIDE + 1) * (width - SIDE + 1), channels * SIDE * SIDE
    return sigmoid.total * positions * (patch + 1) + channels * height * width


def monomials(channels: int, degree: int) -> int:
    """How many coefficients the energy of one group has: monomials of degree up to L + 1 in its weights and bias."""
    return math.comb(channels * SIDE * SIDE + 1 + degree + 1, degree + 1)
