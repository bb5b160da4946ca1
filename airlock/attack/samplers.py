"""Where an attack's noise comes from: the release's own generator, or NumPy's where a billion draws are
needed.
"""

from __future__ import annotations

import hashlib
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from airlock.privacy import noise

Array = NDArray[np.float64]
Shape = tuple[int, ...]

GRID = 2.0**24
"""Draws of the release's generator are integers: one unit is 2^-24 of the law's unit."""


class Sampler(Protocol):
    """Noise for an attack. Reproducible by seed: an attack hides nothing, so unlike a release it may have
    one.
    """

    name: str
    seed: int

    def gaussian(self, scale: float, shape: Shape) -> Array:
        """Normal draws of standard deviation `scale`."""

    def laplace(self, scale: float, shape: Shape) -> Array:
        """Laplace draws of scale `scale`."""

    def sample(self, rate: float, shape: Shape) -> NDArray[np.bool_]:
        """Poisson sampling: True with probability `rate`."""


class OwnSampler:
    """The code that makes a release's noise, keyed by the seed."""

    name = "airlock"

    def __init__(self, seed: int) -> None:
        self.seed, self._calls = seed, 0

    def gaussian(self, scale: float, shape: Shape) -> Array:
        return noise.gaussian(self._stream("gaussian"), scale * GRID, shape) / GRID

    def laplace(self, scale: float, shape: Shape) -> Array:
        return noise.laplace(self._stream("laplace"), scale * GRID, shape) / GRID

    def sample(self, rate: float, shape: Shape) -> NDArray[np.bool_]:
        drawn: NDArray[np.bool_] = noise.poisson_sample(
            self._stream("sample"), rate, int(np.prod(shape))
        ).reshape(shape)
        return drawn

    def _stream(self, purpose: str) -> noise.Stream:
        """A fresh stream a call: no two calls share a word."""
        self._calls += 1
        key = hashlib.sha256(f"airlock attack {self.seed}".encode()).digest()
        return noise.Stream(
            key, release_id="attack", release_pass=self._calls, purpose=purpose, statistic=key
        )


class NumpySampler:
    """NumPy's generator: the same laws in floating point, several times faster."""

    name = "numpy"

    def __init__(self, seed: int) -> None:
        self.seed, self._generator = seed, np.random.default_rng(seed)

    def gaussian(self, scale: float, shape: Shape) -> Array:
        return self._generator.normal(0.0, scale, shape)

    def laplace(self, scale: float, shape: Shape) -> Array:
        """By inverting the tail, in place: several times as fast as the generator's own method."""
        drawn = self._generator.random(shape)
        drawn *= 2
        drawn -= 1
        sizes = np.abs(drawn)
        np.log(sizes, out=sizes)
        sizes *= -scale
        return np.copysign(sizes, drawn, out=sizes)

    def sample(self, rate: float, shape: Shape) -> NDArray[np.bool_]:
        return self._generator.random(shape) < rate

    def clipped_sum(self, reach: float, count: int, factor: float, runs: int) -> Array:
        """Sums of `count` values clip(L - reach, -reach, reach), L Laplace of scale 2 factor; only what is
        inside is drawn.

        Half of the L are below 0 and end at -reach, a part e^(-reach/factor) of the others is above 2 reach
        and ends at reach.
        """
        beyond = np.exp(-reach / factor)
        positive = self._generator.binomial(count, 0.5, runs)
        high = self._generator.binomial(positive, beyond)
        inside = positive - high
        values = -2 * factor * np.log1p(-self._generator.random(int(inside.sum())) * (1 - beyond)) - reach
        sums = np.bincount(np.repeat(np.arange(runs), inside), weights=values, minlength=runs)
        return np.asarray(sums + reach * (high - (count - positive)), dtype=np.float64)
