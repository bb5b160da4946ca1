"""Steps between passes keep rows on the grid and null records at zero."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from airlock.models.features.projection import Centre, Whiten, centre, steps_of, tensors_of, whiten
from airlock.models.features.rows import LIMIT, normalise

VALID = np.array([1, 1, 0], np.uint8)


def rows(integers: np.ndarray) -> np.ndarray:
    return normalise(integers.astype(np.float64)) * VALID[:, None]


integers = arrays(np.int64, (3, 4), elements=st.integers(-30000, 30000))


@settings(max_examples=50)
@given(
    integers,
    arrays(np.int64, (4,), elements=st.integers(-(2**40), 2**40)),
    st.integers(0, 3000),
    st.none() | arrays(np.float64, (4,), elements=st.floats(0.01, 100)),
)
def test_centred_rows_stay_within_the_limit_and_nulls_at_zero(given_rows, total, bias, weights) -> None:
    step = centre(total, 10, bias=bias, weights=weights)
    made = step(rows(given_rows), VALID)
    assert made.shape == (3, 4 + (bias > 0))
    assert all(sum(int(value) ** 2 for value in row) <= LIMIT**2 for row in made)
    assert not made[2].any()


@given(arrays(np.int64, (4,), elements=st.integers(-(2**40), 2**40)), st.floats(1, 1e12))
def test_a_shrunk_centre_points_the_same_way_and_is_shorter(total: np.ndarray, noise: float) -> None:
    plain, shrunk = centre(total, 10**8).centre, centre(total, 10**8, noise=noise).centre
    assert (np.abs(shrunk) <= np.abs(plain)).all()
    assert (shrunk * plain >= 0).all()
    if 4 * noise**2 >= float(total.astype(np.float64) @ total.astype(np.float64)):
        assert not shrunk.any()


def test_a_mean_that_stands_out_stays_and_noise_alone_is_no_centre() -> None:
    random = np.random.default_rng(0)
    noise = np.rint(random.standard_normal(400) * 1e6).astype(np.int64)
    far = np.full(400, 10**9, np.int64)
    assert np.abs(centre(far, 10**6, noise=1e3).centre - centre(far, 10**6).centre).max() <= 1
    assert np.linalg.norm(centre(noise, 100, noise=1e6).centre) < 0.5 * np.linalg.norm(
        centre(noise, 100).centre
    )


@settings(max_examples=50)
@given(integers, arrays(np.int64, (4, 4), elements=st.integers(-(2**40), 2**40)))
def test_whitened_rows_stay_within_the_limit_and_nulls_at_zero(given_rows, gram) -> None:
    made = whiten(gram + gram.T, 1e6, 0.3)(rows(given_rows), VALID)
    assert all(sum(int(value) ** 2 for value in row) <= LIMIT**2 for row in made)
    assert not made[2].any()


def test_whitening_makes_the_gram_matrix_round() -> None:
    random = np.random.default_rng(0)
    data = normalise(np.rint(random.standard_normal((4000, 5)) * [3000, 1000, 500, 500, 300]))
    gram = data.T @ data
    matrix = whiten(gram.astype(np.int64), 1.0, 1e-9).matrix.astype(np.float64)
    values = np.linalg.eigvalsh(matrix.T @ gram @ matrix)
    assert values.max() / values.min() < 1.0001


def test_directions_below_the_noise_are_damped() -> None:
    gram = np.diag([10**9, 10**6, 0, 0]).astype(np.int64)
    columns = np.linalg.norm(whiten(gram, 1e6, 0.3).matrix, axis=0)
    # Without damping the third would be infinitely longer than the first.
    assert columns.max() / columns.min() < 40


def test_steps_survive_being_written_as_tensors() -> None:
    steps = [Centre(np.array([1, -2]), 7, np.array([3, 4, 5])), Whiten(np.arange(9).reshape(3, 3))]
    again = steps_of(tensors_of(steps), 7)
    valid = np.ones(2, np.uint8)
    data = np.array([[100.0, 200.0], [-5.0, 6.0]])
    for step, same in zip(steps, again, strict=True):
        assert np.array_equal(step(data, valid), same(data, valid))
        data = step(data, valid)
