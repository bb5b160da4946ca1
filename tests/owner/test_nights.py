"""Populations that grow night by night: batches of their own, records that come once, and batches forgotten."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
import yaml

from airlock.errors import InputError, KeysError
from airlock.inside.sealed import seal_contexts
from airlock.owner import key_backup, keys, nights, registry, seen
from airlock.owner.checks import custody_problems
from airlock.owner.keys import Keyring
from airlock.owner.nights import Growth
from airlock.records import handles
from airlock.records.schema import Schema
from airlock.records.schema_file import load_schema
from tests.support.clinic import SCHEMA, Clinic, make_clinic, records

USERS = SCHEMA + "user: {column: patient, per_user: 3}\n"


@pytest.fixture
def clinic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clinic:
    monkeypatch.setenv("AIRLOCK_HOME", str(tmp_path / "home"))
    return make_clinic(tmp_path)


def night(
    clinic: Clinic, table: pa.Table, name: str, growth: Growth = Growth(), **options: object
) -> handles.Handle:
    return clinic.add(clinic.file(table, f"{name}.parquet"), growth=growth, **options).handle


def rows(first: int, count: int) -> pa.Table:
    """Records that are on no other night: ages in hundredths from `first` on."""
    places = range(first, first + count)
    return pa.table(
        {
            "age": pa.array([place / 100 for place in places], pa.float64()),
            "site": pa.array([("north", "south")[place % 2] for place in places], pa.string()),
            "outcome": pa.array([("healthy", "ill")[place % 3 % 2] for place in places], pa.string()),
        }
    )


def test_every_night_is_a_batch_of_its_own(clinic: Clinic) -> None:
    clinic.add(clinic.file(rows(0, 40), "first.parquet"))
    before = (clinic.root / "data/handles/clinic/records.json").read_bytes()
    second = night(clinic, rows(40, 30), "second")
    third = night(clinic, rows(70, 20), "third")
    assert (second.night, third.night, third.n) == (2, 3, 20)
    assert (clinic.root / "data/handles/clinic/records.json").read_bytes() == before
    assert clinic.add(clinic.home.folder / "second.parquet", growth=Growth()).handle == second
    assert handles.nights(clinic.root / "data/handles/clinic") == [1, 2, 3]
    params = clinic.params(ingest={"night": 3}, release={"horizon": 8})
    facts = handles.public_facts(clinic.root, params)
    assert (facts.n, facts.total, facts.night_number) == (20, 90, 3)
    alone = handles.public_facts(clinic.root, clinic.params(release={"horizon": 8}))
    assert facts.first == alone
    assert alone == handles.public_facts(clinic.root, clinic.params())
    with pytest.raises(InputError, match="grows night by night"):
        clinic.add(clinic.file(rows(0, 90), "all.parquet"))
    with pytest.raises(InputError, match="has no night 4: it has 3"):
        handles.public_facts(clinic.root, clinic.params(ingest={"night": 4}))


def test_a_night_seals_its_own_records_and_no_others(clinic: Clinic) -> None:
    clinic.add(clinic.file(rows(0, 40), "first.parquet"), growth=Growth())
    night(clinic, rows(40, 30), "second")
    night(clinic, rows(0, 0), "nobody")
    sealed = clinic.ingest(clinic.params(ingest={"night": 2}))["train"]
    assert sorted((sealed.x[:, 0] * 100).round(2)) == [round(age / 100, 2) for age in range(40, 70)]
    assert len(clinic.ingest(clinic.params(ingest={"night": 3}))["train"].y) == 0


def test_a_first_batch_has_records(clinic: Clinic) -> None:
    with pytest.raises(InputError, match="is empty"):
        night(clinic, rows(0, 0), "nobody")


def test_a_record_comes_on_one_night(clinic: Clinic) -> None:
    clinic.add(clinic.file(rows(0, 40), "first.parquet"))
    with pytest.raises(InputError, match="5 of these records would be on more than one night"):
        night(clinic, rows(35, 20), "second")
    assert handles.nights(clinic.root / "data/handles/clinic") == [1]
    assert night(clinic, rows(35, 20), "second", distinct=True).night == 2


def test_records_are_known_by_a_column_and_may_come_as_often_as_was_said(clinic: Clinic) -> None:
    def numbered(*names: int) -> pa.Table:
        return records(len(names), seed=len(names)).append_column(
            "file", pa.array([str(name) for name in names])
        )

    clinic.write_schema(SCHEMA + "ignored: [file]\n")
    growth = Growth("file", 2)
    first = clinic.add(clinic.file(numbered(1, 2, 3, 4), "a.parquet"), growth=growth).handle
    assert first.participations == 2
    assert handles.public_facts(clinic.root, clinic.params()).participations == 2
    night(clinic, numbered(1, 2, 5), "b", growth)
    with pytest.raises(InputError, match="2 of these records would be on more than 2 nights"):
        night(clinic, numbered(1, 2, 7), "c")
    night(clinic, numbered(3, 7), "c")
    with pytest.raises(InputError, match="fixed before"):
        night(clinic, numbered(8), "d", Growth("file", 3))
    with pytest.raises(InputError, match="no column 'file'"):
        night(clinic, records(3), "e")
    edited = clinic.root / "data/handles/clinic/records.json"
    edited.write_text(edited.read_text().replace('"participations": 2', '"participations": 1'))
    with pytest.raises(InputError, match="handle of 'clinic' was edited"):
        registry.check(clinic.home, Keyring.load(clinic.home), handles.of(clinic.root, "clinic")["records"])


def test_users_are_bounded_over_all_nights(clinic: Clinic) -> None:
    clinic.write_schema(USERS)

    def seen(first: int, *patients: str) -> pa.Table:
        return rows(first, len(patients)).append_column("patient", pa.array(patients))

    clinic.add(clinic.file(seen(0, "ann", "ann", "bob", "bob", "bob", "bob"), "a.parquet"), growth=Growth())
    night(clinic, seen(10, "ann", "carl"), "b")
    with pytest.raises(InputError, match="2 users would have more than 3 records"):
        night(clinic, seen(20, "ann", "bob", "carl"), "c")
    assert night(clinic, seen(30, "carl", "carl"), "c").night == 3


def test_users_that_were_counted_by_another_bound_are_counted_again_before_a_release(clinic: Clinic) -> None:
    """Bounds are held when a batch is added. A bound that is raised later keeps more of a user's records on the nights
    before than were counted: here five, where three are priced.
    """

    def seen(first: int, *patients: str) -> pa.Table:
        return rows(first, len(patients)).append_column("patient", pa.array(patients))

    clinic.write_schema(SCHEMA + "user: {column: patient, per_user: 1}\n")
    clinic.add(clinic.file(seen(0, "ann", "ann", "ann", "bob"), "a.parquet"), growth=Growth())
    clinic.write_schema(USERS)
    night(clinic, seen(10, "ann", "ann"), "b")
    kept = [(clinic.ingest(clinic.params(ingest={"night": one}))["train"].valid > 0).sum() for one in (1, 2)]
    assert kept == [4, 2]
    known = handles.batches(clinic.root / "data/handles/clinic")
    schema = load_schema(clinic.root / "data/schemas/clinic.yaml")
    nights.check_counted(clinic.home, known, schema, "record")
    with pytest.raises(InputError, match="night 1 of 'clinic' was counted by another schema"):
        nights.check_counted(clinic.home, known, schema, "user")
    with pytest.raises(InputError, match="1 users would have more than 3 records"):
        clinic.add(clinic.home.folder / "a.parquet", growth=Growth())
    clinic.write_schema(SCHEMA + "user: {column: patient, per_user: 5}\n")
    schema = load_schema(clinic.root / "data/schemas/clinic.yaml")
    for name in ("a", "b"):
        clinic.add(clinic.home.folder / f"{name}.parquet", growth=Growth())
    nights.check_counted(clinic.home, known, schema, "user")


def test_a_first_batch_is_counted_by_the_bound_of_the_day_though_the_second_was_refused_before(
    clinic: Clinic,
) -> None:
    """A batch is refused, its owner raises the bound and adds it again. What was counted of the first one at the first
    try was by the lower bound: nine records of one user passed where five are priced.
    """

    def seen(first: int, *patients: str) -> pa.Table:
        return rows(first, len(patients)).append_column("patient", pa.array(patients))

    clinic.write_schema(SCHEMA + "user: {column: patient, per_user: 1}\n")
    clinic.add(clinic.file(seen(0, *["ann"] * 5, "bob"), "a.parquet"))
    with pytest.raises(InputError, match="1 users would have more than 1 records"):
        night(clinic, seen(10, *["ann"] * 4), "b")
    clinic.write_schema(SCHEMA + "user: {column: patient, per_user: 5}\n")
    with pytest.raises(InputError, match="1 users would have more than 5 records"):
        night(clinic, seen(10, *["ann"] * 4), "b")
    clinic.write_schema(SCHEMA + "user: {column: patient, per_user: 9}\n")
    assert night(clinic, seen(10, *["ann"] * 4), "b").night == 2


def test_records_that_were_known_by_other_columns_are_counted_again_before_a_release(clinic: Clinic) -> None:
    """The same records on two nights, which two schemas do not know for the same."""
    clinic.add(clinic.file(rows(0, 40), "a.parquet"), growth=Growth())
    whole, site = SCHEMA.rsplit("- {name: site", 1)[0], "ignored: [site]\n"
    clinic.write_schema(whole + site)
    night(clinic, rows(0, 20), "b")
    known = handles.batches(clinic.root / "data/handles/clinic")
    schema = load_schema(clinic.root / "data/schemas/clinic.yaml")
    with pytest.raises(InputError, match="night 1 of 'clinic' was counted by another schema"):
        nights.check_counted(clinic.home, known, schema, "record")
    with pytest.raises(InputError, match="20 of these records would be on more than one night"):
        clinic.add(clinic.home.folder / "a.parquet", growth=Growth())


def test_a_first_batch_that_was_replaced_is_counted_before_the_second(clinic: Clinic) -> None:
    clinic.add(clinic.file(rows(0, 40), "a.parquet"), growth=Growth())
    clinic.add(clinic.file(rows(0, 60), "mended.parquet"))
    with pytest.raises(InputError, match="10 of these records would be on more than one night"):
        night(clinic, rows(50, 20), "b")


def test_what_a_replaced_first_batch_had_counts_no_more(clinic: Clinic) -> None:
    """A first file that was mended is one night, and not two: who is in both was refused on a further one."""

    def visits(first: int, *patients: str) -> pa.Table:
        return rows(first, len(patients)).append_column("patient", pa.array(patients))

    clinic.write_schema(USERS)
    clinic.add(clinic.file(visits(0, "ann", "ann", "bob"), "a.parquet"), growth=Growth())
    clinic.add(clinic.file(visits(0, "ann", "ann"), "mended.parquet"))
    assert night(clinic, visits(2, "ann", "bob", "bob", "bob"), "b").night == 2
    with pytest.raises(InputError, match="1 users would have more than 3 records over all nights"):
        night(clinic, visits(10, "ann"), "c")
    known = handles.batches(clinic.root / "data/handles/clinic")
    schema = load_schema(clinic.root / "data/schemas/clinic.yaml")
    nights.check_counted(clinic.home, known, schema, "user")
    again = clinic.add(clinic.home.folder / "mended.parquet", growth=Growth()).handle
    assert (again.night, again.fingerprint) == (1, known[0].fingerprint), "it can be counted again"


def test_a_first_batch_is_counted_anew_after_a_night_that_was_refused(clinic: Clinic) -> None:
    """The refusal says to name a column that tells records apart; those of the first night are then known by it too."""

    def named(first: int, *names: str) -> pa.Table:
        return rows(first, len(names)).append_column("case", pa.array(names))

    clinic.write_schema(SCHEMA + "ignored: [case]\n")
    clinic.add(clinic.file(named(0, "a", "b", "c"), "first.parquet"))
    with pytest.raises(InputError, match="1 of these records would be on more than one night"):
        night(clinic, named(2, "d", "e"), "second")
    with pytest.raises(InputError, match="2 of these records would be on more than one night"):
        night(clinic, named(7, "a", "b"), "again", Growth(identity="case"))
    clinic.add(clinic.file(named(0, "a", "b", "x"), "mended.parquet"))
    with pytest.raises(InputError, match="1 of these records would be on more than one night"):
        night(clinic, named(7, "x", "y"), "third", Growth(identity="case"))
    assert night(clinic, named(7, "c", "y"), "fourth", Growth(identity="case")).night == 2


def test_a_night_that_was_never_counted_is_counted_before_a_release(clinic: Clinic) -> None:
    """As where the handle of a first batch that was replaced comes back with an older commit."""
    clinic.add(clinic.file(rows(0, 40), "a.parquet"))
    handle = clinic.root / "data/handles/clinic/records.json"
    before = handle.read_bytes()
    clinic.add(clinic.file(rows(50, 40), "mended.parquet"))
    night(clinic, rows(0, 20), "b")
    handle.write_bytes(before)
    known = handles.batches(clinic.root / "data/handles/clinic")
    schema = load_schema(clinic.root / "data/schemas/clinic.yaml")
    with pytest.raises(InputError, match="night 1 of 'clinic' was counted by another schema, or never"):
        nights.check_counted(clinic.home, known, schema, "record")


def test_pixels_in_another_order_are_another_way_of_counting_and_columns_of_a_table_are_not() -> None:
    """Digests of pictures are of their values in order, those of rows are not."""
    image = {
        "name": "scans",
        "kind": "image",
        "confirmed": True,
        "label": {"column": "y", "classes": ["a", "b"]},
    }
    shape = {"height": 1, "width": 2, "channels": 1}

    def pictures(*pixels: str) -> str:
        document = {**image, "image": {**shape, "pixels": list(pixels)}}
        return seen.ways(Schema.model_validate(document), seen.ROW)["record"]

    assert pictures("p", "q") != pictures("q", "p")
    whole = yaml.safe_load(SCHEMA)
    turned = {**whole, "columns": whole["columns"][::-1]}
    both = [seen.ways(Schema.model_validate(one), seen.ROW)["record"] for one in (whole, turned)]
    assert both[0] == both[1]


def test_what_an_older_airlock_counted_is_believed(clinic: Clinic) -> None:
    """And not read again, for the first night may be forgotten."""
    clinic.add(clinic.file(rows(0, 40), "a.parquet"), growth=Growth())
    with registry.changing_registry(clinic.home) as entries:
        del entries.populations["clinic"]["counted"]
    nights.forget(clinic.home, clinic.root, "clinic", 1)
    night(clinic, rows(40, 20), "b")
    with pytest.raises(InputError, match="5 of these records would be on more than one night"):
        night(clinic, rows(35, 5), "c")
    night(clinic, rows(60, 20), "c")
    known = handles.batches(clinic.root / "data/handles/clinic")
    schema = load_schema(clinic.root / "data/schemas/clinic.yaml")
    nights.check_counted(clinic.home, known, schema, "record")
    clinic.write_schema(USERS)
    schema = load_schema(clinic.root / "data/schemas/clinic.yaml")
    with pytest.raises(InputError, match="night 2, 3 of 'clinic' was counted by another schema"):
        nights.check_counted(clinic.home, known, schema, "user")


def test_a_forgotten_night_cannot_be_read_again_and_an_old_backup_does_not_bring_it_back(
    clinic: Clinic,
) -> None:
    clinic.add(clinic.file(rows(0, 40), "first.parquet"), growth=Growth())
    second = night(clinic, rows(40, 30), "second")
    params = clinic.params(ingest={"night": 2})
    clinic.ingest(params)
    facts = handles.public_facts(clinic.root, params)
    (context, _) = seal_contexts(facts, generation=1).values()
    key = Keyring.load(clinic.home).seal_key(context)
    backup = clinic.home.folder.parent / "keys.backup"
    key_backup.backup(clinic.home, backup, "correct horse battery")
    done = nights.forget(clinic.home, clinic.root, "clinic", 2)
    assert done.sealed
    assert done.place == str(clinic.home.folder / "second.parquet")
    assert not (clinic.root / "data/sealed").exists()
    secret = clinic.home.keys / "batches" / second.fingerprint
    assert not secret.exists()
    with pytest.raises(KeysError, match="was forgotten"):
        Keyring.load(clinic.home).seal_key(context)
    with pytest.raises(InputError, match="forgotten"):
        registry.check(clinic.home, Keyring.load(clinic.home), second)
    assert custody_problems(clinic.root) == []
    key_backup.restore(clinic.home, backup, "correct horse battery")
    assert not secret.exists()
    keys.make_batch_secret(clinic.home, second.fingerprint)
    secret.with_name(f"{second.fingerprint}.forgotten").unlink()
    assert Keyring.load(clinic.home).seal_key(context) != key
    with pytest.raises(InputError, match="forgotten already"):
        nights.forget(clinic.home, clinic.root, "clinic", 2)
    with pytest.raises(InputError, match="does not come back"):
        night(clinic, rows(40, 30), "second")


def test_records_of_a_night_that_was_set_aside_come_once_more_and_no_other_way(clinic: Clinic) -> None:
    clinic.add(clinic.file(rows(0, 40), "first.parquet"), growth=Growth())
    second = night(clinic, rows(40, 30), "second")
    nights.set_aside(clinic.home, clinic.root, "clinic", 2)
    with pytest.raises(InputError, match="was set aside"):
        registry.check(clinic.home, Keyring.load(clinic.home), second)
    with pytest.raises(InputError, match="mend the file first"):
        night(clinic, rows(40, 30), "second")
    assert night(clinic, rows(40, 31), "mended").night == 3
    with pytest.raises(InputError, match="31 of these records would be on more than one night"):
        night(clinic, rows(40, 32), "again")
    with pytest.raises(InputError, match="cannot be set aside"):
        nights.set_aside(clinic.home, clinic.root, "clinic", 1)


@pytest.mark.parametrize("number", [0, -3, 1001])
def test_a_number_of_participations_is_checked_before_anything_is_made(number: int) -> None:
    with pytest.raises(InputError, match="--participations is a number from 1 to 1000"):
        Growth(None, number)


def test_what_cannot_be_forgotten_is_refused(clinic: Clinic) -> None:
    clinic.add(clinic.file(rows(0, 40), "first.parquet"))
    with pytest.raises(InputError, match="has no night 2"):
        nights.forget(clinic.home, clinic.root, "clinic", 2)
    with pytest.raises(InputError, match="no secret of its own"):
        nights.forget(clinic.home, clinic.root, "clinic", 1)
    assert registry.forgotten(clinic.home, "clinic") == set()
