"""From a raw file to a handle with the real commands: what they print, what they refuse, what they leave."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click
import pytest
import typer
from typer.testing import CliRunner

from airlock.commands import add, data, init, keys
from airlock.errors import InputError, KeysError, SchemaError
from airlock.owner.keys import Keyring
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
    assert str(draft_of(clinic)) in said.replace("\n", "")
    assert "airlock init --confirm records" in said
    draft_of(clinic).write_text(draft_of(clinic).read_text().replace("bounds: null", "bounds: [0, 120]"))
    said = airlock("init", "--confirm", "records")
    assert "healthy, ill" in said and "north, south" in said and "airlock add" in said
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
    airlock("keys", "backup", backup, text="a long passphrase\na long passphrase\n")
    for path in clinic.home.keys.rglob("*"):
        if path.is_file():
            path.unlink()
    monkeypatch.setenv("AIRLOCK_PASSPHRASE", "a long passphrase")
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
