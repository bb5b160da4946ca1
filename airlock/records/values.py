"""One column of records as numbers or as indices of texts, with its missing values told apart."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from airlock.errors import RecordError, SchemaError

UNITS = {"day": "D", "month": "M", "year": "Y"}


@dataclass(frozen=True)
class Values:
    """A column of a batch, and where to complain about it."""

    name: str
    array: Any
    first_row: int
    missing_values: tuple[str, ...]
    counts: dict[str, int]
    decimal: str = "."

    def refuse(self, bad: NDArray[np.bool_], problem: str) -> None:
        """Raise for the first row where `bad` holds."""
        if bad.any():
            raise RecordError(problem, column=self.name, row=self.first_row + int(bad.argmax()) + 1)

    def count(self, what: str, rows: NDArray[np.bool_]) -> None:
        """Remember how many values were changed; for the owner's log."""
        key = f"{what} in '{self.name}'"
        self.counts[key] = self.counts.get(key, 0) + int(rows.sum())


def numbers(values: Values) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The column as finite float64, zero where missing, and which are missing.

    Raises:
        RecordError: text that is no number, NaN or infinity.
        SchemaError: a type that holds no numbers.
    """
    array = flat(values.array)
    if is_text(array.type):
        array = _parsed(values, pc.utf8_trim_whitespace(array))
    elif not (is_number(array.type) or pa.types.is_boolean(array.type) or pa.types.is_null(array.type)):
        raise SchemaError(f"column '{values.name}' holds {array.type}: the schema says number")
    array = pc.cast(array, pa.float64(), safe=False)
    if "nan" in values.missing_values:
        array = pc.if_else(pc.is_nan(array), pa.scalar(None, pa.float64()), array)
    missing = _mask(pc.is_null(array))
    found = pc.fill_null(array, 0.0).to_numpy(zero_copy_only=False)
    values.refuse(~np.isfinite(found), "NaN or infinity")
    values.count("missing", missing)
    return found, missing


def days(values: Values, form: str | None, unit: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Dates as days since 1970, cut to the first day of their `unit`; zero where missing, and which are
    missing.

    Raises:
        RecordError: text that is no date of the form.
        SchemaError: a type that holds no dates.
    """
    array = flat(values.array)
    if is_text(array.type):
        array = _dated(values, pc.utf8_trim_whitespace(array), form)
    elif not (
        pa.types.is_date(array.type) or pa.types.is_timestamp(array.type) or pa.types.is_null(array.type)
    ):
        raise SchemaError(f"column '{values.name}' holds {array.type}: the schema says date")
    missing = _mask(pc.is_null(array))
    dates = pc.fill_null(pc.cast(array, pa.timestamp("s"), safe=False), 0).to_numpy(zero_copy_only=False)
    found = dates.astype(f"datetime64[{UNITS[unit]}]").astype("datetime64[D]").astype(np.float64)
    values.count("missing", missing)
    return found, missing


def buckets(values: Values, number: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """A public hash of each text, from 0 to number - 1, -1 where missing, and which are missing."""
    found = as_texts(values.array, values.name)
    missing = _mask(pc.is_in(found, value_set=pa.array([None, *values.missing_values], pa.string())))
    unique = pc.unique(found)
    hashed = np.array([bucket(text, number) for text in unique.to_pylist()], np.int64)
    index = hashed[pc.index_in(found, value_set=unique).to_numpy(zero_copy_only=False).astype(np.int64)]
    values.count("missing", missing)
    return np.where(missing, -1, index).astype(np.int64), missing


def bucket(text: str | None, number: int) -> int:
    """The same on every machine and in every version: the first eight bytes of SHA-256."""
    return int.from_bytes(hashlib.sha256((text or "").encode()).digest()[:8], "big") % number


def texts(values: Values, known: Sequence[str], problem: str) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Index of each text among `known`, -1 where missing, and which are missing.

    Raises:
        RecordError: with `problem`, for a text that is not known.
        SchemaError: a type that has no plain text form.
    """
    found = as_texts(values.array, values.name)
    index = pc.fill_null(pc.index_in(found, value_set=pa.array(known, pa.string())), -1).to_numpy(
        zero_copy_only=False
    )
    blank = _mask(pc.is_in(found, value_set=pa.array([None, *values.missing_values], pa.string())))
    missing = blank & (index < 0)
    values.refuse((index < 0) & ~missing, problem)
    values.count("missing", missing)
    return index.astype(np.int64), missing


def as_texts(array: Any, name: str) -> Any:
    """Any simple column as trimmed text; 1 and 1.0 are the same text."""
    array = flat(array)
    kind = array.type
    if is_text(kind):
        return pc.utf8_trim_whitespace(array)
    if is_number(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return pc.cast(array, pa.string())
    raise SchemaError(
        f"column '{name}' holds {kind}: classes and categories are text, whole numbers or booleans"
    )


def flat(array: Any) -> Any:
    """One plain array: chunks joined, dictionaries decoded, large strings made small."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_large_string(array.type) or pa.types.is_string_view(array.type):
        array = pc.cast(array, pa.string())
    return array


def is_text(kind: Any) -> bool:
    """Whether a type is text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_number(kind: Any) -> bool:
    """Whether a type is a number that float64 can hold."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _parsed(values: Values, array: Any) -> Any:
    blank = pc.is_in(array, value_set=pa.array(values.missing_values, pa.string()))
    array = pc.if_else(blank, pa.scalar(None, pa.string()), array)
    if values.decimal == ",":
        array = with_points(array)
    try:
        return pc.cast(array, pa.float64())
    except pa.ArrowInvalid:  # its message quotes the value
        bad = np.fromiter((not _parses(text) for text in array.to_pylist()), dtype=bool, count=len(array))
    values.refuse(bad, "not a number")
    raise RecordError("not a number", column=values.name)


def with_points(array: Any) -> Any:
    """Decimal commas as points.

    A point is then no part of a number (1.234 could be both) and makes the text unreadable.
    """
    return pc.replace_substring(pc.replace_substring(array, ".", "?"), ",", ".")


def _dated(values: Values, array: Any, form: str | None) -> Any:
    blank = pc.is_in(array, value_set=pa.array(values.missing_values, pa.string()))
    array = pc.if_else(blank, pa.scalar(None, pa.string()), array)
    found = as_dates(array, form)
    values.refuse(_mask(pc.is_null(found)) & ~_mask(pc.is_null(array)), "not a date of the schema's format")
    return found


def as_dates(array: Any, form: str | None) -> Any:
    """Texts as times of a form, of ISO 8601 if there is none; null where a text is no such date."""
    if form is not None:
        return pc.strptime(array, format=form, unit="s", error_is_null=True)
    return pc.strptime(pc.utf8_slice_codeunits(array, 0, 10), format="%Y-%m-%d", unit="s", error_is_null=True)


def _parses(text: str | None) -> bool:
    try:
        pc.cast(pa.array([text], pa.string()), pa.float64())
    except pa.ArrowInvalid:
        return False
    return True


def _mask(array: Any) -> NDArray[np.bool_]:
    mask: NDArray[np.bool_] = array.to_numpy(zero_copy_only=False)
    return mask
