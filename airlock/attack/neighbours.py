"""Made-up data sets that differ in one record, and the search for the two that a release tells apart best.

A generic search over extreme records among extreme others, and whatever a mechanism itself hints at. Which
pair is attacked needs no
argument: any pair of neighbours gives a valid bound, a badly chosen one a weak bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.models.numbers import HALF
from airlock.privacy.guarantees import Neighbours
from airlock.privacy.plan import Facts

Records = NDArray[Any]
# Where the target stands: records on both sides of it, so that a row that looks at its neighbour is noticed.
PLACE = 1


@dataclass(frozen=True)
class EncodedRecords:
    """Encoded records; the label -1 marks a null record, whose values are 0."""

    x: Records
    y: NDArray[np.int32]

    @property
    def valid(self) -> NDArray[np.uint8]:
        return (self.y >= 0).astype(np.uint8)

    def with_record(self, place: int, record: Records, label: int) -> EncodedRecords:
        """The same with another record at `place`."""
        x, y = self.x.copy(), self.y.copy()
        x[place], y[place] = (record if label >= 0 else 0), label
        return EncodedRecords(x, y)


@dataclass(frozen=True)
class Pair:
    """Two neighbouring data sets."""

    name: str
    present: EncodedRecords
    absent: EncodedRecords

    def side(self, present: bool) -> EncodedRecords:
        """One of the two."""
        return self.present if present else self.absent


def pairs(
    facts: Facts, relation: Neighbours, *, hints: Sequence[tuple[str, Records]] = (), seed: int = 0
) -> Iterator[Pair]:
    """Extreme records, with the first label and the last, among nulls, extreme others and copies, beside the
    null or the opposite.
    """
    extremes = [*hints, *extreme_records(facts, seed)]
    for around in ("null records", "random corners", "copies of itself"):
        for label in sorted({0, last_label(facts)}):
            for name, record in extremes:
                others = surroundings(facts, around, record, label, seed)
                present = others.with_record(PLACE, record, label)
                words = f"a record ({name}, label {label}) among {around}"
                if relation == "zero-out":
                    yield Pair(f"{words}, or a null record", present, others.with_record(PLACE, record, -1))
                else:
                    other = _opposite(record), last_label(facts) - label
                    yield Pair(f"{words}, or its opposite", present, others.with_record(PLACE, *other))


def last_label(facts: Facts) -> int:
    """Of the classes, or the last step of a number's grid."""
    return 2 * HALF if facts.number else len(facts.labels) - 1


def extreme_records(facts: Facts, seed: int) -> list[tuple[str, Records]]:
    """Corners of the cube of all records."""
    shape = facts.shape
    random = np.random.default_rng(seed)
    alternating = (np.indices(shape).sum(axis=0) % 2).astype(np.float64)
    one = np.zeros(shape)
    one.reshape(-1)[0] = 1.0
    corners = {
        "all highest": np.ones(shape),
        "all lowest": np.zeros(shape),
        "alternating": alternating,
        "one value high": one,
        "a random corner": random.integers(0, 2, shape).astype(np.float64),
        "the middle": np.full(shape, 0.5),
    }
    return [(name, as_encoded(record, facts)) for name, record in corners.items()]


def surroundings(facts: Facts, around: str, record: Records, label: int, seed: int) -> EncodedRecords:
    """What stands around the target. Among copies of itself, what leaks into the rows of others adds up."""
    if around == "copies of itself":
        return EncodedRecords(np.stack([record] * facts.n), np.full(facts.n, label, np.int32))
    random = np.random.default_rng(seed + 1)
    corners = random.integers(0, 2, (facts.n, *facts.shape)).astype(np.float64)
    if around == "null records":
        return EncodedRecords(as_encoded(np.zeros_like(corners), facts), np.full(facts.n, -1, np.int32))
    labels = random.integers(0, last_label(facts) + 1, facts.n).astype(np.int32)
    return EncodedRecords(as_encoded(corners, facts), labels)


def as_encoded(values: NDArray[np.float64], facts: Facts) -> Records:
    """Values in [0, 1] in the form in which records of this kind are sealed."""
    return np.rint(values * 255).astype(np.uint8) if facts.kind == "image" else values


def _opposite(record: Records) -> Records:
    return 255 - record if record.dtype == np.uint8 else 1.0 - record


def ranked(candidates: Sequence[Pair], separation: Callable[[Pair], float]) -> list[Pair]:
    """The largest separation first; equals as they come."""
    measured = [separation(pair) for pair in candidates]
    return [candidates[place] for place in np.argsort(-np.array(measured), kind="stable")]
