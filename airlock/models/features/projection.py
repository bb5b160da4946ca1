"""What happens to rows between passes: centre, weigh, whiten, go through neurons. Each step is built from
earlier releases only.

Steps hold integers, so that applying them is exact until a row is normalised; a null record stays zero
through all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from airlock.models.bounds import check_integers
from airlock.models.features.rows import LARGEST_EXACT, LIMIT, Rows, multiply, normalise, quantise, shift_for
from airlock.privacy.sums import clip_to_norm

WEIGHT = 2.0**9
COLUMN = 2.0**24
SYNAPSE = 2.0**12
"""The unit of a neuron's incoming weights: 2^-12."""


@dataclass(frozen=True)
class Centre:
    """Subtract a released mean, append a constant, weigh the columns, scale each row to norm 1 (the ellipsoid
    clip).

    With weights R the row is u = R h / |R h|: a point of the ellipsoid |R^-1 ...| = 1 whatever the record,
    see docs/proofs/relevance.md#weights.
    """

    centre: NDArray[np.int64]
    bias: int = 0
    weights: NDArray[np.int64] | None = None

    def __call__(self, rows: Rows, valid: NDArray[np.uint8]) -> Rows:
        width = rows.shape[1]
        centred = np.empty((len(rows), width + (self.bias != 0)))
        np.subtract(rows, self.centre.astype(np.float64), out=centred[:, :width])
        centred[:, width:] = float(self.bias)
        if self.weights is not None:
            centred *= self.weights.astype(np.float64)
        centred *= valid.astype(np.float64)[:, None]
        return normalise(centred)


@dataclass(frozen=True)
class Whiten:
    """Multiply by a released matrix, scale each row to norm 1."""

    matrix: NDArray[np.int64]
    _ready: tuple[Rows, float] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        matrix = self.matrix.astype(np.float64)
        object.__setattr__(self, "_ready", (matrix, shift_for(matrix)))

    def __call__(self, rows: Rows, valid: NDArray[np.uint8]) -> Rows:
        return normalise(multiply(rows, *self._ready))


@dataclass(frozen=True)
class Neurons:
    """A hidden layer: multiply by a released matrix, add released offsets, rectify; a row longer than LIMIT
    is shortened to it.
    """

    matrix: NDArray[np.int64]
    offset: NDArray[np.int64]

    def __post_init__(self) -> None:
        matrix = self.matrix.astype(np.float64)
        if (
            LIMIT * float(np.sqrt((matrix * matrix).sum(axis=0).max(initial=0.0))) * (1 + 2.0**-20)
            >= LARGEST_EXACT
        ):
            raise OverflowError(
                "the weights of the neurons are too large for exact products: quantise them more coarsely"
            )

    def __call__(self, rows: Rows, valid: NDArray[np.uint8]) -> Rows:
        affine = multiply(rows, self.matrix.astype(np.float64), 1 / SYNAPSE) + self.offset.astype(np.float64)
        return clip_to_norm(np.maximum(affine, 0.0) * valid.astype(np.float64)[:, None], LIMIT)


Step = Centre | Whiten | Neurons


def centre(
    total: NDArray[np.int64],
    n: int,
    *,
    bias: int = 0,
    weights: NDArray[np.float64] | None = None,
    noise: float = 0.0,
) -> Centre:
    """From a noisy sum of rows to a centring step.

    The mean of rows of norm 1 has norm at most 1, so a longer one is scaled back. Where `noise`, the deviation
    of the sum's noise, is given, the sum is shrunk by the part of its square that noise accounts for (James and
    Stein 1961): of few records in many columns noise is most of it, and would be taken off every row.
    """
    mean = total.astype(np.float64) / n
    if noise:
        square = max(float(mean @ mean) * n * n, 1.0)
        mean *= max(0.0, 1.0 - len(mean) * noise * noise / square)
    mean *= min(1.0, LIMIT / max(float(np.sqrt(mean @ mean)), 1.0))
    integers = None
    if weights is not None:
        full = np.append(weights, weights.mean()) if bias else weights
        integers = np.maximum(np.rint(full * (WEIGHT / full.max())), 1.0).astype(np.int64)
    return Centre(np.trunc(mean).astype(np.int64), bias, integers)


def whiten(gram: NDArray[np.int64], noise: float, ridge: float) -> Whiten:
    """From a noisy Gram matrix to a whitening step T = V (max(w, 0) + ridge r)^(-1/2), r = sqrt(2 p) noise.

    r is the radius of the noise's spectrum (semicircle law), so directions below it are damped rather than
    blown up.
    """
    return whitened(*eigen(gram), ridge * spectral_radius(len(gram), noise))


def whitened(values: Rows, vectors: Rows, added: float) -> Whiten:
    """The step T = V (max(w, 0) + added)^(-1/2)."""
    return Whiten(quantise(vectors * (np.maximum(values, 0.0) + added) ** -0.5, COLUMN).astype(np.int64))


def turned(first: Whiten, mean: Rows, added: float) -> Whiten:
    """A whitening step, followed by whitening by the mean of a a^T of the rows that it makes, plus `added`."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    values, vectors = eigen(mean)
    with threadpool_limits(1):
        matrix = first.matrix.astype(np.float64) @ (vectors * (np.maximum(values, 0.0) + added) ** -0.5)
    return Whiten(quantise(matrix, COLUMN).astype(np.int64))


def spectral_radius(size: int, noise: float) -> float:
    """Edge of the spectrum of symmetric noise with standard deviation `noise` on the diagonal, noise / sqrt 2
    off it.
    """
    return float(np.sqrt(2.0 * size) * noise)


def eigen(matrix: NDArray[np.int64] | NDArray[np.float64]) -> tuple[Rows, Rows]:
    """Eigenvalues and vectors, in one thread so that the bits do not depend on how many there are."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        values, vectors = np.linalg.eigh(matrix.astype(np.float64))
    return values, vectors


def steps_of(tensors: Mapping[str, NDArray[np.int64]], bias: int) -> list[Step]:
    """The steps as released: `centre`, perhaps with `weights`, perhaps followed by `whitening`, perhaps by
    `neurons` and their centre.
    """
    steps: list[Step] = [Centre(tensors["centre"], bias, tensors.get("weights"))]
    if "whitening" in tensors:
        steps.append(Whiten(tensors["whitening"]))
    if "neurons" in tensors:
        steps.append(Neurons(tensors["neurons"], tensors["neurons.offset"]))
        steps.append(
            Centre(tensors["neurons.centre"], int(tensors["neurons.bias"][0]), tensors["neurons.weights"])
        )
    return steps


def tensors_of(steps: Sequence[Step]) -> dict[str, NDArray[np.int64]]:
    """The inverse of `steps_of`."""
    tensors: dict[str, NDArray[np.int64]] = {}
    for step in steps:
        if isinstance(step, Neurons):
            tensors |= {"neurons": step.matrix, "neurons.offset": step.offset}
        elif isinstance(step, Whiten):
            tensors["whitening"] = step.matrix
        else:
            prefix = "neurons." if "neurons" in tensors else ""
            tensors[f"{prefix}centre"] = step.centre
            if step.weights is not None:
                tensors[f"{prefix}weights"] = step.weights
            if prefix:
                tensors["neurons.bias"] = np.array([step.bias], np.int64)
    return tensors


def check_steps(steps: Sequence[Step], width: int) -> int:
    """The width of rows after steps that take rows of `width`; products of their integers are exact.

    Raises:
        ValueError: a step does not fit, or its integers are too large.
    """
    for step in steps:
        if isinstance(step, Centre):
            check_integers(step.centre, (width,), LIMIT)
            width += step.bias > 0
            weights = np.ones(width, np.int64) if step.weights is None else step.weights
            check_integers(weights, (width,), 2**20)
            # |h - c| <= 2 LIMIT, and the squared norm of a weighed row must be exact.
            longest = (4 * LIMIT**2 + step.bias**2) * int(np.abs(weights).max(initial=1)) ** 2
            long = float((step.centre.astype(np.float64) ** 2).sum()) > LIMIT**2
            if type(step.bias) is not int or not 0 <= step.bias <= LIMIT or longest >= LARGEST_EXACT or long:
                raise ValueError("the centre of a model's rows is too far or weighs too much")
        else:
            check_integers(step.matrix, (width, *step.matrix.shape[1:2]))
            width = step.matrix.shape[1]
            if isinstance(step, Neurons):
                check_integers(step.offset, (width,), 2**40)
    return width
