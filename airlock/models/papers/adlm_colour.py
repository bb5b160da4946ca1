"""AdLM's network for colour images as its authors' program has it (github.com/haiphanNJIT/PrivateDeepLearning,
AdLM/Cifar10), which shares little with the paper's and with the program for grey images.

A square of 20 x 20 (airlock/models/papers/crops.py), made to mean 0 and deviation 1 by itself. Three convolutions,
each rectified and then normalised: 3 x 3 with strides of 2 (128 maps), 5 x 5 (128 maps), 5 x 5 (256 maps) over the
maps of both before, normalised once more together. Means over 2 x 2. 30 units: affine, batch normalisation, cut to
[-1, 1] while it trains and not when it predicts, no rectifier (the program's `max_out` is of one value each). Linear
outputs.

Places come first and records last, (places, maps, n), so that everything is a product of matrices; convolutions
that keep the size go by frequencies. The program normalises by the batch at hand, also when it predicts; here a
prediction takes the running statistics of training (airlock/models/papers/adlm_program.py says why).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from airlock.models.papers import crops, taylor
from airlock.models.papers.frequencies import Frequencies, frequencies
from airlock.models.papers.networks import Shape

SIDES, MAPS, UNITS, STRIDE = (3, 5, 5), (128, 128, 256), 30, 2
EPSILON, DECAY = 1e-3, 0.004
FIRST_BIASES, LAST_DEVIATION, LAST_BIAS = (0.0, 0.1, 0.1), 0.04, 0.1


class AdlmColour(nn.Module):
    """Three convolutions, the third over the first two, one fully connected layer, linear outputs."""

    def __init__(self, shape: Shape, classes: int) -> None:
        super().__init__()
        self.shape = tuple(shape)
        inputs = (shape[2], MAPS[0], MAPS[0] + MAPS[1])
        self.first, self.second, self.third = (
            nn.Conv2d(below, maps, side) for below, maps, side in zip(inputs, MAPS, SIDES, strict=True)
        )
        self.norms = nn.ModuleList(nn.BatchNorm1d(maps, eps=EPSILON) for maps in (*inputs[1:], MAPS[2]))
        self.side = -(-crops.side(self.shape) // STRIDE)
        self.last = nn.Linear((self.side // 2) ** 2 * MAPS[2], UNITS)
        self.norm = nn.BatchNorm1d(UNITS, eps=EPSILON)
        self.outputs = nn.Linear(UNITS, classes)
        for layer, bias in zip((self.first, self.second, self.third), FIRST_BIASES, strict=True):
            nn.init.xavier_uniform_(layer.weight)
            _fill(layer.bias, bias)
        for top, deviation, bias in ((self.last, LAST_DEVIATION, LAST_BIAS), (self.outputs, 1 / UNITS, 0.0)):
            nn.init.trunc_normal_(top.weight, std=deviation, a=-2 * deviation, b=2 * deviation)
            _fill(top.bias, bias)

    def below(self, records: Tensor) -> Tensor:
        """What the 30 units see, from squares of images with values in [0, 1]."""
        lowest = self.norms[0](_strided(standardised(2 * records - 1), self.first))
        fixed = _on(frequencies(self.side, self.side, SIDES[1], records.dtype), records.device)
        both = torch.cat([self._same(lowest, self.second, fixed), lowest], dim=1)
        highest = self.norms[2](self._same(self.norms[1](both), self.third, fixed))
        half = self.side // 2
        places = highest.view(self.side, self.side, *highest.shape[1:])[: 2 * half, : 2 * half]
        pooled: Tensor = places.reshape(half, 2, half, 2, *highest.shape[1:]).mean((1, 3))
        return pooled.flatten(0, 2).T

    def _same(self, hidden: Tensor, layer: nn.Conv2d, fixed: Frequencies) -> Tensor:
        """A convolution that keeps the size, rectified."""
        images = hidden.view(self.side, self.side, *hidden.shape[1:])
        found = fixed.back(torch.bmm(fixed.of_kernels(layer.weight), fixed.there(images)))
        return _rectified(found.flatten(0, 1), layer)

    def units(self, records: Tensor) -> Tensor:
        """The 30 units; in [-1, 1] while it trains."""
        found: Tensor = self.norm(self.last(self.below(records)))
        return found.clamp(-1, 1) if self.training else found

    def forward(self, records: Tensor) -> Tensor:
        """Scores of a batch of records in their encoded shape, or of squares of them."""
        rows, columns = crops.middle(tuple(records.shape[1:]))
        scores: Tensor = self.outputs(self.units(records[:, rows, columns]))
        return scores


def standardised(images: Tensor) -> Tensor:
    """Each by its own mean and deviation, which counts as one over the root of its values at least."""
    flat = images.flatten(1)
    deviation = flat.std(1, correction=0).clamp_min(flat.shape[1] ** -0.5)
    return ((flat - flat.mean(1, keepdim=True)) / deviation[:, None]).view(images.shape)


def _strided(images: Tensor, layer: nn.Conv2d) -> Tensor:
    """The first convolution, rectified: (places, maps, n). Zeros around, the odd one behind."""
    side, edges = layer.kernel_size[0], list[int]()
    for length in (images.shape[2], images.shape[1]):
        around = max((-(-length // STRIDE) - 1) * STRIDE + side - length, 0)
        edges += [around // 2, around - around // 2]
    padded = functional.pad(images.permute(0, 3, 1, 2), edges)
    seen = padded.unfold(2, side, STRIDE).unfold(3, side, STRIDE)
    windows = seen.permute(2, 3, 1, 4, 5, 0).reshape(seen.shape[2] * seen.shape[3], -1, len(images))
    return _rectified(torch.bmm(layer.weight.flatten(1).expand(len(windows), -1, -1), windows), layer)


def _rectified(affine: Tensor, layer: nn.Conv2d) -> Tensor:
    """(places, maps, n) with a bias."""
    assert layer.bias is not None
    return functional.relu(affine + layer.bias[:, None])


def _fill(bias: Tensor | None, value: float) -> None:
    assert bias is not None
    nn.init.constant_(bias, value)


def _on(fixed: Frequencies, device: torch.device) -> Frequencies:
    return fixed if device.type == "cpu" else Frequencies(*(one.to(device) for one in fixed))


def loss(network: AdlmColour, records: Tensor, table: Tensor, label_noise: Tensor) -> Tensor:
    """What the program minimises: the degree-2 loss, a mean over records and classes; the mean *size* of label
    noise times output weights, so that the noise draws weights to zero; and a decay of the 30 units' weights.

    Args:
        network: being trained.
        records: squares of the perturbed images of one batch.
        table: (n, 3, M), the coefficients of their losses.
        label_noise: (units, M), one matrix for the whole training.
    """
    scores = network(records)
    mean: Tensor = taylor.polynomial(scores, table).sum() / scores.numel()
    noise = (label_noise.T * network.outputs.weight).abs().mean()
    decay: Tensor = network.last.weight.square().sum() * (DECAY / 2)
    return mean + noise + decay
