"""Ingest seals exactly the records it was given, split by position and key, and says nothing about their
values.
"""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from airlock.errors import InputError, ParamsError, RecordError
from airlock.inside.sealed import facts_of
from airlock.owner import keys
from airlock.records import handles
from airlock.records.encoding import encode
from airlock.records.schema_file import load_schema
from airlock.records.splits import plan_split
from tests.support.clinic import SCHEMA, Clinic, records

PUBLIC = SCHEMA.replace("public: false", "public: true")
SECRET = "734512.125"


def sealed(clinic: Clinic) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (clinic.root / "data/sealed").iterdir()}


@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_streaming_equals_the_whole_table(clinic: Clinic, format: str) -> None:
    table = records(20_000)
    path = clinic.file(table, f"records.{format}")
    if format == "csv":
        pyarrow.csv.write_csv(table, path)
    clinic.add(path)
    params = clinic.params(evaluate={"holdout": "private"})
    found = clinic.ingest(params)
    whole = encode(table, load_schema(clinic.root / "data/schemas/clinic.yaml"))
    split = plan_split(params, load_schema(clinic.root / "data/schemas/clinic.yaml"), n=20_000, n_file=None)
    held = split.held_out(0, 20_000, keys.Keyring.load(clinic.home).split_key("clinic"))
    assert np.array_equal(found["holdout"].x, whole.x[held])
    assert np.array_equal(found["train"].x, whole.x[~held])
    assert np.array_equal(found["train"].y, whole.y[~held])


def test_the_same_input_gives_the_same_bytes(clinic: Clinic) -> None:
    clinic.add(clinic.file(records(100)))
    clinic.ingest(clinic.params())
    first = sealed(clinic)
    clinic.ingest(clinic.params())
    assert sealed(clinic) == first
    assert set(first) == {"train.sealed", "holdout.sealed", "meta.json"}


@pytest.mark.parametrize(
    "sections",
    [
        {},
        {"evaluate": {"holdout": "private"}},
        {"evaluate": {"holdout": "private"}, "ingest": {"folds": 7, "fold": 3}},
    ],
)
def test_public_facts_are_known_before_any_read(
    clinic: Clinic, sections: dict[str, dict[str, object]]
) -> None:
    clinic.add(clinic.file(records(100)))
    params = clinic.params(**sections)
    before = handles.public_facts(clinic.root, params)
    found = clinic.ingest(params)
    meta = json.loads((clinic.root / "data/sealed/meta.json").read_text())
    assert facts_of(meta) == before
    assert (len(found["train"].y), len(found["holdout"].y)) == (before.n, before.n_holdout)
    assert before.n + before.n_holdout == 100


def test_meta_says_the_same_for_records_of_other_values(clinic: Clinic) -> None:
    metas = []
    for seed in (0, 1):
        clinic.add(clinic.file(records(100, seed)))
        clinic.ingest(clinic.params())
        document = json.loads((clinic.root / "data/sealed/meta.json").read_text())
        document.pop("fingerprint")
        metas.append(document)
    assert metas[0] == metas[1]


def test_folds_partition_the_records(clinic: Clinic) -> None:
    clinic.write_schema(PUBLIC)
    clinic.add(clinic.file(records(90)))
    ages = [
        clinic.ingest(clinic.params(ingest={"folds": 4, "fold": fold}))["holdout"].x[:, 0]
        for fold in range(4)
    ]
    assert sorted(np.rint(np.concatenate(ages) * 90).tolist()) == list(range(90))


def test_a_split_does_not_depend_on_values(clinic: Clinic) -> None:
    places = []
    for seed in (0, 1):
        table = records(100, seed)
        clinic.add(clinic.file(table))
        held = clinic.ingest(clinic.params(evaluate={"holdout": "private"}))["holdout"].x[:, 0] * 100
        places.append([int(np.abs(table["age"].to_numpy() - age).argmin()) for age in held])
    assert places[0] == places[1]


def test_a_public_holdout_file_is_sealed_whole_and_all_records_are_trained_on(clinic: Clinic) -> None:
    clinic.add(clinic.file(records(100)))
    before = handles.public_facts(clinic.root, clinic.params())
    clinic.add(clinic.file(records(30, seed=1), "holdout.parquet"), role="holdout")
    facts = handles.public_facts(clinic.root, clinic.params())
    found = clinic.ingest(clinic.params())
    assert (len(found["train"].y), len(found["holdout"].y)) == (100, 30)
    assert facts.split["holdout"]["kind"] == "public"
    # What is trained on is the same as before the holdout came, so the release need not be another one.
    assert (facts.n, facts.split["train"]) == (before.n, before.split["train"])


def test_a_split_of_private_records_is_never_public(clinic: Clinic) -> None:
    clinic.add(clinic.file(records(100)))
    with pytest.raises(ParamsError, match="can never be public"):
        clinic.ingest(clinic.params(evaluate={"holdout": "public"}))
    assert not (clinic.root / "data/sealed").exists()


def test_dropped_rows_stay_counted_as_null_records(clinic: Clinic) -> None:
    clinic.write_schema(SCHEMA.replace("missing: impute", "missing: drop"))
    table = records(50)
    ages = table["age"].to_pylist()
    ages[7] = None
    clinic.add(clinic.file(table.set_column(0, "age", [ages])))
    train = clinic.ingest(clinic.params())["train"]
    assert len(train.y) == 50
    assert train.valid.tolist() == [int(row != 7) for row in range(50)]
    assert train.y[7] == -1
    assert not train.x[7].any()


def test_counts_go_to_the_owners_log_and_nowhere_else(clinic: Clinic) -> None:
    table = records(50)
    clinic.add(clinic.file(table.set_column(0, "age", [[None, 1e6, *table["age"].to_pylist()[2:]]])))
    clinic.ingest(clinic.params())
    notes = [event for event in clinic.events if event["kind"] == "note"]
    assert notes[0]["counts"] == {"missing in 'age'": 1, "clipped in 'age'": 1}
    assert {event["kind"] for event in clinic.events} == {"note", "progress"}
    assert all(
        set(event) == {"kind", "label", "done", "total"}
        for event in clinic.events
        if event["kind"] == "progress"
    )


def test_one_class_in_the_data_is_the_owners_business(clinic: Clinic) -> None:
    table = records(50)
    clinic.add(clinic.file(table.set_column(2, "outcome", [["ill"] * 50])))
    clinic.ingest(clinic.params())
    assert next(event for event in clinic.events if event["kind"] == "note")["classes_found"] == 1


def test_bad_records_stop_ingest_and_leave_nothing_sealed(clinic: Clinic) -> None:
    table = records(9000)
    sites = table["site"].to_pylist()
    sites[8500] = SECRET
    clinic.add(clinic.file(table.set_column(1, "site", [sites])))
    with pytest.raises(RecordError, match="column 'site', row 8501") as caught:
        clinic.ingest(clinic.params())
    assert SECRET not in str(caught.value)
    assert list((clinic.root / "data/sealed").iterdir()) == []


@pytest.mark.parametrize("rows", [39, 41, 20_000])
def test_another_number_of_records_than_the_handles_is_refused(clinic: Clinic, rows: int) -> None:
    path = clinic.file(records(rows))
    clinic.add(path)
    handle = clinic.root / "data/handles/clinic/records.json"
    handle.write_text(handle.read_text().replace(f'"n": {rows}', '"n": 40'))
    with pytest.raises(InputError, match="not as many as when they were added"):
        clinic.ingest(clinic.params(evaluate={"holdout": "private"}))


def test_users_are_numbered_by_a_key_and_bounded(clinic: Clinic) -> None:
    clinic.write_schema(SCHEMA + "user: {column: patient, per_user: 2}\n")
    table = records(6).append_column("patient", [["p", "q", "p", "r", "p", "q"]])
    clinic.add(clinic.file(table))
    train = clinic.ingest(clinic.params())["train"]
    assert train.valid.tolist() == [1, 1, 1, 1, 0, 1]
    assert not train.x[4].any()
    broken = table.set_column(3, "patient", [["p", None, "p", "r", "p", "q"]])
    clinic.add(clinic.file(broken))
    with pytest.raises(RecordError, match=r"missing user .*row 2"):
        clinic.ingest(clinic.params())


def test_old_seals_open_after_rotation_and_new_ones_use_the_new_key(clinic: Clinic) -> None:
    clinic.add(clinic.file(records(50)))
    before = clinic.ingest(clinic.params())["train"].x
    first = sealed(clinic)
    keys.rotate(clinic.home)
    assert np.array_equal(clinic.ingest(clinic.params(), generation=1)["train"].x, before)
    assert sealed(clinic) == first
    assert np.array_equal(clinic.ingest(clinic.params(), generation=2)["train"].x, before)
    assert sealed(clinic)["train.sealed"] != first["train.sealed"]


def test_images_are_sealed_as_bytes(clinic: Clinic) -> None:
    clinic.write_schema(
        "name: clinic\nkind: image\nconfirmed: true\nlabel: {column: y, classes: [a, b]}\n"
        "image: {height: 2, width: 2, column: image, bounds: [0, 255]}\n"
    )
    pixels = np.random.default_rng(0).integers(0, 256, (2500, 4), dtype=np.uint8)
    table = pa.table({"image": [row.tobytes() for row in pixels], "y": ["a", "b"] * 1250})
    clinic.add(clinic.file(table))
    train = clinic.ingest(clinic.params())["train"]
    assert train.x.dtype == np.uint8
    assert np.array_equal(train.x.reshape(-1, 4), pixels)
