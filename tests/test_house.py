"""The tree is the trust boundary: what is outside the wall never loads what an analyst can edit."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from airlock.run.code import INSIDE_FILES
from tests.conftest import BIN, ROOT, Workspace

FORBIDDEN = {
    "Nothing outside the wall imports what runs inside it": [
        ("airlock/commands/report.py", "import stages.open.train"),
        ("airlock/run/budget.py", "from stages import mechanisms"),
        ("flows/artifacts.py", "import stages.mechanisms"),
    ],
    "The open room never imports the rooms that see records": [
        ("stages/open/train.py", "import stages.release.passes"),
        ("stages/open/report/charts.py", "from stages.sensitive import ingest"),
    ],
    "Code that sees records is all in its own rooms": [
        ("stages/release/passes.py", "import stages.open.train"),
        ("stages/sensitive/users.py", "from stages.open import evaluate"),
    ],
    "A stage imports of the tool only what is inside the wall, and mathematics": [
        ("stages/open/train.py", "from airlock.owner import keys"),
        ("stages/release/perturb.py", "import airlock.ledger"),
        ("stages/sensitive/ingest.py", "import airlock.run.handover"),
    ],
    "What is inside imports nothing that is outside": [
        ("airlock/inside/room.py", "import airlock.owner.home"),
        ("airlock/records/schema.py", "import airlock.ledger"),
    ],
    "Mathematics imports no room and no wall": [
        ("airlock/privacy/sums.py", "import airlock.inside.digests"),
        ("airlock/models/lrp.py", "import stages.mechanisms"),
    ],
    "The wall stands alone": [
        ("airlock/wall/grants.py", "import airlock.owner.home"),
        ("airlock/wall/kernel.py", "import airlock.run.outs"),
    ],
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of all code, to spoil."""
    copy = tmp_path_factory.mktemp("tree")
    for name in ("airlock", "stages", "flows"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    return copy


def check_imports(tree: Path) -> tuple[set[str], str]:
    """The broken contracts, and all that was said about them."""
    done = subprocess.run(
        [str(BIN / "lint-imports"), "--no-cache"],
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(tree), "COLUMNS": "200"},
    )
    lines = done.stdout.splitlines()
    return {line.removesuffix(" BROKEN").strip() for line in lines if line.endswith("BROKEN")}, done.stdout


def test_the_contracts_are_kept_and_each_has_a_trial(tree: Path) -> None:
    assert check_imports(tree)[0] == set()
    contracts = {
        line.split('"')[1]
        for line in (ROOT / "pyproject.toml").read_text().split("[tool.importlinter]")[1].splitlines()
        if line.startswith("name = ")
    }
    assert contracts == set(FORBIDDEN)


@pytest.mark.parametrize("contract", FORBIDDEN)
def test_a_forbidden_import_breaks_its_contract(tree: Path, contract: str) -> None:
    texts = {file: (tree / file).read_text() for file, _ in FORBIDDEN[contract]}
    try:
        for file, line in FORBIDDEN[contract]:
            # In a function: an import that waits until it is called counts too.
            (tree / file).write_text(f"{texts[file]}\n\ndef _late() -> None:\n    {line}\n")
        broken, told = check_imports(tree)
        assert contract in broken
        assert all(f"{file.removesuffix('.py').replace('/', '.')} ->" in told for file in texts), told
    finally:
        for file, text in texts.items():
            (tree / file).write_text(text)


LISTENER = """
import os, sys
def _hear(event, arguments):
    if event == "import" and str(arguments[0]).partition(".")[0] == "stages":
        with open(os.environ["HEARD"], "a") as file:
            file.write(f"{arguments[0]} in {sys.argv}\\n")
sys.addaudithook(_hear)
"""


def commands(workspace: Workspace) -> list[tuple[str, ...]]:
    """Every command of the README that runs on a finished workspace, each at its smallest."""
    records = str(workspace.root / "data/raw/wdbc/records.parquet")
    return [
        ("dvc", "repro"),
        ("airlock", "data", "list"),
        ("airlock", "init", records, "--name", "other"),
        ("airlock", "budget", "show"),
        ("airlock", "budget", "plan"),
        ("airlock", "budget", "history"),
        ("airlock", "budget", "verify"),
        ("airlock", "audit"),
        ("airlock", "report"),
        ("airlock", "predict", "data/model", records, "--json"),
        ("airlock", "compare"),
        ("airlock", "doctor"),
        ("airlock", "attack", "--trials", "100"),
        ("airlock", "bundle", "--output", str(workspace.home / "made.zip")),
        ("airlock", "verify", str(workspace.home / "made.zip")),
        ("dvc", "repro", "owner/dvc.yaml"),
    ]


def test_every_part_of_the_tool_is_inside_or_forbidden_to_the_stages() -> None:
    """A new folder of the tool is on one side of the wall: a stage is given it, or may not import it."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    rule = next(one for one in contracts if one["source_modules"] == ["stages"])
    forbidden = {name.removeprefix("airlock.") for name in rule["forbidden_modules"] if "." in name}
    inside = {name.removesuffix(".py") for name in INSIDE_FILES}
    listed = [path for path in (ROOT / "airlock").iterdir() if path.suffix == ".py" or any(path.glob("*.py"))]
    assert {path.stem for path in listed} == forbidden | inside and not forbidden & inside


THIEF = '''
_tried = set()
def _steal(where=""):
    """Read what no stage may read; whatever is got goes wherever it can. Once a function, not once a call."""
    if where in _tried:
        return
    _tried.add(where)
    import base64, os, sys
    for secret in {secrets!r}:
        try:
            with open(secret, "rb") as file:
                taken = b"STOLEN" + base64.b64encode(file.read(64))
        except OSError:
            continue
        sys.stderr.write(taken.decode())
        for place in {places!r}:
            try:
                with open(os.path.join(place, "loot-" + str(os.getpid())), "ab") as file:
                    file.write(taken)
            except OSError:
                pass
_steal()
'''


def make_hostile(file: Path, secrets: list[str], places: list[str]) -> None:
    """Steal at import time and at the start of every function."""
    module = ast.parse(file.read_text())
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef):
            documented = bool(node.body) and ast.get_docstring(node) is not None
            node.body.insert(
                1 if documented else 0, ast.parse(f"_steal({node.name + str(node.lineno)!r})").body[0]
            )
    start = 1 if ast.get_docstring(module) is not None else 0
    while start < len(module.body) and isinstance(module.body[start], ast.ImportFrom):
        if module.body[start].module != "__future__":  # type: ignore[attr-defined]
            break
        start += 1
    module.body[start:start] = ast.parse(THIEF.format(secrets=secrets, places=places)).body
    file.write_text(ast.unparse(ast.fix_missing_locations(module)))


def listener(workspace: Workspace) -> tuple[dict[str, str], Path]:
    """An environment in which every process that imports a module of the stages writes that down; the sandbox is
    not given it.
    """
    hook, heard = workspace.home / "hook", workspace.home / "heard.txt"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(LISTENER)
    environment = {"PYTHONPATH": str(hook), "HEARD": str(heard)}
    control = ("python", "-c", "import sys; sys.path.insert(0, '.'); import stages.mechanisms")
    workspace.run(*control, environment=environment)
    assert "stages.mechanisms" in heard.read_text(), "the hook hears nothing: it would prove nothing"
    heard.unlink()
    return environment, heard


def test_hostile_stages_are_loaded_nowhere_outside_and_reach_nothing(finished: Workspace) -> None:
    """Every module of both rooms steals at import time and in every function, while every command runs; and no
    command loads one of them outside the wall.
    """
    try_to_steal(finished, commands(finished))


@pytest.mark.skipif(os.geteuid() == 0, reason="the test above runs these commands and all others")
def test_the_commands_of_the_findings_load_no_hostile_stage(finished: Workspace) -> None:
    """What is short enough to be run a second time, by an ordinary user (tests/run/test_ordinary_user.py)."""
    wanted = ("dvc repro", "airlock report", "airlock predict", "airlock budget plan")
    chosen = [
        one for one in commands(finished) if " ".join(one).startswith(wanted) and "owner" not in one[-1]
    ]
    assert len(chosen) == len(wanted)
    try_to_steal(finished, chosen)


def try_to_steal(finished: Workspace, tried: list[tuple[str, ...]]) -> None:
    listening, heard = listener(finished)
    master = next((finished.home / "airlock").rglob("keys/master*"))
    outside = finished.home / "outside.txt"
    outside.write_text("a file of the user's, far away from the workspace")
    raw = finished.root / "data/raw/wdbc/records.parquet"
    loot = finished.home / "loot"
    loot.mkdir(mode=0o777)
    secrets, places = [str(path) for path in (master, outside, raw)], [str(loot), str(finished.root), "/tmp"]
    # stages/__init__.py is loaded by the sensitive room too, which may read raw records.
    top = [file for file in finished.root.glob("stages/*.py") if file.name != "__init__.py"]
    for file in (
        *top,
        *(file for room in ("open", "release") for file in finished.root.glob(f"stages/{room}/**/*.py")),
    ):
        make_hostile(file, secrets, places)
    control = finished.run("python", "-c", "import sys; sys.path.insert(0, '.'); import stages.mechanisms")
    assert "STOLEN" in control.stderr and list(loot.iterdir()), "the thief gets nothing even without a wall"
    shutil.rmtree(loot)
    loot.mkdir(mode=0o777)
    for path in finished.root.glob("loot-*"):
        path.unlink()
    finished.commit("Hostile stages")
    for command in tried:
        done = finished.run(*command, check=False, environment=listening)
        assert not heard.exists(), f"{' '.join(command)}: {heard.read_text()}"
        assert "STOLEN" not in done.stdout + done.stderr, command
        assert not list(loot.iterdir()) and not list(finished.root.glob("loot-*")), command
    kept = (finished.home / "airlock").rglob("log/*")
    assert not any(b"STOLEN" in path.read_bytes() for path in kept if path.is_file())
    assert json.loads(finished.run("airlock", "report", "--json", check=False).stdout)["exists"]
