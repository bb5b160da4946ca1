"""Polynomials in the place of the sigmoid on [-1, 1]: Chebyshev's series, and what Phan, Wu and Dou (arXiv
1706.08839v2) use or compare.

chebyshev-L     the truncated series of Eqs. 9-11 of degree L. Even orders vanish, so L = 2 is L = 1
published-7     the paper's example for L = 7 (below Eq. 14): 2^-5 (-5x^7 + 21x^5 - 35x^3 + 35x + 16). Its derivative is
                (35/32) (1 - x^2)^3: the maximally flat step from 0 to 1, which is not the series of the
                sigmoid (its slope at 0 is 1.09 instead of 0.25)
taylor-L        the series of the sigmoid at 0 up to x^L, L at most 7
taylor-tanh     the paper's rival (Sec. 4.1.2): tanh x = x - x^3/3 + 2x^5/15, written there with the letter of the
                sigmoid
piecewise       one line of Amin et al. 1997, the other rival: x/4 + 1/2 where |x| <= 1
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.errors import ParamsError

Floats = NDArray[np.float64]
LARGEST_DEGREE = 31
NODES = 256
ROUNDING = 1e-15
NAMED_POLYNOMIALS: dict[str, tuple[float, ...]] = {
    "published-7": tuple(value / 32 for value in (16, 35, 0, -35, 0, 21, 0, -5)),
    "taylor-tanh": (0.0, 1.0, 0.0, -1 / 3, 0.0, 2 / 15),
    "piecewise": (0.5, 0.25),
}
TAYLOR = (1 / 2, 1 / 4, 0.0, -1 / 48, 0.0, 1 / 480, 0.0, -17 / 80640)
SERIES = re.compile(r"(chebyshev|taylor)-(\d{1,2})")


@dataclass(frozen=True)
class Polynomial:
    """sum of alpha_l x^l, in the place of the sigmoid.

    Attributes:
        name: as in params.yaml.
        alphas: alpha_0 to alpha_L.
    """

    name: str
    alphas: tuple[float, ...]

    @property
    def degree(self) -> int:
        return len(self.alphas) - 1

    @property
    def total(self) -> float:
        """sum of |alpha_l|: the most that a value can be on [-1, 1], and what the paper's sensitivity grows
        with.
        """
        return math.fsum(abs(alpha) for alpha in self.alphas)

    def __call__(self, x: Any) -> Any:
        """The value at numbers, arrays or tensors, by Horner's rule."""
        value = x * 0 + self.alphas[-1]
        for alpha in self.alphas[-2::-1]:
            value = value * x + alpha
        return value

    def error(self, points: int = 20001) -> float:
        """The largest distance to the sigmoid on [-1, 1]."""
        x = np.linspace(-1, 1, points)
        return float(np.abs(self(x) - sigmoid(x)).max())


def polynomial(name: str) -> Polynomial:
    """The polynomial of that name.

    Raises:
        ParamsError: there is none.
    """
    if name in NAMED_POLYNOMIALS:
        return Polynomial(name, NAMED_POLYNOMIALS[name])
    matched = SERIES.fullmatch(name)
    degree = int(matched[2]) if matched else 0
    if matched and matched[1] == "chebyshev" and 1 <= degree <= LARGEST_DEGREE:
        return Polynomial(name, tuple(monomials(series(sigmoid, degree)).tolist()))
    if matched and matched[1] == "taylor" and 1 <= degree < len(TAYLOR):
        return Polynomial(name, TAYLOR[: degree + 1])
    forms = f"chebyshev-L (L up to {LARGEST_DEGREE}), taylor-L (L up to {len(TAYLOR) - 1})"
    known = ", ".join((forms, *NAMED_POLYNOMIALS))
    raise ParamsError(f"params.yaml: release.options.approximation '{name}' is not known: use {known}")


def sigmoid(x: Floats) -> Floats:
    """1 / (1 + e^-x)."""
    values: Floats = 0.5 + 0.5 * np.tanh(0.5 * np.asarray(x, dtype=np.float64))
    return values


def series(function: Callable[[Floats], Floats], degree: int) -> Floats:
    """A_0/2, A_1, ..., A_L of Eq.

    10: the integrals by Gauss and Chebyshev's rule, exact for polynomials up to degree 2 NODES - 1.
    """
    angles = (np.arange(NODES) + 0.5) * (math.pi / NODES)
    values = function(np.cos(angles))
    coefficients: Floats = np.cos(np.outer(np.arange(degree + 1), angles)) @ values * (2 / NODES)
    coefficients[0] /= 2
    # What rounding leaves of an order that vanishes would be blown up by the powers of two in T_k.
    coefficients[np.abs(coefficients) < ROUNDING] = 0.0
    return coefficients


@lru_cache
def _orders(degree: int) -> tuple[tuple[int, ...], ...]:
    """T_0 to T_L by powers of x, from the recursion of Eq. 9."""
    rows = [[1] + [0] * degree, [0, 1] + [0] * (degree - 1)][: degree + 1]
    while len(rows) <= degree:
        rows.append([2 * up - down for up, down in zip([0, *rows[-1][:-1]], rows[-2], strict=True)])
    return tuple(tuple(row) for row in rows)


def monomials(coefficients: Floats) -> Floats:
    """From coefficients of T_0 to T_L to those of 1, x, ..., x^L."""
    alphas: Floats = np.asarray(coefficients, dtype=np.float64) @ np.array(
        _orders(len(coefficients) - 1), dtype=np.float64
    )
    return alphas
