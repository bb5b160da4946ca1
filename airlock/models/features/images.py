"""Feature maps for images: fixed, public filters; nothing is learned and nothing depends on another record.

`hog`: histograms of signed gradient orientations (Dalal and Triggs, CVPR 2005) with soft assignment
relu(cos)^3, at two scales.
`hog_tents`: the same, but what lies between two cells counts for both, by its distance: pooled under tents
instead of boxes, a row changes less when a stroke moves a little.
`gabor`: moduli of a quadrature Gabor bank at two scales, a first-order scattering transform (Bruna and Mallat
2013) with small filters.
`edges`: the channels of `hog_tents` and `gabor` side by side.
`strokes`: the same of a grey picture whose lines were shifted until what is bright in it no longer leans.
All: cells of 4 x 4 pixels, square root, each channel standardised over the cells of the one image.

Filters are integers small enough for exact float32 products, and responses are rounded down to integers
before they are pooled, so that a row does not depend on how a library orders its sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from airlock.models.features.rows import Rows, normalise

Pixels = NDArray[np.float32]
Pooled = NDArray[np.floating]
Bank = Callable[[Pixels, Pixels], list[Pooled]]
"""From pixels, and pixels halved, to pooled responses of filters, one a cell."""
Prepared = Callable[[NDArray[np.uint8]], NDArray[np.uint8]]

CELL = 4
SMALLEST_SIDE = 24
BATCH = 32
CONTRAST = 8.0
FINE_GRID, COARSE_GRID = 2**15, 2**13
"""Sum of a filter's absolute values: times the brightest pixel (255, or 1020 where four are summed) it stays
below 2^23.
"""


def hog(images: NDArray[np.uint8]) -> Rows:
    """Map (n, height, width, channels) to integer rows: mean colours, 12 fine and 8 coarse signed
    orientations in every cell.
    """
    return _in_batches(images, _orientations_in_boxes)


def hog_tents(images: NDArray[np.uint8]) -> Rows:
    """`hog`, pooled under tents that reach 5 pixels from the middle of a cell (coarse: 6)."""
    return _in_batches(images, _orientations_under_tents)


def gabor(images: NDArray[np.uint8]) -> Rows:
    """Map (n, height, width, channels) to integer rows: mean colours, 8 fine and 8 coarse Gabor moduli in
    every cell.
    """
    return _in_batches(images, _moduli_in_boxes)


def edges(images: NDArray[np.uint8]) -> Rows:
    """Mean colours, orientations under tents and Gabor moduli: the channels of `hog_tents` and `gabor`."""
    return _in_batches(images, _orientations_under_tents, _moduli_in_boxes)


def strokes(images: NDArray[np.uint8]) -> Rows:
    """`edges` of grey pictures made upright: handwriting leans by the writer, not by what is written."""
    return _in_batches(images, _orientations_under_tents, _moduli_in_boxes, first=straighten)


def straighten(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Shift every line of (n, height, width, 1) until places across and down are uncorrelated, weighed by brightness;
    by sixteenths of a pixel, at most one pixel a line.

    Sums are exact integers, all else is one rounded operation per element.
    """
    pixels = images[..., 0].astype(np.int64)
    down, across = (np.arange(side) for side in pixels.shape[1:])
    lines = pixels.sum(axis=2)
    sums = [lines.sum(axis=1), (lines * down).sum(axis=1), (pixels.sum(axis=1) * across).sum(axis=1)]
    sums += [(lines * down * down).sum(axis=1), ((pixels * across).sum(axis=2) * down).sum(axis=1)]
    mass, first, second, squares, products = (one.astype(np.float64) for one in sums)
    spread, leaning = mass * squares - first * first, mass * products - first * second
    slope = np.clip(leaning / np.where(spread > 0, spread, np.inf), -1, 1)
    shift = np.floor((down - (first / np.maximum(mass, 1))[:, None]) * slope[:, None] * 16 + 0.5).astype(
        np.int64
    )
    whole, part = (one[:, :, None] for one in np.divmod(shift, 16))
    left, right = (_pixels_at(pixels, across + whole + step) for step in (0, 1))
    made: NDArray[np.uint8] = ((left * (16 - part) + right * part + 8) // 16).astype(np.uint8)
    return made[..., None]


def _pixels_at(pixels: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.int64]:
    """The pixel at a place of each line, zero outside."""
    width = pixels.shape[2]
    found: NDArray[np.int64] = np.take_along_axis(pixels, np.clip(places, 0, width - 1), axis=2)
    found[(places < 0) | (places >= width)] = 0
    return found


def _orientations_in_boxes(pixels: Pixels, halved: Pixels) -> list[Pooled]:
    return [
        pool(_orientations(pixels, FINE_GRID, 12), CELL + 2, CELL, 1),
        pool(_orientations(halved, COARSE_GRID, 8), 4, CELL // 2, 1),
    ]


def _orientations_under_tents(pixels: Pixels, halved: Pixels) -> list[Pooled]:
    return [
        pool_tents(_orientations(pixels, FINE_GRID, 12), CELL, 5) / 16,
        pool_tents(_orientations(halved, COARSE_GRID, 8), CELL // 2, 3) / 4,
    ]


def _moduli_in_boxes(pixels: Pixels, halved: Pixels) -> list[Pooled]:
    return [
        pool(_moduli(pixels, FINE_GRID), CELL + 2, CELL, 1),
        pool(_moduli(halved, COARSE_GRID), 3, CELL // 2, 1),
    ]


def cells_down_and_across(shape: tuple[int, ...]) -> tuple[int, int]:
    """How many cells an image of `shape` = (height, width, channels) has after enlarging and padding."""
    times = _enlarging(shape[0], shape[1])
    return math.ceil(shape[0] * times / CELL), math.ceil(shape[1] * times / CELL)


def cells(shape: tuple[int, ...]) -> int:
    """Their number."""
    return math.prod(cells_down_and_across(shape))


def _enlarging(height: int, width: int) -> int:
    return math.ceil(SMALLEST_SIDE / min(height, width))


def _in_batches(images: NDArray[np.uint8], *banks: Bank, first: Prepared = np.asarray) -> Rows:
    """A few images at a time: what one batch needs stays in the processor's cache."""
    batches = (images[start : start + BATCH] for start in range(0, len(images), BATCH))
    return np.concatenate([_features(first(batch), banks) for batch in batches])


def _features(images: NDArray[np.uint8], banks: tuple[Bank, ...]) -> Rows:
    pixels = prepare(images)
    halved = pool(pixels, 2, 2, 0)
    colours = pool(opponent(pixels), CELL, CELL, 0) * np.float32(64)
    found = [pooled for bank in banks for pooled in bank(pixels, halved)]
    return standardise(np.concatenate([colours, *found]).astype(np.float64))


def prepare(images: NDArray[np.uint8]) -> Pixels:
    """To (channels, n, height, width): small images enlarged by repeating pixels, sides padded with zeros to
    whole cells.
    """
    pixels = np.moveaxis(images, 3, 0).astype(np.float32)
    times = _enlarging(*pixels.shape[2:])
    if times > 1:
        pixels = pixels.repeat(times, axis=2).repeat(times, axis=3)
    return np.pad(pixels, [(0, 0), (0, 0), (0, -pixels.shape[2] % CELL), (0, -pixels.shape[3] % CELL)])


def opponent(pixels: Pixels) -> Pixels:
    """Brightness and two colour differences, shifted to be non-negative (quarters of integers, so still
    exact); grey stays grey.
    """
    if len(pixels) != 3:
        return pixels
    red, green, blue = pixels
    return np.stack(
        [(red + green + blue) / 4, (red - green + 255) / 2, (red + green - blue - blue + 510) / 4]
    )


def _orientations(pixels: Pixels, scale: int, count: int) -> Pixels:
    """Gradient magnitude times relu(cos)^3 of the angle to each of `count` directions; of several colours the
    strongest.
    """
    along = convolve(pixels, _derivatives(scale, count))
    across, down = along[0], along[count // 4]
    inverse = np.float32(2**-5) / (across * across + down * down + np.float32(1))
    signed = np.trunc(along * along * along * inverse)
    forward = np.maximum(signed, 0)
    return np.concatenate([forward.max(axis=1), (forward - signed).max(axis=1)])


def _moduli(pixels: Pixels, scale: int) -> Pixels:
    """Moduli of the even and odd responses of each direction; of several colours the strongest."""
    filtered = convolve(pixels, _quadratures(scale))
    even, odd = filtered[0::2], filtered[1::2]
    moduli: Pixels = np.floor(np.sqrt(even * even + odd * odd) * np.float32(2**-6)).max(axis=1)
    return moduli


def convolve(pixels: Pixels, filters: NDArray[np.float32]) -> Pixels:
    """(channels, n, height, width) to (filters, channels, n, height, width), zeros outside.

    Exact: integers below 2^24 throughout.
    """
    side = math.isqrt(filters.shape[1])
    padded = np.pad(pixels, [(0, 0), (0, 0), (side // 2, side // 2), (side // 2, side // 2)])
    height, width = pixels.shape[2:]
    shifted = np.empty((side * side, *pixels.shape), np.float32)
    for index in range(side * side):
        top, left = divmod(index, side)
        shifted[index] = padded[:, :, top : top + height, left : left + width]
    return (filters @ shifted.reshape(side * side, -1)).reshape(len(filters), *pixels.shape)


def pool(channels: Pixels, size: int, stride: int, padding: int) -> Pixels:
    """Sums over windows of the last two axes.

    Exact: at most 36 integers (or quarters) that are each below 2^18.
    """
    down, across = (_windows(length, size, stride, padding) for length in channels.shape[2:])
    pooled: Pixels = down @ (channels.reshape(-1, channels.shape[3]) @ across.T).reshape(
        *channels.shape[:3], -1
    )
    return pooled


def pool_tents(channels: Pixels, stride: int, reach: int) -> Rows:
    """Weighted sums: `reach` less the distance to the middle of a cell, across and down.

    Exact: weights are halves and sum to at most 25, so sums across stay below 2^24 halves in float32; those
    down are float64.
    """
    down, across = (_tents(length, stride, reach) for length in channels.shape[2:])
    lines = (channels.reshape(-1, channels.shape[3]) @ across.T).reshape(*channels.shape[:3], -1)
    pooled: Rows = down.astype(np.float64) @ lines.astype(np.float64)
    return pooled


@lru_cache
def _windows(length: int, size: int, stride: int, padding: int) -> Pixels:
    """One row per window: ones where it lies.

    Windows reach over the edge by `padding`, where everything is zero.
    """
    starts = np.arange((length + 2 * padding - size) // stride + 1)[:, None] * stride - padding
    places = np.arange(length)[None]
    return ((places >= starts) & (places < starts + size)).astype(np.float32)


@lru_cache
def _tents(length: int, stride: int, reach: int) -> Pixels:
    """One row per cell: `reach` at its middle, falling by 1 a pixel."""
    middles = np.arange(length // stride)[:, None] * stride + (stride - 1) / 2
    tents: Pixels = np.maximum(reach - np.abs(np.arange(length)[None] - middles), 0).astype(np.float32)
    return tents


def standardise(pooled: Rows) -> Rows:
    """Square root, then mean 0 and deviation 1 over the cells of each channel of each image, then norm 1, on
    the grid.
    """
    channels, n = pooled.shape[:2]
    roots = np.floor(np.sqrt(pooled) * 16.0).reshape(channels, n, -1).transpose(1, 0, 2)
    count = roots.shape[2]
    unit = 2.0 ** -max(0, math.ceil(1.5 * math.log2(count)) + 17 - 26)
    centred = np.trunc((roots * count - roots.sum(axis=2, keepdims=True)) * unit)
    deviation = np.sqrt((centred * centred).sum(axis=2, keepdims=True) / count)
    standard = np.trunc(centred / (deviation + CONTRAST * count * unit) * 2.0**12)
    return normalise(standard.reshape(n, -1))


@lru_cache
def _derivatives(scale: int, count: int) -> NDArray[np.float32]:
    """Gaussian derivatives, deviation 0.8 pixels, in the first half of `count` directions, as integers of
    absolute sum at most `scale`.
    """
    steps = np.arange(-2, 3)
    smooth = np.exp(-(steps**2) / (2 * 0.8**2))
    slope = np.outer(smooth, -steps * smooth)
    angles = [2 * math.pi * index / count for index in range(count // 2)]
    return integers([slope * math.cos(angle) + slope.T * math.sin(angle) for angle in angles], scale)


@lru_cache
def _quadratures(scale: int) -> NDArray[np.float32]:
    """Even and odd Gabor filters in 8 directions: deviation 0.9 pixels, frequency 2.4, even ones with mean
    zero.
    """
    down, across = np.meshgrid(np.arange(-2, 3), np.arange(-2, 3), indexing="ij")
    envelope = np.exp(-(across**2 + down**2) / (2 * 0.9**2))
    envelope /= envelope.sum()
    filters = []
    for index in range(8):
        phase = 2.4 * (across * math.cos(math.pi * index / 8) + down * math.sin(math.pi * index / 8))
        even = envelope * np.cos(phase)
        filters += [even - envelope * even.sum(), envelope * np.sin(phase)]
    return integers(filters, scale)


def integers(filters: list[NDArray[np.float64]], scale: int) -> NDArray[np.float32]:
    """One common factor for all, then toward zero."""
    flat = np.stack([kernel.ravel() for kernel in filters])
    whole: Pixels = np.trunc(flat * (scale / np.abs(flat).sum(axis=1).max())).astype(np.float32)
    return whole
