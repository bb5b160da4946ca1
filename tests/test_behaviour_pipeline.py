"""Users as the unit, through the whole pipeline behind the wall: simulated windows in, a priced release, a
model, a report.
"""

from __future__ import annotations

import json

import pytest

from tests.conftest import Workspace

DATASET = "behaviour-weekly-simulated"


@pytest.mark.stress
def test_a_release_per_user_is_in_the_manifest_and_in_the_ledger(workspace: Workspace) -> None:
    assert "a simulation" in workspace.run("airlock", "data", "fetch", DATASET).stdout
    workspace.set("dataset", DATASET)
    workspace.set("release.mechanism", "behaviour")
    workspace.set("release.unit", "user")
    workspace.run("dvc", "repro")
    release = json.loads((workspace.root / "data/released/release/release.json").read_text())
    assert (release["mechanism"], release["unit"], release["passes"]) == ("behaviour", "user", 3)
    assert release["parameters"]["bounds"] == {"records": 38, "appearances": 608}
    assert json.loads((workspace.root / "data/metrics/evaluate.json").read_text())["accuracy"] > 0.5
    assert '"unit": "user"' in workspace.run("airlock", "budget", "history", "--json").stdout
    assert "per user" in workspace.run("airlock", "report").stdout
    # One population has one unit: what is spent per user and per record does not add up to anything finite.
    workspace.set("release.unit", "record")
    refused = workspace.run("dvc", "repro", check=False)
    assert refused.returncode != 0
    assert "together inf" in refused.stderr
