"""Parquet files that somebody made to harm whoever reads them: each is read in little memory, or refused in a line."""

from __future__ import annotations

import random
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airlock import cli
from airlock.errors import AirlockError
from airlock.records.tables import open_table

READ = """
import resource, sys
from pathlib import Path
from airlock.errors import AirlockError
from airlock.records.tables import open_table
resource.setrlimit(resource.RLIMIT_DATA, (int(sys.argv[2]), resource.getrlimit(resource.RLIMIT_DATA)[1]))
try:
    print(sum(batch.num_rows for batch in open_table(Path(sys.argv[1])).batches()), "rows")
except AirlockError as error:
    print("refused:", error)
status = Path("/proc/self/status").read_text()
print(int(status.split("VmHWM:")[1].split()[0]) >> 10)
"""


def read(path: Path, memory: int = 1 << 30) -> tuple[str, int]:
    """What came of reading it in a process of its own, and the memory that it took, in MiB."""
    command = [sys.executable, "-c", READ, str(path), str(memory)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    *said, peak = done.stdout.strip().splitlines()
    return " ".join(said), int(peak)


def one_value_many_times(path: Path, rows: int = 4096) -> None:
    value = pa.array(["x" * (16 << 20)])
    column = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), value)
    pq.write_table(pa.table({"a": column}), path, compression="zstd", store_schema=False)


def pages_of_zeros(path: Path) -> None:
    zeros = pa.array([0]).take(pa.array([0] * 5_000_000, pa.int32()))
    whole = {"row_group_size": 1 << 30, "data_page_size": 1 << 30, "use_dictionary": False}
    pq.write_table(pa.table({"a": zeros}), path, compression="zstd", **whole)


def deep(path: Path) -> None:
    kind: pa.DataType = pa.int32()
    value: Any = 1
    for _ in range(200):
        kind, value = pa.list_(kind), [value]
    pq.write_table(pa.table({"a": pa.array([value] * 10, kind)}), path)


FILES: dict[str, tuple[Callable[[Path], None], str]] = {
    "one value many times": (one_value_many_times, "refused: x.parquet does not fit into memory"),
    "pages of zeros": (pages_of_zeros, "5000000 rows"),
    "deep": (deep, "refused: x.parquet cannot be read as Parquet"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_small_file_does_not_unfold_without_end(tmp_path: Path, name: str) -> None:
    make, answer = FILES[name]
    make(tmp_path / "x.parquet")
    assert (tmp_path / "x.parquet").stat().st_size < 1 << 20
    said, peak = read(tmp_path / "x.parquet")
    assert said.startswith(answer), said
    assert peak < 1200


def test_the_bound_is_what_refuses_it(tmp_path: Path) -> None:
    """The control: a shorter one of the kind is read where there is memory for it."""
    one_value_many_times(tmp_path / "x.parquet", rows=16)
    assert read(tmp_path / "x.parquet", 1 << 28)[0].startswith("refused")
    said, peak = read(tmp_path / "x.parquet", 4 << 30)
    assert said == "16 rows" and peak > 256


def test_the_commands_that_read_tables_are_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, tuple[int, int]]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda kind, both: asked.append((kind, both)))
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (resource.RLIM_INFINITY,) * 2)
    cli.bound_memory()
    ((kind, (soft, hard)),) = asked
    assert kind == resource.RLIMIT_DATA and 1 << 28 < soft < hard % (1 << 64)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1 << 28, 1 << 28))
    cli.bound_memory()
    assert len(asked) == 1, "what is less already stays"
    assert {"add", "explain", "export", "init", "mock", "predict"} == cli.READERS


def test_any_damage_is_a_line_or_the_same_records(tmp_path: Path) -> None:
    """Metadata may say anything: of places, sizes, numbers of rows."""
    place = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a": list(range(100)), "b": ["x"] * 100}), place)
    honest, refused = place.read_bytes(), 0
    for seed in range(150):
        chance, data = random.Random(seed), bytearray(honest)
        for _ in range(chance.choice([1, 2, 4])):
            data[chance.randrange(len(data))] = chance.randrange(256)
        place.write_bytes(data)
        try:
            table = open_table(place)
            rows = sum(batch.num_rows for batch in table.batches())
            assert rows == table.count(), "what is counted is what is there"
        except AirlockError:
            refused += 1
    assert refused > 50
