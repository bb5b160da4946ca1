"""A draft shows what is in a file, computes no bounds, and becomes a schema only when nothing is missing."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from airlock.errors import InputError
from airlock.records.drafting import MARK, confirmed, draft, slug
from airlock.records.schema import load_schema
from airlock.records.tables import open_table


def drafted(folder: Path, columns: dict[str, Any], label: str | None = None) -> dict[str, Any]:
    pq.write_table(pa.table(columns), folder / "x.parquet")
    found = yaml.safe_load(draft(open_table(folder / "x.parquet"), "x", label))
    assert isinstance(found, dict)
    return found


def test_a_table_is_drafted_without_bounds(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(
        "age,site,id,outcome\n"
        + "".join(
            f"{row % 90 if row != 5 else '?'},{'nsw'[row % 3]},p{row},{row % 2}\n" for row in range(200)
        )
    )
    found = yaml.safe_load(draft(open_table(path), "x", None))
    assert found["label"] == {"column": "outcome", "classes": ["0", "1"]}
    assert found["columns"] == [
        {"name": "age", "type": "number", "bounds": None, "missing": "impute", "why": ""},
        {"name": "site", "type": "category", "categories": ["n", "s", "w"], "missing": "refuse"},
    ]
    assert found["ignored"] == ["id"]
    assert (found["public"], found["confirmed"]) == (False, False)


def test_a_draft_holds_no_extreme_of_a_number(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("age,outcome\n-734512.125,a\n734599.125,b\n" + "5,a\n" * 10)
    text = draft(open_table(path), "x", None)
    assert "7345" not in text


def test_numbers_are_sorted_by_size_and_quoted_words_survive(tmp_path: Path) -> None:
    found = drafted(tmp_path, {"a": ["yes", "no", "10", "9"] * 3, "y": [10, 9, 2, 1] * 3})
    assert found["label"]["classes"] == ["1", "2", "9", "10"]
    assert found["columns"][0]["categories"] == ["9", "10", "no", "yes"]


def test_the_label_is_asked_for_when_it_cannot_be_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--label COLUMN"):
        drafted(tmp_path, {"a": [1.5, 2.5], "b": [1, 2]})
    assert drafted(tmp_path, {"a": [1.5, 2.5], "b": [1, 2]}, "b")["label"]["column"] == "b"
    with pytest.raises(InputError, match="unknown column 'c'"):
        drafted(tmp_path, {"a": [1.5, 2.5], "b": [1, 2]}, "c")


def test_one_class_only_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="one class only"):
        drafted(tmp_path, {"a": [1, 2], "label": ["ill", "ill"]})
    with pytest.raises(InputError, match="more than 100"):
        drafted(tmp_path, {"a": list(range(200)), "label": [str(row) for row in range(200)]})


def test_flattened_images_are_recognised(tmp_path: Path) -> None:
    file = io.BytesIO()
    PIL.Image.fromarray(np.zeros((8, 6, 3), dtype=np.uint8)).save(file, "PNG")
    labels = {"label": ["a", "b"]}
    assert drafted(tmp_path, {f"pixel{place}": [0, 255] for place in range(16)} | labels)["image"] == {
        "height": 4, "width": 4, "channels": 1, "bounds": None, "pixels": "pixel{}", "first": 0,
    }  # fmt: skip
    assert drafted(tmp_path, {"image": [bytes(48), bytes(48)], **labels})["image"]["channels"] == 3
    assert drafted(tmp_path, {"image": [[0.0] * 64, [1.0] * 64], **labels})["image"]["height"] == 8
    assert drafted(tmp_path, {"image": [file.getvalue()] * 2, **labels})["image"] == {
        "height": 8, "width": 6, "channels": 3, "encoding": "compressed", "column": "image", "missing": "refuse",
    }  # fmt: skip


def test_a_confirmed_draft_is_a_schema_without_the_drafts_comments(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("age,outcome\n1,a\n2,b\n")
    text = draft(open_table(path), "x", None).replace("bounds: null", "bounds: [0, 120]")
    (tmp_path / "x.yaml").write_text(
        "# The owner's own comment.\n" + confirmed(text.replace("confirmed: false\n", ""))
    )
    schema = load_schema(tmp_path / "x.yaml")
    assert schema.confirmed
    assert MARK.strip() not in (tmp_path / "x.yaml").read_text()
    assert "owner's own" in (tmp_path / "x.yaml").read_text()


def test_file_names_become_names_of_populations() -> None:
    assert slug(Path("My Clinic (2).csv.gz")) == "my-clinic-2"
    assert slug(Path("___.csv")) == "records"
