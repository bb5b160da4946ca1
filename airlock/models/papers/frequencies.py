"""A convolution that keeps an image's size, as one small product for each pair of frequencies.

Zeros around an image of height h and a kernel of 2 r + 1 rows: on a circle of h + r rows the kernel never meets
the image from behind, so the convolution is a circular one (across alike). An orthonormal real Fourier basis turns
it into blocks of 2 x 2: a rotation for the cosine and the sine of a frequency, two signs for the frequencies that
have a cosine only. Both directions are products with fixed matrices, and for many maps they and the blocks are a
fifth of the direct convolution's multiplications.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Matrix = NDArray[np.float64]


class Frequencies(NamedTuple):
    """Fixed matrices for images of one size and kernels of one side.

    Attributes:
        down: (rows of the circle, height), along a column of the image; cosine and sine of a frequency in turn.
        across: (rows / 2, 2 columns of the circle, 2 width), along rows, for each pair that `down` makes.
        blocks: (pairs * 2 * 2, side * side), what each place of a kernel adds to the block of each pair.
    """

    down: Tensor
    across: Tensor
    blocks: Tensor

    def of_kernels(self, weight: Tensor) -> Tensor:
        """(pairs, 2 maps, 2 channels) from kernels (maps, channels, side, side)."""
        maps, channels = weight.shape[:2]
        blocks = (self.blocks @ weight.reshape(maps * channels, -1).T).reshape(-1, 2, 2, maps, channels)
        return blocks.permute(0, 1, 3, 2, 4).reshape(-1, 2 * maps, 2 * channels)

    def there(self, images: Tensor) -> Tensor:
        """(pairs, 2 channels, n) from images (height, width, channels, n)."""
        height, width, channels, count = images.shape
        columns = (self.down @ images.reshape(height, -1)).view(-1, 2 * width, channels * count)
        return torch.bmm(self.across, columns).view(-1, 2 * channels, count)

    def back(self, spectrum: Tensor) -> Tensor:
        """Images from what `there` makes: its transpose, and on the image its inverse."""
        pairs, _, width = self.across.shape
        channels, count = spectrum.shape[1] // 2, spectrum.shape[2]
        columns = torch.bmm(self.across.transpose(1, 2), spectrum.view(pairs, -1, channels * count))
        images = self.down.T @ columns.view(2 * pairs, -1)
        return images.view(self.down.shape[1], width // 2, channels, count)


@lru_cache(maxsize=8)
def frequencies(height: int, width: int, side: int, dtype: torch.dtype) -> Frequencies:
    """For images of a size and kernels of an odd side."""
    rows, columns = (_circle(length, side) for length in (height, width))
    down, alone = _cosines(rows)[:, :height], _cosines(columns)[:, :width]
    turned = np.broadcast_to(_rotations(columns)[..., :width], (rows // 2 - 1, columns, 2, 2, width))
    two = np.zeros((1, 2, columns, 2, width))
    two[0, 0, :, 0], two[0, 1, :, 1] = alone, alone
    across = np.concatenate([one.reshape(-1, 2 * columns, 2 * width) for one in (turned, two)])
    made = (down, across, _blocks(rows, columns, side))
    return Frequencies(*(torch.from_numpy(np.ascontiguousarray(one)).to(dtype) for one in made))


def _circle(length: int, side: int) -> int:
    """Long enough that a kernel does not reach round it, and even."""
    return length + side // 2 + (length + side // 2) % 2


def _cosines(size: int) -> Matrix:
    """The real Fourier basis of a circle: cosine and (negative) sine of each frequency, then those two that have no
    sine.
    """
    places = np.arange(size)
    angles = 2 * np.pi * np.outer(np.arange(1, size // 2), places) / size
    both = np.stack([np.cos(angles), -np.sin(angles)], axis=1).reshape(-1, size) * np.sqrt(2 / size)
    ends = np.stack([np.ones(size), (-1.0) ** places]) / np.sqrt(size)
    basis: Matrix = np.concatenate([both, ends])
    return basis


def _rotations(size: int) -> Matrix:
    """The complex transform of a circle in real numbers, (frequency, part, part, place)."""
    angles = 2 * np.pi * np.outer(np.arange(size), np.arange(size)) / size
    cosines, sines = np.cos(angles) / np.sqrt(size), np.sin(angles) / np.sqrt(size)
    return np.stack([np.stack([cosines, sines], 1), np.stack([-sines, cosines], 1)], 1)


def _blocks(rows: int, columns: int, side: int) -> Matrix:
    """What moving an image by each place of a kernel does to each pair of coefficients."""
    pairs = [(down, across) for down in range(1, rows // 2) for across in range(columns)]
    for down in (0, rows // 2):
        pairs += [(down, across) for across in (*range(1, columns // 2), 0)]
    steps = np.arange(side) - side // 2
    turns = np.array(pairs)[:, :, None] * steps / np.array([rows, columns])[:, None]
    angles = 2 * np.pi * (turns[:, 0, :, None] + turns[:, 1, None]).reshape(len(pairs), -1)
    cosines, sines = np.cos(angles), np.sin(angles)
    ends = np.array([down in (0, rows // 2) and across == 0 for down, across in pairs])[:, None]
    signs = np.tile((-1.0) ** steps, side)
    blocks = np.stack(
        [
            cosines,
            np.where(ends, 0, -sines),
            np.where(ends, 0, sines),
            np.where(ends, cosines * signs, cosines),
        ],
        axis=1,
    )
    return blocks.reshape(-1, side * side)
