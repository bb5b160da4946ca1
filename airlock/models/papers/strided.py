"""pCDBN's network as its authors' program has it (github.com/haiphanNJIT/PrivateDeepLearning, folder pCDBN).

Two convolutions of 5 x 5 with strides of 2 and padding as in TensorFlow ("same": ceil(side / 2) positions, the
odd row of zeros behind), each with a sigmoid; no pooling. Then 25 units: affine, normalised (epsilon 1e-3, no
scale and shift, which the program never trains), rectified and cut to [0, 1]. Then linear outputs. A network is
built from `strided:32-64-25`.

While a layer is learned its hidden units are p(drive / m) cut to [0, 1], p the polynomial and m the greatest
drive of the whole batch. The answer to them is a sigmoid of the same filters (heights and widths exchanged, not
turned round) over hidden units that are blown up to the visible size, without biases.

The program normalises by the batch at hand, also when it predicts. A prediction that depends on the records
beside it has no bounded sensitivity (docs/proofs/evaluation.md#count), so predicting takes the running
statistics of training.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from airlock.models.papers import cells
from airlock.models.papers.chebyshev import Polynomial
from airlock.models.papers.networks import Shape, channels_first

SIDE, STRIDE = 5, 2
DEVIATION = 0.1
"""Of first weights: normal, drawn again beyond twice of it."""
CHUNK = 8
"""Records at a time where powers are taken, so that they stay in the cache."""


class Strided(nn.Module):
    """Layers with strides, one fully connected layer, linear outputs."""

    def __init__(self, layers: Shape, shape: Shape, classes: int) -> None:
        super().__init__()
        pairs, (height, width) = list(pairwise([shape[2], *layers[:-1]])), shape[:2]
        self.filters = nn.ParameterList(
            nn.Parameter(_drawn(groups, below, SIDE, SIDE)) for below, groups in pairs
        )
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(groups)) for _, groups in pairs)
        for _ in pairs:
            height, width = positions(height), positions(width)
        self.hidden = _linear(height * width * (layers[-2] if pairs else shape[2]), layers[-1])
        self.norm = nn.BatchNorm1d(layers[-1], eps=1e-3, affine=False)
        self.outputs = _linear(layers[-1], classes)

    def units(self, records: Tensor, depth: int) -> Tensor:
        """What layer `depth` sees, in [0, 1]: pixels, or exact sigmoids."""
        units = channels_first(records)
        for filters, bias in zip(self.filters[:depth], self.biases[:depth], strict=True):
            units = torch.sigmoid(drive(units, filters, bias))
        return units

    def flat(self, records: Tensor) -> Tensor:
        """What the fully connected units see: positions row by row, maps last, as in the program."""
        return self.units(records, len(self.filters)).permute(0, 2, 3, 1).flatten(1)

    def last(self, below: Tensor) -> Tensor:
        """The fully connected units, in [0, 1], from what is below them."""
        normal: Tensor = self.norm(self.hidden(below))
        return normal.clamp(0, 1)

    @torch.no_grad()
    def descend(self, below: Tensor, noise: Tensor, table: Tensor) -> Tensor:
        """The loss of a batch above the layers, noise on its fully connected units, summed over records and classes;
        `table` has the coefficients of degree 0, 1 and 2 of every record and class. Gradients are put in `grad`, in
        closed form, and the stored statistics move.
        """
        normal, _, spread = torch.native_batch_norm(
            self.hidden(below),
            None,
            None,
            self.norm.running_mean,
            self.norm.running_var,
            True,
            self.norm.momentum or 0.0,
            self.norm.eps,
        )
        if self.norm.num_batches_tracked is not None:
            self.norm.num_batches_tracked += 1
        units = normal.clamp(0, 1)
        noisy = units + noise
        scores = self.outputs(noisy)
        constant, linear, square = table.unbind(1)
        slope = torch.addcmul(linear, square, scores, value=2)
        _put_slopes(self.outputs, slope, noisy)
        inner = (slope @ self.outputs.weight).mul_(units == normal)
        # The batch's mean and variance move with every record.
        inner -= inner.mean(0) + normal * (inner * normal).mean(0)
        _put_slopes(self.hidden, inner.mul_(spread), below)
        return torch.addcmul(constant, linear + square * scores, scores).sum()

    def forward(self, records: Tensor) -> Tensor:
        """Scores of a batch of records in their encoded shape."""
        scores: Tensor = self.outputs(self.last(self.flat(records)))
        return scores


def _put_slopes(layer: nn.Linear, slope: Tensor, inputs: Tensor) -> None:
    """Gradients of an affine layer from those of what it gives."""
    for one in layer.parameters():
        one.grad = torch.empty_like(one) if one.grad is None else one.grad
    torch.mm(slope.T, inputs, out=layer.weight.grad)
    torch.sum(slope, 0, out=layer.bias.grad)


def _drawn(*size: int) -> Tensor:
    return nn.init.trunc_normal_(torch.empty(*size), std=DEVIATION, a=-2 * DEVIATION, b=2 * DEVIATION)


def _linear(inputs: int, outputs: int) -> nn.Linear:
    made = nn.Linear(inputs, outputs)
    with torch.no_grad():
        made.weight.copy_(_drawn(outputs, inputs))
        made.bias.zero_()
    return made


def positions(side: int) -> int:
    """How many filters of a stride fit along a side."""
    return -(-side // STRIDE)


def drive(visible: Tensor, filters: Tensor, bias: Tensor) -> Tensor:
    """Strided convolution of visible units (n, channels, height, width), plus the bias."""
    return functional.conv2d(functional.pad(visible, _padding(visible.shape)), filters, bias, stride=STRIDE)


def _padding(shape: torch.Size) -> tuple[int, int, int, int]:
    """Left, right, above, below: as evenly as it can be, the odd one behind."""
    across, down = (
        max((positions(side) - 1) * STRIDE + SIDE - side, 0) for side in (int(shape[3]), int(shape[2]))
    )
    return across // 2, across - across // 2, down // 2, down - down // 2


def activations(drives: Tensor, sigmoid: Polynomial) -> Tensor:
    """p(drive / greatest drive of the batch), cut to [0, 1]; the gradient goes through the greatest too."""
    found: Tensor = _Activations.apply(drives, sigmoid)  # type: ignore[no-untyped-call]
    return found


class _Activations(torch.autograd.Function):
    """Slopes are computed beside values, while a few records are in the cache."""

    @staticmethod
    def forward(context: Any, drives: Tensor, sigmoid: Polynomial) -> Tensor:
        greatest = drives.amax()
        normal, values = torch.empty_like(drives), torch.empty_like(drives)
        slopes = torch.empty_like(drives) if context.needs_input_grad[0] else None
        for first in range(0, len(drives), CHUNK):
            part = slice(first, first + CHUNK)
            x = torch.div(drives[part], greatest, out=normal[part])
            exact, slope = _curve(x, sigmoid, slope=slopes is not None)
            inside = torch.clamp(exact, 0, 1, out=values[part]) == exact
            if slopes is not None:
                torch.mul(slope.div_(greatest), inside, out=slopes[part])
        context.save_for_backward(normal, slopes)
        return values

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        normal, slopes = context.saved_tensors
        found = gradient * slopes
        # Where drives are the greatest: several may be, and share it.
        peaks = normal == 1
        found -= torch.where(peaks, (found * normal).sum() / peaks.sum(), 0.0)
        return found, None


def _curve(x: Tensor, sigmoid: Polynomial, *, slope: bool) -> tuple[Tensor, Tensor]:
    """A polynomial and its derivative (or nothing of use); by squares where it is odd up to a constant."""
    alphas = sigmoid.alphas
    slopes = [order * alpha for order, alpha in enumerate(alphas)][1:]
    if any(alphas[2::2]) or len(alphas) == 1:
        value = _horner(x, alphas)
        return value, _horner(x, slopes or [0.0]) if slope else value
    square = x * x
    value = _horner(square, alphas[1::2]).mul_(x).add_(alphas[0])
    return value, _horner(square, slopes[::2]) if slope else value


def _horner(x: Tensor, alphas: Sequence[float]) -> Tensor:
    value = torch.full_like(x, alphas[-1])
    for alpha in alphas[-2::-1]:
        torch.addcmul(x.new_tensor(alpha), value, x, out=value)
    return value


def answer(hidden: Tensor, filters: Tensor, size: tuple[int, int]) -> Tensor:
    """Visible units from hidden ones: nearest neighbours to the visible size, then a convolution."""
    blown = functional.interpolate(hidden, size=size, mode="nearest")
    return torch.sigmoid(functional.conv2d(blown, filters.permute(1, 0, 3, 2), padding=SIDE // 2))


def cost(visible: Tensor, filters: Tensor, bias: Tensor, first: Polynomial, second: Polynomial) -> Tensor:
    """Mean |h' - h| + mean |v' - v|: hidden units of the batch by one polynomial, those of its reconstruction
    by another.
    """
    hidden = activations(drive(visible, filters, bias), first)
    if cells.fit(visible):
        visible, again = cells.cut(visible), cells.answer(hidden, filters)
        found = activations(cells.drive(again, filters, bias), second)
    else:
        again = answer(hidden, filters, (visible.shape[2], visible.shape[3]))
        found = activations(drive(again, filters, bias), second)
    return (found - hidden).abs().mean() + (again - visible).abs().mean()


def delta(visible: Tensor, sigmoid: Polynomial) -> float:
    """The program's Delta, from a batch: filters and biases of 1, the largest sum of a map of hidden units and
    of a map of visible ones, both twice.
    """
    ones = visible.new_ones(1, visible.shape[1], SIDE, SIDE)
    hidden = activations(drive(visible, ones, visible.new_ones(1)), sigmoid)
    return 2.0 * float(hidden.sum((2, 3)).abs().max()) + 2.0 * float(visible.sum((2, 3)).abs().max())
