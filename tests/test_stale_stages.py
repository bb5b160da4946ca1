"""What a stage really imports is what it declares, and an edit makes stale what imports it and nothing else."""

from __future__ import annotations

import json

from tests.conftest import Workspace
from tests.support.code_deps import code_below, needed

# Loaded by every confined process: when it ends, it tells the owner's log what it had imported.
TELL = """
import atexit, json, os, sys

def _tell():
    files = [str(getattr(module, "__file__", "")) for module in list(sys.modules.values())]
    os.write(4, json.dumps({"kind": "note", "message": "imported", "files": files}).encode() + b"\\n")

atexit.register(_tell)
"""


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


# One process asks DVC after every edit: what it would run again. The private evaluation has never run.
STATUS = """
import json, sys
from pathlib import Path
from dvc.repo import Repo

answers = {}
for file in sys.argv[1:]:
    path = Path(file)
    before = path.read_bytes()
    path.write_bytes(before + b"\\n")
    with Repo() as repo:
        answers[file] = [name for name in repo.status() if not name.startswith("owner/")]
    path.write_bytes(before)
print(json.dumps(answers))
"""


def test_an_edit_makes_stale_what_imports_it_and_nothing_else(finished: Workspace) -> None:
    answers = json.loads(finished.run("python", "-c", STATUS, *EDITS).stdout.splitlines()[-1])
    for file, stale in EDITS.items():
        changed = set(answers[file])
        assert stale <= changed, file
        assert not changed or stale, f"{file} made {changed} stale"
    assert answers["stages/open/report/report.css"] == ["report"]
