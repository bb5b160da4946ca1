"""Made-up records follow their schema exactly, whatever its columns are, and say what they are."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airlock.errors import InputError
from airlock.records.encoding import encode
from airlock.records.generation import Drawn, check_offered, even_draw, mark_of, records_of, write
from airlock.records.schema import Schema
from airlock.records.schema_checks import require_complete
from airlock.records.tables import open_table
from airlock.records.values import bucket

COLUMNS: list[dict[str, Any]] = [
    {"name": "age", "type": "number", "bounds": [0, 120], "whole": True},
    {"name": "dose", "type": "number", "bounds": [-0.001, 1e6], "missing": "impute"},
    {"name": "odd", "type": "number", "bounds": [0.5, 3.7], "whole": True},
    {"name": "ward", "type": "category", "categories": ["a, b", 'c"d', "e"], "missing": "impute"},
    {"name": "postcode", "type": "category", "buckets": 37},
    {"name": "born", "type": "date", "unit": "day", "bounds": ["1920-02-03", "2020-12-31"]},
    {"name": "seen", "type": "date", "unit": "month", "bounds": ["2019-05-15", "2021-01-02"], "format": "%d/%m/%Y"},
    {"name": "since", "type": "date", "unit": "year", "bounds": ["1999-07-01", "2021-01-02"], "missing": "impute"},
]  # fmt: skip


def schema(**changes: Any) -> Schema:
    given = {"name": "all", "kind": "tabular", "confirmed": True, "columns": COLUMNS}
    label = {"column": "ill", "classes": ["no", "yes", "perhaps"]}
    made = Schema.model_validate({**given, "label": label, **changes})
    require_complete(made, "test")
    return made


def mock(rows: int = 500, seed: int = 0, **changes: Any) -> tuple[Schema, pa.Table]:
    found, random = schema(**changes), np.random.default_rng(seed)
    return found, records_of(found, *even_draw(found, rows, random), random)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 60))
def test_every_value_is_one_that_the_schema_allows(seed: int, rows: int) -> None:
    found, made = mock(rows, seed)
    read = encode(made, found)
    assert read.valid.all() and not any(key.startswith(("clipped", "dropped")) for key in read.counts)
    assert ((read.x >= 0) & (read.x <= 1)).all()
    ages, odd = made["age"].to_numpy(), made["odd"].to_numpy()
    assert ages.dtype == np.int64 and set(odd.tolist()) <= {1, 2, 3}
    assert all(0 <= bucket(text, 37) < 37 for text in made["postcode"].to_pylist())
    assert made["born"].type == pa.date32() and made["seen"].type == pa.string()


def test_all_values_are_reached() -> None:
    _, made = mock(20_000)
    assert set(made["odd"].to_pylist()) == {1, 2, 3}
    assert {made["age"].to_numpy().min(), made["age"].to_numpy().max()} == {0, 120}
    assert len(set(made["postcode"].to_pylist())) == 37
    assert set(made["ward"].to_pylist()) == {"a, b", 'c"d', "e", None}
    assert set(made["ill"].to_pylist()) == {"no", "yes", "perhaps"}


def test_a_number_stays_in_its_interval() -> None:
    found = schema(columns=[COLUMNS[1]])
    low = np.random.default_rng(1).random(3000) * 0.99
    high = low + 1e-12 + np.geomspace(1e-9, 1e-2, 3000)
    drawn = [Drawn(interval=(low, high), missing=np.zeros(3000, bool))]
    made = records_of(found, drawn, np.zeros(3000, np.int64), np.random.default_rng(2))
    encoded = encode(made, found).x[:, 0]
    assert ((encoded >= low - 1e-12) & (encoded <= high + 1e-12)).all()


@pytest.mark.parametrize(
    "changes",
    [{}, {"decimal": ","}, {"missing_values": ("?",)}, {"user": {"column": "who", "per_user": 2}}],
)
def test_files_are_read_back_as_they_were_written(changes: dict[str, Any], tmp_path: Path) -> None:
    found, made = mock(200, **changes)
    paths = write(made, tmp_path, "made", found, {"kind": "synthetic", "release": "id"})
    columns = [*found.sources, found.label.column]
    for path in paths[:2]:
        parts = [encode(batch, found) for batch in open_table(path).batches(columns)]
        assert np.allclose(np.concatenate([part.x for part in parts]), encode(made, found).x)
    said = json.loads(paths[2].read_text())
    assert said == dict(mark_of(paths[0]) or {}) and said["rows"] == 200 and said["release"] == "id"
    assert mark_of(paths[1]) == said, "a CSV file cannot say it itself"


def test_a_file_that_a_full_disk_cut_says_already_that_it_is_made_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(table: pa.Table, path: Path, options: Any) -> None:
        path.write_text("age,dose\n1,2\n")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pyarrow.csv.write_csv", cut)
    found, made = mock(20)
    with pytest.raises(OSError, match="No space"):
        write(made, tmp_path, "made", found, {"kind": "synthetic"})
    assert (mark_of(tmp_path / "made.csv") or {})["kind"] == "synthetic"


def test_the_same_seed_gives_the_same_records_and_another_gives_others() -> None:
    assert mock(50, 3)[1].equals(mock(50, 3)[1])
    assert not mock(50, 3)[1].equals(mock(50, 4)[1])


def test_images_and_slots_are_refused() -> None:
    image = {"height": 2, "width": 2, "column": "pixels", "bounds": [0, 255]}
    with pytest.raises(InputError, match="for tables only"):
        check_offered(schema(kind="image", columns=[], image=image))


def test_a_parquet_file_of_someone_else_says_nothing(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    assert mark_of(tmp_path / "a.parquet") is None
    assert mark_of(tmp_path / "none.parquet") is None


@pytest.mark.parametrize("beside", ["", "[]", '{"kind": 3}', '{"rows": 3}', "[" * 100_000, "{", None])
def test_what_lies_beside_a_csv_file_of_someone_else_says_nothing(beside: str | None, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n")
    assert mark_of(tmp_path / "a.csv") is None
    if beside is None:
        os.mkfifo(tmp_path / "a.json")
    else:
        (tmp_path / "a.json").write_text(beside)
    assert mark_of(tmp_path / "a.csv") is None
