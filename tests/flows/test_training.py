"""The open side on another machine: no keys, no records, only the `released` remote."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
import yaml

from tests.conftest import Workspace
from tests.support.prefect_server import Station, processes_of, wait_for

pytestmark = pytest.mark.xdist_group("prefect")


@pytest.fixture(scope="module")
def handed_over(plant: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A clone of what the owner has committed, and the remote with what was released."""
    plant.run("dvc", "push", "--remote", "released")
    plant.commit()
    folder = tmp_path_factory.mktemp("handed-over")
    (folder / "home").mkdir()
    clone = Workspace(folder / "work", folder / "home")
    plant.run("git", "clone", "-q", str(plant.root), str(clone.root))
    shutil.copytree(plant.root / ".remotes/released", folder / "remote")
    clone.run("dvc", "remote", "modify", "sealed", "url", str(folder / "out-of-reach"))
    clone.run("dvc", "remote", "modify", "released", "url", str(folder / "remote"))
    return clone


@pytest.fixture
def modeller(handed_over: Workspace, tmp_path: Path) -> Workspace:
    """A clone as a modeller has it, in which nothing was fetched yet."""
    shutil.copytree(handed_over.root, tmp_path / "work", symlinks=True)
    (tmp_path / "home").mkdir()
    return Workspace(tmp_path / "work", tmp_path / "home")


def test_the_server_knows_no_path_of_a_machine(station: Station) -> None:
    for name in ("pipeline/nightly", "pipeline/on-demand", "training/training"):
        (step,) = station.deployment(name)["pull_steps"]
        assert step == {
            "prefect.deployments.steps.set_working_directory": {"directory": "{{ $AIRLOCK_WORKSPACE }}"}
        }


def test_a_clone_with_released_data_only_trains_by_hand(modeller: Workspace) -> None:
    modeller.run("dvc", "pull", "-r", "released", "--allow-missing")
    assert not (modeller.root / "data/sealed").exists()
    modeller.set("train.method", "sgd")
    modeller.run("dvc", "repro", "--single-item", "train", "evaluate", "report")
    assert json.loads((modeller.root / "data/metrics/evaluate.json").read_text())["accuracy"] > 0.8


def test_a_clone_with_released_data_only_trains_and_a_killed_stage_is_tried_again(
    station: Station, modeller: Workspace
) -> None:
    station.work("open", **modeller.environment, AIRLOCK_WORKSPACE=str(modeller.root))
    before = yaml.safe_load((modeller.root / "dvc.lock").read_text())["stages"]
    run = station.run("training/training", overrides={"train.method": "sgd", "train.epochs": 3})
    brokers = wait_for(
        lambda: [pid for pid, command in processes_of(run).items() if "airlock run train" in command],
        "training begins",
    )
    os.kill(max(brokers), signal.SIGKILL)
    assert station.end(run)["type"] == "COMPLETED", station.words()
    assert [task["run_count"] for task in station.tasks(run)] == [2]
    after = yaml.safe_load((modeller.root / "dvc.lock").read_text())["stages"]
    assert after["train"] != before["train"]
    assert after["release"] == before["release"]
    assert json.loads((modeller.root / "data/metrics/evaluate.json").read_text())["accuracy"] > 0.8
    assert not (modeller.root / "data/sealed").exists()
    assert not list(modeller.home.rglob("master"))
    assert set(station.artifacts(run)) == {"metrics", "report"}


def test_the_open_side_cannot_ask_for_a_release(station: Station, modeller: Workspace) -> None:
    if len(station.workers) < 2:  # the test above was not chosen
        station.work("open", **modeller.environment, AIRLOCK_WORKSPACE=str(modeller.root))
    state = station.end(station.run("training/training", overrides={"release.epsilon": 9}))
    assert state["type"] == "FAILED"
    assert "belongs to the sensitive side" in state["message"]
