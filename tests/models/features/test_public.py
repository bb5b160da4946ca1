"""Where rows of a hybrid map lie by its name alone."""

from __future__ import annotations

import numpy as np
import pytest

from airlock.models.features import public
from airlock.models.features.features import feature_map
from airlock.models.features.projection import check_steps
from airlock.models.features.rows import LIMIT

NAME, SHAPE = "hybrid-32-1@nx2.g3.c4", (7,)


def test_made_up_records_are_even_and_independent_in_every_kind_of_column() -> None:
    made = public.records_of("nx2.g3.c4", 4096)
    assert made.shape == (4096, 7)
    assert np.abs(made.mean(axis=0) - [0.5, 0.5, 0.5, *[0.25] * 4]).max() < 0.03
    assert set(np.unique(made[:, 2]).round(9)) == {0, round(1 / 3, 9), round(2 / 3, 9), 1}
    assert (made[:, 3:].sum(axis=1) == 1).all()
    together = np.corrcoef(np.hstack([made[:, :3], made[:, 3:4]]).T)
    assert np.abs(together - np.eye(4)).max() < 0.06


def test_rows_of_such_records_have_no_direction_that_the_map_makes_small() -> None:
    first, second = public.preparation(NAME, SHAPE)
    rows = feature_map(NAME, "tabular", SHAPE)
    assert check_steps([first, second], rows.width) == rows.width + 1
    generator = np.random.default_rng(5)
    fresh = np.hstack(
        [
            generator.random((3000, 2)),
            generator.integers(0, 4, (3000, 1)) / 3,
            np.eye(4)[generator.integers(0, 4, 3000)],
        ]
    )
    valid = np.ones(len(fresh), np.uint8)
    before = first(rows(fresh, valid), valid)
    after = second(before, valid) / LIMIT
    assert np.sqrt((after**2).sum(axis=1)).max() <= 1 + 1e-9
    spread = [np.linalg.eigvalsh(each.T @ each / len(fresh)) for each in (before / LIMIT, after)]
    assert spread[0][-1] / np.median(spread[0]) > 4 * spread[1][-1] / np.median(spread[1])


@pytest.mark.parametrize("name", ["hog-2", "tabular-2", "cosine-8-1", "hybrid-8-1"])
def test_other_maps_do_not_say_it(name: str) -> None:
    """A hybrid map without its layout does not know its columns yet."""
    assert not public.is_known(name)
