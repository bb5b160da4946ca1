"""Floats on the safe side: the smallest float above an exact number, and exact searches over floats."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from fractions import Fraction


def float_above(exact: Fraction) -> float:
    """The smallest float that is at least `exact`."""
    nearest = float(exact)
    return nearest if Fraction(nearest) >= exact else math.nextafter(nearest, math.inf)


def float_below(exact: Fraction) -> float:
    """The largest float that is at most `exact`."""
    return -float_above(-exact)


def fraction_above(exact: Fraction, bits: int = 400) -> Fraction:
    """A multiple of 2^-bits that is at least `exact`: sums of thousands of them stay short, where exact
    denominators multiply.
    """
    return Fraction(-((-exact.numerator << bits) // exact.denominator), 1 << bits)


def root_above(square: Fraction) -> float:
    """The smallest float whose square is at least `square`; so for square <= mu^2 it never passes mu."""
    root = math.sqrt(square)
    while Fraction(root) ** 2 < square:
        root = math.nextafter(root, math.inf)
    while root > 0 and Fraction(math.nextafter(root, 0.0)) ** 2 >= square:
        root = math.nextafter(root, 0.0)
    return root


def least_float(holds: Callable[[float], bool], near: float | None = None) -> float:
    """The smallest non-negative float for which a monotone predicate holds (it must hold for some float).

    Args:
        holds: the predicate.
        near: a guess; a good one spares most questions, a bad one costs time and changes nothing.
    """
    if holds(0.0):
        return 0.0
    low, high = _around(holds, near) if near is not None and 0 < near < math.inf else (0, _order(1.0))
    while not holds(_number(high)):
        low, high = high, high + 2**54
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(_number(middle)) else (middle, high)
    return _number(high)


def _around(holds: Callable[[float], bool], near: float) -> tuple[int, int]:
    """A place below the answer and one that is not, closer together the better the guess."""
    place, step = _order(near), 1
    if holds(near):
        while place > step and holds(_number(place - step)):
            place, step = place - step, 16 * step
        return max(0, place - step), place
    while place + step < _order(math.inf) and not holds(_number(place + step)):
        place, step = place + step, 16 * step
    return place, min(place + step, _order(math.inf))


def _order(number: float) -> int:
    """Non-negative floats, counted: their bit patterns are in their order."""
    return int(struct.unpack("<q", struct.pack("<d", number))[0])


def _number(order: int) -> float:
    return float(struct.unpack("<d", struct.pack("<q", order))[0])
