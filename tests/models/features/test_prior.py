"""The map learned from generated pictures: exact through all its layers, a row a function of its own picture."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest

from airlock.errors import InputError
from airlock.models.features import prior
from airlock.models.features.features import feature_map
from airlock.models.features.rows import LIMIT
from bench.prior import pictures, train

SAMPLE = "b3e8792e2fb3c18980626aae30f2ff44b23327303fd4db2b74a9f48e21c11176"
"""SHA-256 of the first batch of pictures."""
COLOUR, GREY = (32, 32, 3), (28, 28, 1)


def noise(n: int, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, *shape), dtype=np.uint8)


@pytest.mark.parametrize(
    "shape", [COLOUR, GREY, (5, 9, 1), (30, 33, 3), (224, 224, 3), (224, 181, 1), (16, 16, 1)]
)
def test_rows_are_whole_numbers_within_the_limit_for_any_size(shape: tuple[int, int, int]) -> None:
    made = feature_map("prior-1", "image", shape)
    rows = made(noise(3, *shape), np.ones(3, np.uint8))
    assert rows.shape == (3, made.width)
    assert np.array_equal(rows, np.trunc(rows))
    assert (rows * rows).sum(axis=1).max() <= LIMIT**2
    assert (rows * rows).sum(axis=1).min() > 0.98 * LIMIT**2


@pytest.mark.parametrize("shape", [COLOUR, GREY])
def test_a_row_does_not_depend_on_the_batch(shape: tuple[int, int, int]) -> None:
    transform, given = prior.prior(shape[2]), noise(21, *shape)
    rows = transform(given)
    order = np.random.default_rng(1).permutation(21)
    assert np.array_equal(transform(given[order]), rows[order])
    assert np.array_equal(
        np.concatenate([transform(given[start : start + 5]) for start in range(0, 21, 5)]), rows
    )


def worst(bank: prior.Bank) -> np.ndarray:
    """Patches that drive an atom as far as pixels can: the brightest where it is positive, black elsewhere."""
    top = 1020 if bank.halved else 255
    return ((bank.atoms.T[:9] > 0) * top).astype(np.float32)


@pytest.mark.parametrize("channels", [1, 3])
def test_every_layer_is_exact_where_it_is_driven_as_far_as_it_goes(channels: int) -> None:
    """Each product against the same one in Python integers."""
    made = prior.prior(channels)
    for bank in made.banks:
        patches = worst(bank)
        exact = patches.astype(np.int64) @ bank.atoms.astype(np.int64)
        assert np.array_equal((patches @ bank.atoms).astype(np.int64), exact)
        assert np.abs(exact).max() < 2**24
        assert not bank.atoms.sum(axis=0).any()
        contrast_is_the_oracles(patches, 4 if bank.halved else 1)
    signs = np.sign(made.turn.T[:5]) * prior.LARGEST_STANDARD
    exact = signs.astype(np.int64) @ made.turn.astype(np.int64)
    assert np.array_equal((signs @ made.turn).astype(np.int64), exact)
    assert np.abs(exact).max() < 2**24
    assert prior.longest(made.turn, made.scale) <= 2**26


def contrast_is_the_oracles(patches: np.ndarray, unit: int) -> None:
    found = prior.contrast_of(patches[None], float(unit))[0]
    for patch, one in zip(patches.astype(int).tolist(), found, strict=True):
        mean = sum(patch) / len(patch)
        variance = sum((value - mean) ** 2 for value in patch) / len(patch) / unit**2
        assert float(one) == pytest.approx(1 / (unit * math.sqrt(variance + prior.CONTRAST)), rel=1e-6)


def test_what_is_beyond_the_threshold_is_summed_cell_by_cell() -> None:
    """One picture written again slowly."""
    made = prior.prior(1)
    bank = made.banks[0]
    pixels = prior.prepare(noise(1, 24, 26, 1))
    found, sizes = prior.responses(pixels, bank, made.cells)
    patches, down, across = prior.patches_of(pixels, bank.stride)
    contrast = prior.contrast_of(patches, 1.0) * np.float32(bank.gain)
    total = np.zeros((2, made.cells, made.cells, bank.atoms.shape[1]))
    for place, patch in enumerate(patches[0]):
        i, j = divmod(place, across)
        top, left = i * bank.stride, j * bank.stride
        assert np.array_equal(patch, pixels[0, top : top + 6, left : left + 6].ravel())
        steps = np.trunc((patch @ bank.atoms) * contrast[0, place])
        for row in range(made.cells):
            for column in range(made.cells):
                if inside(i, down, row, made.cells) and inside(j, across, column, made.cells):
                    total[0, row, column] += np.maximum(steps - prior.THRESHOLD, 0)
                    total[1, row, column] += np.maximum(-steps - prior.THRESHOLD, 0)
    assert np.array_equal(found[0], total)
    assert sizes.sum() >= down * across


def inside(place: int, length: int, part: int, cells: int) -> bool:
    return part * length // cells <= place < math.ceil((part + 1) * length / cells)


def test_a_colour_picture_and_its_mirror_image_have_the_same_row_and_grey_ones_do_not() -> None:
    colour, grey = noise(4, *COLOUR), noise(4, *GREY)
    assert np.array_equal(prior.prior(3)(colour), prior.prior(3)(colour[:, :, ::-1]))
    assert not np.array_equal(prior.prior(1)(grey), prior.prior(1)(grey[:, :, ::-1]))


def test_brightness_does_not_matter_and_a_changed_corner_does() -> None:
    picture = noise(1, *COLOUR) // 2
    corner = picture.copy()
    corner[:, :12, :12] = corner[:, :12, :12].mean()
    rows = prior.prior(3)(np.concatenate([picture, picture + 60, corner])) / LIMIT
    assert np.array_equal(rows[0], rows[1])
    assert rows[0] @ rows[2] < 0.95


def test_large_pictures_are_seen_as_means_of_squares() -> None:
    small = noise(2, 32, 32, 3)
    large = small.repeat(2, axis=1).repeat(2, axis=2)
    assert np.array_equal(prior.prior(3)(large), prior.prior(3)(small))


def test_the_spectrum_falls_and_is_public() -> None:
    made = feature_map("prior-1", "image", COLOUR)
    assert made.spectrum is not None
    assert made.spectrum.shape == (made.width,)
    assert made.spectrum.sum() == pytest.approx(1.0)
    assert (np.diff(made.spectrum) <= 0).all()


def test_other_integers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(prior.SHA256, "grey", "0" * 64)
    prior.prior.cache_clear()
    with pytest.raises(InputError, match="is not whole: install airlock again"):
        prior.prior(1)
    prior.prior.cache_clear()


def test_the_pictures_that_were_learned_from_are_made_again_bit_for_bit() -> None:
    """From the public seed alone; what is in bench/prior/pictures.py looks at no file."""
    assert hashlib.sha256(pictures.batch(0).tobytes()).hexdigest() == SAMPLE


def test_learning_on_a_few_pictures_makes_a_map_of_the_same_form(
    monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    monkeypatch.setattr(train, "BATCHES", 1)
    monkeypatch.setattr(train, "DICTIONARY_BATCHES", 1)
    monkeypatch.setattr(train, "PATCHES", 500)
    monkeypatch.setattr(train, "TURNS", 1)
    monkeypatch.setitem(train.FORMS, "grey", train.Form((5, 4), (2, 1), 2, False, 7, 0))
    train.learn("grey", tmp_path)
    made = prior.of_bytes((tmp_path / prior.WEIGHTS["grey"]).read_bytes())
    rows = made(noise(3, *GREY))
    assert rows.shape == (3, 7)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.npy")}
    train.learn("grey", tmp_path)
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.npy")}
