"""A workspace from an installed wheel: it runs, is held to the tool that is installed, and follows it."""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
from pathlib import Path

import pytest

from airlock.errors import BoundaryError, InputError
from airlock.evidence.revisions import load_graph
from airlock.run.code import MODULES, TOOL
from airlock.workspaces import layout, lock
from airlock.workspaces.creation import create
from airlock.workspaces.imports import needed
from airlock.workspaces.upgrade import upgrade
from tests.conftest import ROOT
from tests.support import code_deps
from tests.workspaces.conftest import Installed

EMPTY: dict[str, dict[str, str]] = {}


@pytest.mark.parametrize("stage", MODULES)
def test_the_files_behind_a_stage_are_those_that_the_import_graph_has(stage: str) -> None:
    graph = load_graph(ROOT)
    code = [ROOT / dep for dep in graph.stage(stage).deps if dep.startswith("stages")]
    files = [file for path in code for file in (path.rglob("*.py") if path.is_dir() else [path])]
    assert needed(files) == {path for path in code_deps.needed(stage) if path.startswith("airlock/")}


def test_a_new_workspace_has_what_it_needs_and_no_copy_of_the_tool(tmp_path: Path) -> None:
    create(tmp_path / "clinic")
    root = tmp_path / "clinic"
    for name in ("dvc.yaml", "params.yaml", "stages/open/train.py", ".gitignore", ".dvcignore", "README.md"):
        assert (root / name).is_file(), name
    assert not (root / TOOL.name).exists()
    assert (root / ".ci/run").stat().st_mode & 0o100
    assert "airlock/" not in (root / "dvc.yaml").read_text()
    assert {lock.place(stage.name) for stage in load_graph(root)} < {
        f"tool/{path.name}" for path in (root / "tool").iterdir()
    }
    identity = json.loads((root / "data/project.json").read_text())["id"]
    assert identity.startswith("clinic-") and identity != "airlock-default"
    create(tmp_path / "second", identity)
    assert json.loads((tmp_path / "second/data/project.json").read_text())["id"] == identity


def test_a_bad_place_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    create(tmp_path / "clinic")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken/file").touch()
    before = sorted(tmp_path.rglob("*"))
    for name, line in (
        ("taken", "not empty"),
        ("clinic", "not empty"),
        ("clinic/inner", "inside the workspace"),
        ("a/b", "no folder"),
    ):
        with pytest.raises(InputError, match=line):
            create(tmp_path / name)
    with pytest.raises(InputError, match="is no id"):
        create(tmp_path / "other", "Not An Id")
    assert sorted(tmp_path.rglob("*")) == before


def held(root: Path) -> dict[str, dict[str, str]]:
    from airlock.inside.digests import sha256_path

    return {lock.place(stage): {"sha256": sha256_path(root / lock.place(stage))} for stage in MODULES}


def test_a_lock_that_was_edited_or_is_of_another_tool_is_refused(tmp_path: Path) -> None:
    create(tmp_path / "clinic")
    root = tmp_path / "clinic"
    train = load_graph(root).stage("train")
    lock.check(root, train, held(root))  # the control
    place = root / lock.place("train")
    document = json.loads(place.read_text())
    for edit in (
        lambda files: files.update({"airlock/models/moments.py": "0" * 64}),
        lambda files: files.pop("airlock/models/moments.py"),
    ):
        changed = json.loads(json.dumps(document))
        edit(changed["files"])
        place.write_text(json.dumps(changed, indent=1, sort_keys=True) + "\n")
        with pytest.raises(BoundaryError, match="not of the Airlock that is installed"):
            lock.check(root, train, held(root))
    place.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")
    lock.check(root, train, held(root))
    pipeline = root / "dvc.yaml"
    pipeline.write_text(pipeline.read_text().replace("    - tool/train.json\n", ""))
    with pytest.raises(BoundaryError, match="does not say which tool"):
        lock.check(root, load_graph(root).stage("train"), held(root))


def test_an_import_that_an_analyst_adds_is_in_the_lock_after_an_upgrade(tmp_path: Path) -> None:
    create(tmp_path / "clinic")
    root = tmp_path / "clinic"
    with (root / "stages/open/evaluate.py").open("a") as file:
        file.write("\nfrom airlock.compare import published  # noqa\n")
    evaluate = load_graph(root).stage("evaluate")
    with pytest.raises(BoundaryError, match="airlock upgrade"):
        lock.check(root, evaluate, held(root))
    done = upgrade(root)
    assert "airlock/compare/published.py" in (root / "tool/evaluate.json").read_text()
    assert set(done.reasons) == {"evaluate"} and done.stale == ("evaluate", "report")
    assert done.replaced == () and not upgrade(root, only_check=True).changes


def test_an_upgrade_replaces_what_nobody_edited_and_names_what_somebody_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(tmp_path / "clinic")
    root = tmp_path / "clinic"
    with (root / "stages/open/train.py").open("a") as file:
        file.write("# mine\n")
    mine = (root / "stages/open/train.py").read_bytes()
    newer = {**layout.followed(), "stages/open/extra.py": b"# new\n"}
    newer["stages/open/train.py"] += b"# theirs\n"
    newer["stages/open/evaluate.py"] += b"# theirs\n"
    del newer["stages/open/report/published.csv"]
    monkeypatch.setattr(layout, "followed", lambda: newer)
    monkeypatch.setattr(layout, "version", lambda: "9.9")
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    told = upgrade(root, only_check=True)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
    done = upgrade(root)
    assert told == done and done.after == "9.9"
    assert done.replaced == ("stages/open/evaluate.py",) and done.added == ("stages/open/extra.py",)
    assert done.kept == ("stages/open/train.py",) and done.removed == ("stages/open/report/published.csv",)
    assert (root / "stages/open/train.py").read_bytes() == mine
    assert done.stale == ("evaluate", "report")
    assert not upgrade(root, only_check=True).changes


@pytest.mark.parametrize(
    "elsewhere", ["../patients.csv", "{top}/patients.csv", "data/raw/patients.csv", "stages/../x"]
)
def test_an_upgrade_removes_nothing_but_what_was_shipped(tmp_path: Path, elsewhere: str) -> None:
    """The note of what was shipped stands in git: a pull request named the owner's raw file, and it was removed."""
    create(tmp_path / "clinic")
    root, name = tmp_path / "clinic", elsewhere.format(top=tmp_path)
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("a record\n")
    document = json.loads((root / lock.SHIPPED).read_text())
    document["files"][name] = document["files"]["stages/open/gone.py"] = hashlib.sha256(
        b"a record\n"
    ).hexdigest()
    (root / "stages/open/gone.py").write_text("a record\n")
    (root / lock.SHIPPED).write_text(json.dumps(document))
    assert upgrade(root, only_check=True).removed == ("stages/open/gone.py",), "the control: what was shipped"
    assert upgrade(root).removed == ("stages/open/gone.py",) and file.read_text() == "a record\n"


@pytest.mark.parametrize("kind", ["Latin-1", "link", "folder"])
def test_an_upgrade_puts_nothing_in_the_place_of_what_is_ones_own(tmp_path: Path, kind: str) -> None:
    """A file that is shipped from this version on, where the workspace has one of its own that cannot be read; with
    `--check` it was removed again besides.
    """
    create(tmp_path / "clinic")
    root, name = tmp_path / "clinic", "stages/open/train.py"
    document = json.loads((root / lock.SHIPPED).read_text())
    del document["files"][name]
    (root / lock.SHIPPED).write_text(json.dumps(document))
    (root / name).unlink()
    assert upgrade(root, only_check=True).added == (name,), "the control"
    if kind == "folder":
        (root / name).mkdir()
    elif kind == "link":
        (root / name).symlink_to("mine.py")
    else:
        (root / name).write_bytes("# für mich\n".encode("latin-1"))
    before = (root / name).lstat().st_ino
    for only_check in (True, False):
        done = upgrade(root, only_check=only_check)
        assert (done.added, done.kept) == ((), (name,)), done
        assert (root / name).lstat().st_ino == before


def test_an_upgrade_reads_no_lock_behind_a_link(tmp_path: Path) -> None:
    """A commit with one to /dev/zero took all memory before anything was looked at."""
    create(tmp_path / "clinic")
    root, name = tmp_path / "clinic", lock.place("train")
    (root / name).rename(tmp_path / "train.json")
    (root / name).symlink_to(tmp_path / "train.json")
    assert set(upgrade(root, only_check=True).reasons) == {"train"}


def test_a_clone_of_the_product_is_not_upgraded(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no tool/shipped\.json"):
        upgrade(tmp_path)


def test_the_wheel_has_the_stages_as_data_and_no_package_of_theirs(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"airlock"}
    shipped = {name.removeprefix("airlock/workspaces/shipped/") for name in names if "/shipped/" in name}
    assert shipped > {"dvc.yaml", "owner/dvc.yaml", "params.yaml", "constraints.txt", "stages/open/train.py"}
    assert not any("__pycache__" in name or name.endswith(("dvc.lock", ".pyc")) for name in names)


def test_the_installed_tool_runs_a_workspace_of_its_own(owner: Installed) -> None:
    """Made by the session's fixture; what is left is to look at it."""
    where = owner.run("python", "-c", "import airlock, sys; print(airlock.__file__)").stdout
    assert str(owner.bin.parent) in where and str(ROOT) not in where
    assert (
        owner.run("python", "-c", "import grimp", check=False).returncode != 0
    )  # nothing of the developers'
    assert "The boundary holds." in owner.run("airlock", "audit").stdout
    assert "The boundary holds." in owner.run("airlock", "audit", "--rev", "HEAD").stdout
    receipt = json.loads(next((owner.root / "receipts/release").iterdir()).read_text())["body"]
    assert receipt["deps"]["tool/release.json"]["sha256"]
    assert "nothing is stale" in owner.run("airlock", "upgrade", "--check").stdout


def test_another_version_of_the_tool_does_not_run_before_an_upgrade_shows_what_is_stale(
    owner: Installed, tmp_path: Path
) -> None:
    """A copy of the workspace; the installed tool is edited in one file, as another version would be."""
    shutil.copytree(owner.root, tmp_path / "clinic", symlinks=True)
    here = Installed(tmp_path / "clinic", owner.home, owner.bin)
    edited = next(owner.bin.parent.glob("lib/python*/site-packages/airlock/models/moments.py"))
    before = edited.read_bytes()
    edited.unlink()  # it may be linked from elsewhere
    edited.write_bytes(before + b"\n")
    try:
        refused = here.run("airlock", "run", "train", check=False)
        assert refused.returncode == 1 and "airlock upgrade" in refused.stderr
        told = here.run("airlock", "upgrade", "--check", check=False)
        assert told.returncode == 1 and "airlock/models/moments.py" in told.stdout
        here.run("airlock", "upgrade")
        stale = json.loads(here.run("dvc", "status", "--json").stdout)
        assert "train" in stale and "ingest" not in stale
        assert "used another 'tool/release.json'" in here.run("airlock", "audit", check=False).stdout
    finally:
        edited.write_bytes(before)
