"""Rows of a feature map, kept on disk: a comparison over many keys computes each picture's row once.

A row is a function of its picture (docs/proofs/exact-sums.md#rows), so that nothing is changed by looking it up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from airlock.models.features import features
from airlock.models.features.rows import Rows


class Memory:
    """Of one map, in one folder: rows as 16-bit integers, and the hash of each picture."""

    def __init__(self, folder: Path, name: str) -> None:
        self._files = [folder / f"{name}-{what}.npy" for what in ("pictures", "rows")]
        self._lock, self._parts = Lock(), list[NDArray[np.int16]]()
        self._places: dict[bytes, tuple[int, int]] = {}
        if all(path.exists() for path in self._files):
            self._add(np.load(self._files[0]).tolist(), np.load(self._files[1], mmap_mode="r"))

    def _add(self, keys: list[bytes], rows: NDArray[np.int16]) -> None:
        with self._lock:
            self._parts.append(rows)
            self._places |= {
                key.ljust(16, b"\0"): (len(self._parts) - 1, index) for index, key in enumerate(keys)
            }

    def rows(self, images: NDArray[Any], transform: Any) -> Rows:
        """Looked up; what is new is computed and kept."""
        keys = [hashlib.blake2b(image.tobytes(), digest_size=16).digest() for image in images]
        new = [index for index, key in enumerate(keys) if key not in self._places]
        if new:
            self._add([keys[index] for index in new], transform(images[new]).astype(np.int16))
        places = [self._places[key] for key in keys]
        return np.stack([self._parts[part][index] for part, index in places]).astype(np.float64)

    def save(self) -> None:
        """Write all of it, if anything is new."""
        if len(self._parts) > 1 or not self._files[0].exists():
            keys = list(self._places)
            rows = np.stack([self._parts[part][index] for part, index in self._places.values()])
            np.save(self._files[0], np.array(keys, "S16"))
            np.save(self._files[1], rows)


@contextmanager
def remembered(folder: Path) -> Iterator[None]:
    """Every map of pictures that this process uses looks its rows up."""
    kept: dict[str, Memory] = {}
    plain = features.feature_map

    def looked_up(name: str, kind: str, shape: tuple[int, ...]) -> features.FeatureMap:
        made = plain(name, kind, shape)
        if kind != "image":
            return made
        place = f"{name}-{'x'.join(map(str, shape))}"
        memory = kept.setdefault(place, Memory(folder, place)) if place not in kept else kept[place]
        return replace(made, transform=lambda images: memory.rows(images, made.transform))

    folder.mkdir(parents=True, exist_ok=True)
    with (
        mock.patch.object(features, "feature_map", looked_up),
        mock.patch("airlock.models.model.feature_map", looked_up),
    ):
        yield
    for memory in kept.values():
        memory.save()
