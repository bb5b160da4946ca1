"""Two convolutions, each rectified and pooled by maxima over 2 x 2, on a processor: what torch's own layers compute,
for more than twice as many records a second where they are trained.

Records come last, (height, width, maps, n), so that everything is a product of matrices or goes along contiguous
memory. The first convolution makes the four values that a maximum is of from one window; the second, which has many
maps below it, goes by frequencies. Biases and rectifiers come after the maxima, of which there are four times fewer.
Of values that are equal the first is the greatest, as torch has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from airlock.models.papers.frequencies import Frequencies, frequencies

CHUNK = 128
"""Records at a time: enough for the products, few enough for the cache."""


def fits(records: Tensor) -> bool:
    """Whether a batch can go this way: on a processor, sides that can be halved twice, and nobody asks for the
    gradients of the records themselves.
    """
    halved = all(side % 4 == 0 for side in records.shape[1:3])
    return halved and records.device.type == "cpu" and not records.requires_grad


def pooled(records: Tensor, first: nn.Conv2d, second: nn.Conv2d) -> Tensor:
    """What is above two convolutions that keep the size: (n, height / 4 * width / 4 * maps), maps last.

    Args:
        records: (n, height, width, channels), for which `fits` holds.
        first: of an odd side, with a bias.
        second: the same.
    """
    height, width = records.shape[1] // 2, records.shape[2] // 2
    fixed = frequencies(height, width, second.kernel_size[0], records.dtype)
    kernels = _four_kernels(first.weight), fixed.of_kernels(second.weight)
    found: Tensor = _Pooled.apply(records, fixed, kernels[0], first.bias, kernels[1], second.bias)  # type: ignore[no-untyped-call]
    return found


class _Pooled(torch.autograd.Function):
    """Chunk by chunk, there and back."""

    @staticmethod
    def forward(
        ctx: Any,
        records: Tensor,
        fixed: Frequencies,
        first: Tensor,
        first_bias: Tensor,
        second: Tensor,
        second_bias: Tensor,
    ) -> Tensor:
        """(n, values), a view of values by records."""
        shape = (records.shape[1] // 2, records.shape[2] // 2)
        ctx.pieces, ctx.fixed = [], fixed
        ctx.save_for_backward(first, second)
        for few in torch.split(records, CHUNK):
            windows = _windows(few, first.shape[1])
            values = torch.bmm(first.expand(len(windows), -1, -1), windows)
            below = _greatest(_in_windows(values), first_bias)
            spectrum = fixed.there(below.values.view(*shape, -1, len(few)))
            above = _greatest(_in_squares(fixed.back(torch.bmm(second, spectrum))), second_bias)
            ctx.pieces.append((windows, below, spectrum, above))
        return torch.cat([above.values.flatten(0, -2) for *_, above in ctx.pieces], dim=1).T

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        """Of kernels and biases."""
        first, second = ctx.saved_tensors
        sizes = (first.shape, (len(first) // 4,), second.shape, (second.shape[1] // 2,))
        sums = [first.new_zeros(size) for size in sizes]
        for (windows, below, spectrum, above), few in zip(
            ctx.pieces, torch.split(gradient, CHUNK), strict=True
        ):
            height, width, maps, count = above.values.shape
            values = few.new_empty(2 * height, 2 * width, maps, count)
            sums[3] += _give_back(few.T.reshape(above.values.shape), above, _in_squares(values))
            slopes = ctx.fixed.there(values)
            sums[2].baddbmm_(slopes, spectrum.transpose(1, 2))
            slopes = ctx.fixed.back(torch.bmm(second.transpose(1, 2), slopes))
            values = few.new_empty(len(windows), len(first), count)
            sums[1] += _give_back(slopes.view(below.values.shape), below, _in_windows(values))
            sums[0] += torch.bmm(values, windows.transpose(1, 2)).sum(0)
        ctx.pieces = None
        return None, None, *sums


def _four_kernels(weight: Tensor) -> Tensor:
    """One kernel for each of four neighbouring places, in the window that they share: (4 maps, window)."""
    moved = [functional.pad(weight, (j, 1 - j, i, 1 - i)) for i in (0, 1) for j in (0, 1)]
    return torch.cat(moved).flatten(1)


def _windows(records: Tensor, size: int) -> Tensor:
    """What the kernels of each 2 x 2 places see: (height / 2 * width / 2, size, n)."""
    side = round((size / records.shape[3]) ** 0.5)
    edge = side // 2 - 1
    images = functional.pad(records.permute(3, 1, 2, 0), (0, 0, edge, edge, edge, edge))
    seen = images.unfold(1, side, 2).unfold(2, side, 2)
    return seen.permute(1, 2, 0, 4, 5, 3).reshape(-1, size, len(records))


def _in_windows(values: Tensor) -> Sequence[Tensor]:
    """The four values of each maximum, (places, maps, n), from (places, 4 maps, n)."""
    return values.view(len(values), 4, -1, values.shape[2]).unbind(1)


def _in_squares(values: Tensor) -> Sequence[Tensor]:
    """The four values of each maximum, (height / 2, width / 2, maps, n)."""
    return [values[i::2, j::2] for i in (0, 1) for j in (0, 1)]


class _Maxima(NamedTuple):
    """Rectified maxima, and which of four values they were: 1 where the first of two is not below the other."""

    values: Tensor
    above: Tensor
    below: Tensor
    upper: Tensor


def _greatest(four: Sequence[Tensor], bias: Tensor) -> _Maxima:
    """Of four values each, which are overwritten: numbers are compared faster into numbers than into bits."""
    upper, lower = torch.maximum(four[0], four[1]), torch.maximum(four[2], four[3])
    values = torch.maximum(upper, lower).add_(bias[:, None]).clamp_min_(0)
    return _Maxima(values, four[0].ge_(four[1]), four[2].ge_(four[3]), upper.ge_(lower))


def _give_back(slopes: Tensor, maxima: _Maxima, four: Sequence[Tensor]) -> Tensor:
    """Write the slopes of the maxima to those values that they are of, zero to the others; the bias's slope."""
    slopes = slopes * maxima.values.sign()
    torch.mul(slopes, maxima.upper, out=four[1])
    torch.sub(slopes, four[1], out=four[3])
    for first, second, marks in ((four[0], four[1], maxima.above), (four[2], four[3], maxima.below)):
        torch.mul(second, marks, out=first)
        second.sub_(first)
    return slopes.flatten(0, -3).sum((0, 2))
