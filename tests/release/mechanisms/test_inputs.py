"""`inputs`: what is released is what the proof says, no record moves it farther, and tables come back."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airlock.errors import ParamsError
from airlock.models import bins as binning
from airlock.models.bins import Binned, Bins, Column, even_edges, merged_edges, on_simplex
from airlock.models.histograms import ENERGY, Levels
from airlock.models.marginals import GRID, Layout, Weights, one_hot, tables_of, vector_of
from airlock.params import Params
from airlock.privacy import sensitivity
from airlock.privacy.noise import add_noise
from airlock.records.encoding import described_columns, encode, encoded_shape
from airlock.records.schema import Schema
from stages.release.mechanisms import inputs
from tests.support.sealed_records import KEY, facts, seal, table

SCHEMA = Schema.model_validate(
    {
        "name": "mixed",
        "kind": "tabular",
        "confirmed": True,
        "label": {"column": "ill", "classes": ["no", "yes"]},
        "columns": [
            {"name": "age", "type": "number", "bounds": [0, 10], "whole": True},
            {"name": "dose", "type": "number", "bounds": [0, 1e6], "missing": "impute"},
            {"name": "ward", "type": "category", "categories": ["a", "b", "c"], "missing": "impute"},
            {"name": "seen", "type": "date", "unit": "day", "bounds": ["2020-01-01", "2021-01-01"]},
        ],
    }
)


def asked(near: str = "zero-out", **release: Any) -> Params:
    return Params.model_validate({"release": {"mechanism": "inputs", "neighbours": near, **release}})


def mixed(n: int = 60, seed: int = 0) -> tuple[Any, Any, Any]:
    """Records of every kind of column, encoded, with null records among them, and their facts."""
    import pyarrow as pa

    random = np.random.default_rng(seed)
    doses = [None if random.random() < 0.2 else float(10 ** random.uniform(0, 6)) for _ in range(n)]
    wards = [None if random.random() < 0.2 else str(random.choice(list("abc"))) for _ in range(n)]
    records = pa.table(
        {
            "age": random.integers(0, 11, n),
            "dose": doses,
            "ward": wards,
            "seen": np.datetime64("2020-01-01") + random.integers(0, 367, n),
            "ill": random.choice(["no", "yes"], n),
        }
    )
    encoded = encode(records, SCHEMA)
    about = facts(encoded.x, 2, columns=described_columns(SCHEMA), label="ill", n=n)
    assert about.shape == encoded_shape(SCHEMA)
    return encoded.x, encoded.y, about


def test_every_record_is_in_exactly_one_bin_of_every_column() -> None:
    """Also one that no schema could have made."""
    x, y, about = mixed()
    random = np.random.default_rng(1)
    for records in (x, np.zeros_like(x), np.ones_like(x), random.random(x.shape)):
        recipe = inputs.resolve(asked(options={"bins": 5}, passes=1), about)
        bins = Bins(tuple(map(Binned, recipe.columns, recipe.even)))
        found = bins.of(records, y)
        assert (found >= 0).all() and (found < np.array(bins.sizes)).all()
        rows = one_hot(found, np.ones(len(y)), bins.sizes)
        assert (rows.sum(axis=1) == len(bins.columns)).all()


def test_missing_values_have_a_bin_of_their_own_and_wide_bounds_a_logarithm() -> None:
    x, _, about = mixed()
    recipe = inputs.resolve(asked(options={"bins": 6}, passes=1), about)
    age, dose, ward, seen, ill = map(Binned, recipe.columns, recipe.even)
    assert (age.bins, dose.bins, ward.bins, seen.bins, ill.bins) == (6, 7, 4, 6, 2)
    assert dose.edges[0] < 2e-5 and np.allclose(seen.edges, np.arange(1, 6) / 6, atol=0.01)
    missing = x[:, 2] > 0
    assert missing.any() and (dose.of(x[:, 1:3])[missing] == 6).all()
    assert (dose.of(x[:, 1:3])[~missing] < 6).all()
    # Whole numbers are divided between two of them.
    assert all(edge * 10 % 1 == pytest.approx(0.5) for edge in age.edges)
    assert even_edges(Column("k", "number", bounds=(1, 1e6)), 6) == pytest.approx(
        [(10.0**k - 1) / (1e6 - 1) for k in range(1, 6)]
    )
    assert even_edges(Column("k", "number", bounds=(0, 4), whole=True), 64) == (0.125, 0.375, 0.625, 0.875)


def slow_vector(found: Any, valid: Any, sizes: Any, weights: Weights) -> Any:
    """The coordinates of the proof, record by record, with Python's integers."""
    c, total = len(sizes), None
    for bins, known in zip(found, valid, strict=True):
        a = [[size * (place == bins[i]) - 1 for place in range(size)] for i, size in enumerate(sizes)]
        row = [GRID]
        for i, size in enumerate(sizes):
            row += [int(weights.single * GRID) // size * entry for entry in a[i]]
        for i, j in itertools.combinations(range(c), 2):
            weight = int((weights.label if j == c - 1 else weights.pair) * GRID) // (sizes[i] * sizes[j])
            row += [weight * one * other for one in a[i] for other in a[j]]
        row = [entry * int(known) for entry in row]
        total = row if total is None else [one + other for one, other in zip(total, row, strict=True)]
    return np.array(total)


def slow_histograms(x: Any, valid: Any, column: Column, wide: Any, fine: Any) -> list[int]:
    """Two for a record's wide bin or for its missing value, one for its narrow bin, record by record."""
    loud, quiet = [0] * (len(wide) + 1 + column.missing), [0] * (len(fine) + 1)
    for record, known in zip(x, valid, strict=True):
        if not known:
            continue
        if column.missing and record[1] > 0:
            loud[-1] += 2
            continue
        loud[sum(edge <= record[0] for edge in wide)] += 2
        quiet[sum(edge <= record[0] for edge in fine)] += 1
    return loud + quiet


@pytest.mark.parametrize("passes", [1, 2])
def test_the_release_is_what_the_slow_oracle_says(tmp_path: Path, passes: int) -> None:
    x, y, about = mixed()
    valid = np.arange(len(y)) % 7 > 0
    params = asked(passes=passes, epsilon=2.0, options={"bins": 4, "label_weight": 2.0, "single_weight": 0.5})
    with seal(tmp_path, x, y, valid) as reader:
        tensors, details = inputs.make(params, about, reader, key=KEY, release_id="id")
    bins = Bins(
        tuple(
            Binned(Column.from_json(json.loads(json.dumps(column))), tuple(edges))
            for column, edges in zip(details["columns"], details["edges"], strict=True)
        )
    )
    weights = Weights(**details["weights"])
    exact = slow_vector(bins.of(x, y), valid, bins.sizes, weights)
    told = details["sums"]["tables"]
    noisy = add_noise(
        exact, key=KEY, release_id="id", release_pass=told["pass"], purpose="tables", scale=told["scale"]
    )
    assert np.array_equal(tensors["tables"], noisy)
    assert ("histograms" in tensors) == (passes == 2)
    if passes == 2:
        counts = [
            count
            for one, wide, fine, start in zip(
                bins.columns, details["wide"], details["fine"], bins.starts, strict=True
            )
            if fine
            for count in slow_histograms(
                x[:, start : start + one.column.places], valid, one.column, wide, fine
            )
        ]
        told = details["sums"]["histograms"]
        assert np.array_equal(
            tensors["histograms"],
            add_noise(
                np.array(counts, np.int64),
                key=KEY,
                release_id="id",
                release_pass=1,
                purpose="histograms",
                scale=told["scale"],
            ),
        )


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(1, 3), min_size=2, max_size=4),
    st.sampled_from([0.5, 1.0, 1.75]),
    st.sampled_from([0.5, 1.0, 3.0]),
)
def test_no_pair_of_records_is_farther_apart_than_the_sensitivity(
    sizes: list[int], single: float, label: float
) -> None:
    weights = Weights(single, label, 1.0)
    layout = Layout(tuple(sizes), weights)
    records = list(itertools.product(*(range(size) for size in sizes)))
    rows = [slow_vector([one], [1], sizes, weights).astype(np.float64) for one in records]
    for near, distances in (
        ("zero-out", [np.linalg.norm(row) for row in rows]),
        ("replace-one", [np.linalg.norm(one - other) for one in rows for other in [*rows, 0 * rows[0]]]),
    ):
        bound = sensitivity.marginals(sizes, grid=GRID, single=single, label=label, pair=1.0, neighbours=near)
        assert max(distances) <= bound
        # Rounding to the grid is all that lies between them.
        assert max(distances) >= bound * (1 - 1e-6)
        larger = sensitivity.marginals(
            [size + 1 for size in sizes], grid=GRID, single=single, label=label, pair=1.0, neighbours=near
        )
        assert larger >= bound
    assert layout.cells == len(rows[0])


def test_the_sensitivity_is_reached() -> None:
    """Numbers from the proof: all tables of three columns of two bins."""
    given = {"grid": 1, "single": 1.0, "label": 1.0, "pair": 1.0}
    assert sensitivity.marginals([2, 2, 2], **given) == pytest.approx((1 + 1.5 + 0.75) ** 0.5)
    # One column differs: 1 + 1/2 + 1/2; two: 2 + 1/2 + 1/2 + 0; all: 3.
    far = sensitivity.marginals([2, 2, 2], neighbours="replace-one", **given)
    assert far == pytest.approx((2 * 3.0) ** 0.5)
    assert sensitivity.histograms(9) == 3.0
    assert sensitivity.histograms(2, neighbours="replace-one") == 2.0


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 12), st.booleans(), st.booleans(), st.integers(1, 3))
def test_no_two_records_move_two_levels_farther_than_they_are_priced_at(
    last: int, whole: bool, missing: bool, columns: int
) -> None:
    """All pairs of what a record can be in one column: the worst is in every column at once."""
    column = Column("c", "number", bounds=(0.0, float(last)), whole=whole, missing=missing)
    levels = Levels(even_edges(column, binning.WIDE_BINS), even_edges(column, binning.FINE), missing)
    ones = [levels.vector(one) for one in np.eye(len(levels.narrow) + 1 + missing, dtype=np.int64)]
    assert all(one.dtype == np.int64 and len(one) == levels.size for one in ones)
    for near, squares in (
        ("zero-out", [int(one @ one) for one in ones]),
        (
            "replace-one",
            [int((one - other) @ (one - other)) for one in ones for other in [*ones, 0 * ones[0]]],
        ),
    ):
        bound = sensitivity.histograms(columns, energy=ENERGY, neighbours=near)
        assert np.sqrt(columns * max(squares)) <= bound
        if len(levels.wide) > 0:
            assert np.sqrt(columns * max(squares)) == pytest.approx(bound)


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-3.0, 1e7), (1.0, 1e4), (0.0, 23.0)])
@pytest.mark.parametrize("whole", [False, True])
def test_every_wide_edge_is_a_narrow_one(bounds: tuple[float, float], whole: bool) -> None:
    column = Column("c", "number", bounds=bounds, whole=whole)
    wide, narrow = (even_edges(column, size) for size in (binning.WIDE_BINS, binning.FINE))
    assert set(wide) <= set(narrow)


def test_tables_come_back_without_noise() -> None:
    x, y, about = mixed(200)
    recipe = inputs.resolve(asked(options={"bins": 5}, passes=1), about)
    bins = Bins(tuple(map(Binned, recipe.columns, recipe.even)))
    found = bins.of(x, y)
    rows = one_hot(found, np.ones(len(y)), bins.sizes)
    layout = Layout(bins.sizes)
    tables = tables_of(vector_of((rows.T @ rows).astype(np.int64), layout), layout, scale=1.0, n=len(y))
    assert tables.total == len(y)
    for i, size in enumerate(bins.sizes):
        assert np.allclose(tables.ones[i], np.bincount(found[:, i], minlength=size))
        for j in range(i):
            wanted = np.zeros((size, bins.sizes[j]))
            np.add.at(wanted, (found[:, i], found[:, j]), 1)
            assert np.allclose(tables.pair(i, j), wanted)


def test_null_records_are_not_counted_where_noise_cannot_hide_them() -> None:
    layout = Layout((2, 2))
    rows = one_hot(np.zeros((100, 2), np.int64), np.arange(100) < 60, (2, 2))
    vector = vector_of((rows.T @ rows).astype(np.int64), layout)
    assert tables_of(vector, layout, scale=1.0, n=100).total == 60
    assert tables_of(vector, layout, scale=30.0 * GRID, n=100).total == 100


def test_what_is_not_offered_is_refused_by_name() -> None:
    _, _, about = mixed()
    for params, known, words in (
        (asked(), replace(about, kind="image", shape=(8, 8, 1)), "is for tables"),
        (asked(features="tabular-2"), about, "release.features"),
        (asked(passes=3), about, "use auto, 1 or 2"),
        (asked(), replace(about, columns=None, shape=(400,)), "up to 127 columns"),
        (asked(), replace(about, columns=about.columns[:-1]), "dvc repro ingest"),
        (Params.model_validate({**asked().model_dump(), "relevance": {"mode": "statistics"}}), about, "relevance"),
    ):  # fmt: skip
        with pytest.raises(ParamsError, match=words):
            inputs.plan(params, known)
    wide = [{"name": f"c{k}", "type": "category", "width": 3000, "missing": False} for k in range(2)]
    with pytest.raises(ParamsError, match="fewer categories"):
        inputs.plan(asked(), replace(about, columns=wide, shape=(6000,)))


def test_bins_grow_with_records_and_budget_and_shrink_with_columns() -> None:
    def bins(n: int, columns: int, epsilon: float) -> int:
        about = facts(np.zeros((1, columns)), 2, n=n)
        found: int = inputs.resolve(asked(epsilon=epsilon), about).bins
        return found

    assert bins(500, 10, 1) <= bins(5_000, 10, 1) <= bins(50_000, 10, 1) <= inputs.MOST_BINS
    assert bins(5_000, 10, 0.1) < bins(5_000, 10, 3)
    assert bins(5_000, 60, 1) < bins(5_000, 6, 1)
    # So many cells that bins become coarser.
    assert bins(10**8, 120, 8) < inputs.MOST_BINS


def test_edges_are_asked_for_where_a_column_has_more_fine_bins_than_bins() -> None:
    for last, whole, passes in ((1.0, False, 2), (40.0, True, 2), (2.0, True, 1)):
        columns = [
            {"name": f"c{k}", "type": "number", "width": 1, "bounds": [0.0, last], "whole": whole}
            for k in range(9)
        ]
        known = facts(np.zeros((1, 9)), 2, n=400, columns=columns)
        assert inputs.resolve(asked(), known).passes == passes, last


@pytest.mark.parametrize("columns", [2, 9, 60])
def test_tables_of_one_column_and_of_the_label_are_louder_by_their_number(columns: int) -> None:
    """Two parts for tables of one column, two for those with the label, one for all others."""
    about = facts(np.zeros((1, columns)), 2, n=400)
    weights = inputs.resolve(asked(), about).weights
    assert weights.single**2 == pytest.approx(columns)
    assert weights.label**2 == pytest.approx(columns) and weights.pair == 1.0
    named = inputs.resolve(asked(options={"single_weight": 1.0, "label_weight": 1.0}), about).weights
    assert (named.single, named.label) == (1.0, 1.0)


def test_a_user_with_many_records_costs_more_noise() -> None:
    _, _, about = mixed()
    alone = inputs.plan(asked(options={"bins": 4}, passes=1), about)
    users = inputs.plan(
        asked(options={"bins": 4}, passes=1, unit="user"), replace(about, per_user=3, users=20)
    )
    (one,), (three,) = (
        inputs.queries(inputs.resolve(params, known), params)
        for params, known in (
            (asked(options={"bins": 4}, passes=1), about),
            (asked(options={"bins": 4}, passes=1, unit="user"), replace(about, per_user=3, users=20)),
        )
    )
    assert three.sensitivity == pytest.approx(3 * one.sensitivity)
    assert alone.proven.epsilon == pytest.approx(users.proven.epsilon)


def test_edges_follow_the_released_histogram() -> None:
    fine = tuple(np.arange(1, 64) / 64)
    counts = np.zeros(64)
    counts[:8] = 100.0
    edges = merged_edges(fine, counts, 8)
    assert len(edges) == 7 and edges == pytest.approx(np.arange(1, 8) / 64)
    spiked = np.ones(64)
    spiked[10] = 1000.0
    edges = merged_edges(fine, spiked, 4)
    assert 10 / 64 in edges and 11 / 64 in edges
    for bins in (2, 5, 64):
        edges = merged_edges(fine, np.random.default_rng(0).normal(0, 10, 64), bins)
        assert len(edges) == len(set(edges)) == bins - 1 and list(edges) == sorted(edges)


def test_the_nearest_shares_are_shares() -> None:
    found = on_simplex(np.array([[5.0, -3.0], [0.5, 1.5]]), 10.0)
    assert found.sum() == pytest.approx(10) and (found >= 0).all() and found[0, 0] > found[1, 1] > 0
    assert on_simplex(np.zeros(4), 1.0) == pytest.approx(np.full(4, 0.25))
    assert (on_simplex(-np.ones(3), 3.0) >= 0).all()


def test_plain_columns_stand_for_records_of_which_nothing_else_is_known() -> None:
    x, _ = table(24, 4, 3)
    recipe = inputs.resolve(asked(), facts(x, 3))
    assert recipe.columns[:-1] == binning.plain_columns(4)
    assert recipe.columns[-1].width == 3
