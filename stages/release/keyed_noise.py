"""The randomness of one release: its key and its id, and a stream for every pass, purpose and sum."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from airlock.privacy import noise

ROUNDING_FACTOR = 1 + 1e-9
"""A little more noise than the proofs ask for, against the rounding of scales and shares."""
UNIT_GRID = 2.0**24


@dataclass(frozen=True)
class KeyedNoise:
    """Draws that only the holder of the key can tell from random ones; the same questions, the same draws."""

    key: bytes
    release_id: str

    def named_stream(self, release_pass: int, purpose: str, statistic: bytes = bytes(32)) -> noise.Stream:
        """A stream of this release.

        Args:
            release_pass: in which pass it is drawn.
            purpose: what for.
            statistic: SHA-256 of what it is added to, so that no stream serves two sums.
        """
        return noise.Stream(
            self.key,
            release_id=self.release_id,
            release_pass=release_pass,
            purpose=purpose,
            statistic=statistic,
        )

    def add_laplace(
        self,
        exact: NDArray[np.int64],
        scales: NDArray[np.float64] | float,
        *,
        release_pass: int,
        purpose: str,
    ) -> NDArray[np.int64]:
        """Exact integers plus Laplace noise on the grid; `scales`, in grid units, may differ from column to
        column.
        """
        if isinstance(scales, float):
            return noise.add_noise(
                exact,
                key=self.key,
                release_id=self.release_id,
                release_pass=release_pass,
                purpose=purpose,
                scale=scales * ROUNDING_FACTOR,
                form="laplace",
            )
        return noise.add_laplace_by_column(
            exact,
            key=self.key,
            release_id=self.release_id,
            release_pass=release_pass,
            purpose=purpose,
            scales=scales,
            above=ROUNDING_FACTOR,
        )

    def unit_laplace(self, step: int, purpose: str, count: int, about: bytes = b"") -> NDArray[np.float64]:
        """Draws of scale 1, tied by `about` to what is perturbed."""
        stream = self.named_stream(step + 1, purpose, hashlib.sha256(about).digest())
        return noise.laplace(stream, UNIT_GRID, count) / UNIT_GRID
