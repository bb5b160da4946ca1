"""Figures of a private evaluation, as whoever wrote them behind the wall left them."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from airlock.evidence import evaluation
from airlock.inside import manifest

FIGURES = {"records": 50, "accuracy": 0.9, "noise_of_accuracy": 0.01}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace whose evaluation somebody signed."""
    proven = SimpleNamespace(epsilon=1.0, delta=1e-5)
    monkeypatch.setattr(evaluation, "_is_of_this_model", lambda _: True)
    monkeypatch.setattr(manifest, "load", lambda _: SimpleNamespace(proven=proven))
    (tmp_path / evaluation.MODEL).mkdir(parents=True)
    (tmp_path / evaluation.FOLDER).mkdir(parents=True)
    (tmp_path / evaluation.FOLDER / manifest.NAME).write_text("{}")
    return tmp_path


@pytest.mark.parametrize(
    "odd",
    [
        {"records": 0},
        {"records": -1},
        {"accuracy": 40.0},
        {"accuracy": "none"},
        {"accuracy": float("nan")},
        {"noise_of_accuracy": float("inf")},
        {"noise_of_accuracy": None},
        {"errors": 1},
    ],
)
def test_signed_figures_of_another_form_are_none(root: Path, odd: dict[str, object]) -> None:
    file = root / evaluation.FOLDER / "evaluation.json"
    file.write_text(json.dumps(FIGURES))
    found = evaluation.private_evaluation(root)
    assert found is not None
    assert found["accuracy"] == 0.9
    assert 0.7 < found["interval"][0] < found["interval"][1] < 1
    file.write_text(json.dumps(FIGURES | odd))
    assert evaluation.private_evaluation(root) is None
