"""Handles say in public what may be known of raw files; the rest stays with the owner.

Budgets have one name for ever.
"""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pyarrow.csv
import pytest

from airlock.errors import BoundaryError, InputError, KeysError, LedgerError, SchemaError
from airlock.ledger import Ledger
from airlock.owner import add, registry
from airlock.owner.add import CapRequest
from airlock.owner.home import owner_log, project
from airlock.owner.keys import Keyring
from airlock.records import handles
from tests.support.clinic import SCHEMA, Clinic, make_clinic, records

PUBLIC = SCHEMA.replace("public: false", "public: true")


@pytest.fixture
def clinic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clinic:
    monkeypatch.setenv("AIRLOCK_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("AIRLOCK_LEDGER_URL", raising=False)
    return make_clinic(tmp_path)


def files_in(clinic: Clinic) -> set[str]:
    return {path.relative_to(clinic.root).as_posix() for path in clinic.root.rglob("*") if path.is_file()}


def test_home_is_private_and_outside_the_workspace(
    clinic: Clinic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stat.S_IMODE(clinic.home.folder.stat().st_mode) == 0o700
    owner_log(clinic.home, "ingest", {"kind": "note"})
    assert stat.S_IMODE((clinic.home.log / "ingest.jsonl").stat().st_mode) == 0o600
    monkeypatch.setenv("AIRLOCK_HOME", str(clinic.root / "keys"))
    with pytest.raises(InputError, match="inside the workspace"):
        project(clinic.root)
    with pytest.raises(InputError, match="project's top folder"):
        project(tmp_path)


def test_handle_tells_number_and_keyed_fingerprint_and_no_path(clinic: Clinic) -> None:
    path = clinic.file(records(40))
    added = clinic.add(path, cap=CapRequest(3, 1e-5))
    document = json.loads((clinic.root / "data/handles/clinic/records.json").read_text())
    assert (document["n"], document["role"], document["format"], document["public"]) == (
        40,
        "records",
        "parquet",
        False,
    )
    assert document["fingerprint"] == Keyring.load(clinic.home).fingerprint(path)
    assert str(clinic.home.folder) not in json.dumps(document)
    assert added.changed and added.has_cap
    assert (
        registry.check(clinic.home, Keyring.load(clinic.home), handles.of(clinic.root, "clinic")["records"])
        == path
    )
    assert registry.raw_paths(clinic.home) == [path]


def test_adding_twice_changes_nothing(clinic: Clinic) -> None:
    path = clinic.file(records(40))
    clinic.add(path, cap=CapRequest(3, 1e-5))
    before = (clinic.root / "data/handles/clinic/records.json").stat().st_mtime_ns
    again = clinic.add(path)
    assert not again.changed and again.has_cap
    assert (clinic.root / "data/handles/clinic/records.json").stat().st_mtime_ns == before


def test_changed_records_are_refused_until_added_again_and_the_budget_stays(clinic: Clinic) -> None:
    clinic.add(clinic.file(records(40)), cap=CapRequest(3, 1e-5))
    ledger = Ledger.open(clinic.home.ledger_url, create=False)
    before = ledger.head()
    clinic.file(records(50))
    with pytest.raises(
        InputError, match="changed since they were added: run `airlock add FILE --name clinic`"
    ):
        registry.check(clinic.home, Keyring.load(clinic.home), handles.of(clinic.root, "clinic")["records"])
    assert clinic.add(clinic.home.folder / "records.parquet").changed
    assert handles.of(clinic.root, "clinic")["records"].n == 50
    assert ledger.head() == before


def test_a_file_that_is_gone_is_named_by_population(clinic: Clinic) -> None:
    path = clinic.file(records(40))
    clinic.add(path)
    path.unlink()
    with pytest.raises(InputError, match="no longer where they were"):
        registry.check(clinic.home, Keyring.load(clinic.home), handles.of(clinic.root, "clinic")["records"])


def test_known_records_cannot_have_a_second_budget(clinic: Clinic) -> None:
    path = clinic.file(records(40))
    clinic.add(path)
    clinic.write_schema(SCHEMA.replace("name: clinic", "name: other"), "other")
    before = files_in(clinic)
    copy = clinic.home.folder / "copy.parquet"
    copy.write_bytes(path.read_bytes())
    with pytest.raises(InputError, match="belong to population 'clinic' already"):
        clinic.add(copy, name="other", cap=CapRequest(3, 1e-5))
    # An older state of the records is known, too.
    clinic.add(clinic.file(records(50)))
    with pytest.raises(InputError, match="belong to population 'clinic' already"):
        clinic.add(copy, name="other")
    assert files_in(clinic) == before
    assert Ledger.open(clinic.home.ledger_url, create=False).cap("other") is None


def test_private_data_never_become_public(clinic: Clinic) -> None:
    path = clinic.file(records(40))
    clinic.add(path)
    clinic.write_schema(PUBLIC)
    with pytest.raises(InputError, match="was added as private and stays so"):
        clinic.add(path)
    with pytest.raises(InputError, match="disagree on `public`"):
        handles.public_facts(clinic.root, clinic.params())
    edited = clinic.root / "data/handles/clinic/records.json"
    edited.write_text(edited.read_text().replace('"public": false', '"public": true'))
    with pytest.raises(InputError, match="was edited"):
        registry.check(clinic.home, Keyring.load(clinic.home), handles.of(clinic.root, "clinic")["records"])


def test_private_records_cannot_be_their_own_public_holdout(clinic: Clinic) -> None:
    path = clinic.file(records(40))
    with pytest.raises(InputError, match="no records yet"):
        clinic.add(path, role="holdout")
    clinic.add(path)
    with pytest.raises(InputError, match="cannot be the same file"):
        clinic.add(path, role="holdout")
    clinic.add(clinic.file(records(10, seed=1), "holdout.parquet"), role="holdout")
    assert handles.of(clinic.root, "clinic")["holdout"].public


def test_a_missing_ledger_is_never_a_fresh_start(clinic: Clinic) -> None:
    path = clinic.file(records(40))
    clinic.add(path)
    for name in ("ledger.db", "ledger.db-wal", "ledger.db-shm"):
        (clinic.home.folder / name).unlink(missing_ok=True)
    with pytest.raises(LedgerError):
        clinic.add(path)
    # Not even where only a signed receipt remembers that private data were released.
    (clinic.root / "data/handles/clinic/records.json").unlink()
    clinic.home.registry.unlink()
    receipt = clinic.root / "receipts/release/0123456789abcdef.json"
    receipt.parent.mkdir(parents=True)
    receipt.write_text(json.dumps({"body": {"ledger": {"scratch": False}}, "signature": ""}))
    with pytest.raises(LedgerError):
        clinic.add(path)
    assert not (clinic.root / "data/handles/clinic/records.json").exists()


def test_no_receipt_is_read_through_a_link(clinic: Clinic, tmp_path: Path) -> None:
    """A commit with one to /dev/zero had `airlock add` take all memory; what it leads to may say anything."""
    (tmp_path / "anything.json").write_text(json.dumps({"body": {"ledger": {"scratch": True}}}))
    receipt = clinic.root / "receipts/release/0123456789abcdef.json"
    receipt.parent.mkdir(parents=True)
    receipt.symlink_to(tmp_path / "anything.json")
    with pytest.raises(BoundaryError, match="is a link"):
        clinic.add(clinic.file(records(40)))
    receipt.unlink()
    receipt.write_text(json.dumps({"body": {"ledger": 3}}))
    assert clinic.add(clinic.file(records(40))).handle.n == 40, (
        "the control; what is no receipt is the audit's to tell"
    )


def test_lost_keys_are_not_replaced(clinic: Clinic) -> None:
    path = clinic.file(records(40))
    clinic.add(path)
    for key in clinic.home.keys.iterdir():
        key.unlink()
    with pytest.raises(KeysError, match="airlock keys restore"):
        clinic.add(path)
    assert not (clinic.home.keys / "master").exists()


def test_public_populations_use_the_scratch_ledger_with_a_default_cap(clinic: Clinic) -> None:
    clinic.write_schema(PUBLIC)
    assert clinic.add(clinic.file(records(40))).has_cap
    cap = Ledger.open(clinic.home.scratch_url, create=False).cap("clinic")
    assert cap is not None
    assert (cap.epsilon, cap.delta, cap.why) == (10.0, 1e-5, "scratch default")
    with pytest.raises(LedgerError):
        Ledger.open(clinic.home.ledger_url, create=False)


def test_private_populations_have_no_cap_until_the_owner_sets_one(clinic: Clinic) -> None:
    assert not clinic.add(clinic.file(records(40))).has_cap
    assert clinic.add(clinic.file(records(40)), cap=CapRequest(2, 1e-6)).has_cap


def test_refused_files_leave_nothing_behind(clinic: Clinic, tmp_path: Path) -> None:
    before = files_in(clinic)
    raw = tmp_path / "raw.csv"
    pyarrow.csv.write_csv(records(5).rename_columns(["agee", "site", "outcome"]), raw)
    with pytest.raises(SchemaError, match="column 'age'"):
        clinic.add(raw)
    raw.write_text("age,site,outcome\n1,north\n")
    with pytest.raises(InputError, match="row 1"):
        clinic.add(raw)
    clinic.write_schema(SCHEMA.replace("confirmed: true", "confirmed: false"))
    with pytest.raises(SchemaError, match="not confirmed"):
        clinic.add(raw)
    assert files_in(clinic) == before
    assert list(clinic.home.folder.iterdir()) == []


def test_private_records_inside_the_repository_are_refused(clinic: Clinic) -> None:
    data = clinic.file(records(5)).read_bytes()
    (clinic.root / "data/raw").mkdir()
    for name, refused in (
        ("records.parquet", True),
        ("data/records.parquet", True),
        ("data/raw/records.parquet", False),
    ):
        (clinic.root / name).write_bytes(data)
        if refused:
            with pytest.raises(InputError, match="inside the repository"):
                clinic.add(clinic.root / name)
        else:
            assert clinic.add(clinic.root / name).changed


def test_how_many_users_there_are_is_not_committed(clinic: Clinic) -> None:
    clinic.write_schema(SCHEMA + "user: {column: patient, per_user: 2}\n")
    table = records(6).append_column("patient", [["p", "q", "p", "r", "p", "q"]])
    assert clinic.add(clinic.file(table)).handle.users is None
    path = clinic.root / "data/handles/clinic/records.json"
    assert json.loads(path.read_text())["users"] is None
    # A handle that was written before is still read, and its number goes no further.
    path.write_text(json.dumps({**json.loads(path.read_text()), "users": 3}))
    facts = handles.public_facts(clinic.root, clinic.params())
    assert (facts.users, facts.per_user) == (None, 2)


def test_damaged_handles_and_registry_are_named(clinic: Clinic) -> None:
    clinic.add(clinic.file(records(5)))
    (clinic.root / "data/handles/clinic/records.json").write_text("{}")
    with pytest.raises(InputError, match=r"data/handles/clinic/records\.json is not a handle"):
        handles.of(clinic.root, "clinic")
    clinic.home.registry.write_text("[")
    with pytest.raises(InputError, match=r"registry.json is damaged"):
        registry.raw_paths(clinic.home)


def test_unknown_data_set_names_the_commands(clinic: Clinic) -> None:
    with pytest.raises(InputError, match="airlock data fetch clinic"):
        handles.public_facts(clinic.root, clinic.params())
    assert add.SCRATCH_CAP[0] == 10
