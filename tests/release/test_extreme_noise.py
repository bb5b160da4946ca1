"""Noise at the ends of what can be asked for: it fits the grid, or is refused before anything is charged or read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from airlock.attack.attack import InMemory
from airlock.errors import ParamsError
from airlock.params import Params
from airlock.privacy.plan import Facts
from airlock.records.encoding import Encoded, pack
from stages import attack_data
from stages.mechanisms import Whole, mechanism

PICTURES = replace(attack_data.PICTURES, n=3, shape=(16, 16, 1))
SMALL: dict[str, tuple[Facts, dict[str, Any]]] = {
    "coefficients": (attack_data.TABLE, {}),
    "coefficients-iterated": (attack_data.TABLE, {}),
    "inputs": (attack_data.MIXED, {}),
    "bounds": (attack_data.MIXED, {}),
    "adlm": (replace(attack_data.TABLE, shape=(40,)), {"preset": "sound"}),
    "ilm": (replace(attack_data.TABLE, shape=(40,)), {"preset": "sound"}),
    "neuron-allocation": (attack_data.TABLE, {"hidden": 3, "epochs": 1}),
    "patch-moments": (PICTURES, {"layers": [1], "learner": "eigenvectors"}),
    "pcdbn": (PICTURES, {"maps": [1, 1], "hidden": 2, "pretraining_epochs": 1, "epochs": 1}),
    "dp-sgd": (attack_data.TABLE, {"model": "linear", "epochs": 1, "batch": 6}),
    "optimized-noise": (attack_data.TABLE, {"model": "linear", "epochs": 1, "batch": 6}),
}


def _params(name: str, **release: Any) -> Params:
    return Params.model_validate({"release": {"mechanism": name, "options": SMALL[name][1], **release}})


def _make(params: Params, facts: Facts) -> dict[str, Any]:
    """The release of records that are null: what ends it does not depend on what they hold."""
    image = facts.kind == "image"
    x = np.zeros((facts.n, *facts.shape), np.uint8 if image else np.float64)
    encoded = Encoded(x, np.full(facts.n, -1, np.int32), np.zeros(facts.n, np.uint8))
    half = Whole(mechanism(params.release.mechanism))
    tensors, _ = half.make(params, facts, InMemory([pack(encoded)]), key=bytes(32), release_id="id")
    return dict(tensors)


@pytest.mark.parametrize("near", ["zero-out", "replace-one"])
@pytest.mark.parametrize(("epsilon", "delta"), [(1e-6, 1e-12), (1e-4, 1e-12), (1e-4, 1e-5), (50.0, 1e-12)])
@pytest.mark.parametrize("name", sorted(SMALL))
def test_what_is_priced_can_be_made(name: str, epsilon: float, delta: float, near: str) -> None:
    params, facts = _params(name, epsilon=epsilon, delta=delta, neighbours=near), SMALL[name][0]
    try:
        plan = Whole(mechanism(name)).plan(params, facts)
    except ParamsError:
        return
    assert plan.proven.epsilon <= epsilon * (1 + 1e-9)
    assert _make(params, facts)


def test_noise_for_users_with_many_records_is_refused_before_it_is_charged() -> None:
    params = _params("coefficients", epsilon=0.01, delta=1e-6, unit="user")
    facts = replace(attack_data.TABLE, per_user=1000)
    with pytest.raises(ParamsError, match=r"passes the grid: .* lower .* user.per_user"):
        Whole(mechanism("coefficients")).plan(params, facts)
    assert Whole(mechanism("coefficients")).plan(params, replace(facts, per_user=100))
