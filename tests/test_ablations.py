"""The ablations are runs that can be made: each has its own name and options that mechanisms know; none is a
stage of the project.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from bench.papers import ablation, adlm
from stages.mechanisms import mechanism
from tests.support.comparison import facts

ROOT = Path(__file__).parents[1]


def test_every_experiment_has_a_name_of_its_own_and_known_options() -> None:
    asked = [ablation.settle(change) for change in ablation.experiments()]
    names = [ablation.name_of(one) for one in asked]
    assert len(set(names)) == len(names)
    assert all(set(one) == set(asked[0]) for one in asked)
    for one in asked:
        about = facts((28, 28, 1) if one["dataset"] == "mnist" else (32, 32, 3), one["records"])
        params = adlm._params(one)
        if one["options"].get("preset") == "authors-code":
            row = adlm.row_of(one, params, mechanism(one["mechanism"]).plan(params, about))
            assert (row["claimed"], row["proven"]) == (one["epsilon"], "infinity")


def test_a_row_says_what_was_done() -> None:
    """Epochs of an interactive mechanism are its own; relevance goes through the network that the pipeline
    trained.
    """
    asked = [ablation.settle(change) for change in ablation.experiments()]
    one = next(one for one in asked if one["mechanism"] == "dp-sgd")
    about = facts((28, 28, 1), one["records"])
    row = adlm.row_of(one, adlm._params(one), mechanism("dp-sgd").plan(adlm._params(one), about))
    assert (row["epochs"], row["learning_rate"]) == (
        one["options"]["epochs"],
        one["options"]["learning_rate"],
    )
    assert all(
        one["options"]["pretraining_epochs"] == one["pretraining"]["epochs"]
        for one in asked
        if one["mechanism"] == "adlm"
    )


def test_results_are_of_experiments_that_can_be_made_again() -> None:
    listed = {ablation.name_of(ablation.settle(change)) for change in ablation.experiments()}
    kept = json.loads(ablation.RESULTS.read_text())["runs"]
    assert {row["name"] for row in kept if row["dataset"] != ablation.TABLE} <= listed
    assert all(list(row["curve"].values())[-1] == row["accuracy"] for row in kept if "curve" in row)


def test_results_are_drawn_and_what_left_the_list_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ablation, "RESULTS", tmp_path / "ablation.json")
    monkeypatch.setattr(ablation, "PICTURES", tmp_path)
    rows = {}
    for asked in map(ablation.settle, ablation.experiments()):
        curve = {f"epoch_{epoch}": epoch / 10 for epoch in range(1, asked["train"]["epochs"] + 1)}
        row = {key: asked[key] for key in ("dataset", "mechanism", "options", "copies", "records")} | {
            "curve": curve,
            "accuracy": 0.5,
        }
        row["epochs"] = asked["options"].get("epochs", asked["train"]["epochs"])
        name = ablation.name_of(asked)
        rows[name] = {
            "name": name,
            **row,
            **({} if asked["mechanism"] == "none" else {"epsilon": asked["epsilon"]}),
        }
    ablation._write({"gone": {**rows[name], "name": "gone"}} | dict(reversed(rows.items())))
    assert [row["name"] for row in json.loads(ablation.RESULTS.read_text())["runs"]] == list(rows)
    for picture, words in (
        ("adlm-epsilon", ["no noise", "dp-sgd", "ilm, the paper's"]),
        ("adlm-epochs", ["no noise", "adlm, claimed 8", "drawn 2 times"]),
    ):
        drawn = (tmp_path / f"{picture}.svg").read_text()
        assert all(word in drawn for word in words)


def test_their_pipeline_tracks_every_parameter_and_stays_out_of_the_project() -> None:
    stages = yaml.safe_load((ROOT / "bench/papers/ablations/pipeline.yaml").read_text())["stages"]
    known = yaml.safe_load((ROOT / "bench/papers/ablations/params.yaml").read_text())
    assert {name for stage in stages.values() for name in stage["params"]} == set(known)
    assert not list((ROOT / "bench").rglob("dvc.yaml"))
