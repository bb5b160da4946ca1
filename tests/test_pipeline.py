"""The whole pipeline as a user meets it: two commands, seven stages, a ledger that training never touches."""

from __future__ import annotations

import json

import numpy as np
import pytest
import yaml

from airlock.inside import manifest
from airlock.models import sureness
from airlock.storage import load_model, load_tensors
from tests.conftest import Workspace

STAGES = ["dataset", "ingest", "relevance", "release", "train", "evaluate", "report"]


def ran(output: str) -> list[str]:
    """Stages that DVC ran, from what it printed."""
    return [name for name in STAGES if f"Running stage '{name}'" in output]


def history(workspace: Workspace) -> str:
    return workspace.run("airlock", "budget", "history", "--json").stdout


def test_the_embedded_default_gives_a_model_a_report_and_an_audit(finished: Workspace) -> None:
    metrics = json.loads((finished.root / "data/metrics/evaluate.json").read_text())
    assert metrics["accuracy"] > 0.85
    assert metrics["reference_accuracy"] > 0.93
    release = json.loads((finished.root / "data/released/release/release.json").read_text())
    assert (
        release["proven"]["epsilon"] <= 1.0
        and release["proven"]["delta"] == 1e-5
        and release["neighbours"] == "zero-out"
    )
    assert "<script src" not in (finished.root / "data/report/report.html").read_text()
    summary = finished.run("airlock", "report").stdout
    for word in ("Accuracy", "without privacy", "epsilon", "left", "ingest", "report.html"):
        assert word in summary, summary


def test_nothing_changed_runs_nothing(finished: Workspace) -> None:
    before = history(finished)
    assert ran(finished.run("dvc", "repro").stdout) == []
    finished.run("airlock", "data", "fetch", "wdbc")
    assert ran(finished.run("dvc", "repro").stdout) == []
    assert history(finished) == before
    assert finished.run("git", "status", "--porcelain").stdout == ""


def test_training_again_reads_nothing_and_spends_nothing(finished: Workspace) -> None:
    before = history(finished)
    finished.set("train.method", "sgd")
    finished.set("train.epochs", 150)
    finished.set("train.batch", 32)
    finished.set("train.learning_rate", 0.05)
    assert ran(finished.run("dvc", "repro").stdout) == ["train", "evaluate", "report"]
    assert history(finished) == before
    assert len((finished.root / "data/plots/learning_curve.csv").read_text().splitlines()) > 100
    assert finished.run("airlock", "audit").returncode == 0


def test_another_epsilon_is_another_release_and_going_back_is_a_replay(finished: Workspace) -> None:
    first = (finished.root / "data/released/release/release.json").read_bytes()
    finished.run("dvc", "exp", "run", "-S", "release.epsilon=0.5", "release")
    second = json.loads((finished.root / "data/released/release/release.json").read_text())
    assert second["proven"]["epsilon"] <= 0.5
    spent = history(finished)
    # Without DVC's own cache the stage runs again: the ledger knows the id and gives out the archived bytes.
    finished.edit(
        "params.yaml",
        "epsilon: 0.5 " if "epsilon: 0.5 " in (finished.root / "params.yaml").read_text() else "epsilon: 0.5",
        "epsilon: 1.0 ",
    )
    finished.run("dvc", "repro", "--force", "--single-item", "relevance", "release")
    assert (finished.root / "data/released/release/release.json").read_bytes() == first
    assert history(finished) == spent
    receipts = [
        json.loads(path.read_text())["body"] for path in (finished.root / "receipts/release").glob("*.json")
    ]
    assert any(
        all(release["replayed"] for release in body["releases"]) and body["did_read"]["records"] == "no"
        for body in receipts
    )


def test_dvc_shows_metrics_plots_and_the_graph(finished: Workspace) -> None:
    assert "accuracy" in finished.run("dvc", "metrics", "show").stdout
    finished.run("dvc", "plots", "show", "-o", "plots")
    assert (finished.root / "plots/index.html").exists()
    assert "release" in finished.run("dvc", "dag").stdout


def test_every_stage_says_what_it_is(finished: Workspace) -> None:
    stages = yaml.safe_load((finished.root / "dvc.yaml").read_text())["stages"]
    assert list(stages)[:7] == STAGES
    for name, stage in stages.items():
        assert (
            stage["desc"]
            and stage["meta"]["zone"]
            and stage["cmd"] == f"airlock run {name}"
            and stage["deps"]
            and stage["params"]
        )


def test_a_release_beyond_the_cap_is_refused_before_any_read(finished: Workspace) -> None:
    finished.set("release.epsilon", 11.0)
    before, receipts = history(finished), sorted((finished.root / "receipts/release").iterdir())
    done = finished.run("airlock", "run", "release", check=False)
    assert done.returncode == 1
    assert "airlock budget set" in done.stderr and len(done.stderr.strip().splitlines()) == 1
    assert history(finished) == before and sorted((finished.root / "receipts/release").iterdir()) == receipts


@pytest.mark.parametrize("holdout", ["none"])
def test_without_a_holdout_there_is_a_model_and_no_score(finished: Workspace, holdout: str) -> None:
    finished.set("evaluate.holdout", holdout)
    finished.run("dvc", "repro", "evaluate")
    metrics = json.loads((finished.root / "data/metrics/evaluate.json").read_text())
    assert metrics["holdout"] == "none" and metrics["accuracy"] is None


def add_private_table(workspace: Workspace, rows: int = 400) -> None:
    """A private population whose outcome follows from its first column."""
    lines = [f"{row % 100},{(row * 37) % 10},{'ill' if row % 100 > 50 else 'healthy'}" for row in range(rows)]
    (workspace.home / "clinic.csv").write_text("age,marker,outcome\n" + "\n".join(lines) + "\n")
    columns = [{"name": "age", "bounds": [0, 120]}, {"name": "marker", "bounds": [0, 10]}]
    schema = {
        "name": "clinic",
        "description": "A private table.",
        "kind": "tabular",
        "public": False,
        "confirmed": True,
        "label": {"column": "outcome", "classes": ["healthy", "ill"]},
        "columns": [{**column, "type": "number", "missing": "refuse", "why": "test"} for column in columns],
    }
    (workspace.root / "data/schemas/clinic.yaml").write_text(yaml.safe_dump(schema))
    workspace.run(
        "airlock",
        "add",
        str(workspace.home / "clinic.csv"),
        "--name",
        "clinic",
        "--epsilon",
        "5",
        "--delta",
        "1e-5",
    )
    workspace.set("dataset", "clinic")
    workspace.set("release.epsilon", 3.0)


def test_private_records_are_judged_only_by_a_release_of_its_own(private: Workspace) -> None:
    metrics = json.loads((private.root / "data/metrics/evaluate.json").read_text())
    assert metrics["accuracy"] is None and metrics["reference_accuracy"] is None
    for door in ("holdout", "reference"):
        assert (
            json.loads((private.root / f"data/released/{door}/release.json").read_text())["mechanism"]
            == "none"
        )
    before = history(private)
    private.set("train.target", "a column")
    refused = private.run("airlock", "evaluate", check=False)
    assert refused.returncode == 2 and "nothing was charged" in refused.stderr
    assert history(private) == before, "a model of another column is not judged, and not charged"
    private.set("train.target", None)
    place = private.root / "data/model/model.json"
    kept = place.read_text()
    document = json.loads(kept)
    place.unlink()
    place.write_text(json.dumps({**document, "labels": [*document["labels"][:-1], "another"]}))
    refused = private.run("airlock", "run", "evaluate-private", check=False)
    assert "data/model is for records of another kind, shape or labels" in refused.stderr
    assert history(private) == before, "nor one of other labels"
    place.write_text(kept)
    said = private.run("airlock", "evaluate").stdout
    assert len(json.loads(history(private))) > len(json.loads(before)), "judging is charged"
    judged = json.loads((private.root / "data/released/evaluation/release.json").read_text())
    assert judged["proven"]["epsilon"] <= 0.5 and judged["n"] > 0
    line = next(line for line in said.splitlines() if line.startswith("Accuracy"))
    assert line.endswith("private records") and line in private.run("airlock", "report").stdout
    figure = line.split()[1].replace("%", " %")
    assert figure in (private.root / "data/report/report.html").read_text()
    assert private.run("airlock", "audit").returncode == 0
    # Another model is not shown with the figure of this one.
    private.set("train.ridge", 0.5)
    private.run("dvc", "repro")
    assert "not measured" in private.run("airlock", "report").stdout
    assert private.run("airlock", "audit").returncode == 0, "the earlier model was judged, and was signed"


def test_a_pipeline_that_would_not_fit_releases_nothing_at_all(workspace: Workspace) -> None:
    add_private_table(workspace)
    workspace.run(
        "airlock",
        "budget",
        "set",
        "clinic",
        "--epsilon",
        "0.1",
        "--delta",
        "1e-5",
        "--why",
        "test",
        "--who",
        "owner",
    )
    workspace.run("airlock", "run", "ingest")
    done = workspace.run("airlock", "run", "relevance", check=False)
    assert done.returncode == 1 and "clinic" in done.stderr and "0.1" in done.stderr
    assert not (workspace.root / "data/released").exists()


def test_auto_for_a_table_is_what_the_plan_says(finished: Workspace) -> None:
    """The default that users get: planned with its reason, released in its passes, calibrated by its last round."""
    finished.set("release.mechanism", "auto")
    planned = finished.run("airlock", "budget", "plan").stdout
    (line,) = [line for line in planned.splitlines() if line.startswith("coefficients-iterated through ")]
    assert "cosines beside 30 columns, for a signal of" in line
    finished.run("dvc", "repro", "train")
    release = manifest.load(finished.root / "data/released/release")
    first = manifest.load(finished.root / "data/released/relevance")
    assert release.details["features"] in line
    assert (first.passes, release.passes) == (2, 8)
    assert manifest.total_epsilon([first, release]) == pytest.approx(1.0, rel=1e-9)
    tensors = load_tensors(finished.root / "data/released/release/release.safetensors")
    noise, n = release.details["sums"]["sureness"]["scale"], release.details["data"]["n"]
    factor = sureness.factor_of(tensors["sureness"], n, noise)
    head = tensors["head"] * release.details["head_unit"]
    assert np.allclose(load_model(finished.root / "data/model").layers[0][0], head * factor)
