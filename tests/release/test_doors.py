"""The doors beside a release: public holdout, non-private reference, private evaluation."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from airlock.errors import ParamsError
from airlock.inside import manifest
from airlock.inside.room import Room
from airlock.models.model import Model
from airlock.params import Params
from airlock.privacy.plan import Facts
from airlock.storage import load_model, save_model
from stages.release import doors, evaluate_private, perturb
from tests.support.sealed_records import KEY, facts, seal, table

X, Y = table(400, 5, 3)
SPLIT = {"train": {}, "holdout": {"kind": "public", "source": "file", "fingerprint": "f"}}


def room(folder: Path, known: Facts, params: Params, *outs: str) -> Room:
    """A room with the table sealed both as training and as holdout records."""
    (folder / "sealed").mkdir(exist_ok=True)
    seal(folder / "sealed", X, Y, rows=128)
    (folder / "sealed/holdout.sealed").write_bytes((folder / "sealed/train.sealed").read_bytes())
    names = (perturb.RELEASE, perturb.HOLDOUT, perturb.REFERENCE, evaluate_private.EVALUATION)
    return Room(
        stage="release",
        params=params,
        facts={"facts": asdict(known), "releases": {out: {"id": f"id of {out}"} for out in outs}},
        keys={"seal:train": KEY, "seal:holdout": KEY, **{f"noise:{out}": b"n" * 32 for out in outs}},
        paths={
            "data/sealed": folder / "sealed",
            "data/model": folder / "model",
            **{name: folder / Path(name).name for name in names},
        },
    )


@pytest.mark.parametrize(
    ("changes", "mechanism", "passes"),
    [
        ({"split": SPLIT}, "holdout", 0),
        ({"split": SPLIT, "public": False}, "holdout", 0),
        ({"split": {"train": {}, "holdout": {"kind": "public", "source": "records"}}}, "holdout", 1),
        (
            {"split": {"train": {}, "holdout": {"kind": "private", "source": "records"}}, "public": False},
            "none",
            0,
        ),
        ({"split": {"train": {}, "holdout": {"kind": "none", "source": "none"}}}, "none", 0),
        ({"split": SPLIT, "n_holdout": 0}, "none", 0),
    ],
)
def test_only_public_holdout_records_pass(changes: dict[str, Any], mechanism: str, passes: int) -> None:
    plan = doors.plan_holdout(Params(), facts(X, 3, **{"n_holdout": 10, **changes}))
    assert (plan.mechanism, plan.passes) == (mechanism, passes)


def test_private_data_have_no_reference_whatever_the_parameters_say() -> None:
    params = Params.model_validate({"release": {"reference": True}})
    plan = doors.plan_reference(params, facts(X, 3, public=False))
    assert plan.mechanism == "none"
    assert "would itself be a leak" in plan.parameters["reason"]


def test_a_stage_makes_what_was_ordered_and_no_more(tmp_path: Path) -> None:
    known = facts(X, 3, n_holdout=len(X), split=SPLIT)
    params = Params.model_validate({"relevance": {"mode": "off"}})
    perturb.main(room(tmp_path, known, params, perturb.RELEASE, perturb.HOLDOUT))
    assert manifest.load(tmp_path / "release").mechanism == "coefficients"
    assert manifest.load(tmp_path / "holdout").details["records"] == len(X)
    assert not (tmp_path / "reference").exists()


def test_the_reference_is_a_model_that_knows_the_classes(tmp_path: Path) -> None:
    perturb.main(room(tmp_path, facts(X, 3), Params(), perturb.REFERENCE))
    assert manifest.load(tmp_path / "reference").proven.epsilon == float("inf")
    assert np.mean(load_model(tmp_path / "reference").predict(X) == Y) > 0.95


def test_the_reference_takes_two_classes(tmp_path: Path) -> None:
    from airlock.inside.sealed import SealedReader

    two = np.minimum(Y, 1)
    seal(tmp_path, X, two, rows=128)
    with SealedReader(tmp_path / "train.sealed", KEY) as reader:
        model = doors.fit_reference(reader, "tabular-2", facts(X, 2))
    assert np.mean(model.predict(X) == two) > 0.9


def test_a_private_evaluation_is_a_priced_noisy_count(tmp_path: Path) -> None:
    params = Params.model_validate({"evaluate": {"holdout": "private", "epsilon": 2.0, "delta": 1e-6}})
    known = facts(X, 3, public=False, n_holdout=len(X))
    plan = evaluate_private.plans(params, known)[evaluate_private.EVALUATION]
    assert 1.99 < plan.proven.epsilon <= 2.0
    assert plan.proven.delta == 1e-6
    random = np.random.default_rng(0)
    save_model(
        Model(
            "tabular-2", "tabular", (5,), known.labels, [], [(random.standard_normal((5, 3)), np.zeros(3))]
        ),
        tmp_path / "model",
    )
    evaluate_private.main(room(tmp_path, known, params, evaluate_private.EVALUATION))
    figures = json.loads((tmp_path / "evaluation/evaluation.json").read_text())
    right = int(np.sum(load_model(tmp_path / "model").predict(X) == Y))
    made = manifest.load(tmp_path / "evaluation")
    assert figures["right"] != right
    assert abs(figures["right"] - right) < 6 * made.details["sums"]["right"]["scale"]
    assert figures["records"] == len(X)


def test_a_private_evaluation_has_the_unit_of_its_population() -> None:
    known = facts(X, 3, public=False, n_holdout=len(X), per_user=4, friends={"slots": 2, "appearances": 5})
    plans = {
        unit: evaluate_private.plans(
            Params.model_validate({"evaluate": {"holdout": "private"}, "release": {"unit": unit}}), known
        )
        for unit in ("record", "user")
    }
    made = {unit: one[evaluate_private.EVALUATION].proven for unit, one in plans.items()}
    assert (made["record"].unit, made["user"].unit) == ("record", "user")
    assert made["user"].sensitivity == "right: L2 14 grid units"
    assert made["user"].epsilon == made["record"].epsilon


@pytest.mark.parametrize("kind", ["auto", "none", "public"])
def test_a_private_evaluation_must_be_asked_for(kind: str) -> None:
    params = Params.model_validate({"evaluate": {"holdout": kind}})
    with pytest.raises(ParamsError, match="set it to private"):
        evaluate_private.plans(params, facts(X, 3, n_holdout=10))
