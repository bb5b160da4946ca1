"""The ablations are runs that can be made: each has its own name and options that mechanisms know; none is a stage of the project."""

from __future__ import annotations

from pathlib import Path

import yaml

from bench import ablation, adlm
from stages.registry import mechanism
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


def test_their_pipeline_tracks_every_parameter_and_stays_out_of_the_project() -> None:
    stages = yaml.safe_load((ROOT / "bench/ablations/pipeline.yaml").read_text())["stages"]
    known = yaml.safe_load((ROOT / "bench/ablations/params.yaml").read_text())
    assert {name for stage in stages.values() for name in stage["params"]} == set(known)
    assert not list((ROOT / "bench").rglob("dvc.yaml"))
