"""Raw files of records, read as a stream: CSV or Parquet, told apart by their first bytes, or a folder of Parquet parts.

CSV is read as text; what the text means is the schema's business (models/values.py), so that an error can name column and
row. Messages of the reader quote what they stumble over: none of them leaves this module.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from airlock.errors import InputError, RecordError
from airlock.records.places import PARQUET, parts_of

Format = Literal["csv", "parquet"]
BLOCK = 1 << 20
ROWS = 1 << 13
DELIMITERS = ",;\t|"


@dataclass(frozen=True)
class Table:
    """A raw file (or a folder of parts) and its columns; nothing of its records is held."""

    path: Path
    format: Format
    columns: tuple[str, ...]
    delimiter: str = ","
    parts: tuple[str, ...] = ("",)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Stream the records, of all columns or of those named.

        Raises:
            RecordError: a line has too many or too few fields.
            InputError: the file is damaged.
        """
        with _plain_errors(self.path, self.format):
            yield from (self._parquet(columns) if self.format == "parquet" else self._csv(columns))

    def count(self) -> int:
        """How many records there are."""
        if self.format == "parquet":
            return sum(int(pa.parquet.read_metadata(self.path / part).num_rows) for part in self.parts)
        return sum(batch.num_rows for batch in self.batches(self.columns[:1]))

    def _parquet(self, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        wanted = list(self.columns if columns is None else columns)
        for part in self.parts:
            constants = _constants(part)
            inside = [name for name in wanted if name not in constants]
            with pa.parquet.ParquetFile(self.path / part, pre_buffer=False, buffer_size=BLOCK) as file:
                for batch in file.iter_batches(batch_size=ROWS, columns=inside, use_threads=False):
                    yield _with_constants(batch, wanted, constants) if constants else batch

    def _csv(self, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        convert = pa.csv.ConvertOptions(
            column_types={name: pa.string() for name in self.columns},
            include_columns=list(columns) if columns is not None else None,
            strings_can_be_null=False,
        )
        with _open_csv(self.path, self.delimiter, convert) as reader:
            yield from (batch for batch in reader if batch.num_rows)


def open_table(path: Path) -> Table:
    """Look at a raw file's kind and columns.

    Raises:
        InputError: the file is missing, empty, or neither CSV nor Parquet; or the parts of a folder differ in their columns.
    """
    if path.is_dir():
        return _open_parts(path)
    head = _head(path)
    if head[:4] == b"PAR1":
        with _plain_errors(path, "parquet"):
            found = Table(path, "parquet", tuple(pa.parquet.read_schema(path).names))
            empty = found.count() == 0
    elif path.suffix.lower() in PARQUET or b"\0" in head:
        raise InputError(
            f"{path.name} is no readable {'Parquet' if path.suffix.lower() in PARQUET else 'CSV or Parquet'} file"
        )
    else:
        found, empty = _look_at_csv(path, head)
    if empty:
        raise InputError(f"{path.name} is empty: it has no records")
    return found


def _open_parts(folder: Path) -> Table:
    names = tuple(part.name for part in parts_of(str(folder)))
    with _plain_errors(folder, "parquet"):
        columns = [(*pa.parquet.read_schema(folder / name).names, *_constants(name)) for name in names]
    for name, found in zip(names, columns, strict=True):
        if set(found) != set(columns[0]):
            raise InputError(
                f"{folder.name}: part {name} has other columns than part {names[0]}: write all parts with the same columns"
            )
    table = Table(folder, "parquet", columns[0], parts=names)
    if table.count() == 0:
        raise InputError(f"{folder.name} is empty: it has no records")
    return table


def _constants(part: str) -> dict[str, str]:
    """Columns that are folders: `year=2024/0.parquet` holds records whose `year` is 2024, as Spark and Dask write them."""
    pieces = (piece.split("=", 1) for piece in part.split("/")[:-1] if "=" in piece)
    return {unquote(name): unquote(value) for name, value in pieces}


def _with_constants(batch: pa.RecordBatch, wanted: list[str], constants: dict[str, str]) -> pa.RecordBatch:
    columns = [
        pa.repeat(constants[name], batch.num_rows) if name in constants else batch.column(name)
        for name in wanted
    ]
    return pa.RecordBatch.from_arrays(columns, names=wanted)


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            head = file.read(BLOCK)
    except OSError as error:
        raise InputError(
            f"{path} cannot be read ({(error.strerror or 'error').lower()}): check the path"
        ) from None
    if not head.strip():
        raise InputError(f"{path.name} is empty: it has no records")
    return head


def _look_at_csv(path: Path, head: bytes) -> tuple[Table, bool]:
    first = head.split(b"\n", 1)[0].decode("utf-8", errors="replace")
    delimiter = max(DELIMITERS, key=first.count) if any(mark in first for mark in DELIMITERS) else ","
    with _plain_errors(path, "csv"):
        with _open_csv(path, delimiter, pa.csv.ConvertOptions()) as reader:
            names = tuple(reader.schema.names)
        found = Table(path, "csv", names, delimiter)
        return found, next(found.batches(names[:1]), None) is None


def _open_csv(path: Path, delimiter: str, convert: Any) -> Any:
    # Without threads the reader knows in which row an error is.
    read = pa.csv.ReadOptions(use_threads=False, block_size=BLOCK)
    return pa.csv.open_csv(
        path, read, pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True), convert
    )


@contextmanager
def _plain_errors(path: Path, kind: Format) -> Iterator[None]:
    """Replace the reader's errors, which quote the line they are about."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        found = re.search(r"Row #(\d+)", str(error))
        if kind == "csv" and found:
            raise RecordError(
                "a line with too many or too few fields, or not in UTF-8", row=int(found[1]) - 1
            ) from None
        raise InputError(
            f"{path.name} cannot be read as {'Parquet' if kind == 'parquet' else 'CSV'}: it is damaged or of another kind"
        ) from None
