"""Sums are exact integers: equal to Python's, whatever the batches, the order and the number of workers."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from airlock.privacy import sums

BITS = st.sampled_from([1, 8, 16, 20, 22, 24, 26])


def python_product(x: sums.Floats, y: sums.Floats) -> list[list[int]]:
    """x^T y by Python's integers."""
    rows = [[int(value) for value in row] for row in x], [[int(value) for value in row] for row in y]
    return [
        [sum(a[i] * b[j] for a, b in zip(*rows, strict=True)) for j in range(y.shape[1])]
        for i in range(x.shape[1])
    ]


@st.composite
def integer_rows(draw: st.DrawFn, columns: int, bits: int) -> sums.Floats:
    """Integer rows, extreme ones among them."""
    count = draw(st.integers(1, 12))
    bound = 2**bits
    entry = st.one_of(st.sampled_from([0, bound, -bound, 1, -1, bound - 1]), st.integers(-bound, bound))
    return np.array(
        draw(st.lists(st.lists(entry, min_size=columns, max_size=columns), min_size=count, max_size=count)),
        dtype=np.float64,
    )


@st.composite
def cuts(draw: st.DrawFn, count: int) -> list[int]:
    return sorted({0, count, *draw(st.lists(st.integers(0, count), max_size=4))})


@settings(max_examples=80, deadline=None)
@given(st.data(), BITS)
def test_sums_are_pythons_for_any_batches_order_and_workers(data: st.DataObject, bits: int) -> None:
    rows = data.draw(integer_rows(5, bits))
    labels = data.draw(arrays.arrays(np.int64, len(rows), elements=st.integers(-1, 2)))
    other = sums.label_rows(labels, 3, centred=True)
    order = data.draw(st.permutations(range(len(rows))))
    edges = data.draw(cuts(len(rows)))
    partials: dict[str, list[Any]] = {"sum": [], "gram": []}
    cross = np.zeros((5, 3), np.int64)
    for start, end in itertools.pairwise(edges):
        batch = list(order[start:end])
        partials["sum"].append(sums.Sum(5, 2**bits).add(rows[batch]))
        partials["gram"].append(sums.Gram(5, 2**bits).add(rows[batch]))
        cross += sums.multiply(rows[batch], other[batch], (2**bits, 2))
    totals = {name: sums.merge(data.draw(st.permutations(parts))) for name, parts in partials.items()}
    assert totals["sum"].result().tolist() == [sum(int(row[column]) for row in rows) for column in range(5)]
    assert totals["gram"].result().tolist() == python_product(rows, rows)
    assert cross.tolist() == python_product(rows, other)
    assert {total.rows for total in totals.values()} == {len(rows)}


@pytest.mark.parametrize("bits", [15, 20, 23, 24, 25])
def test_large_batches_are_cut_before_float64_would_round(bits: int) -> None:
    """All entries as large as they may be: 2^53 is passed many times over within one batch."""
    count = min(5000, (2**63 - 1) // 4**bits)
    rows = np.full((count, 3), float(2**bits))
    rows[:, 1] *= -1
    rows[::2, 2] -= 1
    expected = python_product(rows, rows)
    assert sums.Gram(3, 2**bits).add(rows).result().tolist() == expected
    assert sums.multiply(rows, rows.copy(), (2**bits, 2**bits)).tolist() == expected


def test_a_long_sum_is_cut_too() -> None:
    rows = np.full((4_300_000, 1), float(2**31))
    rows[::2] -= 1
    assert sums.Sum(1, 2**31).add(rows).result().tolist() == [4_300_000 * 2**31 - 2_150_000]


def test_what_may_pass_64_bits_is_refused_by_public_numbers_alone() -> None:
    gram = sums.Gram(2, 2**26)
    with pytest.raises(ValueError, match="fewer bits"):
        gram.add(np.zeros((2**11, 2)))


def test_batches_that_would_not_be_exact_are_refused() -> None:
    gram = sums.Gram(2, 8)
    wrong = [np.full((1, 2), value) for value in (9.0, 0.5, np.nan)]
    for batch in (*wrong, np.zeros((1, 3)), np.zeros((1, 2), dtype=np.float32)):
        with pytest.raises(ValueError, match="a batch must"):
            gram.add(batch)
    assert gram.rows == 0
    with pytest.raises(ValueError, match="same kind"):
        gram.merge(sums.Gram(2, 9))


def test_an_empty_batch_adds_nothing() -> None:
    assert sums.Gram(2, 8).add(np.zeros((0, 2))).result().tolist() == [[0, 0], [0, 0]]


# Quantising
# --------------------------------------------------------------------------------------------------

FLOATS = arrays.arrays(
    np.float64, st.tuples(st.integers(1, 6), st.integers(1, 6)), elements=st.floats(-1e6, 1e6)
)


def squared_norms(rows: sums.Floats) -> list[int]:
    return [sum(int(value) ** 2 for value in row) for row in rows]


@given(FLOATS, st.integers(0, 30))
def test_quantising_never_makes_a_number_larger(array: sums.Floats, bits: int) -> None:
    integers = sums.quantise(array, bits)
    assert (integers == np.trunc(integers)).all()
    assert (np.abs(integers) <= np.abs(array) * 2.0**bits).all()
    assert (np.abs(array * 2.0**bits - integers) < 1).all()


@settings(max_examples=200)
@given(FLOATS, BITS)
def test_unit_rows_keep_their_norm_as_a_fact_about_integers(array: sums.Floats, bits: int) -> None:
    rows = sums.quantise_unit_rows(array, bits)
    assert max(squared_norms(rows)) <= 4**bits
    assert (np.sign(rows) * np.sign(array) >= 0).all()


@pytest.mark.parametrize("bits", [1, 12, 26])
def test_rows_at_the_bound_survive_and_longer_ones_are_shortened(bits: int) -> None:
    bound = 2**bits
    exact = np.array([[bound, 0.0], [0.0, -bound], [0.0, 0.0]])
    assert (sums.clip_to_norm(exact, bound) == exact).all()
    long = np.array([[bound, 1.0], [bound, bound], [2.0**52, 2.0**52], [-(2.0**31), 3.0]])
    clipped = sums.clip_to_norm(long, bound)
    assert max(squared_norms(clipped)) <= bound**2
    assert bits == 1 or min(squared_norms(clipped)) >= (bound * 0.99 - 2) ** 2


@settings(max_examples=60)
@given(FLOATS, st.integers(4, 26), st.integers(1, 6))
def test_a_row_does_not_depend_on_its_batch(array: sums.Floats, bits: int, times: int) -> None:
    alone = np.concatenate([sums.quantise_unit_rows(row[None], bits) for row in array])
    among = sums.quantise_unit_rows(np.asfortranarray(np.tile(array, (times, 1))), bits)
    assert (among == np.tile(alone, (times, 1))).all()


def test_unit_rows_are_close_to_what_they_stand_for() -> None:
    array = np.random.default_rng(0).normal(size=(50, 40))
    unit = array / np.linalg.norm(array, axis=1, keepdims=True)
    assert np.abs(sums.quantise_unit_rows(array, 20) / 2**20 - unit).max() < 2.0**-19


def test_labels_as_integers() -> None:
    labels = np.array([2, -1, 0])
    assert sums.label_rows(labels, 3).tolist() == [[0, 0, 1], [0, 0, 0], [1, 0, 0]]
    assert sums.label_rows(labels, 3, centred=True).tolist() == [[-1, -1, 2], [0, 0, 0], [2, -1, -1]]


def test_what_is_not_finite_is_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        sums.quantise(np.array([np.nan]), 8)
