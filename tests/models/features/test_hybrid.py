"""The hybrid map of tables: exact, of bounded norm, a function of one record, and named by what it computes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from airlock.errors import ParamsError
from airlock.models.features import hybrid
from airlock.models.features.features import feature_map
from airlock.models.features.rows import LIMIT
from airlock.models.features.tables import PHASES, STEPS

LAYOUT = "nx3.g4x2.c3.n"
NAME = f"hybrid-50-1@{LAYOUT}"
SHAPE = (9,)
records = arrays(np.float64, (4, 9), elements=st.floats(0, 1))
columns = st.lists(
    st.one_of(
        st.just(("n", 0)),
        st.tuples(st.just("g"), st.sampled_from(hybrid.GRID)),
        st.tuples(st.just("c"), st.integers(1, 300)),
    ),
    min_size=1,
    max_size=20,
)


@given(x=records)
def test_rows_are_whole_numbers_within_the_limit(x: np.ndarray) -> None:
    rows = feature_map(NAME, "tabular", SHAPE)(x, np.ones(4, np.uint8))
    assert np.array_equal(rows, np.trunc(rows))
    assert all(sum(int(value) ** 2 for value in row) <= LIMIT**2 for row in rows)


@given(x=records, order=st.permutations(range(4)))
def test_a_row_does_not_depend_on_the_batch(x: np.ndarray, order: list[int]) -> None:
    made, valid = feature_map(NAME, "tabular", SHAPE), np.ones(4, np.uint8)
    rows = made(x, valid)
    assert np.array_equal(made(x[order], valid), rows[order])
    assert np.array_equal(made(x[2:3], valid[:1]), rows[2:3])


@given(x=records)
def test_one_record_moves_sums_by_no_more_than_their_sensitivity(x: np.ndarray) -> None:
    """Zero-out and replace-one, of the sum of rows and of the Gram matrix, in exact integers."""
    made, valid = feature_map(NAME, "tabular", SHAPE), np.ones(4, np.uint8)
    without, rows = valid.copy(), made(x, valid)
    without[1] = 0
    gone = made(x, without)
    assert not gone[1].any()
    moved = [int(value) for value in (rows - gone).sum(axis=0)]
    assert sum(value**2 for value in moved) <= LIMIT**2
    left, right = (np.array([int(value) for value in row], dtype=object) for row in rows[:2])
    assert ((left - right) ** 2).sum() <= (2 * LIMIT) ** 2
    assert ((np.outer(left, left) - np.outer(right, right)) ** 2).sum() <= 2 * LIMIT**4


def test_the_slow_oracle_says_the_same() -> None:
    """One record, one feature at a time, in Python's whole numbers."""
    x = np.random.default_rng(0).random((5, 9))
    x[:, 5:8] = np.eye(3)[[0, 1, 2, 0, 1]]
    directions, offsets = hybrid.directions(LAYOUT, 50)
    table = [round(STEPS * math.cos(2 * math.pi * step / PHASES)) for step in range(PHASES)]
    wave, line = round(1024 * math.sqrt(2 / 50)), round(1024 * 4 / math.sqrt(7))
    for record, row in zip(x, feature_map(NAME, "tabular", SHAPE)(x, np.ones(5, np.uint8)), strict=True):
        root = [math.trunc((2 * math.sqrt(record[place]) - 1) * 4096) for place in (0, 1, 2, 8)]
        tents = [
            math.trunc(max(1 - abs(record[place] * 4 - point), 0.0) * 4096)
            for place in (3, 4)
            for point in range(5)
        ]
        levels = [int(value) * 4096 for value in record[5:8]]
        z = [*root[:3], *tents, *levels, root[3]]
        doubled = [2 * v for v in root[:3]] + tents + levels + [2 * root[3]]
        values = []
        for feature in range(50):
            turned = sum(int(directions[i, feature]) * v for i, v in enumerate(doubled))
            phase = turned // (2 * 4096) + int(offsets[feature])
            values.append(table[phase % PHASES] * wave)
        values += [v * line for v in z]
        scale = LIMIT / math.sqrt(sum(v * v for v in values))
        assert row.tolist() == [math.trunc(v * scale) for v in values]


def test_a_map_with_more_features_than_are_exact_is_refused() -> None:
    assert feature_map("hybrid-1-1@c65535x2", "tabular", (2 * 65535,)).width == 2 * 65535 + 1
    with pytest.raises(ParamsError, match="is not a map"):
        feature_map("hybrid-8-1@c65535x3", "tabular", (3 * 65535,))


def test_cosines_approximate_gaussian_kernels_of_two_widths() -> None:
    x = np.random.default_rng(0).uniform(0.3, 0.5, (30, 4))
    waves = feature_map("hybrid-8000-1", "tabular", (4,))(x, np.ones(30, np.uint8))[:, :8000]
    waves /= np.sqrt((waves**2).sum(axis=1, keepdims=True))
    spread = 2 * np.sqrt(x)
    distances = ((spread[:, None] - spread[None]) ** 2).sum(axis=2)
    kernel = sum(np.exp(-distances / (2 * width**2 * 4)) for width in hybrid.BANDWIDTHS) / 2
    assert np.abs(waves @ waves.T - kernel).max() < 0.1


@pytest.mark.parametrize("levels", [2, 20, 200])
def test_a_wide_category_does_not_drown_the_numbers(levels: int) -> None:
    """The part of a row that is numbers hardly depends on how many levels stand beside them."""
    made = feature_map(f"hybrid-64-1@nx4.c{levels}", "tabular", (4 + levels,))
    x = np.zeros((1, 4 + levels))
    x[0, :4], x[0, 4] = 0.9, 1
    row = made(x, np.ones(1, np.uint8))[0]
    assert 0.6 < math.sqrt((row[64:68] ** 2).sum()) / LIMIT < 0.9


def test_a_grid_tells_its_whole_values_apart() -> None:
    made = feature_map("hybrid-32-1@g3", "tabular", (1,))
    rows = made(np.arange(4)[:, None] / 3, np.ones(4, np.uint8))[:, 32:]
    assert np.array_equal(rows > 0, np.eye(4, dtype=bool))


@given(found=columns)
def test_a_layout_says_what_the_columns_are(found: list[tuple[str, int]]) -> None:
    runs = hybrid.runs_of(hybrid.layout(found))
    assert [(run.kind, run.size) for run in runs for _ in range(run.count)] == found
    assert hybrid.columns_of(hybrid.layout(found)) == len(found)


@pytest.mark.parametrize(
    "name",
    ["hybrid-0-1", "hybrid-8-2", "hybrid-8-1@nx8", "hybrid-8-1@", "hybrid-8-1@g1x9", "hybrid-8-1@g12x9",
     "hybrid-8-1@c0.nx9", "hybrid-8-1@nx0.nx9", "hybrid-8-1@n9", "hybrid-8-1@nx9.", "hybrid-8-1@nx9999999"],
)  # fmt: skip
def test_what_is_no_layout_of_these_columns_is_refused(name: str) -> None:
    with pytest.raises(ParamsError, match="is not a map"):
        feature_map(name, "tabular", SHAPE)
