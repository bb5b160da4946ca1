"""Attacks with nothing but files of the repository: links, names, compiled modules, ends.

Each ran on an earlier version.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from airlock.errors import BoundaryError, ParamsError
from airlock.params import BoundaryParams
from airlock.run.desk import open_desk
from airlock.run.request import request
from airlock.wall import cgroups, layers
from tests.conftest import Workspace
from tests.run.test_stage import STAGE, add_spy

RAW = "records.parquet"


def receipt(workspace: Workspace, name: str) -> dict[str, object]:
    newest = max((workspace.root / "receipts" / name).glob("*.json"), key=lambda path: path.stat().st_mtime)
    return dict(json.loads(newest.read_text())["body"])


@pytest.mark.parametrize("target", ["data/raw/wdbc", "keys"])
def test_a_committed_link_in_place_of_the_checkpoints_leads_nowhere(finished: Workspace, target: str) -> None:
    """It was mounted, writable, and unrecorded."""
    home = finished.home / "airlock/airlock-default"
    folder = home / "keys" if target == "keys" else finished.root / target
    names = sorted(path.name for path in folder.iterdir())
    assert names, "the control: there is something to find"
    for place in (".airlock/checkpoints", "checkpoints"):
        (finished.root / place).mkdir(parents=True, exist_ok=True)
        (finished.root / place / "spy").symlink_to(folder)
    listing = (
        '(room.path("data/open/spied") / "list.txt").write_text(str(sorted(p.name for p in '
        'room.path("checkpoint").iterdir())))'
    )
    done = add_spy(finished, listing)
    assert done.returncode == 0, done.stderr
    assert (finished.root / "data/open/spied/list.txt").read_text() == "[]"
    assert receipt(finished, "spy")["did_read"]["records"] == "no"  # type: ignore[index]
    assert sorted(path.name for path in folder.iterdir()) == names


def test_a_link_in_place_of_the_code_or_the_receipts_is_refused(finished: Workspace) -> None:
    elsewhere = finished.home / "elsewhere"
    elsewhere.mkdir()
    (finished.root / "receipts/spy").symlink_to(elsewhere)
    done = add_spy(finished, "pass")
    assert done.returncode == 1 and "link" in done.stderr and list(elsewhere.iterdir()) == []


def test_a_stage_with_a_path_for_a_name_is_refused_and_nothing_is_removed(finished: Workspace) -> None:
    victim = finished.home / "clinic"
    victim.mkdir()
    (victim / "records.csv").write_text("x")
    name = "../../../home/clinic"
    (finished.root / "stages/open/spy.py").write_text("def main(room): pass\n")
    with (finished.root / "dvc.yaml").open("a") as file:
        file.write(STAGE.replace("  spy:", f"  {name}:").replace("airlock run spy", f"airlock run {name}"))
    for asked in (name, "train"):
        done = finished.run("airlock", "run", asked, check=False)
        assert done.returncode in (1, 2) and len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert (victim / "records.csv").exists()


def plant(folder: Path, module: str, code: str) -> None:
    """A compiled module that Python takes without comparing it with its source."""
    import _imp
    import marshal

    source = (folder / f"{module}.py").read_bytes()
    tag = importlib.util.cache_from_source(str(folder / f"{module}.py"))
    flags = (1).to_bytes(4, "little")  # a hash, not to be checked
    stamp = _imp.source_hash(importlib.util._RAW_MAGIC_NUMBER, source)  # type: ignore[attr-defined]
    Path(tag).parent.mkdir(exist_ok=True)
    data = importlib.util.MAGIC_NUMBER + flags + stamp + marshal.dumps(compile(code, f"{module}.py", "exec"))
    Path(tag).write_bytes(data)


EVIL = (
    "def main(room):\n    room.path('data/open/spied').mkdir(parents=True)\n    "
    "(room.path('data/open/spied') / 'found.txt').write_text('evil')\n"
)


def test_a_committed_compiled_module_does_not_replace_its_source(finished: Workspace) -> None:
    folder = finished.root / "stages/open"
    (folder / "spy.py").write_text("main = 'the source'\n")
    plant(folder, "spy", EVIL)
    ask = "import stages.open.spy as spy; print(callable(spy.main))"
    control = subprocess.run(
        [sys.executable, "-B", "-c", ask], cwd=finished.root, capture_output=True, text=True, check=True
    )
    assert control.stdout == "True\n", "the control: outside, the compiled one is taken"
    (folder / "spy.py").unlink()
    (folder / "__pycache__/spy.cpython-311.pyc").rename(folder / "kept")
    done = add_spy(finished, "pass")
    assert done.returncode == 0, done.stderr
    (folder / "kept").rename(folder / "__pycache__/spy.cpython-311.pyc")
    done = finished.run("airlock", "run", "spy")
    assert (finished.root / "data/open/spied/found.txt").read_text() == "here I was"


def test_code_that_no_stage_declares_does_not_run(finished: Workspace) -> None:
    """A folder `train` is imported in place of the file `train.py`, whose hash stays what it was: the audit held
    while the folder was there, and after it was gone.
    """
    folder = finished.root / "stages/open/train"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise SystemExit('evil')\n")
    ask = [sys.executable, "-B", "-c", "import stages.open.train"]
    control = subprocess.run(ask, cwd=finished.root, capture_output=True, text=True, check=False)
    assert "evil" in control.stderr, "the control: Python takes the folder"
    finished.run("airlock", "run", "train")
    shutil.rmtree(folder)
    with (finished.root / "stages/open/train.py").open("a") as file:
        file.write("\nimport stages.open.evil\n")
    (finished.root / "stages/open/evil.py").write_text("")
    done = finished.run("airlock", "run", "train", check=False)
    assert done.returncode != 0 and "stages.open.evil" in done.stderr and "deps in dvc.yaml" in done.stderr


def test_records_in_a_folder_that_no_hash_counts_are_not_shown(finished: Workspace) -> None:
    folder = finished.root / "data/model/__pycache__"
    folder.mkdir()
    (folder / "records.csv").write_text("a record")
    done = add_spy(finished, 'print(list((room.path("data/model") / "__pycache__").iterdir()))')
    assert done.returncode == 0 and "[]" in done.stderr, done.stderr


@pytest.mark.parametrize(
    "end",
    [
        "import os; os._exit(0)",
        "import os; os._exit(77)",
        "from airlock.errors import AirlockError; AirlockError.exit_code = 0; raise "
        "AirlockError('x\\x1b[2Jy')",
        "from airlock.errors import AirlockError; AirlockError.exit_code = 130; raise AirlockError('x')",
    ],
)
def test_a_stage_does_not_choose_how_the_command_ends(finished: Workspace, end: str) -> None:
    done = add_spy(finished, end)
    published = (finished.root / "data/open/spied").exists()
    assert done.returncode == (0 if published else 1) and "\x1b" not in done.stderr
    assert published == ("os._exit(0)" in end), "only one that ends well publishes"


def test_the_names_of_the_machine_stay_outside(finished: Workspace) -> None:
    """Neither its paths nor its environment nor /proc tell a stage where AIRLOCK_HOME is."""
    code = """import os
    print(dict(os.environ), room.paths, os.getcwd())
    for name in ("mountinfo", "mounts", "mountstats"):
        try:
            print(open(f"/proc/self/{name}").read())
        except PermissionError:
            print("not", name)"""
    done = add_spy(finished, code)
    assert "not mountinfo" in done.stderr
    enforcement: Any = receipt(finished, "spy")["enforcement"]
    own = os.getuid() == 0 and layers.choose("advisory", zone="open") == layers.ALL
    assert enforcement["user"] == ("its own" if own else "the runner")
    assert enforcement["limits"] == cgroups.offered()[0]
    assert done.returncode == 0 and "checkpoint" in done.stderr
    assert str(finished.home / "airlock") not in done.stderr


def test_who_runs_anothers_pipeline_decides_on_the_wall(
    finished: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine without Landlock, a bundle that asks for `advisory` is not run."""
    for name, value in finished.environment.items():
        monkeypatch.setenv(name, value)
    finished.set("boundary.enforcement", "advisory")
    problems = {**dict.fromkeys(layers.Layer, ""), layers.Layer.LANDLOCK: "no Landlock"}
    monkeypatch.setattr(layers, "probe", lambda: problems)
    own = request("train", workspace=finished.root)
    assert layers.Layer.LANDLOCK not in own.layers, "the control: on its own word it would be"
    with pytest.raises(BoundaryError, match="landlock"):
        request("train", workspace=finished.root, boundary=BoundaryParams(enforcement="auto"))


def test_the_verifiers_wall_is_never_less_than_the_minimum() -> None:
    from airlock.bundle import rerun

    assert rerun.WALL.enforcement == "auto"


def test_compiled_code_without_its_source_is_refused(finished: Workspace) -> None:
    source = finished.root / "stages/open/hidden.py"
    source.write_text("SECRET = 1\n")
    finished.run("python", "-m", "compileall", "-q", "-b", str(source))
    source.unlink()
    done = finished.run("airlock", "run", "train", check=False)
    assert done.returncode == 1 and "hidden.pyc' is compiled code" in done.stderr
    (finished.root / "stages/open/hidden.pyc").unlink()
    finished.run("airlock", "run", "train")


LINKED = (
    *("receipts", "receipts/runner.pub", "data", "data/released", "data/released/release", "owner/dvc.yaml"),
    *(".dvc", ".dvc/config", "dvc.yaml", "params.yaml", "stages", "stages/open", "stages/open/train.py"),
    "data/schemas/wdbc.yaml",
)


def test_no_path_that_the_runner_reads_may_be_a_link(
    finished: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each led somewhere else once, or might: all of them at the places that an honest run reads."""
    from airlock.evidence import receipts

    for name, value in finished.environment.items():
        monkeypatch.setenv(name, value)

    def start() -> None:
        receipts.in_workspace(finished.root)
        with open_desk(request("train", workspace=finished.root)):
            pass

    start()  # the control: without a link
    away = finished.home / "away"
    for path in LINKED:
        place = finished.root / path
        shutil.move(place, away)
        place.symlink_to(away)
        with pytest.raises((BoundaryError, ParamsError), match="link|plain"):
            start()
        place.unlink()
        shutil.move(away, place)
    start()
