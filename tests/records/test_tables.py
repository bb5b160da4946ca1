"""Raw files stream in batches; whatever is wrong with them is one line without a word from the file."""

from __future__ import annotations

import bz2
import gzip
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airlock.errors import AirlockError, InputError, RecordError
from airlock.records.tables import Table, open_table

SECRET = "734512.125"


def read(path: Path) -> pa.Table:
    return pa.Table.from_batches(list(open_table(path).batches()))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "records.csv"


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_csv_is_read_as_text_with_its_own_delimiter(file: Path, delimiter: str) -> None:
    file.write_text("a,b\n1,x y\n01,\n".replace(",", delimiter))
    assert read(file).to_pydict() == {"a": ["1", "01"], "b": ["x y", ""]}
    assert open_table(file).count() == 2


def test_quotes_newlines_and_a_byte_order_mark_are_understood(file: Path) -> None:
    file.write_bytes(b'\xef\xbb\xbfa,b\n"1\n2","x, ""y"""\n3,z\n')
    assert read(file).to_pydict() == {"a": ["1\n2", "3"], "b": ['x, "y"', "z"]}
    assert open_table(file).count() == 2


def test_large_files_come_in_many_batches_and_count_the_same(file: Path) -> None:
    file.write_text("a,b\n" + "".join(f"{row},{row * 7}\n" for row in range(400_000)))
    table = open_table(file)
    sizes = [batch.num_rows for batch in table.batches()]
    assert len(sizes) > 3
    assert sum(sizes) == table.count() == 400_000


def test_columns_can_be_chosen(file: Path) -> None:
    file.write_text("a,b,c\n1,2,3\n")
    assert next(open_table(file).batches(["c", "a"])).to_pydict() == {"c": ["3"], "a": ["1"]}
    pq.write_table(pa.table({"a": [1], "b": [2]}), file)
    assert next(open_table(file).batches(["b"])).to_pydict() == {"b": [2]}


def test_parquet_is_known_by_its_bytes_not_its_name(file: Path) -> None:
    pq.write_table(pa.table({"a": range(20_000)}), file)
    table = open_table(file)
    assert (table.format, table.columns, table.count()) == ("parquet", ("a",), 20_000)
    assert [batch.num_rows for batch in table.batches()] == [8192, 8192, 3616]


UNREADABLE: list[tuple[str, str, bytes, str]] = [
    ("empty", "a.csv", b"", "a.csv is empty"),
    ("blank", "a.csv", b"\n\n  \n", "a.csv is empty"),
    ("header only", "a.csv", b"a,b\n", "a.csv is empty"),
    ("parquet by name", "a.parquet", SECRET.encode() * 9, "no readable Parquet"),
    ("parquet cut", "a.parquet", b"PAR1" + SECRET.encode() * 9, "cannot be read as Parquet"),
    ("binary", "a.csv", b"\x89PNG\0\0" + SECRET.encode(), "no readable CSV or Parquet"),
]


@pytest.mark.parametrize(
    ("name", "file_name", "data", "line"), UNREADABLE, ids=[name for name, *_ in UNREADABLE]
)
def test_unreadable_files_are_named(
    tmp_path: Path, name: str, file_name: str, data: bytes, line: str
) -> None:
    (tmp_path / file_name).write_bytes(data)
    with pytest.raises(InputError, match=line) as caught:
        open_table(tmp_path / file_name)
    assert SECRET not in str(caught.value)


def test_missing_file_and_folder_are_named(tmp_path: Path) -> None:
    for path in (tmp_path / "nothere.csv", tmp_path):
        with pytest.raises(InputError, match=path.name):
            open_table(path)


def test_empty_parquet_has_no_records(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": pa.array([], pa.int64())}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match="empty"):
        open_table(tmp_path / "a.parquet")


@pytest.mark.parametrize("line", [f"{SECRET}", f"{SECRET},2,3", f"\xff{SECRET},2"])
def test_bad_lines_are_named_by_row_and_never_quoted(file: Path, line: str) -> None:
    file.write_bytes(b"a,b\n" + b"1,2\n" * 300_000 + line.encode("latin-1") + b"\n")
    with pytest.raises(RecordError, match="row 300001") as caught:
        list(open_table(file).batches())
    assert SECRET not in str(caught.value)
    assert caught.value.__suppress_context__


def test_parquet_damaged_in_the_middle_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": [SECRET * 5] * 1000}), path, compression="none", use_dictionary=False)
    data = bytearray(path.read_bytes())
    data[4:40] = b"\xff" * 36
    path.write_bytes(data)
    with pytest.raises(AirlockError, match="cannot be read as Parquet") as caught:
        list(Table(path, "parquet", ("a",)).batches())
    assert SECRET not in str(caught.value)


OTHER_KINDS: list[tuple[str, bytes, str]] = [
    ("book.xlsx", b"PK\x03\x04" + SECRET.encode(), "is a spreadsheet: save its sheet as CSV"),
    ("old.xls", b"\xd0\xcf\x11\xe0" + SECRET.encode(), "an old Excel workbook"),
    ("a.zip", b"PK\x03\x04" + SECRET.encode(), "a zip archive: unpack it"),
    ("a.csv", "size,note\n5,größe\n".encode("latin-1"), "not in UTF-8: convert it.*iconv"),
    ("a.csv", f"a,b\n{SECRET},2\n".encode("utf-16-le"), "iconv -f UTF-16LE"),
    ("a.csv.gz", gzip.compress(f"a,b\n{SECRET},2\n".encode() * 999)[:60], "damaged"),
    ("a.csv", b"a,a\n1,2\n", "columns 1 and 2 have the same name"),
    ("a.csv", b"Export;;\na;b;c\n1;2;3\n", "columns 2 and 3 have no name: .* the line above the header"),
    ("a.csv", SECRET.encode() * 200_000, "a line longer than 1 MB"),
    ("a.csv", b"a,b\n" + b"x" * 3_000_000 + b",1\n", "a line longer than 1 MB"),
    ("a.csv", b'a,b\n"' + SECRET.encode() + b",1\n" * 900_000, "a quote that is never closed"),
    (
        "a.csv",
        b",".join(b"g%d" % place for place in range(30_000)) + b"\n" + b"1," * 29_999 + b"1\n",
        "20,000 are the most",
    ),
]


@pytest.mark.parametrize(("name", "data", "line"), OTHER_KINDS, ids=[line for _, _, line in OTHER_KINDS])
def test_what_people_have_instead_is_told_with_the_way_out(
    tmp_path: Path, name: str, data: bytes, line: str
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=line) as caught:
        list(open_table(tmp_path / name).batches())
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("an export & co.csv", "größe,y\n1,a\n".encode("latin-1")),
        ("an export's.csv.gz", gzip.compress("größe,y\n1,a\n".encode("latin-1"))),
        ("ü.csv.bz2", bz2.compress("größe,y\n1,a\n".encode("latin-1"))),
        ("a b.csv", "größe,y\n1,a\n".encode("utf-16-le")),
        ("it's.jsonl", '{"größe": "1", "y": "a"}\n'.encode()),
    ],
    ids=["latin-1", "gzip", "bzip2", "utf-16", "json lines"],
)
def test_the_command_that_converts_a_file_does_so_from_any_folder_and_writes_beside_it(
    tmp_path: Path, name: str, data: bytes
) -> None:
    folder, elsewhere = tmp_path / "exports of May", tmp_path / "workspace"
    folder.mkdir()
    elsewhere.mkdir()
    (folder / name).write_bytes(data)
    with pytest.raises(InputError) as caught:
        open_table(folder / name)
    command = str(caught.value).split("`")[1]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(["sh", "-c", command], cwd=elsewhere, env={**os.environ, "PATH": path}, check=True)
    (made,) = set(folder.iterdir()) - {folder / name}
    assert read(made).to_pydict() == {"größe": ["1"], "y": ["a"]}
    assert not list(elsewhere.iterdir())


def test_a_pipe_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="is a pipe or a device"):
        open_table(tmp_path / "pipe")


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress], ids=["gzip", "bzip2"])
def test_compressed_csv_reads_as_the_file_in_it(file: Path, pack: Callable[[bytes], bytes]) -> None:
    plain = "a,b\n" + "".join(f"{row},{row * 7}\n" for row in range(200_000))
    file.write_bytes(pack(plain.encode()))
    packed = read(file)
    file.write_text(plain)
    assert packed.equals(read(file))


def test_utf_16_with_its_mark_is_read(file: Path) -> None:
    file.write_text("größe\tb\n1\tä\n2\tö\n", encoding="utf-16")
    assert read(file).to_pydict() == {"größe": ["1", "2"], "b": ["ä", "ö"]}


def test_without_a_header_the_first_line_is_a_record(file: Path) -> None:
    file.write_text("1,x\n2,y\n3\n")
    with pytest.raises(RecordError, match="row 3"):
        open_table(file, header=False)
    file.write_text("1,x\n2,y\n")
    assert pa.Table.from_batches(list(open_table(file, header=False).batches())).to_pydict() == {
        "c1": ["1", "2"],
        "c2": ["x", "y"],
    }
