"""Convolutional restricted Boltzmann machines (Lee, Grosse, Ranganath and Ng, ICML 2009) in plain PyTorch.

K groups of hidden units share a filter each; `drive` is (W~ * v) + b of Eq. 5, and the visible units answer
by the full convolution of Eq. 6. Biases may depend on the record (Eqs. 23-26): every function takes
`hidden_bias` (n, K) and `visible_bias` (n, channels) beside the machine's own. Pooling is probabilistic: of
the units in a block at most one is on, and the pooled unit is on if any of them is. Nothing here reads a file
or knows where the records come from; randomness comes from a generator that the caller seeds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from airlock.models.papers.networks import Contrast

if TYPE_CHECKING:
    from airlock.models.papers.chebyshev import Polynomial


@dataclass(frozen=True)
class Machine:
    """The parameters of a machine.

    Attributes:
        filters: (K, channels, height, width).
        hidden: b, one for each group.
        visible: c, one for each channel.
    """

    filters: Tensor
    hidden: Tensor
    visible: Tensor

    def drive(self, visible: Tensor, hidden_bias: Tensor | None = None) -> Tensor:
        """(W~ * v)_ij + b, for visible units (n, channels, height, width)."""
        driven = functional.conv2d(visible, self.filters, self.hidden)
        return driven if hidden_bias is None else driven + hidden_bias[:, :, None, None]

    def answer(self, hidden: Tensor, visible_bias: Tensor | None = None) -> Tensor:
        """(sum_k W^k * h^k)_ij + c: the drive of the visible units."""
        driven = functional.conv_transpose2d(hidden, self.filters, self.visible)
        return driven if visible_bias is None else driven + visible_bias[:, :, None, None]

    def moved(self, step: Machine, rate: float) -> Machine:
        """A step of length `rate` along `step`."""
        return Machine(
            self.filters + rate * step.filters,
            self.hidden + rate * step.hidden,
            self.visible + rate * step.visible,
        )


def fresh(
    groups: int, channels: int, size: tuple[int, int], generator: torch.Generator, *, deviation: float = 0.01
) -> Machine:
    """A machine with small random filters and no biases."""
    filters = deviation * torch.randn(groups, channels, *size, generator=generator)
    return Machine(filters, torch.zeros(groups), torch.zeros(channels))


def energy(machine: Machine, visible: Tensor, hidden: Tensor) -> Tensor:
    """Eq. 4, one number a record."""
    agreement = (hidden * machine.drive(visible)).sum((1, 2, 3))
    return -agreement - (visible.sum((2, 3)) * machine.visible).sum(1)


def approximate_energy(machine: Machine, visible: Tensor, sigmoid: Polynomial) -> Tensor:
    """Eq. 14: hidden units are replaced by a polynomial in their normalised drive."""
    return energy(machine, visible, sigmoid(normalise(machine.drive(visible))))


def normalise(drive: Tensor) -> Tensor:
    """Local response normalisation, the paper's Z, into [-1, 1].

    As printed, Z = max(own, (q + alpha * sum of squares)^beta) leaves arguments below -1 to negative drives;
    |own| is what the text wants.
    """
    normal: Tensor = drive.sign() * Contrast()(drive.abs())
    return normal


def pool(drive: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Probabilities of hidden units and of pooled units; blocks of `size` x `size`, the last ones smaller
    where it does not divide.

    P(h_ij = 1 | v) = e^I_ij / (1 + sum over the block of e^I), P(p = 0 | v) = 1 / (1 + sum over the block of
    e^I).
    """
    height, width = drive.shape[2:]
    blocks = functional.unfold(_pad(drive, size).flatten(0, 1)[:, None], size, stride=size)
    largest = blocks.amax(1, keepdim=True).clamp_min(0)
    powers = (blocks - largest).exp()
    total = powers.sum(1, keepdim=True) + (-largest).exp()
    down, across = -(-height // size), -(-width // size)
    units = functional.fold(powers / total, (down * size, across * size), size, stride=size)
    pooled = 1 - ((-largest).exp() / total).reshape(*drive.shape[:2], down, across)
    return units.reshape(*drive.shape[:2], down * size, across * size)[:, :, :height, :width], pooled


def _pad(drive: Tensor, size: int) -> Tensor:
    """Up to whole blocks, with units that are never on."""
    height, width = drive.shape[2:]
    return functional.pad(drive, (0, -width % size, 0, -height % size), value=-1e9)


def sample_blocks(units: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """Hidden units drawn from `pool`'s probabilities: in every block at most one is on."""
    height, width = units.shape[2:]
    padded = functional.pad(units, (0, -width % size, 0, -height % size))
    blocks = functional.unfold(padded.flatten(0, 1)[:, None], size, stride=size)
    threshold = torch.rand(blocks.shape[0], 1, blocks.shape[2], generator=generator, dtype=units.dtype)
    above = blocks.cumsum(1)
    chosen = ((above > threshold) & (above - blocks <= threshold)).to(units.dtype)
    whole = functional.fold(chosen, (padded.shape[2], padded.shape[3]), size, stride=size)
    return whole.reshape(padded.shape)[:, :, :height, :width]


def sample(probabilities: Tensor, generator: torch.Generator) -> Tensor:
    """Independent binary units."""
    return (
        torch.rand(probabilities.shape, generator=generator, dtype=probabilities.dtype) < probabilities
    ).to(probabilities.dtype)


@dataclass(frozen=True)
class Biases:
    """Biases that depend on the record (Eqs. 25 and 26), (n, K) and (n, channels)."""

    hidden: Tensor | None = None
    visible: Tensor | None = None


@dataclass(frozen=True)
class Chain:
    """How a Markov chain moves: in blocks of `size` (1: independent hidden units), visible units binary, or
    means with Gaussian noise.
    """

    size: int = 1
    gaussian: bool = False

    def hidden(self, machine: Machine, visible: Tensor, biases: Biases) -> Tensor:
        """Probabilities of the hidden units."""
        drive = machine.drive(visible, biases.hidden)
        return torch.sigmoid(drive) if self.size == 1 else pool(drive, self.size)[0]

    def step(self, machine: Machine, visible: Tensor, generator: torch.Generator, biases: Biases) -> Tensor:
        """Hidden units given visible ones, then visible ones given hidden ones."""
        units = self.hidden(machine, visible, biases)
        on = sample(units, generator) if self.size == 1 else sample_blocks(units, self.size, generator)
        answer = machine.answer(on, biases.visible)
        if self.gaussian:
            return answer + torch.randn(answer.shape, generator=generator, dtype=answer.dtype)
        return sample(torch.sigmoid(answer), generator)


def statistics(machine: Machine, visible: Tensor, hidden: Tensor) -> Machine:
    """-dE/dparameters at these units, averaged over records: the sufficient statistics of the machine."""
    kernel = machine.filters.shape[2:]
    patches = functional.unfold(visible, kernel)
    filters = torch.einsum("nkp,ndp->kd", hidden.flatten(2), patches) / len(visible)
    return Machine(
        filters.reshape(machine.filters.shape), hidden.sum((2, 3)).mean(0), visible.sum((2, 3)).mean(0)
    )
