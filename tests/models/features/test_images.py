"""Feature maps of images: a row is a function of its own image."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from airlock.errors import ParamsError
from airlock.models.features import images
from airlock.models.features.features import feature_map
from airlock.models.features.rows import LIMIT


def noise(n: int, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, *shape), dtype=np.uint8)


@pytest.mark.parametrize("name", ["hog-1", "hog-2", "gabor-1", "edges-1"])
@pytest.mark.parametrize("shape", [(28, 28, 1), (16, 16, 1), (32, 32, 3), (5, 9, 1), (30, 33, 3)])
def test_rows_are_whole_numbers_within_the_limit(name: str, shape: tuple[int, int, int]) -> None:
    made = feature_map(name, "image", shape)
    rows = made(noise(5, *shape), np.ones(5, np.uint8))
    assert rows.shape == (5, made.width)
    assert np.array_equal(rows, np.trunc(rows))
    assert (rows * rows).sum(axis=1).max() <= LIMIT**2
    assert (rows * rows).sum(axis=1).min() > 0.99 * LIMIT**2


MAPS = [images.hog, images.hog_tents, images.gabor, images.edges, images.strokes]


@pytest.mark.parametrize("shape", [(28, 28, 1), (5, 9, 1), (224, 181, 1)])
def test_rows_of_straightened_pictures_are_within_the_limit_and_colour_is_refused(
    shape: tuple[int, int, int],
) -> None:
    made = feature_map("strokes-1", "image", shape)
    rows = made(noise(2, *shape), np.ones(2, np.uint8))
    assert rows.shape == (2, made.width)
    assert 0.99 * LIMIT**2 < (rows * rows).sum(axis=1).min() <= (rows * rows).sum(axis=1).max() <= LIMIT**2
    with pytest.raises(ParamsError, match="grey pictures: use edges-1"):
        feature_map("strokes-1", "image", (*shape[:2], 3))


def test_a_leaning_stroke_stands_upright_afterwards_and_an_upright_one_stays() -> None:
    leaning = np.zeros((3, 28, 28, 1), np.uint8)
    for line in range(4, 24):
        leaning[0, line, 5 + line // 2 : 8 + line // 2] = 200
        leaning[1, line, 12:15] = 200
    made = images.straighten(leaning)
    middles = (made[0, 4:24, :, 0] * np.arange(28.0)).sum(axis=1) / made[0, 4:24, :, 0].sum(axis=1)
    assert np.ptp(middles) < 1
    assert np.array_equal(made[1:], leaning[1:])


def test_straightening_is_what_fractions_say() -> None:
    """Line by line, pixel by pixel, as it is written down."""
    pictures = noise(3, 9, 11, 1, seed=4)
    pictures[1] = np.triu(np.full((9, 11), 255, np.uint8))[..., None]
    for picture, made in zip(
        pictures[..., 0].tolist(), images.straighten(pictures)[..., 0].tolist(), strict=True
    ):
        places = [(y, x, value) for y, line in enumerate(picture) for x, value in enumerate(line)]
        mass = sum(value for *_, value in places)
        middle = Fraction(sum(y * value for y, _, value in places), mass)
        side = Fraction(sum(x * value for _, x, value in places), mass)
        spread = sum((y - middle) ** 2 * value for y, _, value in places)
        slope = sum((y - middle) * (x - side) * value for y, x, value in places) / spread
        slope = max(Fraction(-1), min(Fraction(1), slope))
        for y, line in enumerate(picture):
            whole, part = divmod(math.floor((y - middle) * slope * 16 + Fraction(1, 2)), 16)
            edge = dict(enumerate(line))
            expected = [
                (edge.get(x + whole, 0) * (16 - part) + edge.get(x + whole + 1, 0) * part + 8) // 16
                for x in range(11)
            ]
            assert made[y] == expected


@pytest.mark.parametrize("transform", MAPS)
def test_a_row_does_not_depend_on_the_batch(transform) -> None:
    pictures = noise(150, 28, 28, 1)
    rows = transform(pictures)
    order = np.random.default_rng(1).permutation(150)
    assert np.array_equal(transform(pictures[order]), rows[order])
    assert np.array_equal(
        np.concatenate([transform(pictures[start : start + 7]) for start in range(0, 150, 7)]), rows
    )


@pytest.mark.parametrize("transform", MAPS)
def test_a_blank_image_has_no_features_and_a_changed_pixel_does(transform) -> None:
    blank = np.zeros((2, 28, 28, 1), np.uint8)
    blank[1, 10, 10] = 200
    rows = transform(blank)
    assert not rows[0].any()
    assert rows[1].any()


def test_edges_are_the_channels_of_both_maps_with_the_colours_once() -> None:
    pictures = noise(4, 28, 28, 1, seed=2)
    both, tents, moduli = (
        transform(pictures).reshape(4, -1, 49) for transform in (images.edges, images.hog_tents, images.gabor)
    )
    assert [part.shape[1] for part in (both, tents, moduli)] == [37, 21, 17]
    for picture in range(4):
        for part, own in ((slice(0, 21), tents), (slice(21, 37), moduli[:, 1:])):
            one, other = both[picture, part].ravel(), own[picture].ravel()
            assert np.abs(one / np.linalg.norm(one) - other / np.linalg.norm(other)).max() < 1e-3


def test_null_records_are_rows_of_zeros() -> None:
    made = feature_map("hog-2", "image", (28, 28, 1))
    rows = made(noise(3, 28, 28, 1), np.array([1, 0, 1], np.uint8))
    assert not rows[1].any()
    assert rows[0].any()


def test_filtering_is_exact_integer_arithmetic() -> None:
    """The convolution written again slowly, in Python integers."""
    pixels = noise(2, 9, 7, 1, seed=3).astype(np.float32).transpose(3, 0, 1, 2)
    for filters in (images._derivatives(images.FINE_GRID, 12), images._quadratures(images.FINE_GRID)):
        made = images.convolve(pixels, filters)
        for index, kernel in enumerate(filters.reshape(-1, 5, 5)):
            for i in range(9):
                for j in range(7):
                    total = 0
                    for u in range(5):
                        for v in range(5):
                            y, x = i + u - 2, j + v - 2
                            if 0 <= y < 9 and 0 <= x < 7:
                                total += int(kernel[u, v]) * int(pixels[0, 1, y, x])
                    assert int(made[index, 0, 1, i, j]) == total


def test_pooling_is_the_sum_over_windows() -> None:
    channels = noise(3, 8, 12, 2, seed=5).astype(np.float32).transpose(3, 0, 1, 2)
    pooled = images.pool(channels, 6, 4, 1)
    padded = np.pad(channels, [(0, 0), (0, 0), (1, 1), (1, 1)])
    assert pooled.shape == (2, 3, 2, 3)
    assert pooled[1, 2, 1, 2] == padded[1, 2, 4:10, 8:14].sum()
    assert pooled[0, 0, 0, 0] == padded[0, 0, 0:6, 0:6].sum()


def test_pooling_under_tents_is_exact_where_every_response_is_the_largest_possible() -> None:
    """The weighted sum written again slowly, in quarters, with odd integers of nearly 2^18."""
    channels = (2**18 - 1 - 2 * noise(1, 28, 28, 1, seed=5).astype(np.float32)).transpose(3, 0, 1, 2)
    for stride, reach in ((4, 5), (2, 3)):
        pooled = images.pool_tents(channels, stride, reach)
        for row, column in ((0, 0), (3, 2), (28 // stride - 1, 1)):
            total = 0
            for y in range(28):
                for x in range(28):
                    down, across = (
                        abs(2 * place - (2 * stride * cell + stride - 1))
                        for place, cell in ((y, row), (x, column))
                    )
                    total += max(2 * reach - down, 0) * max(2 * reach - across, 0) * int(channels[0, 0, y, x])
            assert 4 * pooled[0, 0, row, column] == total


def test_under_tents_a_stroke_that_moves_by_a_pixel_changes_its_row_less() -> None:
    """Over a whole cell of places; a stroke that moves within a box changes nothing there, one that leaves it
    a lot.
    """
    strokes = np.zeros((5, 28, 28, 1), np.uint8)
    for index in range(5):
        strokes[index, 6:22, 11 + index : 13 + index] = 255
    moved = {
        transform: np.diff(transform(strokes) / LIMIT, axis=0) for transform in (images.hog, images.hog_tents)
    }
    boxes, tents = ((rows * rows).sum() for rows in moved.values())
    assert tents < boxes


def test_a_rotated_edge_moves_to_the_rotated_orientation() -> None:
    """An edge that points right is seen by the first of 12 directions, one that points down by the fourth."""
    across = np.zeros((1, 1, 16, 16), np.float32)
    across[:, :, :, 8:] = 255
    responses = images._orientations(across, images.FINE_GRID, 12).sum(axis=(1, 2, 3))
    turned = images._orientations(across.transpose(0, 1, 3, 2), images.FINE_GRID, 12).sum(axis=(1, 2, 3))
    assert abs(int(turned.argmax()) - int(responses.argmax())) in (3, 9)


def test_brightness_scale_hardly_matters_and_colour_does() -> None:
    picture = noise(1, 32, 32, 3)
    grey = np.repeat(picture.mean(axis=3, keepdims=True).astype(np.uint8), 3, axis=3)
    half = (picture // 2).astype(np.uint8)
    rows = images.hog(np.concatenate([picture, half, grey])) / LIMIT
    assert rows[0] @ rows[1] > 0.99
    assert rows[0] @ rows[2] < 0.95


def test_an_unknown_map_is_refused_by_name() -> None:
    with pytest.raises(ParamsError, match="'sift-9' is not a map for image data"):
        feature_map("sift-9", "image", (28, 28, 1))
