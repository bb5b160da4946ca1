"""Synthetic bins agree with the tables that they were drawn from."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from airlock.models.bins import Binned, Bins, Column
from airlock.models.distribution import Distribution
from airlock.models.histograms import Fine, Measured
from airlock.models.marginals import Layout, one_hot, tables_of, vector_of
from airlock.models.shares import shares_of
from airlock.models.synthesis import draw_bins, drawn_of, tree_of

SIZES = (4, 3, 2, 2)


def chain(n: int = 20_000, seed: int = 0) -> Any:
    """Bins in which each column follows the one before it."""
    random = np.random.default_rng(seed)
    bins = np.zeros((n, 4), np.int64)
    bins[:, 0] = random.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])
    for place, size in list(enumerate(SIZES))[1:]:
        follow = random.random(n) < 0.7
        bins[:, place] = np.where(follow, bins[:, place - 1] % size, random.integers(0, size, n))
    return bins


def distribution(bins: Any, noise: float = 0.0, seed: int = 0) -> Distribution:
    n, layout = len(bins), Layout(SIZES)
    rows = one_hot(bins, np.ones(n), SIZES)
    vector = vector_of((rows.T @ rows).astype(np.int64), layout)
    scale = max(noise, 1e-6) * 2**30
    vector = vector + np.rint(np.random.default_rng(seed).normal(0, scale, len(vector))).astype(np.int64)
    columns = [
        Binned(Column("a", "number", bounds=(0, 1)), (0.25, 0.5, 0.75)),
        Binned(Column("b", "number", bounds=(0, 9), missing=True), (0.5,)),
        Binned(Column("c", "category", width=2, categories=("x", "y"))),
        Binned(Column("y", "category", width=2, categories=("n", "p"))),
    ]
    # Of every four narrow bins only the first has records.
    counts = np.zeros(16)
    counts[::4] = np.bincount(bins[:, 0], minlength=4)
    fine = {0: Fine(tuple(np.arange(1, 16) / 16), (Measured(np.arange(16), counts, noise),))}
    return Distribution(Bins(tuple(columns)), tables_of(vector, layout, scale=scale, n=n), fine, n)


def farthest(one: Any, other: Any) -> float:
    """The largest total-variation distance of a table of two columns."""
    found = []
    for i, j in combinations(range(4), 2):
        parts = [
            np.bincount(bins[:, i] * SIZES[j] + bins[:, j], minlength=SIZES[i] * SIZES[j]) / len(bins)
            for bins in (one, other)
        ]
        found.append(np.abs(parts[0] - parts[1]).sum() / 2)
    return max(found)


@pytest.mark.parametrize(("noise", "most"), [(0.0, 0.02), (60.0, 0.05)])
def test_all_pairs_are_near_their_tables(noise: float, most: float) -> None:
    true = chain()
    made = draw_bins(shares_of(distribution(true, noise)), 10_000, np.random.default_rng(0))
    assert farthest(true, made) < most
    # The control: columns that do not know of each other are far away.
    alone = np.column_stack([np.random.default_rng(k).permutation(true[:, k]) for k in range(4)])
    assert farthest(true, alone) > 3 * most


def test_what_is_no_more_than_noise_is_taken_for_nothing() -> None:
    random = np.random.default_rng(0)
    bins = np.column_stack([random.integers(0, size, 2000) for size in SIZES])
    shares = shares_of(distribution(bins, 100.0))
    assert sum(strength > 0 for strength in shares.strength.values()) <= 1
    for (i, j), table in shares.pairs.items():
        assert table.sum() == pytest.approx(1) and (table >= 0).all()
        assert np.allclose(table.sum(1), shares.ones[i]) and np.allclose(table.sum(0), shares.ones[j])


def test_the_tree_follows_the_strongest_pairs() -> None:
    edges = {
        frozenset((child, parent))
        for child, parent in tree_of(shares_of(distribution(chain())))
        if parent is not None
    }
    assert edges == {frozenset((0, 1)), frozenset((1, 2)), frozenset((2, 3))} or len(edges) == 3


def test_a_missing_bin_is_missing_and_fine_histograms_are_followed() -> None:
    known = distribution(chain())
    bins = draw_bins(shares_of(known), 5000, np.random.default_rng(0))
    drawn, labels = drawn_of(known, shares_of(known), bins, np.random.default_rng(1))
    assert np.array_equal(drawn[1].missing, bins[:, 1] == 2)
    assert drawn[0].missing is None and np.array_equal(labels, bins[:, 3])
    low, high = drawn[0].interval
    assert np.mean(np.isin(low, [0.0, 0.25, 0.5, 0.75])) > 0.99 and np.allclose(high - low, 1 / 16)
    assert np.array_equal(np.floor(low * 4).astype(int), bins[:, 0])


def test_labels_know_of_every_column() -> None:
    """Eight columns each say a little of the label: a tree would let a record's label know of one."""
    random, sizes = np.random.default_rng(0), (*(2,) * 8, 2)
    inputs = random.integers(0, 2, (20_000, 8))
    label = inputs.sum(axis=1) + random.normal(0, 0.5, len(inputs)) > 4
    bins = np.column_stack([inputs, label])
    rows, layout = one_hot(bins, np.ones(len(bins)), sizes), Layout(sizes)
    vector = vector_of((rows.T @ rows).astype(np.int64), layout)
    columns = [Binned(Column(f"c{k}", "category", width=2, categories=("x", "y"))) for k in range(9)]
    known = Distribution(
        Bins(tuple(columns)), tables_of(vector, layout, scale=2.0**30, n=len(bins)), {}, len(bins)
    )
    made = draw_bins(shares_of(known), 5000, np.random.default_rng(0))
    assert np.mean((made[:, :8].sum(axis=1) > 4) == made[:, 8]) > 0.82
    for column in range(8):
        agree = np.mean(bins[:, column] == bins[:, 8])
        assert np.mean(made[:, column] == made[:, 8]) == pytest.approx(agree, abs=0.03)


@pytest.mark.parametrize("rows", [37, 500, 4001])
def test_single_columns_are_as_near_to_their_shares_as_whole_records_can_be(rows: int) -> None:
    """All but the label, which follows the other columns; of that, the number of each class."""
    shares = shares_of(distribution(chain(), 60.0))
    made = draw_bins(shares, rows, np.random.default_rng(rows))
    for column, share in enumerate(shares.ones[:-1]):
        counts = np.bincount(made[:, column], minlength=len(share))
        assert np.abs(counts - share * rows).max() < 1, column
    # Independent draws of 4001 labels would be 30 records off as often as not.
    assert np.abs(np.bincount(made[:, 3], minlength=2) - shares.ones[3] * rows).max() < 2 + rows / 1000


def test_rows_and_seeds() -> None:
    shares = shares_of(distribution(chain(2000)))
    one, same, other = (draw_bins(shares, 777, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert len(one) == 777 and np.array_equal(one, same) and not np.array_equal(one, other)
    assert draw_bins(shares, 1, np.random.default_rng(0)).shape == (1, 4)


def test_a_graphical_model_agrees_too() -> None:
    pytest.importorskip("mbi")
    from airlock.models import graphical

    true = chain()
    known = distribution(true, 20.0)
    made = graphical.draw_bins(known, shares_of(known), 5000, 0, steps=300)
    assert farthest(true, made) < 0.05
    assert np.array_equal(made, graphical.draw_bins(known, shares_of(known), 5000, 0, steps=300))
