"""Pictures that nobody took: dead leaves with shading, stripes and noise, clouds, and random shaders.

Every batch follows from a public seed and its number by uniform draws and correctly rounded operations (add,
multiply, divide, root) alone, one element at a time, so that any machine makes the same bytes. No photograph
and no data set is looked at, here or in what is learned from these.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

SEED = "airlock prior 1"
SIDE, TIMES = 32, 2
BATCH = 64
LEAVES, FEW = 110, 8
SMALLEST, LARGEST = 1.5, 22.0
"""Radii of leaves, in pixels of the finished picture; their density falls with the third power."""
TINT = 40
OCTAVES = (2, 4, 8, 16, 32)

Array = NDArray[np.float32]


def batch(number: int) -> NDArray[np.uint8]:
    """The pictures of one number, (BATCH, SIDE, SIDE, 3): seven in ten dead leaves, the rest clouds and shaders."""
    draws = _draws(f"{SEED} {number}")
    kind = draws.random(BATCH)
    pictures = leaves(draws)
    pictures = np.where((kind < 0.15)[:, None, None, None], shaders(draws), pictures)
    pictures = np.where((kind >= 0.85)[:, None, None, None], coloured(draws, clouds(draws, 3, 1.0)), pictures)
    pictures = pictures + clouds(draws, 3, 0.5) * (np.float32(10) * uniform(draws, 1, 1, 1) ** 2)
    # Whole sixteenths from here on, so that sums do not depend on their order.
    sixteenths = np.rint(pictures * np.float32(16)).astype(np.int64)
    small = sixteenths.reshape(BATCH, SIDE, TIMES, SIDE, TIMES, 3).sum(axis=(2, 4))
    return np.clip(np.rint(contrast(draws, small) / (16 * TIMES * TIMES)), 0, 255).astype(np.uint8)


def sparse(number: int) -> NDArray[np.uint8]:
    """Grey pictures (BATCH, SIDE, SIDE, 1) of one to eight bright leaves, many of them thin, on a dark ground."""
    draws = _draws(f"{SEED} sparse {number}")
    x, y, cosine, sine, radius, narrow = leaf_places(draws, FEW)
    middle = np.float32(SIDE * TIMES / 2)
    x, y = (middle + (part - middle) * np.float32(0.6) for part in (x, y))
    narrow = narrow * np.where(uniform(draws, FEW) < 0.6, np.float32(0.3), np.float32(1))
    count = np.float32(1) + np.floor(uniform(draws) * np.float32(FEW))
    bright = np.where(
        uniform(draws, FEW) < 0.15, np.float32(0), np.float32(90) + np.float32(165) * uniform(draws, FEW)
    )
    ground = np.where(uniform(draws) < 0.8, np.float32(0), np.float32(60) * uniform(draws))
    found = np.ascontiguousarray(np.broadcast_to(ground[:, None, None], (BATCH, SIDE * TIMES, SIDE * TIMES)))
    for index, kind in enumerate(draws.random(FEW)):
        places = (part[:, index] for part in (x, y, cosine, sine, radius * np.float32(2), narrow))
        shown = inside(kind, *places) & (index < count)[:, None, None]
        found = np.where(shown, bright[:, index, None, None], found)
    sixteenths = np.rint(found * np.float32(16)).astype(np.int64)
    small = sixteenths.reshape(BATCH, SIDE, TIMES, SIDE, TIMES).sum(axis=(2, 4)) / (16.0 * TIMES * TIMES)
    seen: NDArray[np.uint8] = np.clip(np.rint(small), 0, 255).astype(np.uint8)[..., None]
    return seen


def _draws(seed: str) -> np.random.Generator:
    digest = hashlib.sha256(seed.encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))


def uniform(draws: np.random.Generator, *shape: int) -> Array:
    """Between 0 and 1, for every picture of the batch."""
    return draws.random((BATCH, *shape), dtype=np.float32)


def leaves(draws: np.random.Generator) -> Array:
    """Ellipses, boxes and triangles, one over the other, each with its own colour, shading and perhaps stripes."""
    base, reach = colours(draws, 1)[:, 0], np.float32(25) + np.float32(75) * uniform(draws, 1, 1)
    places = leaf_places(draws)
    top = np.zeros((BATCH, SIDE * TIMES, SIDE * TIMES), np.int64)
    kinds = draws.random(LEAVES)
    for index in range(1, LEAVES):
        top[inside(kinds[index], *(place[:, index] for place in places))] = index
    own = base[:, None] + (colours(draws, LEAVES) - np.float32(128)) * reach / np.float32(60)
    slopes = (uniform(draws, LEAVES, 2) - np.float32(0.5)) * np.float32(60 / (SIDE * TIMES))
    picked = [
        np.take_along_axis(part, top.reshape(BATCH, -1), 1).reshape(top.shape)
        for part in (slopes[..., 0], slopes[..., 1], *places[:4], *wave(draws))
    ]
    down, across = grid()
    shade = picked[0] * (across - SIDE) + picked[1] * (down - SIDE)
    phase = ((across - picked[2]) * picked[4] + (down - picked[3]) * picked[5]) / picked[6]
    part = (phase - np.floor(phase)) * np.float32(2) - np.float32(1)
    shade = shade + picked[7] * part * (np.float32(1) - np.abs(part)) * np.float32(4)
    painted: Array = own[np.arange(BATCH)[:, None, None], top] + shade[..., None]
    return painted


def grid() -> tuple[Array, Array]:
    """How far down and across every pixel is."""
    line = np.arange(SIDE * TIMES, dtype=np.float32)
    return line[None, :, None], line[None, None]


def leaf_places(draws: np.random.Generator, count: int = LEAVES) -> list[Array]:
    """Of every leaf: where its middle is, the direction of its axis, its radius and how narrow it is."""
    size, least = np.float32(SIDE * TIMES), np.float32(SMALLEST) + np.float32(6) * uniform(draws, 1) ** 2
    x, y = (uniform(draws, count) * size for _ in range(2))
    cosine, sine = direction(draws, count)
    radius = least / np.sqrt(1 - uniform(draws, count) * (1 - (least / np.float32(LARGEST)) ** 2))
    return [
        x,
        y,
        cosine,
        sine,
        radius * np.float32(TIMES),
        np.float32(0.35) + np.float32(0.65) * uniform(draws, count),
    ]


def inside(
    kind: float, x: Array, y: Array, cosine: Array, sine: Array, radius: Array, narrow: Array
) -> NDArray[np.bool_]:
    """Which pixels a leaf covers, picture by picture: an ellipse, a box or a triangle, in units of its radius."""
    down, across = grid()
    x, y = across - x[:, None, None], down - y[:, None, None]
    cosine, sine, narrow = ((part / radius)[:, None, None] for part in (cosine, sine, narrow * radius))
    along = x * cosine + y * sine
    aside = y * (cosine / narrow) - x * (sine / narrow)
    covered: NDArray[np.bool_]
    if kind < 0.5:
        covered = along * along + aside * aside < 1
    elif kind < 0.8:
        covered = np.maximum(np.abs(along), np.abs(aside)) < np.float32(0.85)
    else:
        covered = (along > np.float32(-0.6)) & (along + np.abs(aside) * np.float32(1.7) < 1)
    return covered


def wave(draws: np.random.Generator) -> tuple[Array, Array]:
    """Stripes: how wide, and how strong; two thirds of the leaves have none."""
    width = np.float32(3) + np.float32(9) * uniform(draws, LEAVES)
    return width, np.where(
        uniform(draws, LEAVES) < 0.33, np.float32(40) * uniform(draws, LEAVES), np.float32(0)
    )


def direction(draws: np.random.Generator, count: int) -> tuple[Array, Array]:
    """Of every leaf a cosine and a sine, without a cosine or a sine: a point of a square, scaled to length 1."""
    x, y = (uniform(draws, count) - np.float32(0.5) for _ in range(2))
    length = np.sqrt(x * x + y * y) + np.float32(1e-6)
    return x / length, y / length


def colours(draws: np.random.Generator, count: int) -> Array:
    """`count` colours a picture, (BATCH, count, 3): brightness differs more than tint."""
    grey, tint = uniform(draws, count, 1) - np.float32(0.5), uniform(draws, count, 3) - np.float32(0.5)
    return np.float32(128) + grey * np.float32(120) + tint * np.float32(TINT)


def clouds(draws: np.random.Generator, channels: int, fall: float) -> Array:
    """Noise of all sizes: random grids enlarged bilinearly, finer ones weaker, mean about 0 and deviation about 1."""
    size, total = SIDE * TIMES, np.zeros((BATCH, SIDE * TIMES, SIDE * TIMES, channels), np.float32)
    for cells in OCTAVES:
        grid = (uniform(draws, cells + 1, cells + 1, channels) - np.float32(0.5)) * np.float32(
            2 * (2 / cells) ** fall
        )
        total += enlarge(enlarge(grid, 1, size), 2, size)
    return total


def enlarge(grid: Array, axis: int, size: int) -> Array:
    """To `size` places along an axis, between the two nearest nodes."""
    cells = grid.shape[axis] - 1
    places = (np.arange(size, dtype=np.float32) + np.float32(0.5)) * np.float32(cells / size)
    low = np.floor(places).astype(np.int64)
    part = (places - low).reshape([-1 if place == axis else 1 for place in range(grid.ndim)])
    between: Array = np.take(grid, low, axis) * (1 - part) + np.take(grid, low + 1, axis) * part
    return between


def coloured(draws: np.random.Generator, field: Array) -> Array:
    """Three fields as a picture whose channels go mostly together."""
    base, reach = colours(draws, 1), (np.float32(20) + np.float32(60) * uniform(draws, 1))[:, None, None]
    together = field[..., :1] + np.float32(0.35) * (field - field[..., :1])
    return base[:, None] + reach * together


def shaders(draws: np.random.Generator) -> Array:
    """A random small program of the place: three layers of weighted sums, each folded by a triangle wave."""
    size = SIDE * TIMES
    place = (np.arange(size, dtype=np.float32) - np.float32(size / 2)) / np.float32(size / 2)
    x, y = np.broadcast_to(place[None, :, None], (BATCH, size, size)), place[None, None]
    layer = [x, x * 0 + y, np.sqrt(x * x + y * y), x * y]
    for depth in range(3):
        weights = (uniform(draws, 4, len(layer) + 1) - np.float32(0.5)) * np.float32(5 if depth == 0 else 3)
        layer = [folded(sum_of(layer, weights[:, index])) for index in range(4)]
    return coloured(draws, np.stack(layer[:3], axis=-1))


def sum_of(layer: list[Array], weights: Array) -> Array:
    """A weighted sum with an offset, from first to last."""
    total = np.broadcast_to(weights[:, -1, None, None], layer[0].shape).astype(np.float32)
    for index, one in enumerate(layer):
        total = total + weights[:, index, None, None] * one
    return total


def folded(values: Array) -> Array:
    """A triangle wave between -1 and 1."""
    half = (values + np.float32(1)) * np.float32(0.25)
    part = half - np.floor(half)
    wave: Array = np.float32(1) - np.abs(part * np.float32(4) - np.float32(2))
    return wave


def contrast(draws: np.random.Generator, pictures: NDArray[np.int64]) -> NDArray[np.float64]:
    """Each picture's own exposure: stretched or pressed around its mean."""
    mean = pictures.sum(axis=(1, 2, 3), keepdims=True) / (3.0 * SIDE * SIDE)
    stretch = (np.float32(0.5) + uniform(draws)).astype(np.float64)[:, None, None, None]
    found: NDArray[np.float64] = (pictures - mean) * stretch + mean
    return found


def grey(pictures: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The mean of the three channels, rounded."""
    means: NDArray[np.uint8] = ((pictures.sum(axis=3, keepdims=True, dtype=np.int64) + 1) // 3).astype(
        np.uint8
    )
    return means
