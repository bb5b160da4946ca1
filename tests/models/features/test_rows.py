"""Rows on the grid: norms are integer facts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from airlock.models.features.rows import LIMIT, check, multiply, normalise, quantise, shift_for

entries = st.integers(-(2**22), 2**22)


def squares(rows: np.ndarray) -> list[int]:
    return [sum(int(value) ** 2 for value in row) for row in rows]


@given(arrays(np.int64, (5, 7), elements=entries))
def test_a_normalised_row_is_never_longer_than_the_limit(integers: np.ndarray) -> None:
    rows = normalise(integers.astype(np.float64))
    assert all(square <= LIMIT**2 for square in squares(rows))


@given(arrays(np.int64, (4, 6), elements=entries))
def test_a_normalised_row_loses_less_than_one_unit_an_entry(integers: np.ndarray) -> None:
    rows = normalise(integers.astype(np.float64))
    for row, given_row in zip(rows, integers, strict=True):
        norm = np.sqrt(float(sum(int(value) ** 2 for value in given_row)))
        expected = given_row * LIMIT / norm if norm else given_row * 0.0
        assert np.abs(row - expected).max() <= 1 + 1e-9
        assert np.all(np.abs(row) <= np.abs(expected) + 1e-6)


@given(arrays(np.int64, (6, 3), elements=entries), st.permutations(range(6)))
def test_a_row_does_not_depend_on_its_neighbours_in_the_batch(integers: np.ndarray, order: list[int]) -> None:
    rows = integers.astype(np.float64)
    assert np.array_equal(normalise(rows)[order], normalise(rows[order]))
    assert np.array_equal(normalise(rows)[:1], normalise(rows[:1]))


def test_zeros_stay_zeros() -> None:
    assert not normalise(np.zeros((3, 4))).any()


def test_a_long_row_is_refused() -> None:
    with pytest.raises(ArithmeticError):
        check(np.array([[float(LIMIT), 1.0]]))


@given(
    arrays(np.float64, (5, 4), elements=st.floats(-10, 10, width=32)),
    arrays(np.int64, (3, 5), elements=st.integers(-14000, 14000)),
)
def test_products_are_exact(matrix: np.ndarray, integers: np.ndarray) -> None:
    whole = quantise(matrix, 2.0**24)
    shift = shift_for(whole)
    product = multiply(integers.astype(np.float64), whole, shift)
    divisor = round(1 / shift)
    for i in range(3):
        for j in range(4):
            exact = sum(int(integers[i, k]) * int(whole[k, j]) for k in range(5))
            assert int(product[i, j]) == (abs(exact) // divisor) * (1 if exact > 0 else -1)
    assert all(square < 2**53 for square in squares(product))
