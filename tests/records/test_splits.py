"""Splits have exact public sizes, follow row position and key, and never call private records public."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airlock.errors import ParamsError
from airlock.params import Params
from airlock.records.schema import Schema
from airlock.records.splits import permute, plan_split, resolve_holdout

KEYS = st.binary(min_size=32, max_size=32)


def schema(public: bool) -> Schema:
    label = {"column": "y", "classes": ["a", "b"]}
    return Schema.model_validate({"name": "clinic", "kind": "tabular", "public": public, "label": label})


def params(holdout: str = "auto", **ingest: Any) -> Params:
    return Params.model_validate({"dataset": "clinic", "evaluate": {"holdout": holdout}, "ingest": ingest})


@given(n=st.integers(1, 3000), key=KEYS)
def test_the_keyed_order_is_a_permutation(n: int, key: bytes) -> None:
    assert sorted(permute(np.arange(n, dtype=np.uint64), n, key).tolist()) == list(range(n))


@given(n=st.integers(2, 2**40), key=KEYS, data=st.data())
def test_large_orders_stay_inside_and_apart(n: int, key: bytes, data: st.DataObject) -> None:
    positions = sorted(data.draw(st.sets(st.integers(0, n - 1), max_size=20)))
    places = permute(np.array(positions, dtype=np.uint64), n, key)
    assert len(set(places.tolist())) == len(positions)
    assert all(0 <= place < n for place in places.tolist())


@given(n=st.integers(2, 2000), fraction=st.floats(0.01, 0.99), key=KEYS, cut=st.integers(0, 2000))
def test_split_sizes_are_exact_and_batches_do_not_matter(
    n: int, fraction: float, key: bytes, cut: int
) -> None:
    try:
        split = plan_split(params(holdout_fraction=fraction), schema(True), n=n, n_file=None)
    except ParamsError:
        assert int(n * fraction) in (0, n)
        return
    held, cut = split.held_out(0, n, key), min(cut, n)
    assert split.n_holdout == held.sum() == int(n * fraction)
    assert split.n == n - held.sum()
    parts = np.concatenate([split.held_out(0, cut, key), split.held_out(cut, n - cut, key)])
    assert np.array_equal(parts, held)


@settings(max_examples=30)
@given(n=st.integers(20, 500), folds=st.integers(2, 20), key=KEYS)
def test_folds_share_the_records_between_them(n: int, folds: int, key: bytes) -> None:
    splits = [
        plan_split(params(folds=folds, fold=fold), schema(True), n=n, n_file=None) for fold in range(folds)
    ]
    assert (np.sum([split.held_out(0, n, key) for split in splits], axis=0) == 1).all()
    assert max(split.n_holdout for split in splits) - min(split.n_holdout for split in splits) <= 1


def test_another_key_is_another_split_of_the_same_size() -> None:
    split = plan_split(params(), schema(True), n=1000, n_file=None)
    first, second = split.held_out(0, 1000, bytes(32)), split.held_out(0, 1000, bytes([1]) * 32)
    assert first.sum() == second.sum() == 200
    # Independent halves of 200 in 1000 share 40 on average, with a standard deviation of about 5.
    assert 10 < (first & second).sum() < 70


def test_positions_are_spread_over_the_file() -> None:
    held = plan_split(params(), schema(True), n=100_000, n_file=None).held_out(0, 100_000, bytes(range(32)))
    tenths = held.reshape(10, -1).mean(axis=1)
    assert abs(tenths - 0.2).max() < 0.02


RESOLVED = [
    ("auto", True, False, {}, "public", "records"),
    ("auto", True, True, {}, "public", "file"),
    ("auto", True, True, {"folds": 5}, "public", "records"),
    ("auto", True, False, {"holdout_fraction": 0}, "none", "none"),
    ("auto", False, False, {}, "none", "none"),
    ("auto", False, True, {}, "public", "file"),
    ("auto", False, True, {"folds": 5}, "public", "file"),
    ("none", True, True, {}, "none", "none"),
    ("none", False, False, {}, "none", "none"),
    ("public", True, False, {}, "public", "records"),
    ("public", True, True, {"holdout_fraction": 0}, "public", "file"),
    ("public", False, True, {}, "public", "file"),
    ("private", False, False, {}, "private", "records"),
    ("private", False, True, {}, "private", "records"),
    ("private", False, False, {"folds": 5}, "private", "records"),
]


@pytest.mark.parametrize(("asked", "public", "file", "ingest", "holdout", "source"), RESOLVED)
def test_holdout_is_what_is_honest(
    asked: str, public: bool, file: bool, ingest: dict[str, Any], holdout: str, source: str
) -> None:
    assert resolve_holdout(params(asked, **ingest), schema(public), file) == holdout
    split = plan_split(params(asked, **ingest), schema(public), n=100, n_file=10 if file else None)
    assert (split.holdout, split.source) == (holdout, source)
    assert (split.n, split.n_holdout) == {"none": (100, 0), "file": (100, 10), "records": (80, 20)}[source]


def test_a_split_of_private_records_can_never_be_public() -> None:
    for ingest in ({}, {"folds": 5}, {"holdout_fraction": 0}):
        with pytest.raises(ParamsError, match="can never be public"):
            resolve_holdout(params("public", **ingest), schema(False), False)
    # Not by a file beside it, either: folds of private records are not the file.
    assert plan_split(params("public", folds=5), schema(False), n=100, n_file=10).source == "file"


def test_impossible_splits_are_one_line() -> None:
    for asked, ingest, line in [
        ("private", {"holdout_fraction": 0}, "nothing is held out"),
        ("public", {"holdout_fraction": 0}, "nothing is held out"),
        ("auto", {"folds": 1}, "do not fit"),
        ("auto", {"folds": 5, "fold": 5}, "do not fit"),
        ("auto", {"fold": 1}, "do not fit"),
        ("auto", {"holdout_fraction": 0.001}, "cannot be split"),
        ("auto", {"folds": 200}, "cannot be split"),
    ]:
        with pytest.raises(ParamsError, match=line):
            plan_split(params(asked, **ingest), schema(True), n=100, n_file=None)
