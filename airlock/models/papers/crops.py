"""The part of a colour image that AdLM's authors' program looks at: a square of 20 x 20, anywhere while it trains and
in the middle when it predicts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

CROP = 20


def side(shape: tuple[int, ...]) -> int:
    """Of the square: 20, or the shorter side of a smaller image."""
    return min(CROP, *shape[:2])


def middle(shape: tuple[int, ...]) -> tuple[slice, slice]:
    """Rows and columns of the square in the middle."""
    size = side(shape)
    starts = [(length - size) // 2 for length in shape[:2]]
    return slice(starts[0], starts[0] + size), slice(starts[1], starts[1] + size)


def cut(images: NDArray[Any], tops: NDArray[np.int64], lefts: NDArray[np.int64]) -> NDArray[Any]:
    """A square of each image, (n, side, side, channels)."""
    steps = np.arange(side(images.shape[1:]))
    rows, columns = tops[:, None] + steps, lefts[:, None] + steps
    found: NDArray[Any] = images[np.arange(len(images))[:, None, None], rows[:, :, None], columns[:, None, :]]
    return found
