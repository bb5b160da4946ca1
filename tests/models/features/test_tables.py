"""Feature maps of tables."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from airlock.models.features.features import choose, feature_map
from airlock.models.features.rows import LIMIT

records = arrays(np.float64, (4, 9), elements=st.floats(0, 1))


@pytest.mark.parametrize("name", ["tabular-2", "cosine-50-1"])
@given(x=records)
def test_rows_are_whole_numbers_within_the_limit(name: str, x: np.ndarray) -> None:
    rows = feature_map(name, "tabular", (9,))(x, np.ones(4, np.uint8))
    assert np.array_equal(rows, np.trunc(rows))
    assert all(sum(int(value) ** 2 for value in row) <= LIMIT**2 for row in rows)


@pytest.mark.parametrize("name", ["tabular-2", "cosine-50-1"])
@given(x=records, order=st.permutations(range(4)))
def test_a_row_does_not_depend_on_the_batch(name: str, x: np.ndarray, order: list[int]) -> None:
    made, valid = feature_map(name, "tabular", (9,)), np.ones(4, np.uint8)
    rows = made(x, valid)
    assert np.array_equal(made(x[order], valid), rows[order])
    assert np.array_equal(made(x[2:3], valid[:1]), rows[2:3])


def test_cosine_features_approximate_a_gaussian_kernel() -> None:
    x = np.random.default_rng(0).uniform(0.3, 0.5, (30, 4))
    rows = feature_map("cosine-4000-1", "tabular", (4,))(x, np.ones(30, np.uint8)) / LIMIT
    spread = 2 * np.sqrt(x)
    distances = ((spread[:, None] - spread[None]) ** 2).sum(axis=2)
    assert np.abs(rows @ rows.T - np.exp(-distances / (2 * 0.25**2 * 4))).max() < 0.1


def test_auto_is_the_schemas_map_or_the_kinds() -> None:
    assert choose("auto", "image", "gabor-1") == "gabor-1"
    assert choose("auto", "image", None) == "hog-2"
    assert choose("hog-1", "image", "gabor-1") == "hog-1"
