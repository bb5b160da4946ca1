"""Membership attacks on synthetic records: within the proof, and above it for a planted fault."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from airlock.attack import attack
from airlock.params import Params
from airlock.privacy import sensitivity
from airlock.records.encoding import Encoded
from stages import attack_synthetic
from stages.attack_synthetic import likelihood, nearest

EPSILON = 8.0


def attacked(folder: Path, trials: int, epsilon: float = EPSILON) -> dict[str, attack.Verdict]:
    release = {"mechanism": "inputs", "epsilon": epsilon}
    params = Params.model_validate({"release": release})
    how = {"confidence": 0.99, "seed": 0, "sampler": "numpy", "tick": lambda done, total: None}
    found = attack_synthetic.targets(params, seed=0, folder=folder)
    return {one.law.name: attack.attack(one, trials=trials, **how) for one in found}


def test_synthetic_records_tell_no_more_than_is_proven(tmp_path: Path) -> None:
    found = attacked(tmp_path, 30)
    assert set(found) == {"synthetic records, nearest neighbour", "synthetic records, likelihood"}
    for verdict in found.values():
        assert verdict.word == "within the proof"
        assert verdict.finding.kind == "attack"
        assert verdict.target.proven == pytest.approx(EPSILON, rel=1e-6)


def test_synthetic_records_of_a_release_with_too_little_noise_give_the_record_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: what is proven stays small, and the noise is a fiftieth of what it should be."""
    true = sensitivity.marginals
    monkeypatch.setattr(sensitivity, "marginals", lambda *given, **named: true(*given, **named) / 50)
    monkeypatch.setattr(attack_synthetic, "ROWS", 200)
    found = attacked(tmp_path, 30, epsilon=0.5)
    assert any(verdict.word.startswith("refutes") for verdict in found.values())


def test_the_scores_know_a_record_when_they_see_it() -> None:
    record = np.ones(2)
    far = Encoded(np.zeros((9, 2)), np.zeros(9, np.int32), np.ones(9, np.uint8))
    near = Encoded(
        np.vstack([far.x[:6], np.ones((3, 2))]), np.array([0] * 6 + [1] * 3, np.int32), np.ones(9, np.uint8)
    )
    for score in (nearest, likelihood):
        assert score(near, record, 1) > score(far, record, 1)
    assert nearest(near, record, 1) == 0
