"""What the authors' program for colour images does to records and relevances before and after noise
(AdLM/Cifar10/cifar10_input.py and dpLRP).

What it does before the noise is done once, in the release: each image may be mirrored and has its contrast changed.
(Brightness too, there: an equal amount on all pixels, which standardising takes out again, so that it is left out.)
What comes after the noise, a square of the image, is the trainer's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.models.papers import crops
from airlock.privacy import noise

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Chunk = tuple[int, Integers, Any]
LEAST_CONTRAST, GREATEST_CONTRAST = 0.2, 1.8
RAISED, LEAST = 0.3, 0.01
"""What relevance is raised by, and the least relevance and share."""
WORDS = 2
"""Of a stream for each record."""


def distorted(chunks: Iterable[Chunk], shape: tuple[int, ...], stream: noise.Stream) -> Iterator[Chunk]:
    """The same chunks with each image mirrored or not, and its contrast changed; on the same grid."""
    for first, inputs, labels in chunks:
        draws = stream.words(WORDS * len(inputs)).reshape(-1, WORDS)
        images = inputs.reshape(-1, *shape)
        turned = np.where((draws[:, 0] & np.uint64(1))[:, None, None, None], images[:, :, ::-1], images)
        part = draws[:, 1].astype(np.float64) / 2.0**64
        contrast = LEAST_CONTRAST + (GREATEST_CONTRAST - LEAST_CONTRAST) * part[:, None, None, None]
        mean = turned.mean((1, 2), keepdims=True)
        made = np.rint((turned - mean) * contrast + mean).astype(np.int64)
        yield first, made.reshape(inputs.shape), labels


def raised(total: Integers, shape: tuple[int, ...], unit: int) -> Integers:
    """Relevance of each pixel, all channels together: rescaled by its own least and greatest, raised, and cut to
    [0, 1], of which `unit` is one.
    """
    size = np.abs(total.reshape(-1, shape[2]).mean(1))
    mean = (size - size.min()) / max(float(size.max() - size.min()), 1e-300)
    made: Integers = np.trunc(np.clip(mean + RAISED, 0, 1) * unit).astype(np.int64)
    return made


def lifted(noisy: Integers, shape: tuple[int, ...], unit: int) -> Integers:
    """The middle of the noisy relevances raised once more, and the same for each channel of a pixel."""
    pixels = noisy.reshape(shape[:2]).copy()
    pixels[crops.middle(shape)] += int(RAISED * unit)
    return np.repeat(pixels.ravel(), shape[2])


def shares(relevance: Integers, unit: int) -> Floats:
    """Beta of each input: in proportion to relevance, neither of them below a hundredth."""
    size = np.maximum(relevance / unit, LEAST)
    found: Floats = np.maximum(size / size.mean(), LEAST)
    return found
