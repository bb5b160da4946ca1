"""Raw files of records, read as a stream: CSV or Parquet, told apart by their first bytes, or a folder of
Parquet parts.

CSV is read as text; what the text means is the schema's business (records/values.py), so that an error can
name column and row. It may be compressed (gzip, bzip2, zstd) or in UTF-16 with its mark. Messages of the
reader quote what they stumble
over: none of them leaves this module. Names of columns are not quoted either before a header is known to be
one.
"""

from __future__ import annotations

import codecs
import re
import shlex
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
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
WIDE_LINES = 64  # lines of a very wide file that are read at once, up to LONGEST_BLOCK bytes
LONGEST_BLOCK = 1 << 25
ROWS = 1 << 13
MOST_COLUMNS = 20_000
DELIMITERS = ",;\t|"
COMPRESSION_MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\x28\xb5\x2f\xfd": "zstd"}
FIRST_LINES = 1000  # a wrong byte this early is the encoding; later it is named by its row
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
UNPACK = {"gzip": "gzip -dc", "bz2": "bzip2 -dc", "zstd": "zstd -dc"}
BEHIND_THE_WALL = Path("/.airlock")
SAVE_AS_CSV = "{name} is {what}: save its sheet as CSV (UTF-8) or Parquet, and give that"
OTHER_KINDS = {  # first bytes of what people have instead of a table, and what to do about it
    b"PK\x03\x04": "{name} is a zip archive: unpack it, and give the CSV or Parquet file in it",
    b"\xd0\xcf\x11\xe0": SAVE_AS_CSV.replace("{what}", "an old Excel workbook"),
    b"SQLite format 3": "{name} is an SQLite database: export the table as CSV",
    b"ARROW1": "{name} is an Arrow file: write it as Parquet (pyarrow.parquet.write_table)",
    b"\x89HDF": "{name} is an HDF5 file: write its table as Parquet",
    b"%PDF": "{name} is a PDF: export the table itself as CSV",
}
JSON = (
    '{name} is JSON: write it as Parquet, for example with `python -c "import sys, pyarrow.json as j, pyarrow.parquet '
    'as p; p.write_table(j.read_json(sys.argv[1]), sys.argv[2])" {source} {target}` if it has one record a line'
)
STRADDLES = "a line longer than {size} MB, or a quote that is never closed: check the quotes of {name}"


@dataclass(frozen=True)
class Table:
    """A raw file (or a folder of parts) and its columns; nothing of its records is held."""

    path: Path
    format: Format
    columns: tuple[str, ...]
    delimiter: str = ","
    parts: tuple[str, ...] = ("",)
    header: bool = True
    block: int = BLOCK
    encoding: str = "utf8"

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Stream the records, of all columns or of those named.

        Raises:
            RecordError: a line has too many or too few fields.
            InputError: the file is damaged, or lacks one of the columns.
        """
        if missing := [name for name in columns or () if name not in self.columns]:
            raise InputError(f"{self.path.name} has no column '{missing[0]}'")
        with _plain_errors(self.path, self.format, header=self.header):
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
        with _open_csv(self, convert) as reader:
            yield from (batch for batch in reader if batch.num_rows)


def open_table(path: Path, *, header: bool = True, empty: bool = False) -> Table:
    """Look at a raw file's kind and columns.

    Args:
        path: a file, or a folder of Parquet parts.
        header: False for a CSV file whose first line is a record; its columns are then c1, c2, ...
        empty: whether there may be no records, as on a night when nobody came.

    Raises:
        InputError: the file is missing, empty, or neither CSV nor Parquet; two columns have one name; or the
            parts of a folder differ in their columns.
    """
    if path.is_dir():
        return _open_parts(path, empty=empty)
    head = _head(path)
    if head[:4] == b"PAR1":
        with _plain_errors(path, "parquet"):
            found = Table(path, "parquet", tuple(pa.parquet.read_schema(path).names))
            bare = found.count() == 0
    else:
        _refuse_other_kinds(path, head)
        found = _look_at_csv(path, head, header)
        bare = next(found.batches(found.columns[:1]), None) is None
    if bare and not empty:
        raise InputError(f"{path.name} is empty: it has no records")
    _check_names(found)
    return found


def _refuse_other_kinds(path: Path, head: bytes) -> None:
    name, kind = path.name, path.suffix.lower()
    if kind in PARQUET:
        raise InputError(f"{name} is no readable Parquet file")
    if head.startswith(b"PK\x03\x04") and (kind in (".xlsx", ".xlsm", ".ods") or b"xl/" in head[:4096]):
        raise InputError(SAVE_AS_CSV.format(name=name, what="a spreadsheet"))
    for first, line in OTHER_KINDS.items():
        if head.startswith(first):
            raise InputError(line.format(name=name))
    if kind in (".json", ".jsonl", ".ndjson") or head.lstrip(b"\xef\xbb\xbf \r\n").startswith(
        (b'{"', b'[{"')
    ):
        source, target = _typed(path), _typed(path.with_suffix(".parquet"))
        raise InputError(JSON.format(name=name, source=source, target=target))
    if head.startswith(UTF_16):
        return
    if b"\0" in head[: 1 << 16]:
        raise InputError(
            f"{name} is no readable CSV or Parquet file (if it is text in UTF-16: `{_conversion(path, 'UTF-16LE')}`)"
        )


def _not_utf_8(path: Path) -> str:
    command = _conversion(path, "WINDOWS-1252")
    return f"{path.name} is not in UTF-8: convert it, for example with `{command}` if it is Latin-1"


def _conversion(path: Path, encoding: str) -> str:
    """The command that writes a file in UTF-8 beside it: not into a workspace, from which git would take it."""
    try:
        with path.open("rb") as file:
            packed = _compression(file.read(8))
    except OSError:
        packed = None
    convert = f"iconv -f {encoding} -t UTF-8"
    if packed:
        target = path.with_name(f"utf8-{path.stem}")
        return f"{UNPACK[packed]} {_typed(path)} | {convert} > {_typed(target)}"
    return f"{convert} {_typed(path)} > {_typed(path.with_name(f'utf8-{path.name}'))}"


def _typed(path: Path) -> str:
    """A path as a shell takes it; behind the wall, where folders have other names, its last part."""
    return shlex.quote(path.name if path.is_relative_to(BEHIND_THE_WALL) else str(path))


def _check_names(table: Table) -> None:
    """Names are quoted by nobody here: those of a file without a header are a record."""
    if len(table.columns) > MOST_COLUMNS:
        raise InputError(
            f"{table.path.name} has {len(table.columns):,} columns, and {MOST_COLUMNS:,} are the most: "
            "leave some out, or put"
            " images into one column of bytes or lists"
        )
    places: dict[str, int] = {}
    for place, name in enumerate(table.columns, start=1):
        if name in places and not name.strip():
            raise InputError(
                f"{table.path.name}: columns {places[name]} and {place} have no name: name them in the file, or take "
                "out the line above the header"
            )
        if name in places:
            hint = (
                ", or say that there is no header: airlock init --no-header" if table.format == "csv" else ""
            )
            raise InputError(
                f"{table.path.name}: columns {places[name]} and {place} have the same name: rename one{hint}"
            )
        places[name] = place


def _open_parts(folder: Path, *, empty: bool) -> Table:
    names = tuple(part.name for part in parts_of(str(folder)))
    with _plain_errors(folder, "parquet"):
        columns = [(*pa.parquet.read_schema(folder / name).names, *_constants(name)) for name in names]
    for name, found in zip(names, columns, strict=True):
        if set(found) != set(columns[0]):
            raise InputError(
                f"{folder.name}: part {name} has other columns than part {names[0]}: write all parts with "
                "the same columns"
            )
    table = Table(folder, "parquet", columns[0], parts=names)
    if table.count() == 0 and not empty:
        raise InputError(f"{folder.name} is empty: it has no records")
    _check_names(table)
    return table


def _constants(part: str) -> dict[str, str]:
    """Columns that are folders: `year=2024/0.parquet` holds records whose `year` is 2024, as Spark and Dask
    write them.
    """
    pieces = (piece.split("=", 1) for piece in part.split("/")[:-1] if "=" in piece)
    return {unquote(name): unquote(value) for name, value in pieces}


def _with_constants(batch: pa.RecordBatch, wanted: list[str], constants: dict[str, str]) -> pa.RecordBatch:
    columns = [
        pa.repeat(constants[name], batch.num_rows) if name in constants else batch.column(name)
        for name in wanted
    ]
    return pa.RecordBatch.from_arrays(columns, names=wanted)


def _head(path: Path) -> bytes:
    """The first bytes, unpacked; what is no file (a pipe would be waited for without end) is refused
    unopened.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise InputError(f"{path} is a pipe or a device: write its records to a file first")
        with path.open("rb") as file:
            head = file.read(BLOCK)
    except OSError as error:
        raise InputError(
            f"{path} cannot be read ({(error.strerror or 'error').lower()}): check the path"
        ) from None
    if _compression(head):
        with _plain_errors(path, "csv"):
            head = _unpacked(path, head)
    if not head.strip():
        raise InputError(f"{path.name} is empty: it has no records")
    return head


def _compression(head: bytes) -> str | None:
    return next((name for first, name in COMPRESSION_MAGIC.items() if head.startswith(first)), None)


def _unpacked(path: Path, head: bytes) -> bytes:
    with pa.CompressedInputStream(pa.OSFile(str(path)), _compression(head)) as stream:
        return bytes(stream.read(BLOCK))


def _look_at_csv(path: Path, head: bytes, header: bool) -> Table:
    encoding = "utf-16" if head.startswith(UTF_16) else "utf8"
    text = _text(path, head, encoding)
    if len(head) == BLOCK and "\n" not in text and "\r" not in text:
        raise InputError(STRADDLES.format(size=BLOCK >> 20, name=path.name))
    line = text.lstrip("\ufeff\r\n")
    if (
        len(head) < BLOCK and "\n" not in line and "\r" not in line
    ):  # which the reader takes for no file at all
        raise InputError(
            f"{path.name} is empty: it has no records"
            if header
            else f"{path.name} has one line without an end: end it with a line break"
        )
    first = line.split("\n", 1)[0]
    delimiter = max(DELIMITERS, key=first.count) if any(mark in first for mark in DELIMITERS) else ","
    block = min(LONGEST_BLOCK, max(BLOCK, WIDE_LINES * len(first)))
    table = Table(path, "csv", (), delimiter, header=header, block=block, encoding=encoding)
    with _plain_errors(path, "csv", header=header), _open_csv(table, pa.csv.ConvertOptions()) as reader:
        names = tuple(reader.schema.names)
    if not header:
        names = tuple(f"c{place}" for place in range(1, len(names) + 1))
    return replace(table, columns=names)


def _text(path: Path, head: bytes, encoding: str) -> str:
    """The head as text; a character that the end of the head cuts in two is left out."""
    try:
        return codecs.getincrementaldecoder(encoding)().decode(head, final=len(head) < BLOCK)
    except UnicodeDecodeError as error:
        row = head[: error.start].count(b"\n")
        if encoding == "utf8" and row < FIRST_LINES:
            raise InputError(_not_utf_8(path)) from None
        return head.decode(encoding, errors="replace")


def _open_csv(table: Table, convert: Any) -> Any:
    # Without threads the reader knows in which row an error is.
    read = pa.csv.ReadOptions(
        use_threads=False,
        block_size=table.block,
        encoding=table.encoding,
        autogenerate_column_names=not table.header and not table.columns,
        column_names=list(table.columns) if not table.header and table.columns else None,
    )
    with table.path.open("rb") as file:
        packed = _compression(file.read(8))
    source = pa.CompressedInputStream(pa.OSFile(str(table.path)), packed) if packed else table.path
    return pa.csv.open_csv(
        source, read, pa.csv.ParseOptions(delimiter=table.delimiter, newlines_in_values=True), convert
    )


def _miscounted(error: str) -> str:
    """What is wrong with a line, in the reader's counts and none of its quotes."""
    counts = re.search(r"Expected (\d+) columns, got (\d+)", error)
    if not counts:
        return "a line with too many or too few fields, or not in UTF-8"
    return (
        f"{counts[2]} fields where the first line has {counts[1]}: is there a line above the header, a separator at "
        "the end, or a separator inside a value without quotes?"
    )


@contextmanager
def _plain_errors(path: Path, kind: Format, *, header: bool = True) -> Iterator[None]:
    """Replace the reader's errors, which quote the line they are about."""
    try:
        yield
    except MemoryError:
        raise InputError(
            f"{path.name} does not fit into memory, a few thousand records at a time: a value in it is too long"
        ) from None
    except (pa.ArrowException, OSError, EOFError, UnicodeError) as error:
        found = re.search(r"Row #(\d+)", str(error))
        if kind == "csv" and found:
            raise RecordError(_miscounted(str(error)), row=int(found[1]) - header) from None
        if kind == "csv" and "straddl" in str(error):
            raise InputError(STRADDLES.format(size=BLOCK >> 20, name=path.name)) from None
        if kind == "csv" and "UTF8" in str(error):
            raise InputError(_not_utf_8(path)) from None
        raise InputError(
            f"{path.name} cannot be read as {'Parquet' if kind == 'parquet' else 'CSV'}: it is damaged or "
            "of another kind"
        ) from None
