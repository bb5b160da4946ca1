"""What people type wrong gets one line that names the way out, and what they left empty is not taken as not said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from airlock.owner.home import Project
from airlock.owner.keys import Keyring
from tests.conftest import ROOT
from tests.test_terminal import MAIN

KEY = "3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29"
WHO = ("-c", "user.name=A", "-c", "user.email=a@example.org")
GROUPS = ("", "budget", "data", "keys", "nights")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder that looks like a project, with nothing run in it."""
    folder = tmp_path / "work"
    (folder / "data").mkdir(parents=True)
    (folder / "data/project.json").write_text((ROOT / "data/project.json").read_text())
    (folder / "params.yaml").write_text("dataset: wdbc\n")
    (folder / "dvc.yaml").write_text("stages: {}\n")
    return folder


def airlock(
    work: Path, *arguments: str, out: int = subprocess.PIPE, **settings: str
) -> subprocess.CompletedProcess[str]:
    """Run it without a terminal."""
    home = work.parent / "home"
    home.mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if name != "AIRLOCK_PASSPHRASE"}
    return subprocess.run(
        [sys.executable, "-P", "-c", MAIN, *arguments],
        cwd=work,
        env={**kept, "HOME": str(home), "AIRLOCK_HOME": str(home / "airlock"), **settings},
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        start_new_session=True,
    )


def told(work: Path, *arguments: str, code: int = 2) -> str:
    """The one line of a command that must fail."""
    done = airlock(work, *arguments)
    assert done.returncode == code and not done.stdout, (done.returncode, done.stdout, done.stderr)
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("airlock: "), done.stderr
    assert "nobody foresaw" not in lines[0]
    return lines[0]


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_of_commands_without_one_shows_its_page(work: Path, group: str) -> None:
    done = airlock(work, *group.split())
    assert done.returncode == 2 and not done.stdout
    page = done.stderr.splitlines()
    assert page[0].startswith(f"Usage: {f'airlock {group}'.strip()} [OPTIONS] COMMAND") and len(page) > 8


@pytest.mark.parametrize(
    ("asked", "page"),
    [
        ("foo", "airlock --help"),
        ("budget shw", "airlock budget --help"),
        ("budget show --x", "airlock budget show --help"),
        ("init --lable x file", "airlock init --help"),
        ("run", "airlock run --help"),
        ("attack coefficients --option", "airlock attack --help"),
        ("attack coefficients --accounting --noise-factor inf", "airlock attack --help"),
        ("attack coefficients --canaries 99999999999", "airlock attack --help"),
    ],
)
def test_what_was_misspelled_names_its_own_page(work: Path, asked: str, page: str) -> None:
    assert told(work, *asked.split()).endswith(f"(see `{page}`)")


def test_a_link_that_leads_to_itself_is_named(work: Path) -> None:
    (work / "loop").symlink_to("loop")
    assert "a link leads to itself" in told(work, "init", "loop", "--name", "x")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full disk here")
def test_what_cannot_be_printed_is_one_line(work: Path) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    for asked in (["--help"], ["data", "list"]):
        done = airlock(work, *asked, out=full)
        assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done.stderr
        assert "No space left" in done.stderr
    os.close(full)


def test_a_passphrase_is_not_asked_for_where_nobody_can_type_it(work: Path) -> None:
    assert "AIRLOCK_PASSPHRASE" in told(work, "keys", "backup", "x")
    assert "AIRLOCK_PASSPHRASE" in told(work, "keys", "restore", "x")


@pytest.mark.parametrize("key", ["", "abc", KEY[:-1], f"{KEY}0", f"0x{KEY[2:]}"])
def test_what_is_no_key_is_no_question(work: Path, key: str) -> None:
    """An empty one above all: with `--key $OWNER` of a script that has not set it, everybody was the owner."""
    (work / "x.zip").write_bytes(b"no bundle")
    for asked in (("audit", "--key", key), ("verify", "x.zip", "--key", key), ("take", ".", "--owner", key)):
        assert "64 hexadecimal digits" in told(work, *asked)


def test_a_key_may_be_written_in_capitals(work: Path) -> None:
    done = airlock(work, "audit", "--key", KEY.upper(), "--json")
    assert f"not {KEY}" in done.stdout


def test_an_empty_revision_is_not_the_workspace(work: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=work, check=True)
    assert "no commit ''" in told(work, "audit", "--rev", "")


def test_a_commit_outside_git_is_another_matter_than_an_unknown_one(work: Path) -> None:
    assert "is in no git repository" in told(work, "audit", "--rev", "HEAD")
    assert "is in no git repository" in told(work, "bundle")


def test_a_bundle_is_a_file(work: Path) -> None:
    assert "data is a folder: name the file to write" in told(work, "bundle", "--output", "data")


def test_where_nothing_has_run_nobody_is_told_that_another_is_the_owner(work: Path) -> None:
    for command in (["git", "init", "-q"], ["git", "add", "-A"], ["git", *WHO, "commit", "-qm", "First"]):
        subprocess.run(command, cwd=work, check=True)
    identity = json.loads((work / "data/project.json").read_text())["id"]
    os.umask(0o077)
    Keyring.create(Project(identity, work.parent / "home/airlock" / identity))
    assert "has no .dvc folder" in told(work, "bundle")
    (work / ".git/info/exclude").write_text(".dvc\n")
    (work / ".dvc").mkdir()
    (work / ".dvc/config").write_text("")
    assert "has no receipts: run `dvc repro`" in told(work, "bundle")
    assert "has no receipts: run `dvc repro`" in told(work, "hand-over", str(work.parent / "place"))
    assert "is not there yet: run `dvc repro`" in told(work, "keys", "admit", KEY)


def test_files_are_utf_8_whatever_the_machine_takes_them_for(work: Path) -> None:
    """A draft with an umlaut was not read again, or, under Latin-1, written as another one."""
    rows = "".join(f"{20 + row},{'ja' if row % 2 else 'nein'}\n" for row in range(40))
    (work / "x.csv").write_text(f"Größe,geheilt\n{rows}")
    old = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "utf-8"}
    for asked in (("x.csv", "--name", "x"), ("--draft", "x", "--bounds", "0,300"), ("--confirm", "x")):
        done = airlock(work, "init", *asked, **old)
        assert done.returncode == 0, done.stderr
    assert "Größe" in (work / "data/schemas/x.yaml").read_text(encoding="utf-8")


def test_what_is_not_there_is_named_before_anything_is_started(work: Path) -> None:
    (work / "x.zip").write_bytes(b"no bundle")
    assert "there is no /nope.csv" in told(work, "attack", "coefficients", "--records", "/nope.csv")
    assert "no bundle at nope" in told(work, "verify", "nope")
