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

from airlock.errors import InputError, SchemaError
from airlock.records.draft_file import MARK, confirmed
from airlock.records.drafting import Draft, draft, slug
from airlock.records.guesses import Wishes
from airlock.records.schema_file import load_schema
from airlock.records.tables import open_table


def drafted(folder: Path, columns: dict[str, Any], label: str | None = None) -> dict[str, Any]:
    pq.write_table(pa.table(columns), folder / "x.parquet")
    found = yaml.safe_load(draft(open_table(folder / "x.parquet"), "x", Wishes(label=label)).text)
    assert isinstance(found, dict)
    return found


def of_csv(folder: Path, text: str, **wishes: Any) -> Draft:
    (folder / "x.csv").write_text(text)
    return draft(
        open_table(folder / "x.csv", header=wishes.get("header") is not False), "x", Wishes(**wishes)
    )


def kinds(made: Draft) -> dict[str, str]:
    return {choice.name: choice.kind for choice in made.choices}


def test_a_table_is_drafted_without_bounds(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(
        "age,site,id,outcome\n"
        + "".join(
            f"{row % 90 if row != 5 else '?'},{'nsw'[row % 3]},p{row},{row % 2}\n" for row in range(200)
        )
    )
    found = yaml.safe_load(draft(open_table(path), "x").text)
    assert found["label"] == {"column": "outcome", "classes": ["0", "1"]}
    assert found["columns"] == [
        {"name": "age", "type": "number", "bounds": None, "whole": True, "missing": "impute", "why": ""},
        {"name": "site", "type": "category", "categories": ["n", "s", "w"], "missing": "refuse"},
    ]
    assert found["ignored"] == ["id"]
    assert (found["public"], found["confirmed"]) == (False, False)


def test_a_draft_holds_no_extreme_of_a_number(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("age,outcome\n-734512.125,a\n734599.125,b\n" + "5,a\n" * 10)
    text = draft(open_table(path), "x").text
    assert "7345" not in text


def test_numbers_are_sorted_by_size_and_quoted_words_survive(tmp_path: Path) -> None:
    found = drafted(tmp_path, {"a": ["yes", "no", "10", "9"] * 3, "y": [10, 9, 2, 1] * 3})
    assert found["label"]["classes"] == ["1", "2", "9", "10"]
    assert found["columns"][0]["categories"] == ["9", "10", "no", "yes"]


def test_the_label_is_asked_for_when_it_cannot_be_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--label COLUMN"):
        drafted(tmp_path, {"b": [1, 2], "a": [1.5, 2.5]})
    assert drafted(tmp_path, {"b": [1, 2], "a": [1.5, 2.5]}, "b")["label"]["column"] == "b"
    with pytest.raises(InputError, match="unknown column 'c'"):
        drafted(tmp_path, {"b": [1, 2], "a": [1.5, 2.5]}, "c")


def test_the_label_is_the_last_column_and_not_the_last_text(tmp_path: Path) -> None:
    made = of_csv(
        tmp_path, "age,city,died\n" + "".join(f"{20 + row},{'ab'[row % 2]},{row % 2}\n" for row in range(40))
    )
    assert kinds(made) == {"age": "number", "city": "category", "died": "label"}
    assert "label: died (the last column; change it with --label)" in made.notes


HEADERLESS = [
    ("numbers", "5,1.5,ill\n" * 5 + "6,2.5,ok\n" * 5),
    ("a decimal comma", "5;1,5;ill\n" * 5 + "6;2,5;ok\n" * 5),
    ("a date", "2020-01-05,a,ill\n" * 5 + "2021-01-05,b,ok\n" * 5),
    ("text that comes again", "red,big,ill\n" * 5 + "blue,small,ok\n" * 5),
    ("an empty field", "red,,ill\n" + "blue,big,ok\ngreen,big,odd\n" * 5),
]


@pytest.mark.parametrize(("name", "text"), HEADERLESS, ids=[name for name, _ in HEADERLESS])
def test_a_first_record_is_not_published_as_a_header(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(InputError, match="--no-header") as caught:
        of_csv(tmp_path, text)
    assert not any(
        word in str(caught.value)
        for word in text.split("\n")[0].replace(";", ",").split(",")
        if len(word) > 1
    )
    made = of_csv(tmp_path, text, header=False)
    assert list(kinds(made)) == ["c1", "c2", "c3"] and "header: false" in made.text
    assert kinds(of_csv(tmp_path, text, header=True))[text.split("\n")[0].replace(";", ",").split(",")[0]]


def test_an_identifier_that_comes_twice_is_one_too_and_is_called_so(tmp_path: Path) -> None:
    rows = "".join(f"{row % 150:04d}-XY,{row % 9},{'ab'[row % 2]}\n" for row in range(300))
    made = of_csv(tmp_path, f"customerID,x,class\n{rows}")
    (found,) = (choice for choice in made.choices if choice.name == "customerID")
    assert found.kind == "ignored" and "identifier, of several records each" in found.why


def test_row_numbers_and_identifiers_are_no_features(tmp_path: Path) -> None:
    rows = "".join(f"{row},{7 * row + 1000},{row + 1},{row % 9},{'ab'[row % 2]}\n" for row in range(200))
    made = of_csv(tmp_path, f",patient_id,visit,grade,y\n{rows}")
    assert kinds(made) == {
        "": "ignored",
        "patient_id": "ignored",
        "visit": "ignored",
        "grade": "number",
        "y": "label",
    }
    assert all(choice.why for choice in made.choices if choice.kind == "ignored")
    made = of_csv(tmp_path, f",patient_id,visit,grade,y\n{rows}", numbers=("visit",), categories=("gr*",))
    assert kinds(made)["visit"] == "number" and kinds(made)["grade"] == "category"


def test_dates_many_levels_and_decimal_commas_have_a_place(tmp_path: Path) -> None:
    rows = "".join(
        f"{row % 90},5;k{row % 150};2020-01-{row % 28 + 1:02};{row % 28 + 1:02}/{row % 12 + 1:02}/2020;"
        f"{row % 12 + 1}/{row % 12 + 1}/2020;{'ab'[row % 2]}\n"
        for row in range(600)
    )
    made = of_csv(tmp_path, f"weight;code;iso;french;either;y\n{rows}")
    found = yaml.safe_load(made.text)
    columns = {column["name"]: column for column in found["columns"]}
    assert found["decimal"] == ","
    assert columns["weight"]["type"] == "number"
    assert columns["code"]["buckets"] == 64
    assert columns["iso"]["type"] == "date" and "format" not in columns["iso"]
    assert columns["french"]["format"] == "%d/%m/%Y"
    assert columns["either"]["format"] == "?"
    (tmp_path / "x.yaml").write_text(made.text)
    with pytest.raises(
        SchemaError,
        match="'weight' has no bounds.*'iso', 'french', 'either' have no bounds.*'either' has no format",
    ):
        load_schema(tmp_path / "x.yaml")


def test_numbered_columns_are_an_image_only_if_they_are_called_pixels_or_you_say_so(tmp_path: Path) -> None:
    columns = {f"f{place}": [0.5, 1.5] * 4 for place in range(16)} | {"y": ["a", "b"] * 4}
    assert "image" not in drafted(tmp_path, columns)
    table = open_table(tmp_path / "x.parquet")
    found = yaml.safe_load(draft(table, "x", Wishes(image=(2, 8, 1))).text)
    assert found["image"]["pixels"] == "f{}" and found["image"]["width"] == 8
    with pytest.raises(InputError, match="no 25 numbered columns"):
        draft(table, "x", Wishes(image=(5, 5, 1)))


def test_rare_classes_and_missing_values_are_told_and_marked(tmp_path: Path) -> None:
    rows = "".join(f"{row if row % 5 else 'NaN'},{'abc'[row % 3]}\n" for row in range(5, 60)) + "1,unique\n"
    made = of_csv(tmp_path, f"x,class\n{rows}")
    assert made.rare == {"unique": 1}
    assert "#: found in the data, unconfirmed: whole, missing" in made.text
    assert "nan" in yaml.safe_load(made.text)["missing_values"]


def test_a_wish_that_fits_no_column_is_told(tmp_path: Path) -> None:
    for wish in ("ignored", "numbers", "categories"):
        with pytest.raises(InputError, match="no column fits 'grad_\\*'"):
            of_csv(tmp_path, "grade_1,y\n1,a\n2,b\n", **{wish: ("grad_*",)})


def test_one_class_only_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="one class only"):
        drafted(tmp_path, {"a": [1, 2], "label": ["ill", "ill"]})
    with pytest.raises(InputError, match="more than 100 different texts"):
        drafted(tmp_path, {"a": list(range(200)), "label": [f"r{row}" for row in range(200)]})


def test_flattened_images_are_recognised(tmp_path: Path) -> None:
    file = io.BytesIO()
    PIL.Image.fromarray(np.zeros((8, 6, 3), dtype=np.uint8)).save(file, "PNG")
    labels = {"label": ["a", "b"]}
    assert drafted(tmp_path, {f"pixel{place}": [0, 255] for place in range(16)} | labels)["image"] == {
        "height": 4,
        "width": 4,
        "channels": 1,
        "bounds": None,
        "pixels": "pixel{}",
        "first": 0,
    }
    assert drafted(tmp_path, {"image": [bytes(48), bytes(48)], **labels})["image"]["channels"] == 3
    assert drafted(tmp_path, {"image": [[0.0] * 64, [1.0] * 64], **labels})["image"]["height"] == 8
    assert drafted(tmp_path, {"image": [file.getvalue()] * 2, **labels})["image"] == {
        "height": 8,
        "width": 6,
        "channels": 3,
        "encoding": "compressed",
        "column": "image",
        "missing": "refuse",
    }


def test_a_confirmed_draft_is_a_schema_without_the_drafts_comments(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("age,outcome\n1,a\n2,b\n")
    text = draft(open_table(path), "x").text.replace("bounds: null", "bounds: [0, 120]")
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
