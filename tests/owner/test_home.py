"""Whose keys a workspace gets, and what of it is read: plain files in folders of its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from airlock.errors import AirlockError, BoundaryError, InputError, KeysError, SchemaError
from airlock.files import read_plain
from airlock.owner import home
from airlock.owner.home import Project, account
from airlock.owner.keys import Keyring
from airlock.records import handles
from airlock.records.schema_file import load_schema


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AIRLOCK_HOME", str(tmp_path / "home"))
    made = tmp_path / "work"
    for name in ("data/schemas", "data/handles/x", "receipts"):
        (made / name).mkdir(parents=True)
    name_project(made, "first")
    return made


def name_project(work: Path, identity: str) -> None:
    (work / home.IDENTITY).write_text(f'{{"id": "{identity}"}}')


def test_a_workspace_does_not_get_the_keys_of_another_project(work: Path, tmp_path: Path) -> None:
    """A pull request that changes data/project.json: records, budget and signature would be another project's."""
    first = home.project(work)
    name_project(work, "second")
    second = home.project(work)
    Keyring.create(second)
    assert home.project(work) == second, "the control: before any stage was run it may be chosen"
    home.remember(first, work)
    with pytest.raises(KeysError, match="was used with 'first': restore it from git") as refused:
        home.project(work)
    name_project(work, "first")
    assert home.project(work) == first
    name_project(work, "third")
    assert home.project(work).id == "third", "one without keys is a new one"
    other = tmp_path / "another clone"
    (other / "data").mkdir(parents=True)
    name_project(other, "second")
    assert home.project(other) == second
    name_project(work, "second")
    Path(str(refused.value).rpartition("remove ")[2]).unlink()
    assert home.project(work) == second, "what the line says is enough"


def test_a_home_in_which_others_can_rename_is_refused_and_none_is_made(work: Path, tmp_path: Path) -> None:
    """A project's own folder is private; whoever may write above it puts another one in its place."""
    before = os.umask(0)
    try:
        home.project(work)
    finally:
        os.umask(before)
    place = tmp_path / "home"
    assert place.stat().st_mode & 0o777 == 0o700
    place.chmod(0o777)
    with pytest.raises(KeysError, match="chmod o-w"):
        home.project(work)
    place.chmod(0o1777)
    assert home.project(work).id == "first", "the control: in such a folder nobody renames what is another's"


def test_experiments_leave_no_notes(work: Path) -> None:
    first = home.project(work)
    home.remember(first, work / ".dvc/tmp/exps/x")
    assert not first.used_by(work / ".dvc/tmp/exps/x").exists()


@pytest.mark.parametrize("name", home.FOLDERS)
def test_no_folder_that_commands_write_to_leads_elsewhere(work: Path, tmp_path: Path, name: str) -> None:
    """`airlock add` would write handles, and `airlock init` schemas, wherever a committed link leads."""
    place = work / name
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.exists():
        place.rename(tmp_path / "elsewhere")
    else:
        (tmp_path / "elsewhere").mkdir()
    place.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BoundaryError, match=f"'{name}' is a link"):
        home.project(work)
    place.unlink()
    (tmp_path / "elsewhere").rename(place)
    assert home.project(work).id == "first", "the control"


def as_link(path: Path) -> None:
    (path.parent / "secret").write_text('{"id": "a patient"}')
    path.symlink_to(path.parent / "secret")


def as_twice(path: Path) -> None:
    path.write_text('{"id": "first", "id": "a-patient"}')


def as_large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


NOT_PLAIN: dict[str, Callable[[Path], None]] = {
    "link": as_link,
    "pipe": os.mkfifo,
    "folder": os.mkdir,
    "a terabyte": as_large,
    "a key twice": as_twice,
    "deep": lambda path: path.write_text("[" * 100_000) and None,
}


@pytest.mark.parametrize("kind", NOT_PLAIN)
@pytest.mark.parametrize("name", ["data/project.json", "data/schemas/x.yaml", "data/handles/x/records.json"])
def test_what_is_read_is_a_plain_file(work: Path, name: str, kind: str) -> None:
    """None of them is followed, waited for, read to the end of memory, or quoted."""
    place = work / name
    place.unlink(missing_ok=True)
    NOT_PLAIN[kind](place)
    with pytest.raises(AirlockError) as refused:
        home.project(work)
        load_schema(work / "data/schemas/x.yaml") if name.endswith("yaml") else handles.of(work, "x")
    assert "patient" not in str(refused.value)


def test_a_folder_of_handles_is_no_link(work: Path, tmp_path: Path) -> None:
    (work / "data/handles/x").rename(tmp_path / "x")
    (work / "data/handles/x").symlink_to(tmp_path / "x")
    with pytest.raises(InputError, match="data/handles/x is a link"):
        handles.of(work, "x")


def test_a_plain_file_is_read(work: Path, tmp_path: Path) -> None:
    """The control of all of them."""
    assert read_plain(work / home.IDENTITY) == '{"id": "first"}'
    assert home.project(work) == Project("first", tmp_path / "home/first")
    assert handles.of(work, "x") == {}
    (work / "data/schemas/x.yaml").write_text("name: x\n")
    with pytest.raises(SchemaError, match="field required"):
        load_schema(work / "data/schemas/x.yaml")


def test_an_account_without_a_name_has_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container that runs under a bare uid every change of a cap ended in an error that nobody foresaw."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 3_999_999_999)
    assert account() == "uid 3999999999"
