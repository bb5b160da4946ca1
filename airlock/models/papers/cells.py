"""The two convolutions of pCDBN's program over cells of 2 x 2 visible units, where sides are even.

What a filter of 5 x 5 reads at strides of 2 lies in 3 x 3 cells; so does what an answer reads of hidden units that are
blown up to twice their size, and those of its rows and columns that meet the same unit are added before they are
multiplied. Both become convolutions of 3 x 3 without strides. The same sums in another order: equal up to rounding.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

SIDE, HALVES, REACH = 5, 2, 3


def fit(visible: Tensor) -> bool:
    """Whether visible units (n, channels, height, width) lie in whole cells."""
    return visible.shape[2] % HALVES == 0 and visible.shape[3] % HALVES == 0


def cut(visible: Tensor) -> Tensor:
    """Visible units as cells: (n, channels x 4, height / 2, width / 2)."""
    return _last(functional.pixel_unshuffle(visible, HALVES))


def drive(cells: Tensor, filters: Tensor, bias: Tensor) -> Tensor:
    """What strided.drive gives, of visible units in cells."""
    taps = torch.zeros(HALVES, REACH, SIDE)
    for row in range(SIDE):
        cell, half = divmod(row - 1, HALVES)
        taps[half, cell + 1, row] = 1
    taps = taps.to(filters)
    folded = torch.einsum("asr,btc,gvrc->gvabst", taps, taps, filters)
    return functional.conv2d(cells, _last(folded.reshape(len(filters), -1, REACH, REACH)), bias, padding=1)


def answer(hidden: Tensor, filters: Tensor) -> Tensor:
    """What strided.answer gives, in cells: half as many hidden units on a side as visible ones."""
    taps = torch.zeros(HALVES, REACH, SIDE)
    for half in range(HALVES):
        for row in range(SIDE):
            taps[half, (half + row - 2) // HALVES + 1, row] = 1
    taps = taps.to(filters)
    folded = torch.einsum("asr,btc,gvcr->vabgst", taps, taps, filters)
    return torch.sigmoid(
        functional.conv2d(hidden, _last(folded.reshape(-1, len(filters), REACH, REACH)), padding=1)
    )


def _last(tensor: Tensor) -> Tensor:
    return tensor.contiguous(memory_format=torch.channels_last)
