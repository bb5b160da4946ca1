"""Encoding follows public rules only: it stays inside bounds, treats each record alone, and never quotes a
value.
"""

from __future__ import annotations

import hashlib
import io
from datetime import date
from typing import Any

import numpy as np
import PIL.Image
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airlock.errors import RecordError, SchemaError
from airlock.models.features.hybrid import runs_of
from airlock.records.encoding import (
    Encoded,
    encode,
    encoded_columns,
    encoded_layout,
    encoded_shape,
    pack,
    unpack,
)
from airlock.records.schema import Schema
from airlock.records.schema_checks import require_complete

SECRET = "734512.125"
NUMBERS = st.one_of(
    st.none(), st.floats(allow_nan=False, allow_infinity=False), st.integers(-(10**6), 10**6).map(float)
)


def table_schema(*columns: dict[str, Any], missing: str = "refuse") -> Schema:
    label = {"column": "y", "classes": ["a", "b"], "missing": missing}
    return Schema.model_validate({"name": "t", "kind": "tabular", "label": label, "columns": columns})


def image_schema(**image: Any) -> Schema:
    label = {"column": "y", "classes": ["a", "b"]}
    return Schema.model_validate(
        {"name": "t", "kind": "image", "label": label, "image": {"height": 2, "width": 2, **image}}
    )


AGE = {"name": "age", "type": "number", "bounds": [10, 20]}
SITE = {"name": "site", "type": "category", "categories": ["north", "south", 3]}


def test_numbers_are_scaled_by_public_bounds_and_clipped() -> None:
    encoded = encode(
        pa.table({"age": [5, 10, 12.5, 20, 99], "y": ["a", "b", "a", "b", "a"]}), table_schema(AGE)
    )
    assert encoded.x[:, 0].tolist() == [0, 0, 0.25, 1, 1]
    assert encoded.y.tolist() == [0, 1, 0, 1, 0]
    assert encoded.counts == {"clipped in 'age'": 2}


def test_categories_are_one_hot_whatever_type_they_have() -> None:
    schema = table_schema({**SITE, "categories": [1, 2]})
    for column in (
        ["1", " 2 "],
        [1, 2],
        [1.0, 2.0],
        pa.array(["1", "2"]).dictionary_encode(),
        pa.array(["1", "2"], pa.large_string()),
    ):
        assert encode(pa.table({"site": column, "y": ["a", "b"]}), schema).x.tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("column", [AGE, SITE])
def test_missing_values_follow_the_policy(column: dict[str, Any]) -> None:
    name, good = column["name"], "15" if column is AGE else "south"
    for blank in (None, "", "?", " NA "):
        batch = pa.table({name: [good, blank], "y": ["a", "b"]})
        with pytest.raises(RecordError, match=f"a missing value .*'{name}', row 2"):
            encode(batch, table_schema({**column, "missing": "refuse"}))
        dropped = encode(batch, table_schema({**column, "missing": "drop"}))
        assert dropped.valid.tolist() == [1, 0]
        assert dropped.y.tolist() == [0, -1]
        assert not dropped.x[1].any()
        imputed = encode(batch, table_schema({**column, "missing": "impute"}))
        assert imputed.valid.tolist() == [1, 1]
        assert imputed.x[:, -1].tolist() == [0, 1]
        assert imputed.counts[f"missing in '{name}'"] == 1


def test_a_missing_mark_that_is_a_category_is_a_category() -> None:
    schema = table_schema({**SITE, "categories": ["NA", "ZA"]})
    assert encode(pa.table({"site": ["NA", "ZA"], "y": ["a", "b"]}), schema).x.tolist() == [[1, 0], [0, 1]]


def test_missing_labels_can_be_dropped() -> None:
    batch = pa.table({"age": [11, 12], "y": ["a", None]})
    assert encode(batch, table_schema(AGE, missing="drop")).valid.tolist() == [1, 0]
    with pytest.raises(RecordError, match="missing label"):
        encode(batch, table_schema(AGE))


BAD: list[tuple[str, dict[str, Any], str, str]] = [
    ("text", {"age": ["11", f"x{SECRET}"], "y": ["a", "b"]}, "not a number", "age"),
    ("nan text", {"age": ["11", "nan"], "y": ["a", "b"]}, "NaN or infinity", "age"),
    ("infinite text", {"age": ["11", "-inf"], "y": ["a", "b"]}, "NaN or infinity", "age"),
    ("nan", {"age": [11.0, float("nan")], "y": ["a", "b"]}, "NaN or infinity", "age"),
    ("infinity", {"age": [11.0, float("inf")], "y": ["a", "b"]}, "NaN or infinity", "age"),
    ("label", {"age": [11, 12], "y": ["a", SECRET]}, "a label that is not in the schema", "y"),
    (
        "category",
        {"age": [11, 12], "site": ["north", SECRET], "y": ["a", "b"]},
        "a category that the schema does not list",
        "site",
    ),
]


@pytest.mark.parametrize(("name", "data", "problem", "column"), BAD, ids=[name for name, *_ in BAD])
def test_bad_values_are_named_by_column_and_row_never_quoted(
    name: str, data: dict[str, Any], problem: str, column: str
) -> None:
    schema = table_schema(AGE, SITE) if "site" in data else table_schema(AGE)
    with pytest.raises(RecordError) as caught:
        encode(pa.table(data), schema, first_row=100)
    assert str(caught.value) == f"{problem} (column '{column}', row 102)"
    # Arrow's own message quotes the value: with --debug it would be printed from here.
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_types_without_numbers_or_text_are_refused() -> None:
    with pytest.raises(SchemaError, match="column 'age' holds"):
        encode(pa.table({"age": pa.array([0], pa.timestamp("s")), "y": ["a"]}), table_schema(AGE))
    with pytest.raises(SchemaError, match="column 'site' holds"):
        encode(pa.table({"site": [[1]], "y": ["a"]}), table_schema(SITE))
    with pytest.raises(SchemaError, match=r"column 'age' .* is not in the records"):
        encode(pa.table({"y": ["a"]}), table_schema(AGE))


def test_prediction_needs_no_label() -> None:
    encoded = encode(pa.table({"age": [15]}), table_schema(AGE), with_labels=False)
    assert encoded.x.tolist() == [[0.5]]
    assert encoded.y.tolist() == [-1]
    assert encoded.valid.tolist() == [1]


@given(ages=st.lists(NUMBERS, max_size=30), data=st.data())
def test_encoding_is_bounded_and_each_record_stands_alone(
    ages: list[float | None], data: st.DataObject
) -> None:
    schema = table_schema(
        {**AGE, "missing": data.draw(st.sampled_from(["drop", "impute"]))}, {**SITE, "missing": "drop"}
    )
    sites = data.draw(
        st.lists(st.sampled_from(["north", "south", "3", None]), min_size=len(ages), max_size=len(ages))
    )
    labels = data.draw(st.lists(st.sampled_from(["a", "b"]), min_size=len(ages), max_size=len(ages)))
    table = pa.table(
        {
            "age": pa.array(ages, pa.float64()),
            "site": pa.array(sites, pa.string()),
            "y": pa.array(labels, pa.string()),
        }
    )
    whole = encode(table, schema)
    assert whole.x.shape == (len(ages), *encoded_shape(schema)) == (len(ages), len(encoded_columns(schema)))
    assert ((whole.x >= 0) & (whole.x <= 1)).all()
    assert not whole.x[whole.valid == 0].any()
    assert (whole.y[whole.valid == 0] == -1).all()
    cut = data.draw(st.integers(0, len(ages)))
    parts = [encode(table.slice(0, cut), schema), encode(table.slice(cut), schema, first_row=cut)]
    assert np.array_equal(np.concatenate([part.x for part in parts]), whole.x)
    assert np.array_equal(np.concatenate([part.y for part in parts]), whole.y)


@given(rows=st.integers(0, 20), start=st.integers(0, 20), image=st.booleans())
def test_packing_comes_back_even_from_a_slice(rows: int, start: int, image: bool) -> None:
    generator = np.random.default_rng(rows)
    x = generator.integers(0, 256, (rows, 2, 2, 1), dtype=np.uint8) if image else generator.random((rows, 3))
    encoded = Encoded(
        x, generator.integers(-1, 5, rows).astype(np.int32), generator.integers(0, 2, rows).astype(np.uint8)
    )
    back = unpack(pack(encoded).slice(start), x.shape[1:])
    assert np.array_equal(back.x, x[start:])
    assert np.array_equal(back.y, encoded.y[start:])
    assert np.array_equal(back.valid, encoded.valid[start:])


PIXELS = np.array([[[[0], [64]], [[128], [255]]], [[[1], [2]], [[3], [4]]]], dtype=np.uint8)


@pytest.mark.parametrize("kind", ["bytes", "fixed bytes", "list", "fixed list", "columns", "text columns"])
def test_images_of_any_storage_are_the_same_bytes(kind: str) -> None:
    flat = PIXELS.reshape(2, 4)
    labels = {"y": ["a", "b"]}
    if "columns" in kind:
        as_type: Any = str if kind == "text columns" else float
        table = pa.table(
            {**{f"p{place}": [as_type(value) for value in flat[:, place]] for place in range(4)}, **labels}
        )
        schema = image_schema(pixels="p{}", bounds=[0, 255])
    else:
        types = {
            "bytes": pa.binary(),
            "fixed bytes": pa.binary(4),
            "list": pa.list_(pa.int64()),
            "fixed list": pa.list_(pa.float32(), 4),
        }
        rows = (
            [row.tobytes() for row in flat]
            if "bytes" in kind
            else [row.astype(float).tolist() for row in flat]
        )
        table = pa.table({"image": pa.array(rows, types[kind]), **labels})
        schema = image_schema(column="image", bounds=[0, 255])
    assert np.array_equal(encode(table, schema).x, PIXELS)
    assert encoded_shape(schema) == (2, 2, 1)
    assert len(encoded_columns(schema)) == 4


def test_pixel_bounds_are_scaled_and_clipped() -> None:
    table = pa.table({"image": [[-1.0, 0.0, 1.0, 7.0]], "y": ["a"]})
    encoded = encode(table, image_schema(column="image", bounds=[-1, 1]))
    assert encoded.x.ravel().tolist() == [0, 128, 255, 255]
    assert encoded.counts == {"clipped in 'image'": 1}


def _png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    PIL.Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def test_compressed_images_are_decoded_in_colour_or_grey() -> None:
    colour = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    table = pa.table({"image": [_png(colour), _png(PIXELS[0, :, :, 0])], "y": ["a", "b"]})
    encoded = encode(table, image_schema(column="image", channels=3, encoding="compressed"))
    assert np.array_equal(encoded.x[0], colour)
    assert np.array_equal(encoded.x[1], np.repeat(PIXELS[0], 3, axis=2))


@pytest.mark.parametrize("encoding", ["compressed", "raw"])
def test_grey_pictures_of_16_bits_are_seen_through_their_window(encoding: str) -> None:
    """Of a scanner with 12 bits: 0 to 4095, in files of 16."""
    scan = np.array([[0, 2048], [4095, 60000]], np.uint16)
    held = _png(scan) if encoding == "compressed" else scan.astype("<u2").tobytes()
    schema = image_schema(column="image", encoding=encoding, depth=16, bounds=[0, 4095])
    require_complete(schema, "scans.yaml")
    encoded = encode(pa.table({"image": [held], "y": ["a"]}), schema)
    assert encoded.x.ravel().tolist() == [0, 128, 255, 255]
    assert encoded.counts == {"clipped in 'image'": 1}


def test_a_depth_is_said_and_not_guessed() -> None:
    shallow, deep = _png(PIXELS[0, :, :, 0]), _png(PIXELS[0, :, :, 0].astype(np.uint16) * 256)
    for held, said in ((deep, {}), (shallow, {"depth": 16, "bounds": [0, 65535]})):
        schema = image_schema(column="image", encoding="compressed", **said)
        with pytest.raises(RecordError, match="another depth than the schema's"):
            encode(pa.table({"image": [held], "y": ["a"]}), schema)
    with pytest.raises(SchemaError, match="16 bits are grey and in one column"):
        require_complete(image_schema(column="image", channels=3, depth=16, bounds=[0, 1]), "scans.yaml")
    plain = image_schema(column="image", bounds=[0, 255])
    assert "depth" not in plain.model_dump()["image"]


def test_bad_images_are_named_by_row() -> None:
    compressed, raw = (
        image_schema(column="image", encoding="compressed"),
        image_schema(column="image", bounds=[0, 255]),
    )
    good = _png(PIXELS[0, :, :, 0])
    cases: list[tuple[Schema, list[Any], str]] = [
        (compressed, [good, b"no image " + SECRET.encode()], "cannot be decoded"),
        (compressed, [good, good[:40]], "cannot be decoded"),
        (compressed, [good, _png(np.zeros((3, 2), dtype=np.uint8))], "another size"),
        (raw, [b"1234", b"123"], "another size"),
        (raw, [[1, 2, 3, 4], [1, 2, 3]], "another size"),
        (raw, [[1.0, 2, 3, 4], [1.0, 2, 3, float("nan")]], "NaN"),
        (raw, [[1.0, 2, 3, 4], [1.0, 2, 3, None]], "missing pixel"),
        (raw, [b"1234", None], "missing image"),
    ]
    for schema, column, problem in cases:
        with pytest.raises(RecordError, match=rf"{problem}.*column 'image', row 2") as caught:
            encode(pa.table({"image": column, "y": ["a", "b"]}), schema)
        assert SECRET not in str(caught.value)


def test_missing_images_can_be_dropped() -> None:
    schema = image_schema(column="image", bounds=[0, 255], missing="drop")
    encoded = encode(pa.table({"image": [None, b"\1\2\3\4"], "y": ["a", "b"]}), schema)
    assert encoded.valid.tolist() == [0, 1]
    assert encoded.x[:, 0, 0, 0].tolist() == [0, 1]
    assert encoded.y.tolist() == [-1, 1]


def test_dates_become_numbers_of_their_unit_and_are_clipped_to_their_bounds() -> None:
    bounds = ["2000-01-01", "2010-01-01"]
    texts = ["2000-01-01", "2005-01-01 13:20", "2009-12-31", "1999-05-05", ""]
    column = {"name": "day", "type": "date", "unit": "day", "bounds": bounds, "missing": "impute"}
    found = encode(pa.table({"day": texts}), table_of(column), with_labels=False)
    assert found.x[:, 0] == pytest.approx([0, 1827 / 3653, 3652 / 3653, 0, 0.5])
    assert found.x[:, 1].tolist() == [0, 0, 0, 0, 1]
    assert found.counts["clipped in 'day'"] == 1
    yearly = encode(
        pa.table({"day": ["2005-12-31"]}), table_of({**column, "unit": "year"}), with_labels=False
    )
    assert yearly.x[0, 0] == pytest.approx(1827 / 3653)
    typed = pa.table({"day": pa.array([date(2005, 1, 1)])})
    assert encode(typed, table_of(column), with_labels=False).x[0, 0] == pytest.approx(1827 / 3653)


def test_a_text_that_is_no_date_of_the_format_is_named_by_row() -> None:
    column = {
        "name": "day",
        "type": "date",
        "unit": "day",
        "bounds": ["2000-01-01", "2010-01-01"],
        "format": "%d.%m.%Y",
    }
    with pytest.raises(RecordError, match=r"not a date .*'day', row 2") as caught:
        encode(pa.table({"day": ["01.02.2003", "734512.125"]}), table_of(column), with_labels=False)
    assert "734512" not in str(caught.value)


def test_many_texts_are_hashed_into_a_public_number_of_buckets() -> None:
    column = {"name": "code", "type": "category", "buckets": 16, "missing": "impute"}
    texts = [f"k{row}" for row in range(200)]
    found = encode(pa.table({"code": [*texts, ""]}), table_of(column), with_labels=False).x
    assert found.shape == (201, 17)
    assert (found.sum(axis=1) == 1).all() and found[-1, -1] == 1
    assert (found[:-1, :-1].sum(axis=0) > 0).all()
    again = encode(pa.table({"code": texts[::-1]}), table_of(column), with_labels=False).x
    assert (again == found[:-1][::-1]).all()
    # SHA-256("k0") begins with this: the hash is part of what a model means, so it never changes.
    assert found[0].argmax() == int(hashlib.sha256(b"k0").hexdigest()[:16], 16) % 16


def test_decimal_commas_are_read_where_the_schema_says_so_and_points_are_then_refused() -> None:
    column = {"name": "w", "type": "number", "bounds": [0, 10]}
    found = encode(pa.table({"w": ["2,5", "10", "0,1"]}), table_of(column, decimal=","), with_labels=False)
    assert found.x[:, 0] == pytest.approx([0.25, 1, 0.01])
    for text, decimal in (("2.5", ","), ("1.234,5", ","), ("2,5", ".")):
        with pytest.raises(RecordError, match="not a number"):
            encode(pa.table({"w": [text]}), table_of(column, decimal=decimal), with_labels=False)


def table_of(column: dict[str, Any], **more: Any) -> Schema:
    label = {"column": "y", "classes": ["a", "b"]}
    return Schema.model_validate(
        {"name": "t", "kind": "tabular", "label": label, "columns": [column], **more}
    )


def test_the_layout_of_a_table_is_read_from_its_schema() -> None:
    """Types, categories and bounds, in the order of the encoded columns; whole bounds a few steps apart are a
    grid.
    """
    columns = [
        {"name": "a", "type": "number", "bounds": [0, 1]},
        {"name": "b", "type": "number", "bounds": [1, 5], "missing": "impute"},
        {"name": "c", "type": "category", "categories": ["x", "y", "z"], "missing": "impute"},
        {"name": "d", "type": "category", "buckets": 64},
        {"name": "e", "type": "number", "bounds": [0.5, 4.5]},
        {"name": "f", "type": "number", "bounds": [0, 12]},
        {"name": "g", "type": "date", "unit": "day", "bounds": ["2000-01-01", "2000-01-06"]},
    ]
    schema = Schema.model_validate(
        {"name": "t", "kind": "tabular", "label": {"column": "l", "classes": ["0", "1"]}, "columns": columns}
    )
    found = encoded_layout(schema)
    assert found == "n.g4.c1.c4.c64.nx3"
    assert sum(run.encoded for run in runs_of(found)) == encoded_shape(schema)[0]
