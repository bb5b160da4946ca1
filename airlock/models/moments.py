"""Released moments of rows, and what follows from them: the damped degree-2 loss and its minimiser.

Post-processing of integers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.models.features.projection import eigen, spectral_radius
from airlock.models.features.rows import LIMIT
from airlock.models.numbers import HALF

Tensors = Mapping[str, NDArray[np.int64]]
PATH_POWERS = 12
"""Of a path of ridges: from 2^12 times a part of the largest eigenvalue, by halves."""
CLEANED_WIDTH, CLEANED_NOISE_LEVEL = 256, 9.0
"""Size from which, and level of noise up to which, the spectrum is cleaned instead of damped by a ridge."""


@dataclass(frozen=True)
class Moments:
    """Released moments of the rows, in units where rows have norm 1.

    Attributes:
        values, vectors: of the noisy Gram matrix.
        cross: sum of a (e_y - 1/M)^T, (size, classes); of a number sum of a t, t from -1 to 1, (size, 1).
        radius: edge of the spectrum of the Gram matrix's noise.
        n: records, which is public.
    """

    values: NDArray[np.float64]
    vectors: NDArray[np.float64]
    cross: NDArray[np.float64]
    radius: float
    n: int

    @property
    def size(self) -> int:
        return len(self.values)

    @property
    def level(self) -> float:
        """The noise's radius over n / size, the mean eigenvalue of the rows."""
        return self.radius * self.size / self.n

    def damped(self, ridge: float | None) -> NDArray[np.float64]:
        """Eigenvalues, negative ones (which can only be noise) set to zero, plus `ridge` times the noise's
        radius; without one, cleaned.
        """
        damped: NDArray[np.float64] = (
            self.cleaned() if ridge is None else np.maximum(self.values, 0.0) + ridge * self.radius
        )
        return damped

    def cleaned(self) -> NDArray[np.float64]:
        """Eigenvalues as they were before the noise, as far as can be told.

        One that lies beyond the noise's radius r came from (v + sqrt(v^2 - r^2)) / 2 (Benaych-Georges and
        Nadakuditi 2011). Of what lies within nothing can be told but that it was below r / 2, where the
        formula ends.
        """
        squares: NDArray[np.float64] = np.maximum(self.values**2 - self.radius**2, 0.0)
        return (np.maximum(self.values, self.radius) + np.sqrt(np.where(self.values > 0, squares, 0.0))) / 2

    def solve(self, right: NDArray[np.float64], ridge: float | None) -> NDArray[np.float64]:
        """(G + ridge r)^-1 right."""
        solved: NDArray[np.float64] = (self.vectors / self.damped(ridge)) @ (self.vectors.T @ right)
        return solved


def moments_of(tensors: Tensors, details: Mapping[str, Any], n: int) -> Moments:
    """From the integers of a release to moments."""
    values, vectors = eigen(tensors["gram"])
    unit = HALF if "number" in details else tensors["cross"].shape[1]
    noise = float(details["sums"]["gram"]["scale"])
    return Moments(
        values / LIMIT**2,
        vectors,
        tensors["cross"] / (LIMIT * unit),
        spectral_radius(len(values), noise) / LIMIT**2,
        n,
    )


def choose_ridge(moments: Moments, wanted: float | str) -> float:
    """How strongly to damp, from the noise level alone.

    The level is the noise's radius over n / size, the mean eigenvalue. The more noise, the more of the
    spectrum is below its radius and
    the less may be added to it: 0.45 - 0.1 ln(level), within [0.1, 0.5]. docs/mechanism.md says how the rule
    was found.
    """
    if not isinstance(wanted, str):
        return wanted
    return min(0.5, max(0.1, 0.45 - 0.1 * math.log(moments.level)))


def damping(moments: Moments, ridge: float, even: float) -> float:
    """One ridge for two: a part of the noise's radius, and a part of the rows' mean eigenvalue. Where noise is
    most of the matrix, the second keeps steps from following its eigenvectors.
    """
    return ridge + even / moments.level


def choose_damping(moments: Moments, wanted: float | str) -> float | None:
    """A ridge, or None to clean the spectrum: where it is large (cleaning rests on that) and noise does not
    cover all of it.
    """
    if wanted == "auto" and moments.size >= CLEANED_WIDTH and moments.level <= CLEANED_NOISE_LEVEL:
        return None
    return choose_ridge(moments, wanted)


def closed_form(moments: Moments, ridge: float | None) -> NDArray[np.float64]:
    """The minimiser of the released degree-2 loss: W = (G + ridge r)^-1 B."""
    return moments.solve(moments.cross, ridge)


def ridge_path(moments: Moments, ridge: float | None) -> list[tuple[int, float]]:
    """The loss per record that was minimised, along the way to the head that was taken (`path_of`)."""
    found = path_of(moments.damped(ridge), moments.vectors.T @ moments.cross)
    return [(place, value / moments.n) for place, value in found]


def path_of(damped: NDArray[np.float64], turned: NDArray[np.float64]) -> list[tuple[int, float]]:
    """The damped degree-2 loss along the way from a head that is held at zero to its minimiser: of heads of ever
    smaller ridges, the last with none but the damping itself.

    Args:
        damped: eigenvalues, as they were used.
        turned: the cross moments, in the eigenvectors.
    """
    top, points = float(damped.max()), []
    for place, strength in enumerate([*(2.0**power for power in range(PATH_POWERS, -1, -1)), 0.0]):
        weights = turned / (damped + strength * top / 2**4)[:, None]
        points.append((place, float(((damped[:, None] * weights / 2 - turned) * weights).sum())))
    return points


def loss(moments: Moments, weights: NDArray[np.float64], ridge: float | None) -> float:
    """The damped degree-2 loss per record: tr(W^T (G + ridge r) W) / 2n - <B, W> / n."""
    turned = moments.vectors.T @ weights
    quadratic = float((turned * turned * moments.damped(ridge)[:, None]).sum())
    return (quadratic / 2 - float((moments.cross * weights).sum())) / moments.n
