"""Synthetic records as a stage of one's own, and a network that trains on such records, behind the wall.

One test for both: each step is a process, and the release that they need is made once.
"""

from __future__ import annotations

import json

from airlock.records.generation import mark_of
from tests.conftest import Workspace

STAGE = """
  synthesize:
    cmd: airlock run synthesize
    meta: {zone: open, module: stages.open.synthesize}
    deps: [data/released/release, "data/schemas/${dataset}.yaml", airlock, stages]
    params: [dataset, synthesize]
    outs:
    - data/open/synthetic: {remote: released}
"""
MINE = """
from torch import nn

class Mine(nn.Sequential):
    def __init__(self, width, classes):
        super().__init__(nn.Linear(width, 8), nn.ReLU(), nn.Linear(8, classes))
"""


def test_the_stage_has_a_receipt_and_a_network_trains_at_no_charge(finished: Workspace) -> None:
    (finished.root / "stages/open/mine.py").write_text(MINE)
    pipeline = finished.root / "dvc.yaml"
    undeclared = pipeline.read_text() + STAGE
    pipeline.write_text(undeclared)
    for key, value in {
        "release.mechanism": "inputs",
        "release.epsilon": 2.0,
        "train.network": "stages.open.mine:Mine",
        "train.epochs": 2,
    }.items():
        finished.set(key, value)
    finished.run("airlock", "run", "relevance")
    finished.run("airlock", "run", "release")
    spent = finished.run("airlock", "budget", "show", "--json").stdout
    finished.run("airlock", "run", "synthesize")
    refused = finished.run("airlock", "run", "train", check=False)
    assert (refused.returncode, "add its file to the deps of train in dvc.yaml" in refused.stderr) == (
        2,
        True,
    )
    own = "    - stages/open/train.py\n    - stages/open/mine.py\n"
    pipeline.write_text(undeclared.replace("    - stages/open/train.py\n", own))
    finished.run("airlock", "run", "train")
    assert finished.run("airlock", "budget", "show", "--json").stdout == spent

    release = json.loads((finished.root / "data/released/release/release.json").read_text())
    mark = mark_of(finished.root / "data/open/synthetic/synthetic.parquet")
    assert mark is not None and mark["release"] == release["release_id"] and mark["label"] == "open"
    receipts = [json.loads(path.read_text()) for path in (finished.root / "receipts").rglob("*.json")]
    bodies = [one.get("body", one) for one in receipts]
    (mine,) = (one for one in bodies if one.get("stage") == "synthesize")
    assert mine["zone"] == "open" and "data/open/synthetic" in json.dumps(mine["outs"])

    metrics = json.loads((finished.root / "data/metrics/train.json").read_text())
    assert metrics["synthetic_records"] == 2 * 4 * 512 and metrics["epochs"] == 2
    model = json.loads((finished.root / "data/model/model.json").read_text())
    assert model["release"] == release["release_id"] and len(model["layers"]) == 2
