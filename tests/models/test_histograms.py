"""Shares of a column from all that was released of it: exact without noise, near with it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airlock.models.bins import Binned, Bins, Column, even_edges, merged_edges, on_simplex
from airlock.models.distribution import distribution_of
from airlock.models.histograms import LOUD, Levels, Measured, owner_of, shares_of_bins
from airlock.models.marginals import Layout, Weights, one_hot, vector_of
from airlock.models.shares import shares_of

NUMBER = Column("c", "number", bounds=(0.0, 1.0))


def levels(missing: bool = False) -> Levels:
    return Levels(even_edges(NUMBER, 10), even_edges(NUMBER, 80), missing)


def measured(counts: Any, noise: float, random: Any, missing: bool = False) -> tuple[Measured, ...]:
    """Both levels and a table of four bins, with noise of this deviation in a count."""
    all_levels = levels(missing)
    exact = all_levels.vector(np.asarray(counts, np.int64))
    noisy = np.rint(exact + random.normal(0, noise * LOUD, len(exact))).astype(np.int64)
    edges = merged_edges(all_levels.narrow, all_levels.placed(noisy), 4)
    owner = owner_of(all_levels.narrow, edges)
    owner = np.append(owner, 4) if missing else owner
    table = np.bincount(owner, counts, 4 + missing)
    return (
        *all_levels.measured(noisy, noise * LOUD),
        Measured(owner, table + random.normal(0, noise, len(table)), noise),
    )


def slow(parts: tuple[Measured, ...], size: int, total: float) -> Any:
    """Least squares over shares, cell by cell, by a general solver: what is fitted but for the smoothing."""
    from scipy.optimize import minimize

    def loss(x: Any) -> float:
        found = 0.0  # In squares of the total, so that the solver's own tolerances fit.
        for one in parts:
            for cell, count in enumerate(one.counts):
                told = sum(x[place] for place, owner in enumerate(one.owner) if owner == cell)
                found += ((told - count / total) / one.deviation) ** 2
        return found

    sums = {"type": "eq", "fun": lambda x: x.sum() - 1}
    start = np.full(size, 1 / size)
    return minimize(loss, start, bounds=[(0, 1)] * size, constraints=[sums], tol=1e-14).x


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 60), min_size=81, max_size=81).filter(any), st.booleans())
def test_without_noise_the_shares_are_exact(counts: list[int], missing: bool) -> None:
    known = np.array(counts[: 80 + missing])
    known[0] += 1
    found = shares_of_bins(
        measured(known, 0.0, np.random.default_rng(0), missing), 80, missing, float(known.sum())
    )
    assert len(found) == 80 + missing and (found >= 0).all()
    assert np.allclose(found, known / known.sum(), atol=1e-5)


def test_what_is_fitted_is_least_squares_over_shares_where_nothing_is_smooth() -> None:
    """Counts that no smoothing fits, with little noise: the general solver finds the same."""
    random = np.random.default_rng(0)
    counts = np.array([900, 0, 700, 0, 0, 800, 0, 600])
    parts = (
        Measured(
            np.repeat(np.arange(4), 2), np.add.reduceat(counts, [0, 2, 4, 6]) + random.normal(0, 3, 4), 3.0
        ),
        Measured(np.arange(8), counts + random.normal(0, 6, 8), 6.0),
    )
    found = shares_of_bins(parts, 8, False, 3000.0)
    assert np.abs(found - slow(parts, 8, 3000.0)).max() < 1e-3


def shapes() -> dict[str, Any]:
    place = (np.arange(80) + 0.5) / 80
    return {
        "hill": np.exp(-(((place - 0.4) / 0.15) ** 2)),
        "even": np.ones(80),
        "falling": np.exp(-place * 6),
        "spike at the lowest value": np.where(np.arange(80) == 0, 100.0, 1.0),
        "a tenth of the range": np.where(place < 0.1, 1.0, 0.0),
    }


@pytest.mark.parametrize("shape", shapes())
def test_shares_are_nearer_than_by_any_level_alone(shape: str) -> None:
    """Tables of ten bins, of 500 records with a noise of 15 in a count: on the mean of twenty draws nearer
    than by the wide or the narrow bins alone. Only where all records are in one wide bin and none beside it
    does smoothing cost something.
    """
    most = 1.2 if shape == "a tenth of the range" else 0.9
    density = shapes()[shape]
    counts = np.floor(density / density.sum() * 500).astype(np.int64)
    tenth = owner_of(levels().narrow, levels().wide)
    true, errors = np.bincount(tenth, counts) / counts.sum(), []
    for seed in range(20):
        wide, narrow, table = measured(counts, 15.0, np.random.default_rng(seed))
        found = shares_of_bins((wide, narrow, table), 80, False, float(counts.sum()))
        others = (on_simplex(wide.counts, 1.0), np.bincount(tenth, on_simplex(narrow.counts, 1.0)))
        errors.append([np.abs(one - true).sum() / 2 for one in (np.bincount(tenth, found), *others)])
    ours, *alone = np.mean(errors, axis=0)
    assert ours < most * min(alone)


def test_missing_values_are_no_neighbours_of_the_highest() -> None:
    """A fifth is missing: smoothing does not carry them into the values."""
    counts = np.append(np.full(80, 50), 1000)
    found = shares_of_bins(measured(counts, 10.0, np.random.default_rng(0), True), 80, True, 5000.0)
    assert found[-1] == pytest.approx(0.2, abs=0.01)
    assert found[70:80].sum() == pytest.approx(0.1, abs=0.02)


def test_edges_are_placed_where_records_are() -> None:
    """All records in the lowest tenth, without noise: so are all edges but the last."""
    counts = np.zeros(80, np.int64)
    counts[:8] = 100
    edges = merged_edges(levels().narrow, levels().placed(levels().vector(counts)), 8)
    assert edges == pytest.approx(np.arange(1, 8) / 80)


def test_bins_of_a_table_own_narrow_ones() -> None:
    assert owner_of((0.25, 0.5, 0.75), (0.25, 0.5)).tolist() == [0, 1, 2, 2]


def test_a_release_of_the_first_version_is_read_as_before() -> None:
    """It had narrow counts alone, with missing values among them, and says nothing of wide bins."""
    columns = [
        Column("a", "number", bounds=(0.0, 1.0), missing=True),
        Column("b", "number", bounds=(0.0, 1.0)),
        Column("y", "category", width=2, categories=("n", "p")),
    ]
    edges, fine = [[0.5], [0.5], []], [[0.25, 0.5, 0.75], [0.5, 0.75], []]
    bins = Bins(tuple(Binned(column, tuple(one)) for column, one in zip(columns, edges, strict=True)))
    random = np.random.default_rng(0)
    found = np.column_stack([random.integers(0, size, 900) for size in bins.sizes])
    rows = one_hot(found, np.ones(900), bins.sizes)
    layout = Layout(bins.sizes, Weights(2.0, 1.5))
    counts = np.array([100, 200, 150, 150, 300, 500, 250, 150])
    details = {
        "data": {"n": 900},
        "columns": json.loads(json.dumps([asdict(column) for column in columns])),
        "edges": edges,
        "fine": fine,
        "weights": {"single": 2.0, "label": 1.5, "pair": 1.0},
        "sums": {"tables": {"scale": 1.0}, "histograms": {"scale": 3.0}},
    }
    tensors = {"tables": vector_of((rows.T @ rows).astype(np.int64), layout), "histograms": counts}
    known = distribution_of(details, tensors)
    assert [one.edges for one in known.fine.values()] == [(0.25, 0.5, 0.75), (0.5, 0.75)]
    (first,), (second,) = (one.measured for one in known.fine.values())
    assert first.counts.tolist() == [100, 200, 150, 150, 300] and second.counts.tolist() == [500, 250, 150]
    assert (first.deviation, second.deviation) == (3.0, 3.0)
    shares = shares_of(known)
    assert all(one.sum() == pytest.approx(1) for one in shares.ones) and len(shares.fine[0]) == 4


@pytest.mark.parametrize("missing", [False, True])
def test_counts_that_are_all_drowned_still_give_shares(missing: bool) -> None:
    bins = levels(missing)
    drowned = np.full(bins.size, -30_000)
    found = shares_of_bins(bins.measured(drowned, 10_000.0), 80, missing, 1.0)
    assert np.isfinite(found).all() and (found >= 0).all() and found.sum() == pytest.approx(1)
