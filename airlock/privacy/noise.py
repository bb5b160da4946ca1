"""Keyed noise on the integer grid: the continuous Gaussian or Laplace law, rounded to the nearest integer.

A draw is the inverse of the law's tail at a keyed uniform number, written with as many bits as the answer
needs: 64 bits and floating point decide nearly every draw; the few whose interval touches a rounding boundary
(within a bound on the floating-point error) are decided in high precision with 512 further keyed bits.
docs/proofs/noise-on-the-grid.md#sampler has the argument and its assumptions.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from airlock.privacy.rounding import root_above

Integers = NDArray[np.int64]
Words = NDArray[np.uint64]
Shape = int | tuple[int, ...]

# log2 of the statistical distance of one draw from its law, for uniform bits: 575 bits of a tail probability
# leave a draw undecided with probability below (number of boundaries) * 2^-575, and |draw| < 2^54 but for
# 2^-575.
LOG2_DISTANCE = -500.0
# Beyond this the float estimate of a draw may be off by many grid steps and nothing would be decided quickly:
# use a coarser grid.
MAX_SCALE = 2.0**48
# Error of the float estimate, in units of scale * (1 + |x|): 8 times the worst found among adversarial words
# (see the tests).
FLOAT_ERROR = 2.0**-48
EXTRA_BITS = 512
# Of 2^53 places of a uniform number: below it a Gaussian float is far out, and its place is divided further.
FAR = 2**20
CHUNK = 2**17
# The ChaCha20 block counter has 32 bits, a block 8 words.
MAX_WORDS = 2**35


class Stream:
    """Uniform 64-bit words that only the holder of `key` can tell from random ones.

    Args:
        key: the release's noise key, 32 bytes.
        release_id: of the release that the noise is for.
        release_pass: which pass over the records.
        purpose: what is drawn, for example "gram".
        statistic: SHA-256 of the exact sum and the scale (see `digest`), so that a changed sum never meets
            the same noise.
    """

    def __init__(
        self, key: bytes, *, release_id: str, release_pass: int, purpose: str, statistic: bytes
    ) -> None:
        if len(key) != 32 or len(statistic) != 32:
            raise ValueError(
                f"a noise key and a statistic's digest have 32 bytes, got {len(key)} and {len(statistic)}"
            )
        label = json.dumps(["airlock noise 1", release_id, release_pass, purpose, statistic.hex()]).encode()
        secret = HKDF(hashes.SHA256(), 64, salt=None, info=label).derive(key)
        self._keystream = Cipher(algorithms.ChaCha20(secret[:32], bytes(16)), mode=None).encryptor()
        self._extra_key = secret[32:]
        self.position = 0

    def words(self, count: int) -> Words:
        """The next `count` words."""
        self.position += count
        if self.position > MAX_WORDS:
            raise ValueError(f"a noise stream has {MAX_WORDS} words: divide the release into more purposes")
        return np.frombuffer(self._keystream.update(bytes(8 * count)), dtype="<u8").astype(
            np.uint64, copy=False
        )

    def extra_bits(self, index: int) -> int:
        """512 further bits that belong to the word at `index`."""
        return int.from_bytes(hmac.digest(self._extra_key, index.to_bytes(8, "little"), "sha512"), "big")


@dataclass(frozen=True)
class _Law:
    """A symmetric law of unit scale: |x| at tail probability v by floats, and the tail probability at |x| in
    high precision.
    """

    quantile: Callable[[Any], Any]
    tail: Callable[[Any], Any]


def gaussian(stream: Stream, scale: float, shape: Shape) -> Integers:
    """The Gaussian law of standard deviation `scale` (in grid units), rounded to integers."""
    import mpmath
    from scipy.special import ndtri

    return _draw(
        stream, scale, shape, _Law(lambda v: -ndtri(v / 2), lambda x: mpmath.erfc(x / mpmath.sqrt(2)))
    )


def laplace(stream: Stream, scale: float, shape: Shape) -> Integers:
    """The Laplace law of scale `scale` (density exp(-|t|/scale) / (2 scale), in grid units), rounded to
    integers.
    """
    import mpmath

    return _draw(stream, scale, shape, _Law(lambda v: -np.log(v), lambda x: mpmath.exp(-x)))


def symmetric_gaussian(stream: Stream, scale: float, size: int) -> Integers:
    """A symmetric matrix: diagonal of standard deviation `scale`, each pair off it drawn once with scale /
    sqrt 2 (rounded up).

    In Frobenius geometry this noise is isotropic: a shift D costs
    sum_i D_ii^2 / scale^2 + sum_{i<j} D_ij^2 / (scale^2 / 2) = |D|_F^2 / scale^2.
    """
    matrix = np.diag(gaussian(stream, scale, size))
    upper = np.triu_indices(size, 1)
    matrix[upper] = gaussian(stream, root_above(Fraction(scale) ** 2 / 2), len(upper[0]))
    matrix.T[upper] = matrix[upper]
    return matrix


def digest(total: Integers, scale: float, form: str) -> bytes:
    """SHA-256 of an exact sum (shape and values), the scale and the form of its noise."""
    head = json.dumps([form, list(total.shape), float(scale).hex()]).encode()
    return hashlib.sha256(
        len(head).to_bytes(8, "little") + head + np.ascontiguousarray(total, dtype="<i8").tobytes()
    ).digest()


def add_noise(
    total: Integers,
    *,
    key: bytes,
    release_id: str,
    release_pass: int,
    purpose: str,
    scale: float,
    form: str = "gaussian",
) -> Integers:
    """An exact integer sum plus its keyed noise.

    Args:
        total: the sum, int64.
        key, release_id, release_pass, purpose: see `Stream`.
        scale: of the noise, in grid units.
        form: "gaussian", "laplace" or "symmetric-gaussian" (for a symmetric matrix).
    """
    if total.dtype != np.int64:
        raise ValueError(f"noise is added to int64 sums, got {total.dtype}")
    stream = Stream(
        key,
        release_id=release_id,
        release_pass=release_pass,
        purpose=purpose,
        statistic=digest(total, scale, form),
    )
    if form == "symmetric-gaussian":
        if total.ndim != 2 or not np.array_equal(total, total.T):
            raise ValueError("symmetric noise needs a symmetric matrix")
        noise = symmetric_gaussian(stream, scale, len(total))
    else:
        noise = {"gaussian": gaussian, "laplace": laplace}[form](stream, scale, total.shape)
    if np.abs(total).max(initial=0) > 2**62 or np.abs(noise).max(initial=0) > 2**62:
        raise ValueError("the sum is too large for 64-bit integers: use a coarser grid")
    return total + noise


def add_laplace_by_column(
    total: Integers,
    *,
    key: bytes,
    release_id: str,
    release_pass: int,
    purpose: str,
    scales: NDArray[np.float64],
    above: float = 1.0,
) -> Integers:
    """Exact integers plus keyed Laplace noise, `above` times a
    scale of each column's own; see `add_noise`.

    Raises:
        ValueError: there are more columns than scales, or fewer: some would share their noise.
    """
    if total.ndim != 2 or scales.shape != total.shape[1:]:
        raise ValueError(f"noise by column needs a scale for each of {total.shape[1:]}, got {scales.shape}")
    statistic = digest(total, float(np.sum(scales)), "laplace by column")
    stream = Stream(
        key, release_id=release_id, release_pass=release_pass, purpose=purpose, statistic=statistic
    )
    return total + laplace_by_column(stream, scales * above, len(total))


def laplace_by_column(stream: Stream, scales: NDArray[np.float64], rows: int) -> Integers:
    """Laplace draws, a scale for each column."""
    drawn = [laplace(stream, float(scale), rows) for scale in scales]
    return np.stack(drawn, axis=1) if drawn else np.empty((rows, 0), np.int64)


def float_gaussian_for(
    total: NDArray[np.floating[Any]], scale: float | NDArray[np.float64], stream: Stream
) -> NDArray[np.float64]:
    """Standard normal floats for a sum that gets `scale` times them.

    The sum and the scale do not shape the draw (the stream is keyed by the sum). They are named because noise
    is drawn here and nowhere else for interactive mechanisms: an attack asks here what the neighbouring
    data set would have needed (attack/replay.py).
    """
    return float_gaussian(stream, total.shape)


def float_gaussian(stream: Stream, shape: Shape) -> NDArray[np.float64]:
    """Standard normal floats, for mechanisms whose arithmetic is idealised (never for an exact release).

    Two at a time by Box and Muller: interactive mechanisms draw millions, and the quantile function takes
    four times as long. A radius beyond 6.7 deviations has 512 further bits, so that the tail is as fine as
    the rest and ends at 28 deviations, not at the 8.6 of 53 bits.
    """
    count, first = math.prod(shape) if isinstance(shape, tuple) else shape, stream.position
    places = stream.words(count + count % 2) >> np.uint64(11)
    uniform = places.astype(np.float64)
    uniform += 0.5
    uniform *= 2.0**-53
    half = len(uniform) // 2
    radius, angle = np.sqrt(-2 * np.log(uniform[:half])), 2 * math.pi * uniform[half:]
    for index in np.flatnonzero(places[:half] < FAR):
        bits = (int(places[index]) << EXTRA_BITS) + stream.extra_bits(first + int(index))
        radius[index] = math.sqrt(2 * ((54 + EXTRA_BITS) * math.log(2) - math.log(2 * bits + 1)))
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count].reshape(shape)


def poisson_sample(stream: Stream, rate: float, count: int) -> NDArray[np.bool_]:
    """Which of `count` records are in a Poisson sample: each independently, with exactly the probability
    `rate` (to 2^-576).
    """
    if not 0 <= rate <= 1:
        raise ValueError(f"a sampling rate is in [0, 1], got {rate}")
    first = stream.position
    words = stream.words(count)
    threshold = Fraction(rate) * 2**64
    whole = math.floor(threshold)
    if whole == 2**64:
        return np.ones(count, dtype=bool)
    chosen = words < np.uint64(whole)
    for index in np.flatnonzero(words == np.uint64(whole)):
        chosen[index] = Fraction(stream.extra_bits(first + int(index)), 2**EXTRA_BITS) < threshold - whole
    return chosen


def permutation(stream: Stream, count: int) -> Integers:
    """A uniform permutation: positions sorted by 128 keyed bits each (two are equal with probability below
    count^2 / 2^129).
    """
    return np.lexsort((stream.words(count), stream.words(count)))


def _unit(tails: Words) -> NDArray[np.float64]:
    """The middle of each 63-bit interval of (0, 1), to a relative 2^-52."""
    return (tails.astype(np.float64) + 0.5) * 2.0**-63


def _draw(stream: Stream, scale: float, shape: Shape, law: _Law) -> Integers:
    if not 0 < scale <= MAX_SCALE:
        raise ValueError(f"the noise scale must be in (0, 2^48] grid units, got {scale}: use a coarser grid")
    result = np.empty(shape, dtype=np.int64)
    flat = result.reshape(-1)
    for start in range(0, flat.size, CHUNK):
        part = flat[start : start + CHUNK]
        part[:] = _draw_chunk(stream, scale, part.size, law)
    return result


def _draw_chunk(stream: Stream, scale: float, count: int, law: _Law) -> Integers:
    first = stream.position
    words = stream.words(count)
    tails = words >> np.uint64(1)
    size = law.quantile(_unit(tails))
    scaled = scale * size
    whole = np.rint(scaled)
    # The interval of the 63 bits is at most 1/tail wide in x: both laws have density >= 0.79 * tail
    # probability.
    with np.errstate(divide="ignore"):
        reach = scale * (FLOAT_ERROR * (1 + size) + 1.0 / tails)
    magnitude = whole.astype(np.int64)
    for index in np.flatnonzero(np.abs(scaled - whole) + reach >= 0.5):
        # With less than half a step of doubt, only the nearest boundary is in question.
        below, tail = math.floor(scaled[index]), int(tails[index])
        side = _side(tail, 63, below, scale, law, 128) if reach[index] < 0.5 else 0
        magnitude[index] = (
            below + (side > 0) if side else _resolve(stream, first + int(index), tail, scale, law)
        )
    return np.asarray(np.where(words & np.uint64(1), magnitude, -magnitude))


def _side(tail: int, bits: int, k: int, scale: float, law: _Law, precision: int) -> int:
    """Whether |x| is above (+1) or below (-1) k + 1/2 for every continuation of these bits; 0 if that is not
    certain.
    """
    import mpmath

    with mpmath.workprec(precision):
        boundary = mpmath.ldexp(law.tail((mpmath.mpf(k) + 0.5) / scale), bits)
        slack = mpmath.ldexp(boundary, 32 - precision)
        return 1 if tail + 1 < boundary - slack else -1 if tail > boundary + slack else 0


def _resolve(stream: Stream, index: int, tail: int, scale: float, law: _Law) -> int:
    """The magnitude of one draw, from all of its bits."""
    bits = 63 + EXTRA_BITS
    exact = (tail << EXTRA_BITS) + stream.extra_bits(index)
    k = round(scale * float(law.quantile(float(Fraction(2 * exact + 1, 2 ** (bits + 1))))))
    while _side(exact, bits, k, scale, law, bits + 128) > 0:
        k += 1
    while k > 0 and _side(exact, bits, k - 1, scale, law, bits + 128) < 0:
        k -= 1
    return k
