"""The compared mechanisms through the whole pipeline: confined, charged, audited like any other release."""

from __future__ import annotations

import json

import pytest

from tests.conftest import Workspace


def ask(workspace: Workspace, mechanism: str, options: str) -> None:
    """Name another mechanism in params.yaml."""
    workspace.set("release.mechanism", mechanism)
    workspace.set("release.options", options)
    workspace.set("train.epochs", 5)
    workspace.set("relevance.mode", "off")  # all that it asks in one stage, as the papers have it


@pytest.mark.parametrize(
    ("mechanism", "options", "passes"),
    [
        ("adlm", "{preset: authors-code, pretraining_epochs: 2}", 4),
        pytest.param("dp-sgd", "{epochs: 2, batch: 46}", 20, marks=pytest.mark.stress),
        pytest.param("neuron-noise", "{epochs: 1, iterations: 100}", 201, marks=pytest.mark.stress),
        pytest.param("neuron-allocation", "{}", 4, marks=pytest.mark.stress),
    ],
)
def test_a_compared_mechanism_runs_behind_the_wall(
    finished: Workspace, mechanism: str, options: str, passes: int
) -> None:
    ask(finished, mechanism, options)
    finished.run("dvc", "repro")
    release = json.loads((finished.root / "data/released/release/release.json").read_text())
    assert (release["mechanism"], release["passes"]) == (mechanism, passes)
    assert release["proven"]["arithmetic"] == (
        "idealised" if mechanism in ("dp-sgd", "neuron-noise") else "exact"
    )
    if mechanism in ("adlm", "neuron-noise"):
        assert release["proven"]["epsilon"] == "infinity"
        assert release["claimed"]["epsilon"] == 1.0
    metrics = json.loads((finished.root / "data/metrics/evaluate.json").read_text())
    assert 0.3 < metrics["accuracy"] <= 1
    audit = json.loads(finished.run("airlock", "audit", "--json").stdout)
    assert str(passes) in json.dumps(audit)
