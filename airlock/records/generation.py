"""Records of a schema's own columns and types, from bins: exactly what the schema allows, and nothing else.

Used for synthetic records (bins drawn from a release) and for mock records (bins drawn from nothing). Every
file says which of the two it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from airlock.errors import InputError
from airlock.files import parse_json, read_plain, replace, replacing
from airlock.models.numbers import HALF, of_grid
from airlock.records.encoding import encode
from airlock.records.schema import EPOCH, Column, Schema
from airlock.records.values import UNITS, bucket

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Intervals = tuple[Floats, Floats]
"""Lower and upper ends, in the encoded range [0, 1], of what each record's number lies in."""
MARK = b"airlock"
"""Key of the Parquet metadata that says what a file is."""
MOCK_COLUMN = "airlock_mock"
DIGITS = 6


@dataclass(frozen=True)
class Drawn:
    """What was drawn for one column.

    Attributes:
        choice: index of the category of each record; of a number, nothing.
        interval: of a number.
        missing: which are missing.
    """

    choice: Integers | None = None
    interval: Intervals | None = None
    missing: NDArray[np.bool_] | None = None


def records_of(schema: Schema, drawn: Sequence[Drawn], labels: Integers, random: Any) -> pa.Table:
    """A table in the schema's own columns and types.

    Raises:
        InputError: the schema has images or slots for friends.
    """
    check_offered(schema)
    columns = {
        column.name: _values(column, schema, one, random)
        for column, one in zip(schema.columns, drawn, strict=True)
    }
    columns[schema.label.column] = (
        pa.array(of_grid(labels, schema.label.number), pa.float64())
        if schema.label.number
        else pa.array(np.array(schema.label.classes, object)[labels], pa.string())
    )
    if schema.user:
        numbers = np.arange(1, len(labels) + 1).astype(str).astype(object)
        columns[schema.user.column] = pa.array("made-up-" + numbers, pa.string())
    made = pa.table(columns)
    # What is written is read again as any record is: a value that the schema refuses would be a fault here.
    read = encode(made, schema)
    if int(read.valid.sum()) != made.num_rows:
        raise AssertionError("made-up records do not follow their schema")
    return made


def check_offered(schema: Schema) -> None:
    """Refuse what is no plain table.

    Raises:
        InputError: naming the reason.
    """
    if schema.kind != "tabular":
        raise InputError(f"schema '{schema.name}' is for images: records are made up for tables only")
    if schema.user and schema.user.friends:
        raise InputError(f"schema '{schema.name}' has slots for friends: such records are not made up")


def _values(column: Column, schema: Schema, drawn: Drawn, random: Any) -> pa.Array:
    missing = drawn.missing
    if column.type == "category":
        assert drawn.choice is not None
        names = np.array(column.categories or _bucket_texts(column.buckets or 0), object)
        return pa.array(names[drawn.choice], pa.string(), mask=missing)
    assert drawn.interval is not None and column.bounds is not None
    low, high = column.bounds
    below, above = (low + (high - low) * end for end in drawn.interval)
    if column.type == "date":
        return _dates(column, np.clip(_whole(below, above, column.bounds, random), low, high), missing)
    if column.whole:
        return pa.array(_whole(below, above, column.bounds, random).astype(np.int64), mask=missing)
    found = below + (above - below) * random.random(len(below))
    return pa.array(np.clip(_short(found, below, above), low, high), pa.float64(), mask=missing)


def _whole(below: Floats, above: Floats, bounds: tuple[float, float], random: Any) -> Floats:
    """A whole number in each interval and within the bounds; the nearest where an interval has none."""
    first = np.maximum(np.ceil(below), np.ceil(bounds[0]))
    last = np.minimum(np.ceil(above) - 1, np.floor(bounds[1]))
    last = np.where(above >= bounds[1], np.floor(bounds[1]), last)
    found = first + np.floor(random.random(len(below)) * np.maximum(last - first + 1, 1))
    clipped: Floats = np.clip(found, np.ceil(bounds[0]), np.floor(bounds[1]))
    return clipped


def _short(found: Floats, below: Floats, above: Floats) -> Floats:
    """A few digits of each number, unless they lead out of its interval."""
    with np.errstate(divide="ignore"):
        size = np.floor(np.log10(np.maximum(np.abs(found), 1e-300)))
    step = 10.0 ** np.clip(DIGITS - 1 - size, -300, 300)
    rounded = np.rint(found * step) / step
    return np.where((rounded >= below) & (rounded < above), rounded, found)


def _dates(column: Column, days: Floats, missing: NDArray[np.bool_] | None) -> pa.Array:
    """Days as dates, at the first day of their unit, in the schema's own form."""
    assert column.bounds is not None
    unit = UNITS[column.unit or "day"]
    low, high = (np.datetime64(EPOCH) + np.timedelta64(int(end), "D") for end in np.rint(column.bounds))
    dates = days.astype(np.int64).astype("datetime64[D]").astype(f"datetime64[{unit}]")
    # A unit that begins before the first possible day would be clipped: the next one is taken, if it fits.
    later = (dates + 1).astype("datetime64[D]")
    dates = dates.astype("datetime64[D]")
    dates = np.where(dates >= low, dates, np.where(later <= high, later, low))
    array = pa.array(dates, pa.date32(), mask=missing)
    if column.format is None:
        return array
    texts = [None if day is None else day.strftime(column.format) for day in array.to_pylist()]
    return pa.array(texts, pa.string())


@lru_cache
def _bucket_texts(number: int) -> tuple[str, ...]:
    """A text for every bucket of a hashed category: the first of `made-up 1`, `made-up 2`, ... in it."""
    found: dict[int, str] = {}
    count = 0
    while len(found) < number:
        count += 1
        found.setdefault(bucket(f"made-up {count}", number), f"made-up {count}")
    return tuple(found[place] for place in range(number))


def write(made: pa.Table, folder: Path, name: str, schema: Schema, marks: Mapping[str, Any]) -> list[Path]:
    """NAME.parquet and NAME.csv, and NAME.json that says what they are; Parquet says it inside too."""
    import pyarrow.csv as pc
    import pyarrow.parquet as pq

    document = {"columns": made.column_names, "rows": made.num_rows, **marks}
    metadata = {**(made.schema.metadata or {}), MARK: json.dumps(document, sort_keys=True).encode()}
    paths = [folder / f"{name}.{ending}" for ending in ("parquet", "csv", "json")]
    # First what a CSV file cannot say of itself: a half-finished one must not pass for records of people.
    replace(paths[2], json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    with replacing(paths[0]) as fresh:
        pq.write_table(made.replace_schema_metadata(metadata), fresh)
    blank = schema.missing_values[0] if schema.missing_values else ""
    texts = made
    for place, field in enumerate(made.schema):
        column = made.column(place)
        if schema.decimal == "," and pa.types.is_floating(field.type):
            column = pa.compute.replace_substring(column.cast(pa.string()), ".", ",")
        if blank and column.null_count:
            column = column.cast(pa.string()).fill_null(blank)
        texts = texts.set_column(place, field.name, column)
    with replacing(paths[1]) as fresh:
        pc.write_csv(texts, fresh, pc.WriteOptions(include_header=schema.header))
    return paths


def mark_of(file: Path) -> Mapping[str, Any] | None:
    """What a file says of itself, if it was made up here: a Parquet file inside, any other by the NAME.json
    beside it.
    """
    import pyarrow.parquet as pq

    try:
        if file.suffix == ".csv":
            said = parse_json(read_plain(file.with_suffix(".json")))
        else:
            said = parse_json((pq.read_schema(file).metadata or {}).get(MARK, b"null"))
    except (OSError, ValueError, pa.ArrowInvalid):
        return None
    return said if isinstance(said, dict) and isinstance(said.get("kind"), str) else None


def even_draw(schema: Schema, rows: int, random: Any, missing: float = 0.05) -> tuple[list[Drawn], Integers]:
    """What mock records are made of: every value that the schema allows is as likely as any other."""
    drawn = []
    for column in schema.columns:
        gone = random.random(rows) < missing if column.missing == "impute" else None
        if column.type == "category":
            number = len(column.categories or ()) or int(column.buckets or 1)
            drawn.append(Drawn(choice=random.integers(0, number, rows), missing=gone))
        else:
            drawn.append(Drawn(interval=(np.zeros(rows), np.ones(rows)), missing=gone))
    return drawn, random.integers(0, 2 * HALF + 1 if schema.label.number else len(schema.label.classes), rows)
