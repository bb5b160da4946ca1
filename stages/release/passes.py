"""Passes over sealed records: chunk by chunk, exact integer sums, the same bits for any order and any number
of workers.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, ClassVar, Literal, Self, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from airlock.errors import ReleaseError
from airlock.inside.sealed import SealedReader
from airlock.models.features import columns as table_columns
from airlock.models.features.features import FeatureMap
from airlock.models.features.projection import Step
from airlock.models.features.quantiles import BINS, Quantiles, counts
from airlock.models.features.rows import LIMIT, Rows
from airlock.models.numbers import HALF, centred
from airlock.privacy import sums
from airlock.records.encoding import unpack

Integers = NDArray[np.int64]
Sums = Mapping[str, Integers]
Item = TypeVar("Item")
Result = TypeVar("Result")

HALF_AVERAGE = 128
"""A column's averages go from -128 to 127, a class counts 128."""
CACHE_BYTES = 2**30
"""Rows of a costly map are kept between passes up to this size, as 16-bit integers; beyond it they are
computed again in every pass.
"""


@dataclass(frozen=True)
class Chunk:
    """Rows of one chunk of records, `level` steps after the feature map."""

    rows: Rows
    labels: NDArray[np.int32]
    valid: NDArray[np.uint8]
    level: int = 0
    inputs: NDArray[np.float64] | None = None
    """Of a table: its encoded columns, from 0 to 1."""

    def after(self, steps: list[Step]) -> Chunk:
        """The same records, with the steps applied that are still missing."""
        rows = self.rows
        for step in steps[self.level :]:
            rows = step(rows, self.valid)
        return replace(self, rows=rows, level=len(steps))


NO_ROWS: Rows = np.zeros((0, 0))


@dataclass(frozen=True)
class KeptChunk:
    """A chunk between passes: its rows as 16-bit integers, and the rest of it."""

    rows: NDArray[np.int16]
    chunk: Chunk


Question = Callable[[Chunk], Sums]
"""A pure function from a chunk of rows to exact sums."""


def chunk_of(
    batch: pa.RecordBatch,
    feature_map: FeatureMap,
    shape: tuple[int, ...],
    before: Quantiles | None = None,
) -> Chunk:
    """Rows, labels and valid flags of a sealed batch; numbers through their quantiles, where these are known."""
    encoded = unpack(batch, shape)
    records = before(encoded.x) if before else encoded.x
    inputs = encoded.x if len(shape) == 1 else None
    return Chunk(feature_map(records, encoded.valid), encoded.y, encoded.valid, inputs=inputs)


def sum_of(chunk: Chunk) -> Integers:
    """Sum of rows."""
    return sums.Sum(chunk.rows.shape[1], LIMIT).add(chunk.rows).result()


def gram_of(chunk: Chunk) -> Integers:
    """Sum of a a^T."""
    return sums.multiply(chunk.rows, chunk.rows, (LIMIT, LIMIT))


def columns_of(chunk: Chunk) -> Integers:
    """Sum of a a^T of the rows that a table's columns make by themselves."""
    assert chunk.inputs is not None
    rows = table_columns.rows_of(chunk.inputs, chunk.valid)
    return sums.multiply(rows, rows, (LIMIT, LIMIT))


def averages_of(chunk: Chunk, columns: int, classes: int) -> Integers:
    """Sums of encoded columns (as many as are wanted: all of a table's or none) and of classes, on a coarse grid of
    their own; a null record adds nothing.
    """
    parts = [HALF_AVERAGE * sums.label_rows(chunk.labels, classes)]
    if columns:
        assert chunk.inputs is not None
        grid = np.rint(np.clip(chunk.inputs, 0.0, 1.0) * (2 * HALF_AVERAGE - 1)) - HALF_AVERAGE
        parts.insert(0, grid)
    rows = np.concatenate(parts, axis=1) * chunk.valid.astype(np.float64)[:, None]
    return sums.Sum(columns + classes, HALF_AVERAGE).add(rows).result()


def cross_of(chunk: Chunk, targets: Rows, largest: int) -> Integers:
    """Sum of a t^T, for integer targets of entries at most `largest`."""
    return sums.multiply(chunk.rows, targets, (LIMIT, largest))


class Sendable(ABC):
    """A question in plain data, so that it can be sent to a worker of a cluster (stages/release/cluster.py knows each
    by its kind).
    """

    kind: ClassVar[str]

    @abstractmethod
    def __call__(self, chunk: Chunk) -> Sums:
        """The sums of one chunk."""

    @abstractmethod
    def packed(self) -> tuple[dict[str, Any], Sums]:
        """All that it consists of: JSON and tensors."""

    @classmethod
    @abstractmethod
    def unpacked(cls, plain: Mapping[str, Any], tensors: Sums) -> Self:
        """The inverse of `packed`."""


Kind = Literal["sum", "gram", "cross", "number", "level", "averages", "columns"]
"""Of a plain sum; `number` is the cross moment with a label that is one, `level` the sum of such labels, `averages`
the sums of columns and classes, `columns` the Gram matrix of a table's columns.
"""


@dataclass(frozen=True)
class Wanted(Sendable):
    """Plain sums, by purpose; of numbers above a released `level`, averages of so many `columns`."""

    sums: Mapping[str, Kind]
    classes: int = 0
    level: int = 0
    columns: int = 0
    kind: ClassVar[str] = "sums"

    def __call__(self, chunk: Chunk) -> Sums:
        """The sums of one chunk."""
        return {purpose: self._sum(kind, chunk) for purpose, kind in self.sums.items()}

    def _sum(self, kind: str, chunk: Chunk) -> Integers:
        if kind == "cross":
            return cross_of(chunk, sums.label_rows(chunk.labels, self.classes, centred=True), self.classes)
        if kind == "number":
            return cross_of(chunk, centred(chunk.labels, self.level), HALF)
        if kind == "level":
            return sums.Sum(1, HALF).add(centred(chunk.labels)).result()
        if kind == "averages":
            return averages_of(chunk, self.columns, self.classes)
        if kind == "columns":
            return columns_of(chunk)
        return sum_of(chunk) if kind == "sum" else gram_of(chunk)

    def packed(self) -> tuple[dict[str, Any], Sums]:
        """Names only."""
        plain = {"sums": dict(self.sums), "classes": self.classes, "level": self.level}
        return {**plain, **({"columns": self.columns} if self.columns else {})}, {}

    @classmethod
    def unpacked(cls, plain: Mapping[str, Any], tensors: Sums) -> Self:
        """The inverse of `packed`."""
        return cls(**plain)


Elsewhere = Callable[[Sendable, Sequence[Step]], Sums]
"""Works out a pass on other machines (stages/release/cluster.py)."""


class Records:
    """Sealed records as rows, pass by pass."""

    def __init__(
        self,
        reader: SealedReader,
        feature_map: FeatureMap,
        shape: tuple[int, ...],
        *,
        cache_bytes: int = CACHE_BYTES,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        self._reader, self._map, self._shape, self._elsewhere = reader, feature_map, shape, elsewhere
        self._lock, self._cache, self._room = (
            Lock(),
            dict[int, KeptChunk](),
            cache_bytes if feature_map.costly else 0,
        )
        self.steps: list[Step] = []
        self.before: Quantiles | None = None
        self.passes = 0

    def ask(self, question: Question) -> Sums:
        """One pass: the sums of `question` over all chunks."""
        self.passes += 1
        if self._elsewhere and isinstance(question, Sendable):
            return self._elsewhere(question, self.steps)
        return self.sums_over(range(self._reader.chunks), question)

    def count(self, columns: Integers) -> Integers:
        """One pass before any rows are made: how many records are in each bin of each column."""
        self.passes += 1

        def found(index: int) -> Integers:
            with self._lock:
                batch = self._reader.read(index)
            encoded = unpack(batch, self._shape)
            return counts(encoded.x, encoded.valid, columns)

        total = np.zeros((len(columns), BINS), np.int64)
        for part in bounded_map(found, range(self._reader.chunks)):
            total += part
        return total

    def sums_over(self, chunks: range, question: Question) -> Sums:
        """The sums over some of the chunks: a part of a pass."""
        total: dict[str, Integers] = {}
        for part in bounded_map(lambda index: question(self._chunk(index)), chunks):
            for name, value in part.items():
                total[name] = total[name] + value if name in total else value
        return total

    def _chunk(self, index: int) -> Chunk:
        kept = self._cache.get(index)
        if kept is None:
            with self._lock:
                batch = self._reader.read(index)
            chunk = chunk_of(batch, self._map, self._shape, self.before).after(self.steps)
        else:
            chunk = replace(kept.chunk, rows=kept.rows.astype(np.float64)).after(self.steps)
        if kept is None or kept.chunk.level < chunk.level:
            self._keep(index, KeptChunk(chunk.rows.astype(np.int16), replace(chunk, rows=NO_ROWS)))
        return chunk

    def _keep(self, index: int, kept: KeptChunk) -> None:
        with self._lock:
            former = self._cache.get(index)
            change = kept.rows.nbytes - (former.rows.nbytes if former else 0)
            if change <= self._room:
                self._room -= change
                self._cache[index] = kept


def check_passes(records: Records, priced: int) -> None:
    """Records are read as often as was priced.

    Raises:
        ReleaseError: they were not.
    """
    if records.passes != priced:
        raise ReleaseError(f"the records were read {records.passes} times, but {priced} passes were priced")


def bounded_map(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int | None = None
) -> Iterator[Result]:
    """`map` on a few threads, with only a few results waiting; NumPy works outside the interpreter's lock,
    one BLAS thread each.
    """
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    workers = workers or len(os.sched_getaffinity(0))
    with threadpool_limits(1), ThreadPoolExecutor(workers) as pool:
        waiting = deque[Any]()
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
