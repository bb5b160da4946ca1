"""Sums over records in which no unit has more than its share: a record, or a user whose records are added up
and then cut.

A user's total is cut to a norm (a projection onto a ball) and truncated to integers. A projection brings no
two totals farther apart, and
truncating by at most one a coordinate: so what one user does to the totals of others, through slots in their
records, stays bounded (docs/proofs/behaviour.md#cut-totals). Memory grows with the number of users, not of
records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.models.features.rows import Rows
from airlock.privacy.sums import cut_total
from airlock.records.encoding import unpack
from stages.release.passes import Chunk, Integers, Sums, Wanted

RowMaker = Callable[[NDArray[np.float64], NDArray[np.uint8]], Rows]


def sum_records(reader: Any, shape: tuple[int, ...], rows: RowMaker, wanted: Wanted) -> Sums:
    """One pass: plain sums."""
    total: dict[str, Integers] = {}
    for chunk, _ in _chunks(reader, shape, rows):
        _add(total, wanted(chunk))
    return total


def sum_users(
    reader: Any, shape: tuple[int, ...], rows: RowMaker, wanted: Wanted, caps: Mapping[str, int]
) -> Sums:
    """One pass: every user's sums, each cut to its cap, added up."""
    users: dict[int, dict[str, Integers]] = {}
    for chunk, owners in _chunks(reader, shape, rows):
        for owner in np.unique(owners).tolist():
            mine = owners == owner
            _add(
                users.setdefault(owner, {}),
                wanted(Chunk(chunk.rows[mine], chunk.labels[mine], chunk.valid[mine])),
            )
    total: dict[str, Integers] = {}
    for sums in users.values():
        _add(total, {name: cut_total(value, caps[name]) for name, value in sums.items()})
    return total


def _chunks(reader: Any, shape: tuple[int, ...], rows: RowMaker) -> Iterator[tuple[Chunk, Integers]]:
    """Rows with the users that own them. A record may have several rows; labels are repeated."""
    for batch in reader:
        encoded = unpack(batch, shape)
        made = rows(encoded.x, encoded.valid)
        times = len(made) // max(len(encoded.y), 1)
        yield (
            Chunk(made, np.repeat(encoded.y, times), np.repeat(encoded.valid, times)),
            np.repeat(_owners(batch), times),
        )


def _owners(batch: Any) -> Integers:
    owners: Integers = (
        batch.column("user").to_numpy()
        if "user" in batch.schema.names
        else np.zeros(batch.num_rows, np.int64)
    )
    return owners


def _add(total: dict[str, Integers], part: Sums) -> None:
    for name, value in part.items():
        total[name] = total[name] + value if name in total else value
