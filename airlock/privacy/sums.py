"""Exact sums over records: integers in float64 arrays, so that BLAS is fast and every bit is the same.

A sum of products of integers is exact in float64, in any order, while no partial sum passes 2^53. Blocks are
cut (and operands split in two) so that none can; totals are int64. Hence batch size, order and number of
workers do not change a bit, and the sensitivity of a sum is a fact about integers. Every limit depends on
public numbers only: rows, sizes and bounds, never on a value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

LARGEST_EXACT = 2**53
LARGEST_TOTAL = 2**50
# Up to this many bits, the squared norm of an integer row is compared with its bound exactly in float64.
MAX_BITS = 26
# Blocks of fewer rows than this make BLAS slow: splitting the operands is then cheaper.
LEAST_BLOCK = 32
HALF_WORD = 2**16


def quantise(array: Floats, bits: int) -> Floats:
    """array * 2^bits, rounded toward zero: integers in a float64 array. Norms never grow."""
    if not 0 <= bits <= 52 or not np.isfinite(array).all():
        raise ValueError(f"quantising needs finite numbers and 0 to 52 bits, got {bits} bits")
    return np.trunc(np.asarray(array, dtype=np.float64) * 2.0**bits)


def quantise_unit_rows(array: Floats, bits: int) -> Floats:
    """Each row scaled to norm 1 and quantised: integer rows of norm at most 2^bits, exactly.

    Rows of zeros stay zero.
    """
    rows = np.ascontiguousarray(array, dtype=np.float64)
    norms = np.sqrt(_squared_norms(rows))
    scaled = np.divide(rows, norms[:, None], out=np.zeros_like(rows), where=norms[:, None] > 0)
    return clip_to_norm(quantise(scaled, bits), 2**bits)


def clip_to_norm(rows: Floats, bound: int) -> Floats:
    """Integer rows, those longer than `bound` shortened until they are not. The comparison is exact."""
    if not 0 < bound <= 2**MAX_BITS:
        raise ValueError(
            f"the norm of integer rows is compared exactly up to 2^{MAX_BITS}, got {bound}: use fewer bits"
        )
    rows = np.array(rows, dtype=np.float64, order="C")
    # A sum of squares up to 2^53 is exact, and one beyond it cannot round to bound^2 <= 2^52.
    squares = _squared_norms(rows)
    long = squares > bound**2
    # The factor is below bound / norm by more than the error of the norm, so one step is enough.
    rows[long] = np.trunc(rows[long] * (bound * (1 - 2.0**-36) / np.sqrt(squares[long]))[:, None])
    return rows


def cut_total(total: Integers, bound: int) -> Integers:
    """An integer array of norm at most `bound`: itself, or the nearest point of the ball, truncated.

    Norms are computed to 2^-40, relatively. So two totals come no farther apart than they were, plus 2^-33 of
    the bound for the norm and
    one a coordinate for truncating: `cut_slack`.
    """
    if not 0 < bound < LARGEST_TOTAL or np.abs(total).max(initial=0) >= LARGEST_EXACT:
        raise ValueError(
            f"totals are cut exactly below 2^50, got a bound of {bound}: use fewer bits or records"
        )
    values = total.astype(np.float64)
    norm, within = math.sqrt(float((values * values).sum())), bound * (1 - 2.0**-36)
    return total if norm <= within else np.trunc(values * (within / norm)).astype(np.int64)


def cut_slack(bound: int, size: int) -> float:
    """How much farther apart `cut_total` may bring two totals of so many coordinates."""
    return (bound * 2.0**-33 + math.sqrt(size)) * (1 + 2.0**-30)


def _squared_norms(rows: Floats) -> Floats:
    """Row by row over contiguous memory: the same bits whatever else is in the batch (einsum and BLAS do not
    promise that).
    """
    return np.asarray((rows * rows).sum(axis=1))


def label_rows(labels: NDArray[np.integer], classes: int, *, centred: bool = False) -> Floats:
    """Class indices as integer rows: one-hot, or centred as classes * one-hot - 1.

    A null record (label -1) is a row of zeros.
    """
    rows = np.zeros((len(labels), classes))
    present = np.flatnonzero(labels >= 0)
    rows[present, labels[present]] = 1
    if centred:
        rows[present] = classes * rows[present] - 1
    return rows


class _Accumulator:
    """An exact total that can be added to and merged, in any order."""

    def __init__(self, shape: tuple[int, ...], largest: int) -> None:
        self.total: Integers = np.zeros(shape, dtype=np.int64)
        self.rows, self.largest = 0, largest

    def merge(self, other: Self) -> Self:
        """Add what another accumulator of the same kind has gathered."""
        if (type(self), self.total.shape, self.largest) != (type(other), other.total.shape, other.largest):
            raise ValueError("only sums of the same kind, shape and bounds can be merged")
        return self._extend(other.total, other.rows)

    def result(self) -> Integers:
        """The exact sum so far."""
        return self.total.copy()

    def _extend(self, part: Integers, rows: int) -> Self:
        self.rows += rows
        if self.rows * self.largest >= 2**63:
            raise ValueError(
                f"{self.rows} records with contributions up to "
                f"{self.largest} pass 64-bit integers: use fewer bits"
            )
        self.total += part
        return self


Accumulator = TypeVar("Accumulator", bound=_Accumulator)


def merge(partials: Iterable[Accumulator]) -> Accumulator:
    """All partial sums as one. The first is extended and returned; order and grouping do not matter."""
    first, *others = partials
    for other in others:
        first.merge(other)
    return first


class Sum(_Accumulator):
    """The sum of integer rows with entries up to `bound`."""

    def __init__(self, size: int, bound: int) -> None:
        super().__init__((size,), bound)

    def add(self, rows: Floats) -> Self:
        """Add a batch of records."""
        _check(rows, self.largest, self.total.shape[0])
        block = max(1, (LARGEST_EXACT - 1) // self.largest)
        parts = [
            rows[start : start + block].sum(axis=0).astype(np.int64) for start in range(0, len(rows), block)
        ]
        return self._extend(sum(parts, np.zeros_like(self.total)), len(rows))


class Gram(_Accumulator):
    """The sum of x^T x over records, for integer rows x with entries up to `bound`."""

    def __init__(self, size: int, bound: int) -> None:
        super().__init__((size, size), bound**2)
        self.bound = bound

    def add(self, rows: Floats) -> Self:
        """Add a batch of records."""
        _check(rows, self.bound, self.total.shape[0])
        return self._extend(multiply(rows, rows, (self.bound, self.bound)), len(rows))


def multiply(x: Floats, y: Floats, bounds: tuple[int, int]) -> Integers:
    """x^T y, exactly (modulo 2^64), for integers up to `bounds` in float64 arrays."""
    split = LARGEST_EXACT // (bounds[0] * bounds[1]) < LEAST_BLOCK
    x_parts = _halves(x) if split else [(x, 0)]
    # The same object twice lets BLAS do half the work.
    y_parts = x_parts if y is x else _halves(y) if split else [(y, 0)]
    largest = (
        max(HALF_WORD, *(bound // HALF_WORD + 1 for bound in bounds)) ** 2 if split else bounds[0] * bounds[1]
    )
    block = max(1, (LARGEST_EXACT - 1) // largest)
    total = np.zeros((x.shape[1], y.shape[1]), dtype=np.int64)
    for start in range(0, len(x), block):
        for x_part, x_shift in x_parts:
            for y_part, y_shift in y_parts:
                product = x_part[start : start + block].T @ y_part[start : start + block]
                total += product.astype(np.int64) << (x_shift + y_shift)
    return total


def _halves(array: Floats) -> list[tuple[Floats, int]]:
    """array = high * 2^16 + low, both with the sign of the array,
    so that no part is longer than the whole.
    """
    high = np.trunc(array / HALF_WORD)
    return [(high, HALF_WORD.bit_length() - 1), (array - high * HALF_WORD, 0)]


def _check(rows: Floats, bound: int, columns: int) -> None:
    """Refuse what would not be exact. Never says which record or value."""
    if rows.ndim != 2 or rows.shape[1] != columns or rows.dtype != np.float64:
        raise ValueError(
            f"a batch must be a float64 array with {columns} columns, got {rows.dtype} {rows.shape}"
        )
    if (
        not 0 < bound <= 2**31
        or np.abs(rows).max(initial=0) > bound
        or not np.array_equal(rows, np.trunc(rows))
    ):
        raise ValueError(
            f"a batch must hold integers of at most {bound} (itself at most 2^31): quantise and clip first"
        )
