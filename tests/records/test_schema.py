"""A schema says what is wrong with it in one line that names the column, and never quotes what it found in
records.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from airlock.errors import SchemaError
from airlock.records.schema import Schema
from airlock.records.schema_checks import check_columns
from airlock.records.schema_file import load_schema

GOOD = """name: clinic
kind: tabular
confirmed: true
label: {column: outcome, classes: [0, 1]}
columns:
- {name: age, type: number, bounds: [0, 120], why: human life span}
- {name: site, type: category, categories: [north, south]}
"""
IMAGE = """name: clinic
kind: image
confirmed: true
label: {column: outcome, classes: [a, b]}
image: {height: 2, width: 3, pixels: "p{}", first: 1, bounds: [0, 255]}
"""
BUILT_IN = sorted((Path(__file__).parents[2] / "data/schemas").glob("*.yaml"))


def load(folder: Path, text: str, *, draft: bool = False) -> Schema:
    (folder / "clinic.yaml").write_text(text)
    return load_schema(folder / "clinic.yaml", draft=draft)


def test_a_schema_that_is_looked_for_in_another_folder_than_the_project_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="run from the project's top folder"):
        load_schema(tmp_path / "data/schemas/clinic.yaml")
    with pytest.raises(SchemaError, match="draft one with `airlock init FILE --name clinic`"):
        load_schema(tmp_path / "clinic.yaml")


def test_classes_and_categories_are_text_whatever_they_look_like(tmp_path: Path) -> None:
    assert load(tmp_path, GOOD).label.classes == ("0", "1")
    assert load(tmp_path, GOOD.replace("[0, 1]", "[0.0, 1.5]")).label.classes == ("0", "1.5")


def test_pixel_pattern_counts_from_first(tmp_path: Path) -> None:
    assert load(tmp_path, IMAGE).sources == ("p1", "p2", "p3", "p4", "p5", "p6")


PROBLEMS = [
    ("bounds: [0, 120], ", "", "column 'age' has no bounds"),
    ("bounds: [0, 120], ", "bounds: null, ", "column 'age' has no bounds"),
    ("bounds: [0, 120], ", "bounds: [120, 0], ", "column 'age': bounds must be"),
    ("bounds: [0, 120], ", "bounds: [7, 7], ", "column 'age': bounds must be"),
    ("bounds: [0, 120], ", "bounds: [-1.0e+308, 1.0e+308], ", "column 'age': bounds must be"),
    ("bounds: [0, 120], ", "bounds: [0, .inf], ", "column 'age', bounds"),
    ("bounds: [0, 120], ", "bounds: [0, .nan], ", "column 'age', bounds"),
    ("bounds: [0, 120], ", "bounds: [0], ", "column 'age', bounds"),
    ("classes: [0, 1]", "classes: [0]", "at least two classes"),
    ("classes: [0, 1]", "classes: [1, 1]", "a class twice"),
    ("classes: [0, 1]", "classes: [yes, no]", "in quotes"),
    ("categories: [north, south]", "categories: []", "column 'site' needs its categories"),
    ("categories: [north, south]", "categories: [north, north]", "a category twice"),
    ("categories: [north, south]", "bounds: [0, 1]", "column 'site' is a category"),
    ("why: human life span", "categories: [a]", "column 'age' is a number"),
    ("name: site", "name: age", "column 'age' is named twice"),
    ("name: site", "name: outcome", "column 'outcome' is named twice"),
    ("confirmed: true", "confirmed: false", "airlock init --confirm clinic"),
    ("kind: tabular", "kind: tabelar", "kind"),
    ("kind: tabular", "kind: image", "an image schema needs"),
    ("type: number", "typo: number", "column 'age', t"),
    ("name: clinic", "name: clinics", "must agree"),
    ("columns:", "columns: [", "not valid YAML near line"),
]


@pytest.mark.parametrize(("old", "new", "line"), PROBLEMS)
def test_impossible_schemas_are_one_line_that_names_the_column(
    tmp_path: Path, old: str, new: str, line: str
) -> None:
    assert old in GOOD
    with pytest.raises(SchemaError, match=line) as caught:
        load(tmp_path, GOOD.replace(old, new, 1))
    assert "\n" not in str(caught.value)


IMAGE_PROBLEMS = [
    ('pixels: "p{}", first: 1, ', "", "either `column` or `pixels`"),
    ('pixels: "p{}", first: 1', "pixels: [a, b]", "2 pixel columns do not make 2 x 3 x 1"),
    (", bounds: [0, 255]", "", "image has no bounds"),
    ('pixels: "p{}", first: 1', "column: x, encoding: compressed", "remove `bounds`"),
    ('pixels: "p{}", first: 1', "pixels: [a], encoding: compressed", "pixel columns|compressed"),
]


@pytest.mark.parametrize(("old", "new", "line"), IMAGE_PROBLEMS)
def test_impossible_image_schemas_are_refused(tmp_path: Path, old: str, new: str, line: str) -> None:
    assert old in IMAGE
    with pytest.raises(SchemaError, match=line):
        load(tmp_path, IMAGE.replace(old, new, 1))


def test_messages_do_not_quote_categories_found_in_records(tmp_path: Path) -> None:
    with pytest.raises(SchemaError) as caught:
        load(tmp_path, GOOD.replace("[north, south]", "[[Jane Doe 1970]]"), draft=True)
    assert "Jane" not in str(caught.value)


def test_missing_schema_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="airlock init FILE --name clinic"):
        load_schema(tmp_path / "clinic.yaml")


def test_hash_covers_what_shapes_records_and_not_the_comments(tmp_path: Path) -> None:
    first = load(tmp_path, GOOD).sha256
    assert load(tmp_path, GOOD.replace("human life span", "actuarial table")).sha256 == first
    assert load(tmp_path, GOOD + "description: x\n").sha256 == first
    assert load(tmp_path, GOOD.replace("120", "121")).sha256 != first
    assert load(tmp_path, GOOD + "public: true\n").sha256 != first


def test_columns_of_a_file_must_be_the_schemas(tmp_path: Path) -> None:
    schema = load(tmp_path, GOOD + "ignored: [id]\n")
    check_columns(["site", "id", "outcome", "age"], schema)
    check_columns(["site", "age"], schema, with_label=False)
    check_columns(["site", "age", "outcome"], schema, with_label=False)
    with pytest.raises(SchemaError, match=r"column 'age' .* did you mean 'agee'"):
        check_columns(["agee", "site", "outcome"], schema)
    with pytest.raises(SchemaError, match="unknown column 'weight'"):
        check_columns(["age", "site", "outcome", "weight"], schema)
    with pytest.raises(SchemaError, match="'age' is in the file twice"):
        check_columns(["age", "site", "outcome", "age"], schema)


@pytest.mark.parametrize("path", BUILT_IN, ids=lambda path: path.stem)
def test_built_in_schemas_are_confirmed_public_and_say_where_bounds_come_from(path: Path) -> None:
    schema = load_schema(path)
    assert schema.public
    assert all(column.why for column in schema.columns if column.type == "number")
    assert schema.image is None or schema.image.why


def test_all_six_data_sets_have_a_schema() -> None:
    assert {path.stem for path in BUILT_IN} >= {
        "wdbc",
        "dermatology",
        "mnist",
        "fashion-mnist",
        "usps",
        "cifar10-jpeg",
    }


HASHES = {
    "wdbc": "f01df34e3c4e792a6604e7563132c9f4df403e74f6ac1d79e266689f0351dd92",
    "mnist": "e63ed5e942ff4fb556ded0b74adfca86a8edeea9f54453ab16d967ce1d418bf3",
}


@pytest.mark.parametrize("name", HASHES)
def test_fields_that_came_later_leave_older_hashes_alone(name: str) -> None:
    schema = load_schema(Path(__file__).parents[2] / f"data/schemas/{name}.yaml")
    assert schema.sha256 == HASHES[name]
    assert Schema.model_validate(schema.model_dump(mode="json")) == schema
    assert "decimal" not in schema.model_dump(mode="json")
    assert schema.model_copy(update={"decimal": ","}).sha256 != schema.sha256


def test_all_gaps_are_in_one_message(tmp_path: Path) -> None:
    text = GOOD.replace(
        "- {name: site", "- {name: weight, type: number}\n- {name: born, type: date}\n- {name: site"
    ).replace("bounds: [0, 120], ", "")
    with pytest.raises(
        SchemaError,
        match="columns 'age', 'weight' have no bounds.*column 'born' has no bounds.*'born': `unit`",
    ):
        load(tmp_path, text.replace("[north, south]", "[]"))


def test_a_file_without_its_header_is_not_quoted(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="is its first line a header") as caught:
        check_columns(("734512.125", "north", "1"), load(tmp_path, GOOD))
    assert "734512" not in str(caught.value)
