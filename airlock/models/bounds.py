"""What tensors of a model may be: types, shapes and ranges, checked when it is loaded and so before any
record is read.

Whoever trains a model decides what is in its folder. A model that fails on some records and not on others
would answer a question about them without noise (docs/proofs/evaluation.md#count), so nothing is left to be
found out by a record.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Shape = tuple[int, ...]
LARGEST_FLOAT = 1e15
LARGEST_INTEGER = 2**52
LARGEST_SIDE = 2**16
LARGEST_RECORD = 2**24
LARGEST_CLASSES = 10_000


def check_data(kind: Any, shape: Any, labels: Any) -> None:
    """Kind of data, shape of a record and class names.

    Raises:
        ValueError: they are none.
    """
    sides = {"tabular": 1, "image": 3}.get(kind)
    if sides != len(shape) or not all(type(side) is int and 0 < side <= LARGEST_SIDE for side in shape):
        raise ValueError("a model is for tables or images of a known shape")
    if int(np.prod(shape, dtype=np.float64)) > LARGEST_RECORD:
        raise ValueError("a record of this shape is too large")
    if not 0 < len(labels) <= LARGEST_CLASSES or not all(isinstance(label, str) for label in labels):
        raise ValueError("a model names its classes")


def check_number(bounds: Any, labels: Any) -> None:
    """Bounds of a label that is a number, which is then the only one; None of classes.

    Raises:
        ValueError: they are none.
    """
    if bounds is None:
        return
    low, high = bounds
    if not all(type(end) in (int, float) and abs(end) <= LARGEST_FLOAT for end in bounds) or not low < high:
        raise ValueError("a number has two bounds, the lower one first")
    if len(labels) != 1:
        raise ValueError("a model of a number has one score")


def check_floats(value: NDArray[Any], shape: Shape) -> None:
    """Finite floating-point numbers of at most LARGEST_FLOAT.

    Raises:
        ValueError: they are not.
    """
    if value.dtype not in (np.float32, np.float64) or value.shape != shape:
        raise ValueError(f"weights of a model are floating-point numbers of shape {shape}")
    # Written so that what is not a number fails too.
    if not bool((np.abs(value) <= LARGEST_FLOAT).all()):
        raise ValueError("weights of a model are finite")


def check_integers(value: NDArray[Any], shape: Shape, largest: int = LARGEST_INTEGER) -> None:
    """64-bit integers of at most `largest`.

    Raises:
        ValueError: they are not.
    """
    if value.dtype != np.int64 or value.shape != shape:
        raise ValueError(f"released steps of a model are 64-bit integers of shape {shape}")
    if value.size and (int(value.max()) > largest or int(value.min()) < -largest):
        raise ValueError(f"released steps of a model are integers of at most {largest}")
