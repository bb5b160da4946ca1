"""What a night leaves for later ones: the noise of all nights so far by blocks, and the totals that were released.

It depends on no record (docs/proofs/continual.md): the totals are public, and the noise is noise. But noise that
is known hides nothing, so it lies in AIRLOCK_HOME under a key of the horizon, one file a night; the files of the
last two nights are kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV
from numpy.typing import NDArray

from airlock.errors import ReleaseError
from airlock.files import replace
from airlock.privacy.continual import Block, Memory, Strategy, skipped

Integers = NDArray[np.int64]
MAGIC = b"AIRNIGHT\x01"
SYMMETRIC = ("gram",)
"""Sums of which the upper half is enough."""
MISSING = (
    "what the night before left for this one is not in AIRLOCK_HOME or was changed: restore it from a backup, or begin "
    "a new horizon (ingest.start)"
)


@dataclass
class Nights:
    """The memory of a horizon, as one night finds and leaves it.

    Attributes:
        horizon: id of the first night's release.
        night: tonight's number, from 1.
        nights: of how many.
        former: id of the release before; None on the first night.
        release_id: tonight's.
        key: of the files.
        folder: where they are; None where nothing is kept.
        missing: earlier nights that were given up or forgotten and released nothing.
    """

    horizon: str
    night: int
    nights: int
    former: str | None
    release_id: str
    key: bytes = field(repr=False)
    folder: Path | None = None
    missing: tuple[int, ...] = ()

    def recall(self, purpose: str, strategy: Strategy, shape: tuple[int, ...]) -> tuple[Memory, Integers]:
        """The noise that earlier nights were given, and the total that they released.

        Raises:
            ReleaseError: it is not there.
        """
        if self.former is None:
            return Memory(), np.zeros(shape, np.int64)
        found = self.earlier()
        night, *edges = (int(edge) for edge in found[f"{purpose}/blocks"])
        blocks = tuple(Block(*edge) for edge in zip(edges[::2], edges[1::2], strict=True))
        sums = tuple(_wide(purpose, one, shape) for one in found[f"{purpose}/sums"])
        memory = Memory(night, blocks, sums)
        # Nights in between that were given up or forgotten released nothing.
        return skipped(strategy, memory, self.night - 1), _wide(purpose, found[f"{purpose}/total"], shape)

    def keep(self, left: Mapping[str, tuple[Memory, Integers]]) -> None:
        """Leave tonight's memory for later nights; the same for a night that is made again."""
        tensors: dict[str, Integers] = {}
        for purpose, (memory, total) in left.items():
            flat = _narrow(purpose, total)
            edges = [edge for block in memory.blocks for edge in block]
            tensors[f"{purpose}/blocks"] = np.array([memory.night, *edges], np.int64)
            sums = [_narrow(purpose, one) for one in memory.sums]
            tensors[f"{purpose}/sums"] = np.stack(sums) if sums else np.zeros((0, len(flat)), np.int64)
            tensors[f"{purpose}/total"] = flat
        self.store(tensors)

    def store(self, tensors: Mapping[str, NDArray[Any]]) -> None:
        """Leave tensors for the night after; the same for a night that is made again."""
        if self.folder is None:
            return
        from safetensors.numpy import save

        sealed = AESGCMSIV(self.key).encrypt(
            _nonce(self.release_id), save(dict(tensors)), self._about(self.release_id)
        )
        replace(file_of(self.folder, self.release_id), sealed, mode=0o600, durable=True)

    def earlier(self) -> dict[str, NDArray[Any]]:
        """What the night before has left.

        Raises:
            ReleaseError: it is not there.
        """
        from safetensors.numpy import load

        assert self.former is not None
        try:
            if self.folder is None:
                raise FileNotFoundError
            sealed = file_of(self.folder, self.former).read_bytes()
            return dict(
                load(AESGCMSIV(self.key).decrypt(_nonce(self.former), sealed, self._about(self.former)))
            )
        except (FileNotFoundError, InvalidTag):
            raise ReleaseError(MISSING) from None

    def _about(self, release_id: str) -> bytes:
        return MAGIC + f"{self.horizon} {release_id}".encode()


def file_of(folder: Path, release_id: str) -> Path:
    """Where a night's memory is."""
    return folder / f"{release_id}.night"


def _nonce(release_id: str) -> bytes:
    return hashlib.sha256(release_id.encode()).digest()[:12]


def _narrow(purpose: str, value: Integers) -> Integers:
    """A symmetric matrix by its upper half, anything else as it is: flat."""
    if purpose in SYMMETRIC:
        return np.ascontiguousarray(value[np.triu_indices(len(value))])
    return np.ascontiguousarray(value.reshape(-1))


def _wide(purpose: str, flat: Integers, shape: tuple[int, ...]) -> Integers:
    if purpose not in SYMMETRIC:
        return flat.reshape(shape)
    matrix = np.zeros(shape, np.int64)
    upper = np.triu_indices(shape[0])
    matrix[upper] = flat
    matrix.T[upper] = flat
    return matrix
