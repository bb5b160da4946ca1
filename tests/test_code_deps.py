"""A stage depends on the code that its process can import, and on no other: dvc.yaml says so exactly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airlock.run.code import MODULES
from tests.conftest import Workspace
from tests.support.code_deps import code_below, declared, needed

# Loaded by every confined process: when it ends, it tells the owner's log what it had imported.
TELL = """
import atexit, json, os, sys

def _tell():
    files = [str(getattr(module, "__file__", "")) for module in list(sys.modules.values())]
    os.write(4, json.dumps({"kind": "note", "message": "imported", "files": files}).encode() + b"\\n")

atexit.register(_tell)
"""


@pytest.mark.parametrize("stage", MODULES)
def test_the_declared_code_is_what_the_stage_can_import(stage: str) -> None:
    found = {file for path in declared(stage) for file in code_below(path)}
    assert found == needed(stage), "run `python -m tests.support.code_deps --write`"


def imported(workspace: Workspace, stage: str) -> set[str]:
    """What the last confined process of a stage had imported of the tool and of the stages."""
    log = workspace.home / "airlock/airlock-default/log" / f"{stage}.jsonl"
    notes = [json.loads(line) for line in log.read_text().splitlines() if "imported" in line]
    files = {file for note in notes if note.get("message") == "imported" for file in note["files"]}
    parts = {file.rpartition(f"/{name}/")[2]: name for file in files for name in ("airlock", "stages")}
    ours = {f"{name}/{rest}" for rest, name in parts.items()}
    everything = set().union(*(code_below(name) for name in ("airlock", "stages")))
    return ours & everything


def test_what_a_stage_really_imports_is_declared(workspace: Workspace) -> None:
    (workspace.root / "stages/__init__.py").write_text(TELL)
    workspace.commit("Listen")
    workspace.run("airlock", "data", "fetch", "wdbc")
    workspace.set("relevance.mode", "statistics")
    workspace.run("dvc", "repro")
    for stage in ("ingest", "relevance", "release", "train", "evaluate", "report"):
        really = imported(workspace, stage)
        assert len(really) > 15, stage
        assert really <= needed(stage), stage


EDITS = {
    "airlock/privacy/sums.py": {"release"},
    "airlock/params.py": {"ingest"},
    "airlock/records/values.py": {"ingest"},
    "airlock/models/moments.py": {"train"},
    "stages/open/evaluate.py": {"evaluate"},
    "stages/open/report/report.css": {"report"},
    "airlock/evidence/picture.css": set(),
    "airlock/wall/sandbox.py": set(),
    "airlock/commands/report.py": set(),
    "flows/pipeline.py": set(),
    "docs/architecture.md": set(),
}


def stale_stages(workspace: Workspace) -> set[str]:
    """What DVC would run again; the private evaluation has never run."""
    found = json.loads(workspace.run("dvc", "status", "--json").stdout)
    return {name for name in found if not name.startswith("owner/")}


def test_an_edit_makes_stale_what_imports_it_and_nothing_else(finished: Workspace) -> None:
    for file, stale in EDITS.items():
        path = finished.root / file
        before = path.read_bytes()
        path.write_bytes(before + b"\n")
        changed = stale_stages(finished)
        assert stale <= changed, file
        assert not changed or stale, f"{file} made {changed} stale"
        path.write_bytes(before)
    (finished.root / "stages/open/report/report.css").open("a").write("\n")
    assert stale_stages(finished) == {"report"}


def test_no_file_that_a_stage_depends_on_is_empty() -> None:
    """DVC warns of every empty file of every dep, dozens of lines in a newcomer's first run."""
    root = Path(__file__).parents[1]
    empty = [
        path
        for folder in ("airlock", "stages")
        for path in (root / folder).rglob("*.py")
        if not path.stat().st_size
    ]
    assert not empty
