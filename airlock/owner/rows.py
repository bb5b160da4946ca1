"""Which records are known already, row by row: the same records under a second name would be a second budget.

Every row of a table has a keyed digest of the values of its schema's columns, as the schema reads them: 1 and
1.0, a decimal comma, CSV and Parquet are the same; order of rows and columns, and names of columns, do not
matter. The owner's registry keeps the smallest `SKETCH_SIZE` digests of each population (a bottom-k sketch): of a
table of at most so many rows that is all of them, of a larger one a sample that every subset of it meets in
proportion. The same is kept of rows without one of their columns, whichever it is: a table in which a column was left
out, added, or written otherwise in every row has the same rows but for that column. docs/ledger.md says what is
caught, and what is not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from airlock.errors import AirlockError
from airlock.records.schema import Schema
from airlock.records.tables import Table
from airlock.records.values import as_texts

SKETCH_SIZE = 4096
SHARE = 0.5  # of the rows that could be known, as many as this are refused
FEWEST_MATCHES = 5  # rows that must be known; fewer may be a coincidence
DISTINCT_SHARE = 0.5  # where more than half of the rows are repetitions, rows do not tell people apart
# Without a column more people look alike. Of n rows that fall on M kinds about n/2M repeat another one and n/M of other
# people's are among them: where nine tenths are different, chance makes a fifth of other people known.
PART_DISTINCT, PART_SHARE = 0.9, 0.75
MOST_PARTS = 64  # columns of a table of which this is kept
Digests = NDArray[np.uint64]


@dataclass
class Sketch:
    """The smallest digests of a population's rows.

    `below` is the largest of them where there are more; otherwise all are here.
    """

    kept: set[int] = field(default_factory=set)
    below: int | None = None

    def add(self, digests: Digests) -> None:
        """Take further rows in."""
        found = np.unique(digests)
        more = Sketch({int(each) for each in found[:SKETCH_SIZE]})
        if len(found) > SKETCH_SIZE:
            more.below = int(found[SKETCH_SIZE - 1])
        self.merge(more)

    def merge(self, other: Sketch) -> None:
        """Take the rows of another sketch in: what was ever added under a name stays known."""
        limits = [each for each in (self.below, other.below) if each is not None]
        found = sorted(self.kept | other.kept)
        if limits:
            found = [each for each in found if each <= min(limits)]
        self.kept, self.below = set(found[:SKETCH_SIZE]), min(limits, default=None)
        if len(found) > SKETCH_SIZE:
            self.below = found[SKETCH_SIZE - 1]

    def to_json(self) -> dict[str, Any]:
        """For the registry."""
        return {"kept": sorted(self.kept), "below": self.below}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Sketch:
        """The inverse of `to_json`."""
        return cls(set(document["kept"]), document["below"])


@dataclass
class Overlap:
    """How many rows of a new table a known population has, of those that its sketch can tell."""

    sketch: Sketch
    counted: int = 0
    known: int = 0

    def add(self, digests: Digests) -> None:
        """Compare further rows."""
        if self.sketch.below is not None:
            digests = digests[digests <= self.sketch.below]
        self.counted += len(digests)
        kept = np.fromiter(self.sketch.kept, np.uint64, len(self.sketch.kept))
        self.known += int(np.isin(digests, kept).sum())

    @property
    def share(self) -> float:
        """The part of the rows that is known; 0 where too few were compared to tell."""
        return self.known / self.counted if self.known >= FEWEST_MATCHES else 0.0


@dataclass(frozen=True)
class Comparison:
    """What the rows of a table show.

    Attributes:
        sketch: empty where rows cannot be told apart.
        parts: of rows without one of their columns.
        shares: which part of the rows each known population has, be it without a column.
        repeated: the part of the rows that repeat another one, from those that the sketch keeps.
    """

    sketch: Sketch = field(default_factory=Sketch)
    parts: Sketch = field(default_factory=Sketch)
    shares: Mapping[str, float] = field(default_factory=dict)
    repeated: float = 0.0


@dataclass(frozen=True)
class Known:
    """What is kept of a population: of its rows, and of its rows without one of their columns."""

    rows: Sketch
    parts: Sketch = field(default_factory=Sketch)


@dataclass
class Part:
    """Rows without one column: how many there are, how many are different, and how many a population knows."""

    rows: int = 0
    distinct: int = 0
    sketch: Sketch = field(default_factory=Sketch)
    overlaps: dict[str, list[Overlap]] = field(default_factory=dict)

    def add(self, digests: Digests) -> None:
        """Take further rows in."""
        self.rows, self.distinct = self.rows + len(digests), self.distinct + len(np.unique(digests))
        self.sketch.add(digests)
        for overlap in (one for ones in self.overlaps.values() for one in ones):
            overlap.add(digests)

    def tells(self, copies: int) -> bool:
        """Whether such rows tell people apart."""
        return self.distinct >= PART_DISTINCT * self.rows / copies

    def share(self, name: str) -> float:
        """The part that a population knows; 0 where it could be chance."""
        found = max((one.share for one in self.overlaps[name]), default=0.0)
        return found if found >= PART_SHARE else 0.0


@dataclass
class Repetitions:
    """How often each digest of a sketch was met; one that a sketch has dropped does not come back."""

    counts: dict[int, int] = field(default_factory=dict)

    def add(self, digests: Digests, sketch: Sketch) -> None:
        """Count further rows, once the sketch has taken them in."""
        found, times = np.unique(digests, return_counts=True)
        for digest, count in zip(found.tolist(), times.tolist(), strict=True):
            if digest in sketch.kept:
                self.counts[digest] = self.counts.get(digest, 0) + count

    def share(self, sketch: Sketch) -> float:
        """Of rows that are not the first of their kind."""
        met = sum(self.counts[digest] for digest in sketch.kept)
        return 1 - len(sketch.kept) / met if met else 0.0

    def copies(self, sketch: Sketch) -> int:
        """How often the whole table was written one after another: every row then comes so many times."""
        return max(math.gcd(*(self.counts[digest] for digest in sketch.kept)), 1)


def compare(table: Table, schema: Schema, key: bytes, known: Mapping[str, Known]) -> Comparison:
    """What the rows of a table show, beside those of known populations."""
    sketch, overlaps = Sketch(), {name: Overlap(one.rows) for name, one in known.items()}
    repetitions, rows, distinct = Repetitions(), 0, 0
    parts: list[Part] = []
    if schema.kind != "tabular":
        return Comparison()
    try:
        for cells in _cells_of(table, schema, key):
            found, without = _whole(cells, key), _parts(cells, key)
            rows, distinct = rows + len(found), distinct + len(np.unique(found))
            sketch.add(found)
            repetitions.add(found, sketch)
            for overlap in overlaps.values():
                overlap.add(found)
            parts = parts or [Part(overlaps=_overlaps(known)) for _ in without] + [
                Part(overlaps=_dropped(known))
            ]
            for part, digests in zip(parts, (*without, found), strict=True):
                part.add(digests)
    except (AirlockError, pa.ArrowException):
        # Ingest tells what is wrong with a record; nothing is known about rows that cannot be read.
        return Comparison()
    repeated = repetitions.share(sketch)
    copies = repetitions.copies(sketch)
    telling = [part for part in parts if part.tells(copies)]
    # Known populations have rows that tell people apart: theirs are found also in a table that repeats them.
    shares = {
        name: max([overlap.share, *(part.share(name) for part in telling)])
        for name, overlap in overlaps.items()
    }
    once = rows / copies
    few = len(sketch.kept) < FEWEST_MATCHES
    if few or distinct < DISTINCT_SHARE * once or len(sketch.kept) < DISTINCT_SHARE * min(once, SKETCH_SIZE):
        return Comparison(shares=shares, repeated=repeated)
    without_one = Sketch()
    for part in parts[:-1]:
        if part.tells(copies):
            without_one.merge(part.sketch)
    return Comparison(sketch, without_one, shares, repeated)


def _overlaps(known: Mapping[str, Known]) -> dict[str, list[Overlap]]:
    """For rows without a column: the population has not got it (its whole rows), or has another in its place."""
    return {name: [Overlap(one.rows), Overlap(one.parts)] for name, one in known.items()}


def _dropped(known: Mapping[str, Known]) -> dict[str, list[Overlap]]:
    """For whole rows: the population has one column more."""
    return {name: [Overlap(one.parts)] for name, one in known.items()}


def digests(table: Table, schema: Schema, key: bytes) -> Iterable[Digests]:
    """Of every row, batch by batch."""
    return (_whole(cells, key) for cells in _cells_of(table, schema, key))


def _cells_of(table: Table, schema: Schema, key: bytes) -> Iterable[list[Digests]]:
    """Every column's part of each row's digest, batch by batch."""
    columns = list(dict.fromkeys((*schema.sources, schema.label.column)))
    salt = _salt(key)
    for batch in table.batches(columns):
        yield [_cells(as_texts(_dated(batch.column(name)), name), schema, key, salt) for name in columns]


def _whole(cells: Sequence[Digests], key: bytes) -> Digests:
    return _mix(np.add.reduce(cells), _salt(key))


def _parts(cells: Sequence[Digests], key: bytes) -> list[Digests]:
    """Digests of the rows without each of their columns in turn; of none where there are too few or too many."""
    if not 2 < len(cells) <= MOST_PARTS:
        return []
    total, salt = np.add.reduce(cells), _salt(key)
    return [_mix(total - column, salt) for column in cells]


def _salt(key: bytes) -> int:
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "big")


def _dated(array: Any) -> Any:
    return pc.cast(array, pa.string()) if pa.types.is_temporal(array.type) else array


def _cells(texts: Any, schema: Schema, key: bytes, salt: int) -> Digests:
    """One column's part of each row's digest. A sum of such parts does not depend on the order of columns."""
    missing = pc.is_in(texts, value_set=pa.array([None, *schema.missing_values], pa.string()))
    blank = missing.to_numpy(zero_copy_only=False).astype(bool)
    plain = pc.replace_substring(texts, ",", ".") if schema.decimal == "," else texts
    try:
        numbers = pc.cast(pc.if_else(missing, pa.scalar(None, pa.string()), plain), pa.float64())
        found = _numbers(numbers.to_numpy(zero_copy_only=False).astype(np.float64), salt)
    except pa.ArrowInvalid:
        unique = pc.unique(plain)
        parts = np.array([_text(text, key, salt) for text in unique.to_pylist()], np.uint64)
        found = parts[pc.index_in(plain, value_set=unique).to_numpy(zero_copy_only=False).astype(np.int64)]
    return np.where(blank, np.uint64(0), found)


def _text(text: str | None, key: bytes, salt: int) -> int:
    """The same for a number that stands among texts as for one among numbers."""
    try:
        number = float(text or "")
    except ValueError:
        number = math.nan
    if not math.isnan(number):
        return int(_numbers(np.array([number]), salt)[0])
    return int.from_bytes(blake2b((text or "").casefold().encode(), key=key, digest_size=8).digest(), "big")


def _numbers(numbers: NDArray[np.float64], salt: int) -> Digests:
    return _mix((numbers + 0.0).view(np.uint64), salt)  # -0.0 + 0.0 is 0.0


def _mix(words: Digests, salt: int) -> Digests:
    """The finaliser of SplitMix64, twice, keyed in between: every bit moves every other.

    The registry is private besides.
    """
    for constant in (salt, salt ^ 0x9E3779B97F4A7C15):
        words = words ^ np.uint64(constant)
        words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        words = words ^ (words >> np.uint64(31))
    return words
