"""Learn the integers of `prior-1` from generated pictures.

    OMP_NUM_THREADS=1 python -m bench.prior.train colour --folder WORK     (some ten minutes on one core)
    OMP_NUM_THREADS=1 python -m bench.prior.train grey --folder WORK

Whatever is finished is kept in the folder and not done again. The last line names the file and its SHA-256, which
belong into airlock/models/features and its prior.py. Pictures are the same bytes everywhere; what is learned from them
depends, in its last bits, on how a library orders its sums, so that another machine may make slightly other integers.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from airlock.models.features import prior
from airlock.models.features.prior import PATCH
from bench.prior import pictures

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Form:
    """What is learned.

    Attributes:
        atoms: of the fine and the coarse dictionary, mirror images not counted.
        cells: that a picture has down and across.
        mirrored: rows are means with those of the mirror image.
        directions: that are kept.
    """

    atoms: tuple[int, int]
    strides: tuple[int, int]
    cells: int
    mirrored: bool
    directions: int
    seed: int


FORMS = {
    "colour": Form((200, 400), (2, 1), 2, True, 2048, 1),
    "grey": Form((100, 100), (1, 1), 3, False, 1280, 2),
}
BATCHES, DICTIONARY_BATCHES = 160, 80
PATCHES, TURNS = 200_000, 10
WHITENING = 0.1
"""Added to the variances of normalised patches (Coates and Ng 2011)."""
STANDARD = 24.0
"""Steps to a deviation."""
REACH = 130_000
"""Absolute sum of a direction's integers at most: times 127 it is below 2^24."""
LEAST_VARIANCE = 1e-6
"""Added to a direction's part of all variance before its deviation is taken."""


def main() -> None:
    """Make pictures, dictionaries, directions and the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=list(FORMS))
    parser.add_argument("--folder", type=Path, required=True)
    asked = parser.parse_args()
    learn(asked.kind, asked.folder)


def learn(kind: str, folder: Path) -> None:
    """Write the file of one kind of picture into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    form = FORMS[kind]
    made = _kept(folder / "pictures.npy", lambda: np.concatenate([pictures.batch(i) for i in range(BATCHES)]))
    if kind == "grey":
        made = _with_sparse(pictures.grey(made), folder)
    count = DICTIONARY_BATCHES * pictures.BATCH
    filters = [
        _kept(folder / f"{kind}-atoms-{scale}.npy", partial(dictionary, made[:count], form, scale))
        for scale in (0, 1)
    ]
    tensors = tensors_of(form, filters)
    found = _kept(folder / f"{kind}-roots.npy", partial(roots_of, tensors, made))
    path = folder / prior.WEIGHTS[kind]
    data = save({**tensors, **directions(found, form)})
    path.write_bytes(data)
    print(path.name, len(data), hashlib.sha256(data).hexdigest())


def _with_sparse(grey: NDArray[np.uint8], folder: Path) -> NDArray[np.uint8]:
    """Every second picture is one of few leaves on a dark ground."""
    made = _kept(folder / "sparse.npy", lambda: np.concatenate([pictures.sparse(i) for i in range(BATCHES)]))
    mixed = np.concatenate([grey[::2], made[1::2]])
    return mixed[np.random.default_rng(0).permutation(len(mixed))]


def _kept(path: Path, make: Callable[[], NDArray[Any]]) -> NDArray[Any]:
    if not path.exists():
        value = make()
        part = path.with_suffix(".part.npy")
        np.save(part, value)
        part.rename(path)
        print(path.name, flush=True)
    return np.load(path)  # type: ignore[no-any-return]


def dictionary(made: NDArray[np.uint8], form: Form, scale: int) -> Array:
    """Atoms that whiten and compare in one product: (atoms, patch values)."""
    draws = np.random.default_rng([form.seed, scale])
    pixels = made.astype(np.float32)
    patches = normalised(taken(prior.halve(pixels) * np.float32(0.25) if scale else pixels, draws))
    values, vectors = np.linalg.eigh(np.cov(patches.T))
    whiten = ((vectors * (values + WHITENING) ** -0.5) @ vectors.T).astype(np.float32)
    found: Array = clusters(patches @ whiten, form.atoms[scale], draws) @ whiten
    return found


def taken(pixels: Array, draws: np.random.Generator) -> Array:
    """Patches from random places, each less its mean, with some contrast."""
    which = draws.integers(0, len(pixels), PATCHES)
    down, across = (draws.integers(0, side - PATCH + 1, PATCHES) for side in pixels.shape[1:3])
    line = np.arange(PATCH)
    found: Array = pixels[
        which[:, None, None],
        down[:, None, None] + line[None, :, None],
        across[:, None, None] + line[None, None],
    ].reshape(PATCHES, -1)
    return found


def normalised(patches: Array) -> Array:
    """Less their mean, over sqrt(variance + CONTRAST); flat ones left out."""
    centred = patches - patches.mean(axis=1, keepdims=True)
    found = centred / np.sqrt(centred.var(axis=1, keepdims=True) + np.float32(prior.CONTRAST))
    kept: Array = found[found.var(axis=1) > 1e-3]
    return kept


def clusters(patches: Array, count: int, draws: np.random.Generator) -> Array:
    """Spherical k-means with signs: unit vectors, each the direction of the patches that resemble it most."""
    patches = patches / np.linalg.norm(patches, axis=1, keepdims=True)
    atoms = draws.standard_normal((count, patches.shape[1])).astype(np.float32)
    for _ in range(TURNS):
        atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
        moved = np.zeros_like(atoms)
        for start in range(0, len(patches), 20_000):
            block = patches[start : start + 20_000]
            alike = block @ atoms.T
            nearest = np.abs(alike).argmax(axis=1)
            weight = np.zeros_like(alike)
            weight[np.arange(len(block)), nearest] = alike[np.arange(len(block)), nearest]
            moved += weight.T @ block
        lost = np.linalg.norm(moved, axis=1) < 1e-6
        moved[lost] = draws.standard_normal((int(lost.sum()), patches.shape[1])).astype(np.float32)
        atoms = moved
    unit: Array = atoms / np.linalg.norm(atoms, axis=1, keepdims=True)
    return unit


def whole(filters: Array) -> tuple[NDArray[np.int8], float]:
    """Integers up to 127 with one common factor, which is given beside them.

    Entries give way, those that were rounded most first, so that each atom sums to zero and sees no mean.
    """
    centred = filters - filters.mean(axis=1, keepdims=True)
    unit = float(np.abs(centred).max()) / 126
    integers = np.rint(centred / unit)
    for row, wanted in zip(integers, centred / unit, strict=True):
        excess = int(row.sum())
        order = np.argsort((row - wanted) * np.sign(excess))[::-1][: abs(excess)]
        row[order] -= np.sign(excess)
    return integers.astype(np.int8), unit


def tensors_of(form: Form, filters: list[Array]) -> dict[str, NDArray[np.integer]]:
    """What patches are compared with: dictionaries, gains in parts of 2^24, whether pixels are halved, strides."""
    told: dict[str, NDArray[np.integer]] = {"form": np.array([form.cells, form.mirrored], np.int32)}
    banks = []
    for scale, (name, own) in enumerate(zip(prior.NAMES, filters, strict=True)):
        told[f"atoms.{name}"], unit = whole(own)
        banks.append([round(unit * prior.UNIT / prior.GAIN), scale, form.strides[scale]])
    return {**told, "banks": np.array(banks, np.int32)}


def roots_of(tensors: dict[str, NDArray[np.integer]], made: NDArray[np.uint8]) -> NDArray[np.uint16]:
    """Of all generated pictures."""
    banks, cells, mirrored = prior.banks_of(tensors)
    parts = [made[start : start + prior.BATCH] for start in range(0, len(made), prior.BATCH)]
    return np.concatenate(
        [prior.roots(part, banks, cells, mirrored=mirrored).astype(np.uint16) for part in parts]
    )


def directions(found: NDArray[np.uint16], form: Form) -> dict[str, NDArray[np.integer]]:
    """Middles, deviations and principal directions of generated pictures, as integers."""
    middle = np.rint(found.mean(axis=0))
    spread = np.rint(2.0**16 * STANDARD / (found.std(axis=0) + 1.0))
    steps = prior.standard(
        found.astype(np.float32), middle.astype(np.float32), (spread * 2.0**-16).astype(np.float32)
    )
    # Rows of one length, as the map will have them: a picture of strong contrast counts no more than another.
    rows = steps / np.maximum(np.linalg.norm(steps, axis=1, keepdims=True), 1.0)
    rows -= rows.mean(axis=0)
    values, vectors = np.linalg.eigh((rows.T @ rows).astype(np.float64))
    values, vectors = values[::-1][: form.directions], vectors[:, ::-1][:, : form.directions]
    parts = np.maximum(values / (rows * rows).sum(dtype=np.float64), 0.0)
    longest = np.abs(vectors).sum(axis=0)
    unit = np.minimum(REACH / longest, 127 / np.abs(vectors).max(axis=0))
    turn = np.trunc(vectors * unit)
    scale = 1 / (unit * np.sqrt(parts + LEAST_VARIANCE))
    return {
        "middle": middle.astype(np.int32),
        "spread": spread.astype(np.int32),
        "turn": turn.astype(np.int8),
        "scale": np.floor(scale * (0.999 * prior.LONGEST / prior.longest(turn, scale) / prior.SCALE)).astype(
            np.int64
        ),
        "spectrum": np.maximum(np.rint(parts * 2.0**40), 1).astype(np.int64),
    }


if __name__ == "__main__":
    main()
