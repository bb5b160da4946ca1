"""Learned filters on images: exact patch moments to learn them from, and the features that they give.

A layer holds integer filters over patches of `side` x `side` units in all channels, each filter with mean
zero in every channel. Layer 1 sees the pixels; layer 2 sees the rectified responses of layer 1 (both signs),
summed over 2 x 2 units, roots taken. Responses are pooled into the cells of airlock/models/features/images.py
and standardised as there. All products are of integers below 2^24 in float32, so a row is a function of its
own record, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from airlock.models.bounds import check_data, check_integers
from airlock.models.features.features import FeatureMap
from airlock.models.features.images import (
    BATCH,
    CELL,
    COARSE_GRID,
    FINE_GRID,
    Pixels,
    cells,
    integers,
    opponent,
    pool,
    prepare,
    standardise,
)
from airlock.models.features.projection import steps_of
from airlock.models.features.rows import LIMIT, Rows, check
from airlock.models.model import Model, Tensors

Matrices = TypeVar("Matrices", NDArray[np.float64], NDArray[np.int64])
NAME = "patches-1"
SIDES = (5, 3)
"""Of the patches of layer 1 and layer 2."""
SCALES = (FINE_GRID, COARSE_GRID)
SCALE_DOWN = np.float32(2**-5)
ROUNDING_MARGIN = 1 - 2.0**-36
"""More than the rounding of a norm: what is scaled by it is not longer than LIMIT."""


@dataclass(frozen=True)
class FilterLayer:
    """Integer filters, (K, channels * side * side), of absolute sum at most SCALES[depth]."""

    filters: NDArray[np.int64]
    depth: int

    @property
    def side(self) -> int:
        return SIDES[self.depth]

    def respond(self, units: Pixels) -> Pixels:
        """Rectified responses, positive and negative parts: (2 K, n,
        height, width) of integers at most 2^18.
        """
        seen = windows(units, self.side)
        size, (n, height, width) = self.filters.shape[1], units.shape[1:]
        signed = np.trunc(
            (self.filters.astype(np.float32) @ seen.reshape(size, -1)).reshape(-1, n, height, width)
            * SCALE_DOWN
        )
        positive = np.maximum(signed, 0)
        return np.concatenate([positive, positive - signed])


def layer(filters: NDArray[np.float64], depth: int) -> FilterLayer:
    """Filters as integers: one common factor, then toward zero."""
    return FilterLayer(integers(list(filters), SCALES[depth]).astype(np.int64), depth)


def windows(units: Pixels, side: int) -> Pixels:
    """(channels, n, height, width) to (channels * side * side, n, height, width): the patch around every
    unit, zeros outside.
    """
    reach, (height, width) = side // 2, units.shape[2:]
    padded = np.pad(units, [(0, 0), (0, 0), (reach, reach), (reach, reach)])
    seen = np.empty((len(units), side * side, *units.shape[1:]), np.float32)
    for index in range(side * side):
        top, left = divmod(index, side)
        seen[:, index] = padded[:, :, top : top + height, left : left + width]
    return seen.reshape(-1, *units.shape[1:])


def units_below(pixels: Pixels, layers: Sequence[FilterLayer]) -> Pixels:
    """What the next layer sees: pixels, or pooled responses of layer 1 (integers below 2^10)."""
    for one in layers:
        pixels = np.floor(np.sqrt(pool(one.respond(pixels), 2, 2, 0)))
    return pixels


def moments(images: NDArray[np.uint8], layers: Sequence[FilterLayer] = ()) -> Rows:
    """One row a record: its patch moment S = sum of p p^T of the layer above `layers`, every channel of a
    patch with mean zero.

    S is an exact integer matrix (below 2^53 up to a million units); it is scaled to Frobenius norm LIMIT and
    truncated, and stays symmetric. A black image is zero.
    """
    return _in_batches(images, lambda few: _moments(few, layers))


def _moments(images: NDArray[np.uint8], layers: Sequence[FilterLayer]) -> Rows:
    side = SIDES[len(layers)]
    units = units_below(prepare(images), layers)
    seen = windows(units, side).reshape(len(units), side * side, len(images), -1)
    # side^2 times the deviation from the patch's mean: integers below 2^14, and so exact in float32.
    deviations = np.float32(side * side) * seen - seen.sum(axis=1, keepdims=True)
    patches = deviations.reshape(-1, *deviations.shape[2:]).transpose(1, 0, 2).astype(np.float64, order="C")
    rows = (patches @ patches.transpose(0, 2, 1)).reshape(len(patches), -1)
    # One record after the other over contiguous memory: the same bits whatever else is in the batch.
    norms = np.sqrt((rows * rows).sum(axis=1))
    scale = np.divide(LIMIT * ROUNDING_MARGIN, norms, out=np.zeros_like(norms), where=norms > 0)
    return check(np.trunc(rows * scale[:, None]))


def centred(matrices: Matrices, side: int) -> Matrices:
    """Moments (..., size, size) of patches whose channels have mean zero, from those of patches as they are,
    times side^4: exact.
    """
    area, size = side * side, matrices.shape[-1]
    blocks = matrices.reshape(*matrices.shape[:-2], size // area, area, size // area, area)
    blocks = area * blocks - blocks.sum(axis=-3, keepdims=True)
    blocks = area * blocks - blocks.sum(axis=-1, keepdims=True)
    whole: Matrices = blocks.reshape(matrices.shape)
    return whole


def channels_below(shape: tuple[int, ...], layers: Sequence[int]) -> int:
    """How many channels the layer above `layers` (given by their numbers of filters) sees."""
    return 2 * layers[-1] if layers else shape[2]


def patch_size(shape: tuple[int, ...], layers: Sequence[int]) -> int:
    """Length of a patch of the layer above `layers`."""
    return channels_below(shape, layers) * SIDES[len(layers)] ** 2


def moment_map(shape: tuple[int, ...], layers: Sequence[FilterLayer]) -> FeatureMap:
    """`moments` as a map from records to rows, so that passes over
    records are the same as for any other sum.
    """
    size = patch_size(shape, [len(one.filters) for one in layers])
    return FeatureMap("patch-moments", size * size, 0, False, partial(moments, layers=layers))


def learned(images: NDArray[np.uint8], layers: Sequence[FilterLayer]) -> Rows:
    """Map (n, height, width, channels) to integer rows: mean colours and the responses of every layer in
    every cell.
    """
    return _in_batches(images, lambda few: _learned(few, layers))


def _learned(images: NDArray[np.uint8], layers: Sequence[FilterLayer]) -> Rows:
    units = prepare(images)
    channels, cell = [pool(opponent(units), CELL, CELL, 0) * np.float32(64)], CELL
    for one in layers:
        responses = one.respond(units)
        channels.append(pool(responses, cell + 2, cell, 1))
        units, cell = np.floor(np.sqrt(pool(responses, 2, 2, 0))), cell // 2
    return standardise(np.concatenate(channels).astype(np.float64))


def width(shape: tuple[int, ...], layers: Sequence[int]) -> int:
    """Length of a row of `learned`, for layers of so many filters."""
    return cells(shape) * (shape[2] + 2 * sum(layers))


def learned_map(shape: tuple[int, ...], layers: Sequence[FilterLayer]) -> FeatureMap:
    """`learned` as a feature map."""
    return FeatureMap(
        NAME, width(shape, [len(one.filters) for one in layers]), 0, True, partial(learned, layers=layers)
    )


def _in_batches(images: NDArray[np.uint8], function: Callable[[NDArray[np.uint8]], Rows]) -> Rows:
    return np.concatenate([function(images[start : start + BATCH]) for start in range(0, len(images), BATCH)])


def tensors_of(layers: Sequence[FilterLayer]) -> dict[str, NDArray[np.int64]]:
    """For a release or a model."""
    return {f"filters{one.depth + 1}": one.filters for one in layers}


def layers_of(tensors: Mapping[str, NDArray[Any]]) -> list[FilterLayer]:
    """The inverse of `tensors_of`."""
    names = [f"filters{depth + 1}" for depth in range(len(SIDES))]
    return [FilterLayer(tensors[name], depth) for depth, name in enumerate(names) if name in tensors]


@dataclass(frozen=True)
class LearnedModel(Model):
    """A classifier on learned filters.

    Attributes:
        banks: the layers, from the bottom.
    """

    banks: Sequence[FilterLayer] = field(default_factory=list)

    @property
    def map(self) -> FeatureMap:
        return learned_map(self.shape, self.banks)

    def check(self) -> None:
        """As of every model, and the filters: their absolute sums bound every product.

        Raises:
            ValueError: this is no model.
        """
        check_data(self.kind, self.shape, self.labels)
        if self.kind != "image" or not self.banks:
            raise ValueError("learned filters are for images")
        counts = [one.filters.shape[0] for one in self.banks]
        for depth, bank in enumerate(self.banks):
            check_integers(
                bank.filters, (counts[depth], patch_size(self.shape, counts[:depth])), SCALES[depth]
            )
            if bank.depth != depth or int(np.abs(bank.filters).sum(axis=1).max(initial=0)) > SCALES[depth]:
                raise ValueError("the filters of a model are too large")
        super().check()

    def tensors(self) -> dict[str, NDArray[Any]]:
        """For model.safetensors."""
        return {**super().tensors(), **tensors_of(self.banks)}


def learned_model(document: Mapping[str, Any], tensors: Tensors) -> LearnedModel:
    """From model.json and model.safetensors."""
    dense = [
        (tensors[f"layer{index}.weight"], tensors[f"layer{index}.offset"])
        for index in range(len(document["layers"]))
    ]
    shape, labels = tuple(document["shape"]), tuple(document["labels"])
    return LearnedModel(
        NAME,
        document["kind"],
        shape,
        labels,
        steps_of(tensors, 0),
        dense,
        dict(document),
        banks=layers_of(tensors),
    )
