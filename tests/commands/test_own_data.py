"""From a raw file to a handle with the real commands: what they print, what they refuse, what they leave."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
import typer
from typer.testing import CliRunner

from airlock.commands import add, data, init, keys, log
from airlock.errors import InputError, KeysError, SchemaError
from airlock.owner.keys import Keyring
from airlock.records.filling import Bound, parse_bound
from tests.support.clinic import Clinic, make_clinic

CSV = "age,site,outcome\n" + "".join(
    f"{20 + row},{'north' if row % 3 else 'south'},{'ill' if row % 2 else 'healthy'}\n" for row in range(40)
)
RAW = "../records.csv"
Command = Callable[..., str]


@pytest.fixture
def clinic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clinic:
    monkeypatch.setenv("AIRLOCK_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("AIRLOCK_LEDGER_URL", raising=False)
    monkeypatch.delenv("AIRLOCK_PASSPHRASE", raising=False)
    made = make_clinic(tmp_path)
    (made.root / "data/schemas/clinic.yaml").unlink()
    (tmp_path / "records.csv").write_text(CSV)
    monkeypatch.chdir(made.root)
    return made


@pytest.fixture
def airlock(clinic: Clinic) -> Command:
    """Run a command in this process and return what it printed; its errors come as they are."""
    app = typer.Typer()
    app.command("add")(add.command)
    app.command("init")(init.command)
    app.command("log")(log.command)
    app.add_typer(data.app, name="data")
    app.add_typer(keys.app, name="keys")

    def run(*arguments: str, text: str | None = None) -> str:
        result = CliRunner().invoke(app, list(arguments), input=text, standalone_mode=False)
        if isinstance(result.exception, (InputError, click.ClickException)):
            raise result.exception
        assert result.exception is None, result.exception
        return result.output

    return run


def draft_of(clinic: Clinic, name: str = "records") -> Path:
    return clinic.home.drafts / f"{name}.yaml"


def test_own_data_in_four_commands(clinic: Clinic, airlock: Command) -> None:
    said = airlock("init", RAW)
    assert "never computes them from the records" in said
    assert "unconfirmed" in said
    assert "airlock log init" in said and "levels" not in said
    assert str(draft_of(clinic)) in said.replace("\n", "")
    assert "airlock init --confirm records" in said
    draft_of(clinic).write_text(draft_of(clinic).read_text().replace("bounds: null", "bounds: [0, 120]"))
    said = airlock("init", "--confirm", "records")
    assert "healthy, ill" in said and "north, south" in said and "airlock add" in said
    assert "names of 2 columns: age, site" in said
    assert not draft_of(clinic).exists()
    said = airlock("add", RAW, "--name", "records")
    assert "40 records added" in said and "airlock budget set records" in said
    assert "unchanged" in airlock("add", RAW, "--name", "records", "--epsilon", "1", "--delta", "1e-5")
    assert "budget set" not in airlock("add", RAW, "--name", "records")


def test_nothing_is_drafted_inside_the_workspace(clinic: Clinic, airlock: Command) -> None:
    before = sorted(clinic.root.rglob("*"))
    airlock("init", RAW)
    assert sorted(clinic.root.rglob("*")) == before


def test_a_draft_without_bounds_is_not_confirmed(clinic: Clinic, airlock: Command) -> None:
    airlock("init", RAW)
    with pytest.raises(SchemaError, match="column 'age' has no bounds"):
        airlock("init", "--confirm", "records")
    assert draft_of(clinic).exists()
    assert not (clinic.root / "data/schemas/records.yaml").exists()
    with pytest.raises(SchemaError, match=r"no schema records\.yaml"):
        airlock("add", RAW, "--name", "records")


def test_an_edited_draft_is_not_lost(clinic: Clinic, airlock: Command) -> None:
    airlock("init", RAW)
    draft_of(clinic).write_text("edited")
    with pytest.raises(InputError, match="exists already"):
        airlock("init", RAW)
    assert draft_of(clinic).read_text() == "edited"
    airlock("init", RAW, "--force")
    assert draft_of(clinic).read_text() != "edited"


def test_init_asks_for_what_it_needs(airlock: Command) -> None:
    for arguments, line in [
        (("init",), "either a file"),
        (("init", RAW, "--confirm", "x"), "either a file"),
        (("init", "--confirm", "nowhere"), "no draft 'nowhere'"),
        (("init", "nothere.csv"), "nothere.csv"),
        (("init", RAW, "--name", "Not Good"), "lower-case"),
        (("init", RAW, "--label", "weight"), "unknown column 'weight'"),
    ]:
        with pytest.raises(InputError, match=line):
            airlock(*arguments)


SECRET = "734512.125"
BAD_FILES: dict[str, tuple[bytes, str]] = {
    "empty.csv": (b"", "is empty"),
    "header_only.csv": (b"a,b\n", "is empty"),
    "no_header.csv": (f"{SECRET},3,ill\n5,4,ok\n".encode(), "--no-header"),
    "texts.csv": (b"red,ill\nblue,ok\nred,ill\n", "--no-header"),
    "ragged.csv": (b"a,y\n1,b\n" + f"{SECRET}\n".encode(), "row 2"),
    "twice.csv": (b"a,a,y\n1,2,b\n", "columns 1 and 2 have the same name"),
    "latin.csv": ("größe,y\n1,a\n".encode("latin-1"), "iconv"),
    "book.xlsx": (b"PK\x03\x04" + SECRET.encode(), "spreadsheet"),
    "cut.parquet": (b"PAR1" + SECRET.encode() * 9, "Parquet"),
    "one_class.csv": (b"a,y\n1.5,b\n2.5,b\n", "one class only"),
    "numbers.csv": (
        ("a,price\n" + "".join(f"{row},{row * 1.7}\n" for row in range(300))).encode(),
        "which column is the label",
    ),
    "ids.csv": (
        ("user_id,y\n" + "".join(f"u{row},{'ab'[row % 2]}\n" for row in range(99))).encode(),
        "no column is left",
    ),
    "one_column.csv": (b"y\na\nb\n", "no column is left"),
    "page.csv": (f"<html>{SECRET}</html>".encode(), "cannot be read|is empty"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_one_line_and_leaves_nothing(
    clinic: Clinic, airlock: Command, tmp_path: Path, name: str
) -> None:
    data, line = BAD_FILES[name]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=line) as caught:
        airlock("init", str(tmp_path / name))
    assert "\n" not in str(caught.value) and SECRET not in str(caught.value) and caught.value.exit_code == 2
    assert not clinic.home.drafts.exists() and not clinic.home.log.exists()


def test_what_init_saw_is_in_the_owners_log(airlock: Command) -> None:
    with pytest.raises(InputError, match="nothing of 'init'"):
        airlock("log", "init")
    airlock("init", RAW)
    said = airlock("log", "init")
    assert (
        "taken for" in said
        and "site" in said
        and "label: outcome (by its name; change it with --label)" in said
    )


def test_bounds_are_filled_by_pattern_and_from_a_data_dictionary(
    clinic: Clinic, airlock: Command, tmp_path: Path
) -> None:
    rows = "".join(
        f"{row % 4},{row % 3},{row},2020-01-{row % 9 + 1:02},{'ab'[row % 2]}\n" for row in range(7, 60)
    )
    (tmp_path / "grades.csv").write_text("grade_1,grade_2,age,seen,y\n" + rows)
    (tmp_path / "dictionary.csv").write_text(
        "Variable,Min,Max,Source\nage,0,120,human life\nseen,2000-01-01,2030-12-31,\nweight,,,\n"
    )
    said = airlock("init", "../grades.csv", "--bounds", "0,3", "--columns", "grade_*")
    assert "Bounds of 2 column(s)" in said and "2 columns need bounds: 'age', 'seen'" in said
    with pytest.raises(SchemaError, match="'age' has no bounds.*'seen' has no bounds"):
        airlock("init", "--confirm", "grades")
    with pytest.raises(InputError, match="'note_\\*' fits no number"):
        airlock("init", "--draft", "grades", "--bounds", "0,1", "--columns", "note_*")
    for wrong in ("3,0", "1e9,-1e9", "-inf,1e9", "nan,1", "low,high"):
        with pytest.raises(InputError, match="is no bound"):
            airlock("init", "--draft", "grades", f"--bounds={wrong}")
    assert parse_bound("-1e9,1.5E3") == Bound(-1e9, 1.5e3), "YAML takes such numbers for text"
    said = airlock("init", "--draft", "grades", "--bounds-from", str(tmp_path / "dictionary.csv"))
    assert "airlock init --confirm grades" in said
    assert "why: human life" in draft_of(clinic, "grades").read_text()
    airlock("init", "--confirm", "grades")
    assert "bounds: [2000-01-01, 2030-12-31]" in (clinic.root / "data/schemas/grades.yaml").read_text()
    assert "53 records added" in airlock("add", "../grades.csv", "--name", "grades")


def test_the_walk_asks_keeps_every_answer_and_goes_on_where_it_stopped(
    clinic: Clinic, airlock: Command, tmp_path: Path
) -> None:
    (tmp_path / "walk.csv").write_text(
        "a,b,c,y\n" + "".join(f"{row % 7},{row % 5},{row % 3},{'no'[row % 2]}\n" for row in range(40))
    )
    said = airlock("init", "../walk.csv", "--ask", text="0,10\nten\n0,9\nq\n")
    assert "[1/3] a" in said and "'ten' is no bound" in said and "1 column needs bounds: 'c'" in said
    assert "[1/1] c" in airlock("init", "../walk.csv", "--ask", text="0 8\n")
    text = draft_of(clinic, "walk").read_text()
    assert all(f"bounds: [0, {high}]" in text for high in (10, 9, 8))


def test_a_terminal_shows_the_table_and_a_pipe_does_not(clinic: Clinic) -> None:
    import os
    import pty
    import subprocess
    import sys

    command = [str(Path(sys.executable).parent / "airlock"), "init", RAW, "--force"]
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": "150", "TERM": "dumb"}
    subprocess.run(command, cwd=clinic.root, stdout=theirs, stderr=theirs, env=environment, check=True)
    os.close(theirs)
    seen = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert "levels" in seen and "For your eyes only" in seen
    piped = subprocess.run(
        command, cwd=clinic.root, capture_output=True, text=True, env=environment, check=True
    )
    assert "levels" not in piped.stdout + piped.stderr


def test_add_asks_for_what_it_needs(airlock: Command) -> None:
    with pytest.raises(InputError, match="--holdout --public"):
        airlock("add", RAW, "--name", "records", "--holdout")
    with pytest.raises(InputError, match="--holdout --public"):
        airlock("add", RAW, "--name", "records", "--public")
    with pytest.raises(InputError, match="both --epsilon and --delta"):
        airlock("add", RAW, "--name", "records", "--epsilon", "1")


def test_keys_are_backed_up_restored_and_rotated(
    clinic: Clinic, airlock: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KeysError, match="no master key"):
        airlock("keys", "rotate")
    masters = Keyring.create(clinic.home).masters
    assert "generation 2" in airlock("keys", "rotate")
    backup = str(tmp_path / "backup")
    # Of a session without a terminal: what is piped in is not asked for, as it could be seen.
    asked = [sys.executable, "-m", "airlock", "keys", "backup", backup]
    alone = subprocess.run(asked, input=b"a\na\n", capture_output=True, start_new_session=True, check=False)
    assert alone.returncode == 2
    assert alone.stderr.decode() == (
        "airlock: there is no terminal to ask for the passphrase on: give it in AIRLOCK_PASSPHRASE\n"
    )
    assert not Path(backup).exists()
    monkeypatch.setenv("AIRLOCK_PASSPHRASE", "a long passphrase")
    airlock("keys", "backup", backup)
    for path in clinic.home.keys.rglob("*"):
        if path.is_file():
            path.unlink()
    assert "2 generations" in airlock("keys", "restore", backup)
    assert Keyring.load(clinic.home).masters[:1] == masters


def test_data_list_tells_what_is_here(clinic: Clinic, airlock: Command) -> None:
    import json
    import shutil

    shutil.copy(Path(__file__).parents[2] / "data/schemas/wdbc.yaml", clinic.root / "data/schemas")
    assert not any(row["here"] for row in json.loads(airlock("data", "list", "--json")))
    assert "569 records from scikit-learn" in airlock("data", "fetch", "wdbc")
    assert "already here" in airlock("data", "fetch", "wdbc")
    assert [row["name"] for row in json.loads(airlock("data", "list", "--json")) if row["here"]] == ["wdbc"]
    assert "fashion-mnist" in airlock("data", "list")


def test_a_data_set_is_used_only_if_it_is_here(clinic: Clinic, airlock: Command) -> None:
    text = "# mine\ndataset: wdbc # a word\nevaluate:\n  holdout: none\n"
    (clinic.root / "params.yaml").write_text(text)
    with pytest.raises(InputError, match=r"no data set 'nosuch' was added here \(none was\)") as caught:
        airlock("data", "use", "nosuch")
    assert "\n" not in str(caught.value) and (clinic.root / "params.yaml").read_text() == text
    airlock("init", RAW, "--name", "clinic")
    airlock("init", "--draft", "clinic", "--bounds", "0,120")
    airlock("init", "--confirm", "clinic")
    assert "airlock data use clinic" in airlock(
        "add", RAW, "--name", "clinic", "--epsilon", "1", "--delta", "1e-5"
    )
    assert "evaluate.holdout: private" in airlock("data", "use", "clinic", "--private-holdout")
    assert "dataset: clinic # a word" in (clinic.root / "params.yaml").read_text()
    with pytest.raises(InputError, match=r"was added here \(clinic\)"):
        airlock("data", "use", "wdbc")
