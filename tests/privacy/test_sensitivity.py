"""No pair of records, however malicious, moves a sum further than its sensitivity says; and some pair comes
close to it.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airlock.privacy import sensitivity, sums
from airlock.privacy.guarantees import Neighbours

BITS = 8
NORM = 2**BITS
SIZE = 4
Record = tuple[np.ndarray, int]
relations = pytest.mark.parametrize("neighbours", ["zero-out", "replace-one"])
signs = pytest.mark.parametrize("non_negative", [False, True])


def extreme_rows(non_negative: bool) -> list[np.ndarray]:
    """Zero, one-hot, all-max, opposite, nearly equal rows, all of norm at most NORM as integers."""
    rows = [np.zeros(SIZE), *np.eye(SIZE), np.ones(SIZE), np.arange(1.0, SIZE + 1)]
    rows += [] if non_negative else [-row for row in rows[1:]] + [np.array([1.0, -1.0, 1.0, -1.0])]
    unit = sums.quantise_unit_rows(np.array(rows), BITS)
    return [*unit, *np.trunc(unit[1:4] / 2)]


def rows_of(non_negative: bool) -> st.SearchStrategy[np.ndarray]:
    drawn = st.lists(st.floats(0 if non_negative else -1, 1), min_size=SIZE, max_size=SIZE)
    scaled = st.tuples(drawn, st.sampled_from([1.0, 0.7, 0.1])).map(
        lambda pair: sums.clip_to_norm(
            np.trunc(sums.quantise_unit_rows(np.array([pair[0]]), BITS) * pair[1]), NORM
        )[0]
    )
    return st.one_of(st.sampled_from(extreme_rows(non_negative)), scaled)


def distance_squared(contribution: object, first: Record, second: Record | None) -> int:
    """Squared distance between two records' contributions (None:
    the null record), in integers or fractions.
    """
    one = contribution(*first)  # type: ignore[operator]
    other = contribution(*second) if second is not None else np.zeros_like(one)  # type: ignore[operator]
    return sum(Fraction(float(entry)) ** 2 for entry in (one - other).reshape(-1))  # type: ignore[return-value]


def contributions(classes: int, centred: bool) -> dict[str, object]:
    def labelled(row: np.ndarray, label: int) -> np.ndarray:
        return np.outer(row, sums.label_rows(np.array([label]), classes, centred=centred)[0])

    return {
        "mean": lambda row, label: row,
        "gram": lambda row, label: np.outer(row, row),
        "cross": labelled,
    }


def bounds(classes: int, centred: bool, neighbours: Neighbours, non_negative: bool) -> dict[str, float]:
    labels: sensitivity.Labels = "centred" if centred else "one-hot"
    return {
        "mean": sensitivity.mean(NORM, neighbours=neighbours, non_negative=non_negative),
        "gram": sensitivity.gram(NORM, neighbours=neighbours),
        "cross": sensitivity.cross(
            NORM, labels=labels, classes=classes, neighbours=neighbours, non_negative=non_negative
        ),
    }


@relations
@signs
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_no_neighbour_moves_a_sum_further(
    data: st.DataObject, neighbours: Neighbours, non_negative: bool
) -> None:
    classes, centred = data.draw(st.sampled_from([2, 3, 10])), data.draw(st.booleans())
    record = st.tuples(rows_of(non_negative), st.integers(0, classes - 1))
    first = data.draw(record)
    second = (
        None
        if neighbours == "zero-out"
        else data.draw(st.one_of(record, st.just(first), st.just((-first[0], first[1]))))
    )
    if second is not None and non_negative and (second[0] < 0).any():
        second = None
    limits = bounds(classes, centred, neighbours, non_negative)
    for name, contribution in contributions(classes, centred).items():
        assert distance_squared(contribution, first, second) <= Fraction(limits[name]) ** 2, name


@relations
@signs
@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("classes", [2, 10])
def test_some_neighbour_reaches_the_sensitivity(
    neighbours: Neighbours, non_negative: bool, centred: bool, classes: int
) -> None:
    """The bound is tight: a search over pairs at every angle comes within 1 % of it (rows lose up to 1/2 % to
    the grid).
    """
    angles = np.linspace(0, np.pi / 2 if non_negative else np.pi, 61)
    rows = [
        np.array([math.floor(NORM * math.cos(angle)), math.floor(NORM * math.sin(angle)), 0, 0])
        for angle in angles
    ]
    rows = list(sums.clip_to_norm(np.array(rows, dtype=np.float64), NORM))
    pairs = (
        [((rows[0], 0), None)]
        if neighbours == "zero-out"
        else [((rows[0], 0), (row, label)) for row in rows for label in (0, 1)]
    )
    limits = bounds(classes, centred, neighbours, non_negative)
    for name, contribution in contributions(classes, centred).items():
        reached = max(distance_squared(contribution, first, second) for first, second in pairs)
        assert 0.98 <= float(reached) / limits[name] ** 2 <= 1, name


def test_constants_of_the_mechanisms_page() -> None:
    assert sensitivity.gram(1, neighbours="replace-one") == pytest.approx(math.sqrt(2))
    # B = sum a (y - 1/M)^T has sensitivity sqrt(1 - 1/M); the integer labels are M times as long.
    assert sensitivity.cross(1, labels="centred", classes=10) / 10 == pytest.approx(math.sqrt(1 - 1 / 10))


@relations
def test_residual_rows_are_bounded_by_both_norms(neighbours: Neighbours) -> None:
    rng = np.random.default_rng(3)
    rows = sums.quantise_unit_rows(rng.normal(size=(40, 3)), BITS)
    residuals = sums.quantise_unit_rows(rng.normal(size=(40, 2)), 7)
    products = [np.outer(row, residual) for row, residual in zip(rows, residuals, strict=True)]
    others = (
        [np.zeros((3, 2))] if neighbours == "zero-out" else [*products, *(-product for product in products)]
    )
    worst = max(float(np.linalg.norm(product - other)) for product in products for other in others)
    limit = sensitivity.bounded_cross(NORM, 2**7, neighbours=neighbours)
    assert 0.9 * limit < worst <= limit


def test_a_user_moves_as_many_times_as_much() -> None:
    assert sensitivity.of_user(sensitivity.gram(4), 5) == 80.0
    assert Fraction(sensitivity.of_user(0.1, 3)) >= Fraction(0.1) * 3


def test_labels_need_two_classes() -> None:
    with pytest.raises(ValueError, match="two classes"):
        sensitivity.cross(4, labels="one-hot", classes=1)
