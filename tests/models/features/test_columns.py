"""Where rows of a hybrid map lie by the columns of its table."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airlock.models.features import columns, public
from airlock.models.features.features import feature_map
from airlock.models.features.projection import check_steps, spectral_radius
from airlock.models.features.rows import LIMIT

NAME, SHAPE = "hybrid-32-1@nx4.g3", (5,)


def drawn(count: int, seed: int = 3, width: float = 0.05) -> np.ndarray:
    """Records whose columns hang together."""
    generator = np.random.default_rng(seed)
    mixed = generator.normal(size=(count, 5)) @ np.tril(np.full((5, 5), width)).T
    return np.clip(mixed + np.array([0.3, 0.5, 0.5, 0.6, 0.5]), 0, 1)


def gram_of(records: np.ndarray) -> np.ndarray:
    rows = columns.rows_of(records, np.ones(len(records), np.uint8)) / LIMIT
    return rows.T @ rows / len(rows)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.lists(st.floats(-2, 3), min_size=3, max_size=3), min_size=1, max_size=4), st.integers(0, 3)
)
def test_rows_are_whole_and_no_longer_than_what_is_priced(records: list[list[float]], null: int) -> None:
    """Against whole numbers of any size; what lies outside its bounds counts as if on them."""
    valid = np.array([place != null for place in range(len(records))], np.uint8)
    rows = columns.rows_of(np.array(records), valid)
    for place, row in enumerate(rows):
        whole = [int(value) for value in row]
        assert whole == row.tolist()
        assert sum(value * value for value in whole) <= LIMIT * LIMIT
        assert any(whole) == bool(valid[place])
        if valid[place]:
            plain = [2 * min(1.0, max(0.0, value)) - 1 for value in records[place]] + [3**-0.5]
            expected = np.array(plain) / np.linalg.norm(plain)
            assert np.abs(row / LIMIT - expected).max() < 2e-3


@pytest.mark.parametrize(("width", "off"), [(0.01, 0.05), (0.05, 0.3)])
def test_without_noise_the_law_of_many_records_is_found_again(width: float, off: float) -> None:
    """The constant beside the columns gives the lengths back that rows lost: the less these vary, the better."""
    records = drawn(50_000, width=width)
    mean, factor = columns.law_of(columns.cleaned(gram_of(records), 0.0))
    plain = 2 * records - 1
    assert np.abs(mean - plain.mean(axis=0)).max() < width / 2
    found, true = factor @ factor.T, np.cov(plain.T)
    assert np.linalg.norm(found - true) < off * np.linalg.norm(true)
    control = np.linalg.norm(np.diag(np.diag(true)) - true)
    assert np.linalg.norm(found - true) < 0.5 * control, "more than the columns by themselves"


def test_noise_alone_leaves_all_directions_alike() -> None:
    size, deviation = 17, 0.5
    noise = np.random.default_rng(1).normal(size=(size, size)) * deviation
    found = columns.cleaned(np.eye(size) / size + (noise + noise.T) / 2, deviation)
    assert np.trace(found) == pytest.approx(1)
    values = np.linalg.eigvalsh(found)
    assert values.min() > 0
    beyond = (values > 2 * np.median(values)).sum()
    assert beyond <= 2
    assert np.allclose(columns.cleaned(np.diag([0.7, 0.2, 0.1]), 0.0), np.diag([0.7, 0.2, 0.1]))


def test_an_eigenvalue_beyond_the_noise_is_told_as_it_was() -> None:
    """One strong direction in symmetric noise: its eigenvalue is found too large, and put back."""
    size, deviation, strong = 60, 0.01, 0.5
    shape = np.full((size, size), strong / size)
    found = []
    for seed in range(8):
        noise = np.random.default_rng(seed).normal(size=(size, size)) * deviation
        noisy = shape + (1 - strong) / size * np.eye(size) + (noise + noise.T) / 2
        raised = float(np.linalg.eigvalsh(noisy)[-1])
        radius = spectral_radius(size, deviation)
        found.append((raised, (raised + np.sqrt(raised**2 - radius**2)) / 2))
        top = np.linalg.eigvalsh(columns.cleaned(noisy, deviation))[-1]
        assert top == pytest.approx(found[-1][1], rel=0.05)
    raised, back = np.mean(found, axis=0)
    assert abs(back - strong) < abs(raised - strong)


def test_made_up_records_are_normal_and_the_same_everywhere() -> None:
    made = columns.normal(5)
    assert np.array_equal(made, columns.normal(5))
    assert np.abs(made.mean(axis=0)).max() < 0.04
    assert np.abs(np.cov(made.T) - np.eye(5)).max() < 0.05
    assert float((made**4).mean()) == pytest.approx(3.0, abs=0.2)


def test_rows_are_whitened_better_than_by_public_facts() -> None:
    """Of records whose columns hang together, which public facts do not know: with the law of other records."""
    step = columns.whitening(NAME, SHAPE, gram_of(drawn(4000, seed=4)), 1e-4, 0.1)
    first, second = public.preparation(NAME, SHAPE)
    rows = feature_map(NAME, "tabular", SHAPE)
    assert check_steps([first, step], rows.width) == rows.width + 1
    records = drawn(4000, seed=5)
    valid = np.ones(len(records), np.uint8)
    centred = first(rows(records, valid), valid)
    spread = []
    for one in (second, step):
        after = one(centred, valid) / LIMIT
        values = np.linalg.eigvalsh(after.T @ after / len(after))
        spread.append(values[-1] / np.median(values))
    assert spread[1] < spread[0] / 4


def test_tables_of_up_to_so_many_numbers_are_offered() -> None:
    assert columns.is_offered("hybrid-8-1@nx4.g3x2", 6)
    assert not columns.is_offered("hybrid-8-1@nx4.g3x2", 5)
    assert not columns.is_offered("hybrid-8-1@nx4.c3", 64)
    assert not columns.is_offered("hybrid-8-1", 64)
    assert not columns.is_offered("hog-2", 64)
