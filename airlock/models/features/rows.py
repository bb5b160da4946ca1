"""Records as rows of integers on one public grid.

Every operation here is either an exact integer one (products and sums that stay below 2^53) or one correctly
rounded IEEE operation per element. A row is therefore a function of its own record, bit for bit, whatever the
batch, the order or the number of workers.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

LIMIT = 2**15 - 1
"""Rows are integers of Euclidean norm at most LIMIT (so they fit 16 bits); the unit of the grid is 1/LIMIT.
"""
LARGEST_EXACT = 2.0**53

Rows = NDArray[np.float64]


def squared_norms(rows: Rows) -> Rows:
    """Exact while every squared norm is below 2^53: a sum of integers does not depend on its order."""
    squares: Rows = np.einsum("ij,ij->i", rows, rows)
    return squares


def normalise(rows: Rows) -> Rows:
    """Scale integer rows to norm at most LIMIT, rounded toward zero. Squared norms must be below 2^53; zeros
    stay zeros.

    Root, quotient and product are each correctly rounded, so a scaled row is at most LIMIT (1 + 2^-51) long
    before it is truncated. Its squared norm is an integer at most LIMIT^2 (1 + 2^-49) < LIMIT^2 + 1, that is
    at most LIMIT^2.
    """
    squares = squared_norms(rows)
    scale = np.divide(float(LIMIT), np.sqrt(squares), out=np.zeros_like(squares), where=squares > 0)
    scaled: Rows = rows * scale[:, None]
    return check(np.trunc(scaled, out=scaled))


def check(rows: Rows) -> Rows:
    """The rows themselves, once no one is longer than LIMIT.

    What is proved in `normalise` is also looked at.
    """
    if bool((squared_norms(rows) > float(LIMIT) ** 2).any()):
        raise ArithmeticError("a row is longer than the bound that its sensitivity rests on")
    return rows


def shift_for(matrix: Rows) -> float:
    """The power of two by which `multiply` must reduce its products, so that their squared norms stay below
    2^53.

    |row matrix| <= |row| |matrix|_F, and every partial sum of a product is at most |row| times the longest column.
    """
    reach = LIMIT * math.sqrt(float(np.sum(matrix * matrix))) * (1 + 2.0**-20)
    if reach >= LARGEST_EXACT:
        raise OverflowError("the matrix is too large for exact products: quantise it more coarsely")
    return 2.0 ** min(0, 26 - math.ceil(math.log2(max(reach, 1.0))))


def multiply(rows: Rows, matrix: Rows, shift: float) -> Rows:
    """Exact product of rows of norm at most LIMIT and an integer
    matrix, times `shift`, rounded toward zero.
    """
    product: Rows = rows @ matrix
    product *= shift
    return np.trunc(product, out=product)


def quantise(matrix: NDArray[np.float64], largest: float) -> Rows:
    """The nearest integer matrix after scaling the longest column to norm `largest`."""
    longest = math.sqrt(float((matrix * matrix).sum(axis=0).max(initial=0.0)))
    integers: Rows = np.rint(matrix * (largest / longest)) if longest > 0 else np.zeros_like(matrix)
    return integers
