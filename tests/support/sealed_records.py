"""Sealed records for tests: arrays in, a reader and public facts out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.inside.sealed import SealedReader, SealedWriter
from airlock.privacy.plan import Facts
from airlock.records.encoding import Encoded, pack

KEY = bytes(range(32))


def seal(
    folder: Path, x: NDArray[Any], y: NDArray[Any], valid: NDArray[Any] | None = None, *, rows: int = 16
) -> SealedReader:
    """Seal encoded records in chunks of `rows`."""
    valid = np.ones(len(y), np.uint8) if valid is None else valid.astype(np.uint8)
    x, y = x.copy(), y.astype(np.int32).copy()
    x[valid == 0], y[valid == 0] = 0, -1
    path = folder / "train.sealed"
    with SealedWriter(path, KEY, rows=rows) as writer:
        writer.write(pack(Encoded(x, y, valid)))
    return SealedReader(path, KEY)


def facts(x: NDArray[Any], classes: int, **changes: Any) -> Facts:
    """Public facts of such records."""
    kind = "image" if x.dtype == np.uint8 else "tabular"
    labels = tuple(f"class {index}" for index in range(classes))
    given = {
        "population": "test",
        "public": True,
        "kind": kind,
        "n": len(x),
        "n_holdout": 0,
        "shape": x.shape[1:],
        "labels": labels,
    }
    return Facts(**{**given, "schema": "s", "fingerprint": "f", **changes})


def table(n: int, columns: int, classes: int, seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """A table whose classes differ in their means."""
    random = np.random.default_rng(seed)
    y = random.integers(classes, size=n).astype(np.int32)
    centres = random.uniform(0.2, 0.8, (classes, columns))
    return np.clip(centres[y] + 0.1 * random.standard_normal((n, columns)), 0, 1), y


def pictures(
    n: int, classes: int, side: int = 12, seed: int = 0
) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """Small noisy pictures with a bar at a place that tells the class."""
    random = np.random.default_rng(seed)
    y = random.integers(classes, size=n).astype(np.int32)
    x = random.integers(0, 60, (n, side, side, 1))
    for index, label in enumerate(y):
        x[index, :, int(label) * side // classes, 0] += 150
    return x.astype(np.uint8), y
