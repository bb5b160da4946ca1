"""The attack on a release of `inputs` itself, in one pass and in two; a planted fault is its control."""

from __future__ import annotations

from typing import Any

import pytest

from airlock.attack import attack, end_to_end, neighbours
from airlock.attack.attack import Conclusion
from airlock.params import Params
from airlock.privacy import sensitivity
from stages import attack_data
from stages.attack import target_of

EPSILON, QUICK = 8.0, end_to_end.Effort(spread=40, direction=2, choice=30)


def attacked(trials: int = 40, **release: Any) -> Conclusion:
    params = Params.model_validate({"release": {"mechanism": "inputs", "epsilon": EPSILON, **release}})
    pairs = list(neighbours.pairs(attack_data.TABLE, params.release.neighbours))[::5]
    target = target_of("release", params, seed=0, pairs=pairs, effort=QUICK)
    how = {"confidence": 0.995, "seed": 0, "sampler": "numpy", "tick": lambda done, total: None}
    return attack.attack(target, trials=trials, **how)


@pytest.mark.parametrize("given", [{"passes": 1}, {"passes": 2}, {"neighbours": "replace-one", "passes": 1}])
def test_a_sound_release_is_nearly_reached_and_never_passed(given: dict[str, Any]) -> None:
    found = attacked(**given)
    assert found.finding.kind == "attack"
    assert found.word == "within the proof"
    assert 0.5 * found.target.proven < found.finding.best <= found.target.proven


def test_a_sensitivity_that_is_too_small_by_two_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    true = sensitivity.marginals
    monkeypatch.setattr(sensitivity, "marginals", lambda *given, **named: true(*given, **named) / 2)
    assert attacked(trials=60, passes=1).word.startswith("refutes")
