"""What was made before the house was moved (commit a25e4d9) is still what it was: models predict, ids are the
same, bytes are too.

tests/data/before-the-move was made by that commit's own code, from the records of
`tests.support.sealed_records`.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from airlock.errors import ParamsError
from airlock.inside import manifest
from airlock.inside.room import Room
from airlock.params import Params
from airlock.storage import load_model, load_tensors
from stages.mechanisms import MECHANISMS, mechanism
from stages.open import train
from tests.support.sealed_records import KEY, facts, pictures, seal, table

BEFORE = Path(__file__).parent / "data/before-the-move"
IDS: dict[str, str] = json.loads((BEFORE / "ids.json").read_text())
X, Y = table(40, 11, 2)
TABLE, PICTURES = facts(X, 2), facts(pictures(40, 2, side=16)[0], 2)
WINDOWS = facts(X, 2, per_user=3, friends={"slots": 2, "appearances": 6})
KNOWN = {"behaviour": WINDOWS, "behaviour-published": WINDOWS, "pcdbn": PICTURES, "patch-moments": PICTURES}
FEW = {"epochs": 1, "batch": 8}
SMALL: dict[str, Any] = {
    "behaviour": {"days": 2, "height": 2},
    "behaviour-published": {"days": 2, "height": 2},
    "patch-moments": {"layers": [2]},
    **dict.fromkeys(("dp-sgd", "ellipsoid-noise", "dp-mac"), FEW),
    # There was no other.
    "optimized-noise": {**FEW, "calibration": "published"},
}
NEWER = {"inputs", "bounds"}
THEN = {"behaviour-published": 1}
"""Versions that have been raised since: an id differs by that alone."""
MODELS = sorted(path.name for path in (BEFORE / "models").iterdir())


def asked(name: str, near: str = "zero-out") -> Params:
    release = {"mechanism": name, "neighbours": near, "options": SMALL.get(name, {})}
    return Params.model_validate({"release": release, "relevance": {"mode": "off"}})


@pytest.mark.parametrize("case", sorted(IDS))
def test_a_release_id_is_what_it_was(case: str) -> None:
    name, near = case.split()
    known = KNOWN.get(name, TABLE)
    plan = mechanism(name).plan(asked(name, near), known)
    assert (plan.version > THEN[name]) if name in THEN else (manifest.release_id(plan, known) == IDS[case])
    assert manifest.release_id(replace(plan, version=THEN.get(name, plan.version)), known) == IDS[case]


def test_every_mechanism_has_an_old_id() -> None:
    assert {case.split()[0] for case in IDS} == set(MECHANISMS) - NEWER


@pytest.mark.parametrize("name", MODELS)
def test_an_old_model_still_predicts(name: str) -> None:
    model = load_model(BEFORE / "models" / name)
    wanted = json.loads((BEFORE / "predictions.json").read_text())[name]
    assert model.predict(X[:10]).tolist() == wanted["classes"]
    assert model.predict_alone(X[:10]).tolist() == wanted["classes"]
    assert np.allclose(model.logits(X[:10]), wanted["scores"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_an_old_release_can_still_be_trained_from(name: str) -> None:
    made = manifest.load(BEFORE / "releases" / name)
    tensors = load_tensors(BEFORE / "releases" / name / "release.safetensors")
    params = Params().train.model_copy(update={"epochs": 2})
    trained = mechanism(name, "open").train(params, made, tensors)
    wanted = json.loads((BEFORE / "predictions.json").read_text())[name]
    assert trained.model.predict(X[:10]).tolist() == wanted["classes"]


@pytest.mark.parametrize("name", MODELS)
def test_a_device_that_is_not_here_is_refused_whatever_is_trained_from(name: str) -> None:
    """Closed forms and released networks would not notice."""
    params = Params.model_validate({"train": {"device": "nowhere"}})
    room = Room("train", params, paths={"data/released/release": BEFORE / "releases" / name})
    with pytest.raises(ParamsError, match=r"train\.device 'nowhere' is not on this machine"):
        train.main(room)


def test_an_exact_release_made_again_is_the_same_bytes(tmp_path: Path) -> None:
    """Whatever moved: features, sums, keyed noise and files give what they gave."""
    made = manifest.load(BEFORE / "releases/coefficients")
    with seal(tmp_path, X, Y) as reader:
        tensors, _ = mechanism("coefficients").make(
            asked("coefficients"), TABLE, reader, key=KEY, release_id=made.release_id
        )
    before = load_tensors(BEFORE / "releases/coefficients/release.safetensors")
    assert set(tensors) == set(before)
    assert all(tensors[name].tobytes() == before[name].tobytes() for name in before)
