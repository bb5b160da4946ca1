"""Bad input gets one clear line and exit code 2, leaves nothing behind, and no message quotes a value of a
record.
"""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from tests.conftest import Workspace, make_workspace

SECRET = "734512.125"
GOOD = "age,marker,outcome\n" + "".join(
    f"{20 + row},{row / 7:.3f},{'ill' if row % 2 else 'healthy'}\n" for row in range(40)
)
SCHEMA = """name: clinic
description: A small table for tests.
kind: tabular
public: false
confirmed: true
label: {column: outcome, classes: [healthy, ill]}
columns:
- {name: age, type: number, bounds: [0, 120], missing: refuse, why: human life span}
- {name: marker, type: number, bounds: [0, 10], missing: refuse, why: range of the assay}
"""


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A workspace with a private table added and nothing run."""
    made = make_workspace(tmp_path_factory.mktemp("clinic"))
    (made.home / "clinic.csv").write_text(GOOD)
    (made.root / "data/schemas/clinic.yaml").write_text(SCHEMA)
    made.set("dataset", "clinic")
    made.run(
        "airlock",
        "add",
        str(made.home / "clinic.csv"),
        "--name",
        "clinic",
        "--epsilon",
        "5",
        "--delta",
        "1e-5",
    )
    made.commit("Add")
    return made


@pytest.fixture
def tidy(clinic: Workspace) -> Iterator[Workspace]:
    """Whatever a case changes is put back; whatever a command leaves behind is an error."""
    yield clinic
    clinic.run("git", "checkout", "-q", ".")
    clinic.run("git", "clean", "-fdxq", "-e", ".dvc")
    (clinic.home / "clinic.csv").write_text(GOOD)
    clinic.run("airlock", "add", str(clinic.home / "clinic.csv"), "--name", "clinic")
    clinic.run("git", "checkout", "-q", ".")


def snapshot(workspace: Workspace) -> set[str]:
    ignored = (".git/", ".dvc/tmp/", ".dvc/cache/")
    files = (
        path.relative_to(workspace.root).as_posix()
        for path in workspace.root.rglob("*")
        if "__pycache__" not in path.parts
    )
    return {name for name in files if not name.startswith(ignored)}


def refused(workspace: Workspace, *command: str, code: int = 2) -> str:
    """Run a command that must fail; return its one line."""
    before = snapshot(workspace)
    done = workspace.run(*command, check=False)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert len(lines) == 1 and lines[0].startswith("airlock: "), done.stderr
    assert SECRET not in done.stdout + done.stderr
    assert {name for name in snapshot(workspace) - before if name != ".airlock"} == set()
    return lines[0]


def add_and_ingest(workspace: Workspace, text: str) -> str:
    """Whichever of the two commands notices first."""
    (workspace.home / "clinic.csv").write_text(text)
    add = ("airlock", "add", str(workspace.home / "clinic.csv"), "--name", "clinic")
    if workspace.run(*add, check=False).returncode != 0:
        return refused(workspace, *add)
    return refused(workspace, "airlock", "run", "ingest")


PARAMETERS: list[tuple[str, str, str, list[str]]] = [
    ("release.epsilon", "0", "relevance", ["release.epsilon", "greater than 0"]),
    ("release.epsilon", "-1", "relevance", ["release.epsilon"]),
    ("release.epsilon", "plenty", "relevance", ["release.epsilon", "plenty"]),
    ("release.epsilon", ".inf", "relevance", ["release.epsilon"]),
    ("release.epsilonn", "1.0", "ingest", ["release.epsilonn", "did you mean 'epsilon'"]),
    ("datasets", "clinic", "ingest", ["datasets", "did you mean 'dataset'"]),
    ("dataset", "nowhere", "ingest", ["nowhere"]),
]


def test_parameters_that_are_no_yaml_are_named_before_any_read(tidy: Workspace) -> None:
    with (tidy.root / "params.yaml").open("a") as file:
        file.write("train: [\n")
    line = refused(tidy, "airlock", "run", "train")
    assert "params.yaml" in line and "YAML" in line


@pytest.mark.parametrize(("key", "value", "stage", "words"), PARAMETERS)
def test_impossible_parameters_are_named_before_any_read(
    tidy: Workspace, key: str, value: str, stage: str, words: list[str]
) -> None:
    tidy.set(key, value, known=False)
    line = refused(tidy, "airlock", "run", stage)
    assert all(word in line for word in words), line


def test_data_set_that_is_not_here_is_named_before_dvc_misses_its_files(tidy: Workspace) -> None:
    tidy.set("dataset", "nosuch")
    before = snapshot(tidy) | {".dvc/tmp"}
    done = tidy.run("dvc", "repro", check=False)
    assert done.returncode != 0 and "No such file" not in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("airlock: ")]
    assert "no data set 'nosuch' was added here (clinic): run `airlock add FILE --name nosuch`" in line
    assert snapshot(tidy) == before
    told = tidy.run("airlock", "report", check=False)
    assert told.returncode == 1 and told.stdout.count("no data set 'nosuch'") == 1
    # The control: started behind that stage, DVC has only its own words.
    assert "data/handles/nosuch" in tidy.run("dvc", "repro", "-s", "ingest", check=False).stderr


def test_unknown_stage_lists_the_stages(tidy: Workspace) -> None:
    assert "ingest, relevance, release" in refused(tidy, "airlock", "run", "tarin")


def test_missing_file_is_named(tidy: Workspace) -> None:
    assert "nothere.csv" in refused(tidy, "airlock", "add", "nothere.csv", "--name", "clinic")
    assert "nothere.csv" in refused(tidy, "airlock", "init", "nothere.csv")


def test_unreadable_parquet_is_named(tidy: Workspace) -> None:
    broken = tidy.home / "broken.parquet"
    broken.write_bytes(b"PAR1" + SECRET.encode() * 20)
    assert "broken.parquet" in refused(tidy, "airlock", "add", str(broken), "--name", "clinic")


def test_empty_file_is_named(tidy: Workspace) -> None:
    empty = tidy.home / "empty.csv"
    empty.write_text("")
    assert "empty.csv" in refused(tidy, "airlock", "add", str(empty), "--name", "clinic")


RECORDS: list[tuple[str, Callable[[str], str], list[str]]] = [
    ("label not in the schema", lambda text: text.replace("healthy", SECRET, 1), ["outcome", "row"]),
    ("not a number", lambda text: text.replace("\n21,", f"\nx{SECRET},", 1), ["age", "row"]),
    ("not-a-number", lambda text: text.replace("\n21,", "\nnan,", 1), ["age", "row"]),
    ("infinity", lambda text: text.replace("\n21,", "\ninf,", 1), ["age", "row"]),
    ("missing value", lambda text: text.replace("\n21,", "\n,", 1), ["age", "row"]),
    ("missing column", lambda text: text.replace("marker", "market", 1), ["marker"]),
]


@pytest.mark.parametrize(("name", "spoil", "words"), RECORDS, ids=[name for name, _, _ in RECORDS])
def test_bad_records_are_named_by_column_and_row_never_by_value(
    tidy: Workspace, name: str, spoil: Callable[[str], str], words: list[str]
) -> None:
    spoiled = spoil(GOOD)
    assert spoiled != GOOD
    line = add_and_ingest(tidy, spoiled)
    assert all(word in line for word in words), line
    assert not (tidy.root / "data/sealed").exists()


SCHEMAS = [
    ("confirmed: true", "confirmed: false", "confirm"),
    ("bounds: [0, 120], ", "", "age"),
    ("bounds: [0, 120], ", "bounds: null, ", "age"),
    ("bounds: [0, 120], ", "bounds: [120, 0], ", "age"),
    ("classes: [healthy, ill]", "classes: [healthy]", "class"),
    ("kind: tabular", "kind: tabelar", "kind"),
]


@pytest.mark.parametrize(("old", "new", "word"), SCHEMAS)
def test_impossible_schemas_are_refused(tidy: Workspace, old: str, new: str, word: str) -> None:
    tidy.edit("data/schemas/clinic.yaml", old, new)
    assert word in refused(tidy, "airlock", "run", "ingest")


def test_delta_of_one_over_n_or_more_is_refused(tidy: Workspace) -> None:
    tidy.run("airlock", "run", "ingest")
    tidy.set("release.delta", 0.025)
    line = refused(tidy, "airlock", "run", "relevance")
    assert "1/n" in line and "0.025" in line


def test_unknown_mechanism_names_the_nearest(tidy: Workspace) -> None:
    tidy.run("airlock", "run", "ingest")
    tidy.set("release.mechanism", "coeficients")
    assert "did you mean 'coefficients'" in refused(tidy, "airlock", "run", "relevance")


def test_raw_data_that_changed_since_they_were_added_are_refused(tidy: Workspace) -> None:
    (tidy.home / "clinic.csv").write_text(GOOD.replace("\n21,", "\n22,", 1))
    assert "airlock add" in refused(tidy, "airlock", "run", "ingest")


def test_clipped_values_are_told_on_the_owners_terminal_and_nowhere_else(tidy: Workspace) -> None:
    tidy.edit("data/schemas/clinic.yaml", "bounds: [0, 120]", "bounds: [0, 1]")
    piped = tidy.run("airlock", "run", "ingest")
    assert "clipped" not in piped.stdout + piped.stderr
    seen = on_a_terminal(tidy, "airlock", "run", "ingest")
    assert "age" in seen and "40 (100.0%)" in seen and "are the bounds right?" in seen
    assert "40 (100.0%)" in tidy.run("airlock", "log").stdout
    public = [
        path
        for folder in ("receipts", "data/sealed")
        for path in (tidy.root / folder).rglob("*")
        if path.is_file()
    ]
    assert public and not any(b"clipped" in path.read_bytes() for path in public)


def on_a_terminal(workspace: Workspace, *command: str) -> str:
    """Run a command whose output is a terminal, and return what it showed."""
    ours, theirs = pty.openpty()
    done = subprocess.Popen(
        command, cwd=workspace.root, env=workspace.environment, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # the end of a terminal is an error
        while found := os.read(ours, 1 << 16):
            shown += found
    assert done.wait() == 0, shown.decode()
    os.close(ours)
    return shown.decode()


def test_a_traceback_shows_only_with_debug(tidy: Workspace) -> None:
    assert "Traceback" in tidy.run("airlock", "--debug", "run", "tarin", check=False).stderr
    assert "Traceback" not in tidy.run("airlock", "run", "tarin", check=False).stderr
