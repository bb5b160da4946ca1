"""Weighted totals over nights: their price, against a dense matrix and another library, and how much noise is left."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airlock.privacy import accounting, events, sensitivity
from airlock.privacy.weighing import (
    MOST,
    UNIT,
    Weighing,
    chapters,
    error,
    last_of_chapter,
    last_with_columns,
    weighing,
)


def dense(weights: Weighing) -> np.ndarray:
    """What a record of each night (column) moves on each night (row), over that night's noise; the first one's is 1."""
    rows = [
        [weight * UNIT / width if earlier <= night else 0.0 for earlier, weight in enumerate(weights.weights)]
        for night, width in enumerate(weights.widths)
    ]
    return np.array(rows)


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("nights", [1, 2, 5, 64, 300])
def test_no_record_moves_all_nights_by_more_than_is_priced(nights: int, ends: bool) -> None:
    weights = weighing(nights, ends)
    columns = (dense(weights) ** 2).sum(axis=0)
    assert columns.max() <= float(weights.longest) * (1 + 1e-12)
    assert columns.max() == pytest.approx(weights.reach**2, rel=1e-6)
    assert Fraction(weights.reach) ** 2 >= weights.longest
    # Every record spends what it has, but for rounding and for the largest weight.
    spent = [column for column, weight in zip(columns, weights.weights, strict=True) if weight < MOST]
    assert min(spent) > 0.93 * columns.max()
    told = [Fraction(1, night) for night in range(1, nights + 1)]
    if ends:
        last = math.ceil(nights / 8)
        told[-last:] = [one + Fraction(1, 2 * last) for one in told[-last:]]
    for width, one in zip(weights.widths, told, strict=True):
        assert Fraction(width, UNIT) ** 2 * one >= 1 > Fraction(width - 1, UNIT) ** 2 * one


@pytest.mark.parametrize("nights", [2, 9, 40])
def test_a_user_who_comes_on_other_nights_moves_them_no_farther_than_one_who_is_replaced(nights: int) -> None:
    """A record goes on one night and another comes on some night, under replace-one: for rows, products of rows and
    averages, whether alike, opposite or at a right angle.
    """
    matrix, norm, half = dense(weighing(nights)), 10, 128
    one, other = np.array([norm, 0.0]), np.array([0.0, norm])
    low, high = np.array([-half, half, 0.0]), np.array([half - 1, 0.0, half])
    kinds = [
        (sensitivity.mean(norm, neighbours="replace-one"), [one, other, -one]),
        (
            sensitivity.gram(norm, neighbours="replace-one"),
            [np.outer(row, row).ravel() for row in (one, other)],
        ),
        (sensitivity.averages(1, half, neighbours="replace-one"), [low, high]),
    ]
    for priced, contributions in kinds:
        most = weighing(nights).of_sum(priced) * (1 + 1e-12)
        for gone, come in product(contributions, repeat=2):
            for night, later in product(range(nights), repeat=2):
                moved = np.outer(matrix[:, night], gone) - np.outer(matrix[:, later], come)
                assert np.linalg.norm(moved) <= most


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("nights", [2, 9])
def test_another_library_finds_the_same_price(nights: int, ends: bool) -> None:
    """Google's dp_accounting, for the record that costs most: all nights that it reaches, each a Gaussian."""
    dp = events.library()
    from dp_accounting.pld import pld_privacy_accountant

    weights, multiplier, delta = weighing(nights, ends), 1.7, 1e-5
    moved = dense(weights) / weights.reach / multiplier
    column = moved[:, int((moved**2).sum(axis=0).argmax())]
    accountant = pld_privacy_accountant.PLDAccountant()
    for shift in column[column > 0]:
        accountant.compose(dp.GaussianDpEvent(1 / shift))
    ours = accounting.epsilon(
        events.from_json({"kind": "gaussian", "noise_multiplier": multiplier}), delta, neighbours="zero-out"
    )
    assert accountant.get_epsilon(delta) == pytest.approx(ours, rel=2e-2)


def test_the_mean_has_a_third_more_noise_than_one_release_whatever_the_horizon() -> None:
    assert [round(weighing(nights).error(nights), 2) for nights in (1, 64, 365, 1024)] == [
        1,
        1.32,
        1.33,
        1.33,
    ]
    weights = weighing(64)
    matrix = dense(weights)
    told = np.linalg.norm(matrix @ np.ones(64))
    assert weights.error(64) == pytest.approx(64 * weights.reach / told)
    assert error(1, 64) == 1
    assert error(64, 64) == pytest.approx(1.76, abs=0.01)
    assert error(64, 64, turned=False) < 1.4
    # Rows that public facts whiten are the same until the last chapter begins with the seventeenth night.
    assert error(16, 64, prepared=True) < error(16, 64)
    assert error(64, 64, prepared=True) == error(64, 64)
    # Columns are told on four nights; the others are one chapter, whose end is emphasised.
    assert error(64, 64, prepared=True, columns=True) == pytest.approx(1.28, abs=0.01)
    assert error(4, 64, prepared=True, columns=True) == error(4, 64, prepared=True)
    assert weighing(60, ends=True).error(60) < weighing(60).error(60) - 0.1
    assert weighing(60).error(30) < weighing(60, ends=True).error(30) < 1.2 * weighing(60).error(30)


def test_chapters_follow_from_public_numbers() -> None:
    assert [chapters(nights, turned=True) for nights in (1, 2, 15, 16, 64)] == [
        (1,),
        (1, 2),
        (1, 15),
        (1, 4, 16),
        (1, 4, 16, 64),
    ]
    assert chapters(64, turned=False) == (1, 64)
    # A large first batch ends the second chapter sooner; a quarter of all records ends it at once.
    assert last_of_chapter(5, 57, turned=True, before=8 + 3, first=8) == 9
    assert last_of_chapter(5, 57, turned=True, before=40 + 3, first=40) == 57
    assert last_of_chapter(5, 57, turned=True, before=8, first=8) == 57
    assert [chapters(nights, turned=True, columns=True) for nights in (1, 2, 16, 17, 64)] == [
        (1,),
        (1, 2),
        (1, 16),
        (1, 2, 17),
        (1, 4, 64),
    ]
    assert last_with_columns(2, 57, first=8, nightly=1) == 57
    assert last_with_columns(2, 57, first=3, nightly=1) == 4
    assert last_with_columns(3, 57, first=3, nightly=1) == 4, "where night 2 is missing"
    with pytest.raises(ValueError, match="1 to 4096 nights"):
        weighing(4097)


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 4096), st.booleans())
def test_weights_are_whole_and_grow(nights: int, ends: bool) -> None:
    weights = weighing(nights, ends).weights
    assert weights[0] <= 32
    assert all(one <= other <= MOST for one, other in pairwise(weights))
    assert math.isfinite(weighing(nights, ends).reach)
