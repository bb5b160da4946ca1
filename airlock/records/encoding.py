"""Records to arrays, by public rules only: bounds, categories and classes of a schema. No files, no
statistics of the data.

One record's encoding depends on that record alone, so clipping and imputing change no sensitivity. Errors
name a column and a row (1 is the first record after the header); never a value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from airlock.errors import SchemaError
from airlock.models.features.hybrid import GRID, layout
from airlock.models.numbers import on_grid
from airlock.records import pixels
from airlock.records.schema import Column, Schema
from airlock.records.values import Values, buckets, days, numbers, texts

IMPUTED_VALUE = (
    0.5  # the middle of the public bounds; the indicator beside it tells a model that it is no measurement
)


@dataclass(frozen=True)
class Encoded:
    """Encoded records.

    Attributes:
        x: float64 (n, d) in [0, 1] for tables, uint8 (n, height, width, channels) for images.
        y: index of the class, or step of a number on its grid; -1 where there is none.
        valid: 0 marks a null record: a dropped row that stays counted, all zero.
        counts: values clipped, missing and dropped by column. They depend on values: the owner's log only.
    """

    x: NDArray[Any]
    y: NDArray[np.int32]
    valid: NDArray[np.uint8]
    counts: Mapping[str, int] = field(default_factory=dict)


def encode(
    batch: pa.RecordBatch | pa.Table, schema: Schema, *, first_row: int = 0, with_labels: bool = True
) -> Encoded:
    """Encode records.

    Args:
        batch: records, in columns of any order; columns that the schema does not name are not looked at.
        schema: a complete schema.
        first_row: how many records came before this batch, for error messages.
        with_labels: False for records whose class nobody knows (`y` is then -1).

    Raises:
        RecordError: a value breaks the schema.
        SchemaError: a column is missing or has a type that cannot be read.
    """
    counts: dict[str, int] = {}
    valid = np.ones(batch.num_rows, dtype=bool)

    def read(name: str) -> Values:
        if name not in batch.schema.names:
            raise SchemaError(f"column '{name}' of schema '{schema.name}' is not in the records")
        return Values(name, batch.column(name), first_row, schema.missing_values, counts, schema.decimal)

    x = (
        pixels.encode(read, schema.image, valid)
        if schema.image
        else _encode_columns(read, schema.columns, valid)
    )
    y = _encode_labels(read, schema, valid) if with_labels else np.full(batch.num_rows, -1, dtype=np.int32)
    x[~valid], y[~valid] = 0, -1
    counts["dropped records"] = int((~valid).sum())
    return Encoded(x, y, valid.astype(np.uint8), {name: count for name, count in counts.items() if count})


def encoded_shape(schema: Schema) -> tuple[int, ...]:
    """Shape of one encoded record."""
    if schema.image:
        return (schema.image.height, schema.image.width, schema.image.channels)
    return (len(encoded_columns(schema)),)


def encoded_columns(schema: Schema) -> list[str]:
    """Name of each encoded column of a table; of images, "row,column,channel" of each value."""
    if schema.image:
        return [",".join(str(part) for part in place) for place in np.ndindex(encoded_shape(schema))]
    return [name for column in schema.columns for name in _names(column)]


def described_columns(schema: Schema) -> list[dict[str, Any]]:
    """What a table's columns are, in public terms and in plain JSON (airlock/models/bins.py reads it)."""
    return [
        {
            "name": column.name,
            "type": column.type,
            "width": len(_names(column)) - (column.missing == "impute"),
            "missing": column.missing == "impute",
            "bounds": list(column.bounds) if column.bounds else None,
            "categories": list(column.categories or ()),
            "whole": column.whole or column.type == "date",
            "unit": column.unit,
            "form": column.format,
        }
        for column in schema.columns
    ]


def encoded_layout(schema: Schema) -> str | None:
    """Kinds of the encoded columns of a table in order, as a feature map's name carries them.

    All of it is in the schema: types, number of categories, and bounds. Whole bounds that are a few steps
    apart make a number a code as well.
    """
    if schema.image:
        return None
    return layout([kind for column in schema.columns for kind in _kinds(column)])


def pack(encoded: Encoded, *, user: NDArray[np.int64] | None = None) -> pa.RecordBatch:
    """As an Arrow batch with fixed-width columns and no nulls, ready to be sealed."""
    n = len(encoded.y)
    width = int(np.prod(encoded.x.shape[1:]))
    if encoded.x.dtype == np.uint8:
        buffer = pa.py_buffer(np.ascontiguousarray(encoded.x))
        x = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), n, [None, buffer])
    else:
        x = pa.FixedSizeListArray.from_arrays(pa.array(encoded.x.reshape(-1)), width)
    columns: dict[str, pa.Array] = {"x": x, "y": pa.array(encoded.y), "valid": pa.array(encoded.valid)}
    if user is not None:
        columns["user"] = pa.array(user)
    fields = [pa.field(name, column.type, nullable=False) for name, column in columns.items()]
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=pa.schema(fields))


def unpack(batch: pa.RecordBatch, shape: Sequence[int]) -> Encoded:
    """The inverse of `pack`, without copying: arrays are read-only views."""
    x = batch.column("x")
    if pa.types.is_fixed_size_binary(x.type):
        width, buffer = x.type.byte_width, x.buffers()[1]
        flat = np.frombuffer(buffer, dtype=np.uint8, offset=x.offset * width, count=len(x) * width)
    else:
        flat = x.flatten().to_numpy()
    y, valid = batch.column("y").to_numpy(), batch.column("valid").to_numpy()
    return Encoded(flat.reshape(batch.num_rows, *shape), y, valid)


def _names(column: Column) -> list[str]:
    if column.type != "category":
        names = [column.name]
    elif column.buckets is not None:
        names = [f"{column.name}#{place}" for place in range(column.buckets)]
    else:
        names = [f"{column.name}={category}" for category in column.categories or ()]
    return [*names, f"{column.name} is missing"] if column.missing == "impute" else names


def _kinds(column: Column) -> list[tuple[str, int]]:
    """Kind and size of a column; whether it is missing is a category of its own, or one more of its levels."""
    if column.type == "category":
        return [("c", len(_names(column)))]
    kind = ("n", 0)
    if column.type == "number" and column.bounds is not None:
        low, high = column.bounds
        if low.is_integer() and high.is_integer() and high - low in GRID:
            kind = ("g", int(high - low))
    return [kind, ("c", 1)] if column.missing == "impute" else [kind]


def _encode_columns(
    read: Callable[[str], Values], columns: Sequence[Column], valid: NDArray[np.bool_]
) -> NDArray[np.float64]:
    x = np.zeros((len(valid), sum(len(_names(column)) for column in columns)))
    place = 0
    for column in columns:
        width = len(_names(column))
        _encode_column(read(column.name), column, x[:, place : place + width], valid)
        place += width
    return x


def _encode_column(
    values: Values, column: Column, out: NDArray[np.float64], valid: NDArray[np.bool_]
) -> None:
    if column.type != "category":
        out[:, 0], missing = _scaled(values, column)
    else:
        index, missing = _indices(values, column)
        rows = np.flatnonzero(index >= 0)
        out[rows, index[rows]] = 1
    if column.missing == "refuse":
        values.refuse(missing, "a missing value")
    elif column.missing == "drop":
        valid &= ~missing
    else:
        out[:, -1] = missing


def _indices(values: Values, column: Column) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    if column.buckets is not None:
        return buckets(values, column.buckets)
    return texts(values, column.categories or (), "a category that the schema does not list")


def _scaled(values: Values, column: Column) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    assert column.bounds is not None
    low, high = column.bounds
    found, missing = (
        days(values, column.format, column.unit or "day") if column.type == "date" else numbers(values)
    )
    if column.whole:
        values.refuse((found != np.rint(found)) & ~missing, "not a whole number, which the schema says it is")
    clipped = np.clip(found, low, high)
    values.count("clipped", (clipped != found) & ~missing)
    scaled = (clipped - low) / (high - low)
    scaled[missing] = IMPUTED_VALUE
    return scaled, missing


def _encode_labels(
    read: Callable[[str], Values], schema: Schema, valid: NDArray[np.bool_]
) -> NDArray[np.int32]:
    label = schema.label
    values = read(label.column)
    index, missing = (
        _steps(values, label.number)
        if label.number
        else texts(values, label.classes, "a label that is not in the schema")
    )
    if label.missing == "refuse":
        values.refuse(missing, "a missing label")
    valid &= ~missing
    return index.astype(np.int32)


def _steps(values: Values, bounds: tuple[float, float]) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    found, missing = numbers(values)
    clipped = np.clip(found, *bounds)
    values.count("clipped", (clipped != found) & ~missing)
    return np.where(missing, -1, on_grid(clipped, bounds)).astype(np.int32), missing
