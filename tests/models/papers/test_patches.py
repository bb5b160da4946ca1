"""Learned filters: exact moments, filters that follow from them,
features that are a function of one record.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from airlock.models.features.rows import LIMIT
from airlock.models.papers import filters, patches
from tests.support.sealed_records import pictures

X, _ = pictures(8, 3, side=12)


def random_layer(depth: int, count: int, channels: int, seed: int = 0) -> patches.FilterLayer:
    size = channels * patches.SIDES[depth] ** 2
    return patches.layer(np.random.default_rng(seed).standard_normal((count, size)), depth)


def slow_patches(units: list[np.ndarray], side: int) -> list[list[int]]:
    """The patch around every unit, in Python integers, zeros outside."""
    height, width = units[0].shape
    found = []
    for i, j in itertools.product(range(height), range(width)):
        patch = []
        for channel in units:
            for r, s in itertools.product(range(-(side // 2), side // 2 + 1), repeat=2):
                inside = 0 <= i + r < height and 0 <= j + s < width
                patch.append(int(channel[i + r, j + s]) if inside else 0)
        found.append(patch)
    return found


def slow_moment(units: list[np.ndarray], side: int) -> list[list[int]]:
    """side^4 times the moment of patches whose channels have mean zero."""
    area, rows = side * side, []
    for patch in slow_patches(units, side):
        parts = [patch[start : start + area] for start in range(0, len(patch), area)]
        rows.append([area * value - sum(part) for part in parts for value in part])
    return [[sum(row[i] * row[j] for row in rows) for j in range(len(rows[0]))] for i in range(len(rows[0]))]


def slow_row(matrix: list[list[int]]) -> np.ndarray:
    """Scaled to Frobenius norm LIMIT (less 2^-36), toward zero, with integer roots."""
    square = sum(value * value for row in matrix for value in row)
    bound = (2**36 - 1) * LIMIT
    return np.array(
        [
            [math.copysign(math.isqrt(value * value * bound**2 // (square << 72)), value) for value in row]
            for row in matrix
        ]
    )


def test_moments_of_pixels_are_what_the_slow_oracle_says() -> None:
    grown = X[:2].repeat(2, axis=1).repeat(2, axis=2)
    for record, row in zip(grown, patches.moments(X[:2]), strict=True):
        assert np.array_equal(row.reshape(25, 25), slow_row(slow_moment([record[:, :, 0]], 5)))


def test_moments_of_the_second_layer_are_what_the_slow_oracle_says() -> None:
    layer = random_layer(0, 2, 1)
    grown = X[0].repeat(2, axis=0).repeat(2, axis=1)[:, :, 0]
    drives = [
        [sum(w * v for w, v in zip(kernel, patch, strict=True)) for patch in slow_patches([grown], 5)]
        for kernel in layer.filters.tolist()
    ]
    signed = [[int(math.copysign(abs(value) >> 5, value)) for value in one] for one in drives]
    maps = [np.array(one).clip(0).reshape(24, 24) for one in signed] + [
        (-np.array(one)).clip(0).reshape(24, 24) for one in signed
    ]
    units = [
        np.array(
            [
                [math.isqrt(int(one[i : i + 2, j : j + 2].sum())) for j in range(0, 24, 2)]
                for i in range(0, 24, 2)
            ]
        )
        for one in maps
    ]
    assert np.array_equal(patches.units_below(patches.prepare(X[:1]), [layer])[:, 0], np.stack(units))
    assert np.array_equal(patches.moments(X[:1], [layer])[0].reshape(36, 36), slow_row(slow_moment(units, 3)))


def test_a_row_depends_on_its_own_record_only() -> None:
    layers = [random_layer(0, 3, 1), random_layer(1, 2, 6)]
    together = patches.learned(X, layers), patches.moments(X, layers[:1])
    for index in (0, 7):
        alone = (
            patches.learned(X[index : index + 1], layers),
            patches.moments(X[index : index + 1], layers[:1]),
        )
        assert all(np.array_equal(some[0], many[index]) for some, many in zip(alone, together, strict=True))


@pytest.mark.parametrize("channels", [1, 3])
def test_rows_have_the_width_and_the_norm_that_are_planned(channels: int) -> None:
    x = np.random.default_rng(0).integers(0, 256, (3, 13, 18, channels)).astype(np.uint8)
    layers = [random_layer(0, 3, channels), random_layer(1, 2, 6)]
    rows = patches.learned_map(x.shape[1:], layers)(x, np.array([1, 1, 0], np.uint8))
    assert rows.shape == (3, patches.width(x.shape[1:], (3, 2)))
    assert np.sqrt((rows[:2] ** 2).sum(axis=1)).min() > 0.99 * LIMIT
    assert not rows[2].any()
    for depth in (0, 1):
        seen = patches.moment_map(x.shape[1:], layers[:depth])(x, np.ones(3, np.uint8))
        assert seen.shape[1] == patches.patch_size(x.shape[1:], (3, 2)[:depth]) ** 2
        assert (seen**2).sum(axis=1).max() <= LIMIT**2


def test_products_stay_exact_for_the_worst_image() -> None:
    """White pixels against filters of the largest absolute sum: everything stays an integer below 2^24."""
    one_sided = patches.layer(np.ones((1, 25)), 0)
    white = np.full((1, 24, 24, 1), 255, np.uint8)
    drives = one_sided.filters.astype(object) @ patches.windows(patches.prepare(white), 5).reshape(
        25, -1
    ).astype(int).astype(object)
    assert drives.max() < 2**23
    responses = one_sided.respond(patches.prepare(white))
    assert responses.max() <= 2**18
    assert np.array_equal(
        responses[0, 0].ravel(), np.array([int(value) >> 5 for value in drives[0]], np.float32)
    )
    units = patches.units_below(patches.prepare(white), [one_sided])
    assert units.max() < 2**10
    assert patches.layer(np.ones((1, 18)), 1).respond(units).max() <= 2**18


def moment_matrix(side: int, channels: int, seed: int = 0, decay: float = 0.7) -> np.ndarray:
    """Integer moments with known eigenvectors of mean zero."""
    size = channels * side * side
    turned = filters._orthonormal(np.random.default_rng(seed).standard_normal((size - channels, size)), side)
    spectrum = 2.0**40 * decay ** np.arange(len(turned))
    return np.rint((turned.T * spectrum) @ turned).astype(np.int64)


@pytest.mark.parametrize(("side", "channels", "count"), [(5, 1, 6), (3, 4, 4)])
def test_divergence_finds_the_subspace_of_the_leading_eigenvectors(
    side: int, channels: int, count: int
) -> None:
    moments = moment_matrix(side, channels)
    closed, trained = filters.eigenvectors(moments, count, side), filters.diverge(moments, count, side)
    assert trained @ trained.T == pytest.approx(np.eye(count), abs=1e-9)
    assert np.abs(trained.reshape(count, channels, -1).sum(axis=2)).max() < 1e-9
    # Cosines of the angles between the two subspaces.
    assert np.linalg.svd(trained @ closed.T)[1].min() > 0.97
    assert np.abs(np.diag(trained @ closed.T))[:2].min() > 0.95
    assert np.array_equal(trained, filters.diverge(moments, count, side))


def test_noise_on_the_mean_of_a_patch_does_not_reach_the_filters() -> None:
    moments = moment_matrix(5, 1)
    shifted = moments + np.full((25, 25), 2**44)
    assert filters.diverge(shifted, 3, 5, steps=20) == pytest.approx(
        filters.diverge(moments, 3, 5, steps=20), abs=1e-6
    )


def test_pure_noise_still_gives_orthonormal_filters() -> None:
    noise = np.random.default_rng(0).integers(-1000, 1000, (25, 25))
    trained = filters.diverge(noise + noise.T, 6, 5, steps=20)
    assert trained @ trained.T == pytest.approx(np.eye(6), abs=1e-9)
