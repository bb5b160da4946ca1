"""Which records are held out: decided by row position and a key, never by a value, with sizes that are known
beforehand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from airlock.errors import ParamsError
from airlock.params import Params
from airlock.records.schema import Schema

Holdout = Literal["none", "public", "private"]
ROUNDS = 10

NEVER_PUBLIC = (
    "evaluate.holdout: a split of private records can never be public: add a public file "
    "(airlock add FILE --name {name} --holdout --public), or set it to `none` or `private`"
)
NOTHING_TO_SPLIT = (
    "evaluate.holdout is `{holdout}`, but nothing is held out: set ingest.holdout_fraction "
    "above 0, or ingest.folds to 2 or more"
)


@dataclass(frozen=True)
class Split:
    """The split of one data set.

    Attributes:
        holdout: what evaluation may do with the held-out records.
        source: they are nowhere, in a file of their own, or a part of the records.
        n: records to train on.
        n_holdout: records held out.
        ranks: in the keyed order of the records, which ones are held out: [first, end).
        shape: the parameters that decide which records are trained on; empty where all are.
    """

    holdout: Holdout
    source: Literal["none", "file", "records"]
    n: int
    n_holdout: int
    ranks: tuple[int, int] = (0, 0)
    shape: Mapping[str, Any] = field(default_factory=dict)

    def held_out(self, first_row: int, count: int, key: bytes) -> NDArray[np.bool_]:
        """For `count` records from `first_row` on, whether each is held out."""
        first, end = self.ranks
        if first == end:
            return np.zeros(count, dtype=bool)
        positions = np.arange(first_row, first_row + count, dtype=np.uint64)
        ranks = permute(positions, self.n + self.n_holdout, key)
        return (ranks >= first) & (ranks < end)


def resolve_holdout(params: Params, schema: Schema, has_holdout_file: bool) -> Holdout:
    """What `evaluate.holdout` means for this data set.

    `auto` is public where that is honest (public data, or a file that the owner declared public), otherwise
    none.

    Raises:
        ParamsError: a split of private records is asked to be public, or nothing is held out.
    """
    asked, splits = params.evaluate.holdout, params.ingest.holdout_fraction > 0 or params.ingest.folds > 0
    if asked == "auto":
        return "public" if has_holdout_file or (schema.public and splits) else "none"
    if asked == "public" and not (has_holdout_file or schema.public):
        raise ParamsError(NEVER_PUBLIC.format(name=schema.name))
    if asked != "none" and not splits and not (asked == "public" and has_holdout_file):
        raise ParamsError(NOTHING_TO_SPLIT.format(holdout=asked))
    return asked


def plan_split(params: Params, schema: Schema, *, n: int, n_file: int | None) -> Split:
    """The split of `n` records, beside a public holdout file of `n_file` records if there is one.

    Raises:
        ParamsError: the split is impossible or would declare private records public.
    """
    ingest, holdout = params.ingest, resolve_holdout(params, schema, n_file is not None)
    if ingest.folds == 1 or ingest.fold >= max(ingest.folds, 1):
        raise ParamsError(
            f"ingest.folds {ingest.folds} and ingest.fold {ingest.fold} do not fit: folds is 0 or at least "
            "2, fold below it"
        )
    if holdout == "none":
        return Split(holdout, "none", n, 0)
    if holdout == "public" and n_file is not None and not (schema.public and ingest.folds):
        return Split(holdout, "file", n, n_file)
    if ingest.folds:
        first, end = n * ingest.fold // ingest.folds, n * (ingest.fold + 1) // ingest.folds
        shape: dict[str, Any] = {"folds": ingest.folds, "fold": ingest.fold}
    else:
        first, end = 0, int(n * ingest.holdout_fraction)
        shape = {"holdout_fraction": ingest.holdout_fraction}
    if not 0 < end - first < n:
        raise ParamsError(
            f"ingest: {n} records cannot be split this way: both parts need at least one record"
        )
    return Split(holdout, "records", n - (end - first), end - first, (first, end), shape)


def permute(positions: NDArray[np.uint64], n: int, key: bytes) -> NDArray[np.uint64]:
    """Send each position in [0, n) to its place in a keyed order, without holding the order in memory.

    A Feistel network over the smallest even number of bits that holds n, with AES as round function; a place
    beyond n is sent on until it is inside (cycle walking).
    """
    half = max((max(n - 1, 1).bit_length() + 1) // 2, 1)
    places = _feistel(positions, half, key)
    while (outside := places >= n).any():
        places[outside] = _feistel(places[outside], half, key)
    return places


def _feistel(positions: NDArray[np.uint64], half: int, key: bytes) -> NDArray[np.uint64]:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    width, mask = np.uint64(half), np.uint64((1 << half) - 1)
    left, right = positions >> width, positions & mask
    for index in range(ROUNDS):
        blocks = np.zeros((len(positions), 2), dtype="<u8")
        blocks[:, 0], blocks[:, 1] = index, right
        mixed = np.frombuffer(
            Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(blocks.tobytes()), dtype="<u8"
        )[::2]
        left, right = right, left ^ (mixed & mask)
    return (left << width) | right
