"""The feature map `prior-1`: patches seen through a dictionary that was learned from generated pictures alone.

Two scales: patches of 6 x 6 pixels, and of 6 x 6 pixels of the picture halved. Each is compared with the atoms of its
dictionary (integers that whiten and compare in one product), after its own mean and contrast were taken out; what
is beyond a threshold, either way, is summed over cells of the picture (Coates and Ng 2011). Roots of these sums are
standardised and turned to the principal directions that generated pictures have, each scaled by its deviation there.
Of colour pictures a row is the mean of the picture's and its mirror image's: atoms come in mirrored pairs.

No photograph and no data set was used to make the integers (`python -m bench.prior.train`). All sums are of integers
below 2^24 in float32, all else is one correctly rounded operation per element (docs/proofs/exact-sums.md#rows), so that
a row is a function of its own record.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from airlock.errors import InputError
from airlock.models.features.rows import Rows, normalise

Pixels = NDArray[np.float32]
PATCH = 6
LARGEST_SIDE, SMALLEST_SIDE = 47, 24
BATCH, TURNED = 8, 256
"""Pictures at a time: what their patches need stays in the processor's cache; many are turned by one product."""
CONTRAST = 10.0
"""Added to a patch's variance, in squared grey levels."""
UNIT = 2.0**6
"""Steps of a response; its threshold is THRESHOLD of them."""
THRESHOLD = 48.0
ROOT = 2.0**6
LARGEST_STANDARD = 127.0
LARGEST_PRODUCT = 2**24
LONGEST = 2.0**26
"""Of rows before they are scaled to norm 1: squared norms are then exact."""
GAIN, SPREAD, SCALE = 2.0**-24, 2.0**-16, 2.0**-32
"""What the integers of gains, deviations and scales are parts of."""
NAMES = ("fine", "coarse")
PLACES = (LARGEST_SIDE // 2 + 1) ** 2
"""A cell has fewer patches: a picture is cut into two by two at least."""
WEIGHTS = {"colour": "prior-1-colour.safetensors", "grey": "prior-1-grey.safetensors"}
SHA256 = {
    "colour": "da4f76187fed11ee57ebcd983d62fb4218535aecb0fc7201c387e65a58a2ee30",
    "grey": "34f177022b0a7ef294eb34ef5f71b460247114aa31ae79293b8213c7a96a5142",
}


@dataclass(frozen=True)
class Bank:
    """One scale: how its pixels are made, where patches are taken, and what they are compared with.

    Attributes:
        atoms: (patch values, atoms), integers; of colour pictures the second half are mirror images of the first.
        gain: what a response is multiplied by, beside the patch's own contrast.
        halved: pixels are sums of four.
        stride: from patch to patch.
    """

    atoms: Pixels
    gain: float
    halved: bool
    stride: int


@dataclass(frozen=True)
class Prior:
    """All integers of the map for one kind of picture.

    Attributes:
        banks: the fine and the coarse one.
        cells: rows and columns of cells that responses are summed over.
        mirrored: rows are means with those of the mirror image.
        middle, spread: of the roots of generated pictures: middles, and multipliers that make deviations steps.
        turn: (features, directions), integers.
        scale: multiplier of every direction.
        spectrum: of every direction, its part of the variance of standardised rows of generated pictures.
    """

    banks: tuple[Bank, ...]
    cells: int
    mirrored: bool
    middle: Pixels
    spread: Pixels
    turn: Pixels
    scale: NDArray[np.float64]
    spectrum: NDArray[np.float64]

    def __call__(self, images: NDArray[np.uint8]) -> Rows:
        """Map (n, height, width, channels) to integer rows."""
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

        parts = [images[start : start + TURNED] for start in range(0, len(images), TURNED)]
        # A part a core: products of a batch are too small to be shared by cores, which take twice as long then.
        with threadpool_limits(1), ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            return np.concatenate(list(pool.map(self._rows, parts)))

    def _rows(self, images: NDArray[np.uint8]) -> Rows:
        batches = [images[start : start + BATCH] for start in range(0, len(images), BATCH)]
        found = np.concatenate([self._roots(batch) for batch in batches])
        # Integers up to 127 times columns whose absolute sum is below 2^24 / 127: exact.
        turned = (standard(found, self.middle, self.spread) @ self.turn).astype(np.float64)
        turned *= self.scale
        return normalise(np.trunc(turned, out=turned))

    def _roots(self, images: NDArray[np.uint8]) -> Pixels:
        return roots(images, self.banks, self.cells, mirrored=self.mirrored)


def standard(found: Pixels, middle: Pixels, spread: Pixels) -> Pixels:
    """Roots less their middle, over their deviation, in whole steps from -127 to 127."""
    steps: Pixels = found - middle
    steps *= spread
    np.trunc(steps, out=steps)
    return np.clip(steps, -LARGEST_STANDARD, LARGEST_STANDARD, out=steps)


def roots(images: NDArray[np.uint8], banks: tuple[Bank, ...], cells: int, *, mirrored: bool) -> Pixels:
    """Square roots of mean responses in every cell, as whole numbers: (n, features)."""
    pixels = prepare(images)
    found = []
    for bank in banks:
        pooled, sizes = responses(halve(pixels) if bank.halved else pixels, bank, cells)
        if mirrored:
            half = pooled.shape[4] // 2
            pooled = pooled[..., :half] + pooled[:, :, :, ::-1, half:]
            sizes = sizes * 2
        found.append(np.floor(np.sqrt(pooled / sizes) * np.float32(ROOT)).reshape(len(images), -1))
    return np.concatenate(found, axis=1)


def prepare(images: NDArray[np.uint8]) -> Pixels:
    """To (n, height, width, channels) of sides that patches fit: small pictures enlarged by repeating pixels, large
    ones shrunk by whole factors to means of squares, rounded; sides made even, and whole squares, by repeating edges.
    """
    height, width = images.shape[1:3]
    times, factor = (
        math.ceil(SMALLEST_SIDE / min(height, width)),
        math.ceil(max(height, width) / LARGEST_SIDE),
    )
    if times > 1 and factor == 1:
        images = images.repeat(times, axis=1).repeat(times, axis=2)
        factor = math.ceil(max(images.shape[1:3]) / LARGEST_SIDE)
    whole = 2 * factor
    edges = [(0, 0), *((0, -side % whole) for side in images.shape[1:3]), (0, 0)]
    padded = np.pad(images, edges, mode="edge")
    if factor == 1:
        return padded.astype(np.float32)
    n, height, width, channels = padded.shape
    sums = padded.reshape(n, height // factor, factor, width // factor, factor, channels).sum(
        axis=(2, 4), dtype=np.int64
    )
    means: Pixels = ((sums + factor * factor // 2) // (factor * factor)).astype(np.float32)
    return means


def halve(pixels: Pixels) -> Pixels:
    """Sums of two by two."""
    sums: Pixels = pixels[:, ::2, ::2] + pixels[:, 1::2, ::2] + pixels[:, ::2, 1::2] + pixels[:, 1::2, 1::2]
    return sums


def responses(pixels: Pixels, bank: Bank, cells: int) -> tuple[Pixels, Pixels]:
    """Sums of what is beyond the threshold: (n, both ways, cells down, cells across, atoms), and how many patches each
    cell has, (cells down, cells across, 1).
    """
    patches, down, across = patches_of(pixels, bank.stride)
    contrast = contrast_of(patches, 4.0 if bank.halved else 1.0) * np.float32(bank.gain)
    # Products are below 2^24, the rest one rounding a step; whole numbers again before they are summed.
    steps = (patches.reshape(-1, patches.shape[2]) @ bank.atoms).reshape(*patches.shape[:2], -1)
    steps *= contrast[..., None]
    np.trunc(steps, out=steps)
    where, sizes = _cells(down, across, cells)
    beyond = np.maximum(steps, THRESHOLD)
    above = where @ beyond
    below = where @ np.minimum(steps, -THRESHOLD, out=beyond)
    found = np.stack([above, -below], axis=1).reshape(len(pixels), 2, cells, cells, bank.atoms.shape[1])
    return found - np.float32(THRESHOLD) * sizes, sizes


def patches_of(pixels: Pixels, stride: int) -> tuple[Pixels, int, int]:
    """All patches, (n, places, values), and how many there are down and across."""
    views = np.lib.stride_tricks.sliding_window_view(pixels, (PATCH, PATCH), axis=(1, 2))[
        :, ::stride, ::stride
    ]
    n, down, across, channels = views.shape[:4]
    ordered = views.transpose(0, 1, 2, 4, 5, 3).reshape(n, down * across, PATCH * PATCH * channels)
    return np.ascontiguousarray(ordered), down, across


def contrast_of(patches: Pixels, unit: float) -> Pixels:
    """1 / sqrt(variance + CONTRAST) of every patch whose pixels are `unit` times grey levels."""
    count = patches.shape[2]
    ones = np.ones(count, np.float32)
    # Both sums are of integers below 2^24 (of halved pixels' squares below 2^53), so exact.
    total = (patches @ ones).astype(np.float64)
    wide = patches if unit == 1.0 else patches.astype(np.float64)
    squares = ((wide * wide) @ ones.astype(wide.dtype)).astype(np.float64)
    variance = (count * squares - total * total) / (count * count * unit * unit)
    inverse: Pixels = (1.0 / (np.sqrt(variance + CONTRAST) * unit)).astype(np.float32)
    return inverse


@lru_cache
def _cells(down: int, across: int, cells: int) -> tuple[Pixels, Pixels]:
    """One row per cell, ones at the places that lie in it; and how many these are."""
    rows, columns = (_bands(length, cells) for length in (down, across))
    where = np.einsum("ah,bw->abhw", rows, columns).reshape(cells * cells, down * across)
    return where.astype(np.float32), where.sum(axis=1).reshape(cells, cells, 1).astype(np.float32)


def _bands(length: int, cells: int) -> NDArray[np.float64]:
    """Where each of `cells` equal parts of a side lies; patches in the middle of an odd side belong to both halves."""
    places = np.arange(length)
    return np.array(
        [
            (places >= part * length // cells) & (places < -(-(part + 1) * length // cells))
            for part in range(cells)
        ],
        np.float64,
    )


@lru_cache
def prior(channels: int) -> Prior:
    """The map for grey or colour pictures, its integers checked against their hash.

    Raises:
        InputError: the file is not the one this version was made with.
    """
    kind = "colour" if channels == 3 else "grey"
    path = Path(__file__).parent / WEIGHTS[kind]
    data = path.read_bytes() if path.exists() else b""
    if hashlib.sha256(data).hexdigest() != SHA256[kind]:
        raise InputError(f"{path.name} of the installed package is not whole: install airlock again")
    return of_bytes(data)


def of_bytes(data: bytes) -> Prior:
    """From the file's bytes: tensors of integers.

    Raises:
        InputError: some product would not be exact.
    """
    from safetensors.numpy import load

    told = load(data)
    banks, cells, mirrored = banks_of(told)
    turn, scale = told["turn"].astype(np.float32), told["scale"].astype(np.float64) * SCALE
    reach = max(
        float(np.abs(bank.atoms).sum(axis=0).max()) * (1020 if bank.halved else 255) for bank in banks
    )
    if max(reach, LARGEST_STANDARD * float(np.abs(turn).sum(axis=0).max())) >= LARGEST_PRODUCT:
        raise InputError("the integers of this map are too large for exact products")
    if max(_loudest(bank) for bank in banks) * PLACES >= LARGEST_PRODUCT:
        raise InputError("the responses of this map are too large for exact sums")
    if longest(turn, scale) > LONGEST:
        raise InputError("the directions of this map are too long for exact norms")
    spectrum = told["spectrum"].astype(np.float64)
    return Prior(
        banks,
        cells,
        mirrored,
        told["middle"].astype(np.float32),
        told["spread"].astype(np.float32) * np.float32(SPREAD),
        turn,
        scale,
        spectrum / spectrum.sum(),
    )


def _loudest(bank: Bank) -> float:
    """No response is larger: an atom sums to zero, so it meets a patch less its mean, over at least its deviation."""
    norms = np.sqrt((bank.atoms.astype(np.float64) ** 2).sum(axis=0))
    return float(norms.max()) * bank.gain * math.sqrt(len(bank.atoms))


def longest(turn: NDArray[np.floating], scale: NDArray[np.float64]) -> float:
    """Length that no row can pass before it is scaled to norm 1."""
    reach = LARGEST_STANDARD * np.abs(turn).sum(axis=0, dtype=np.float64) * scale
    return float(np.sqrt((reach * reach).sum()))


def banks_of(told: Mapping[str, NDArray[np.integer]]) -> tuple[tuple[Bank, ...], int, bool]:
    """The two scales, how many cells there are down and across, and whether rows are means with mirror images."""
    cells, mirrored = (int(value) for value in told["form"])
    banks = tuple(
        Bank(
            _with_mirrors(told[f"atoms.{name}"], mirrored=bool(mirrored)),
            int(gain) * GAIN,
            bool(halved),
            int(stride),
        )
        for name, (gain, halved, stride) in zip(NAMES, told["banks"], strict=True)
    )
    return banks, cells, bool(mirrored)


def _with_mirrors(atoms: NDArray[np.integer], *, mirrored: bool) -> Pixels:
    """As columns, in float32; behind them their mirror images, where the map is a mean of both."""
    found = atoms.astype(np.float32)
    if mirrored:
        square = found.reshape(len(found), PATCH, PATCH, -1)
        found = np.concatenate([found, square[:, :, ::-1].reshape(len(found), -1)])
    return np.ascontiguousarray(found.T)
