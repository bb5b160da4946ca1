"""The open halves of AdLM, ILM and DP-SGD: they train or load from a release's files, and predict like any
model.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from airlock.inside import manifest
from airlock.models.classifier import NetworkModel
from airlock.params import TrainParams
from airlock.storage import load_model, save_model
from stages.mechanisms import mechanism
from tests.support.comparison import KEY, batches, blobs, facts, params

ABOUT = facts((12,), 600, 3)


def released(name: str, folder: Path, **options: Any) -> tuple[manifest.Manifest, dict[str, Any]]:
    """A release as the release stage would write it."""
    asked = params(name, **options)
    module = mechanism(name)
    tensors, details = module.make(asked, ABOUT, batches(*blobs(600)), key=KEY, release_id="a")
    data = {"kind": "tabular", "shape": [12], "labels": ["0", "1", "2"], "n": 600, "schema": ABOUT.schema}
    manifest.write(
        folder, plan=module.plan(asked, ABOUT), facts=ABOUT, release_id="a", details={"data": data, **details}
    )
    return manifest.load(folder), tensors


@pytest.mark.parametrize("name", ["adlm", "ilm"])
def test_network_learns_from_perturbed_files_when_the_noise_is_small(name: str, tmp_path: Path) -> None:
    release, tensors = released(name, tmp_path, epsilon=400.0)
    trained = mechanism(name, "open").train(
        TrainParams(epochs=30, learning_rate=0.01, batch=64), release, tensors
    )
    records, labels = blobs(300, seed=1)
    assert (trained.model.predict(records) == labels).mean() > 0.9
    assert len(trained.curve) == 30
    assert trained.curve[-1][1] < trained.curve[0][1]
    assert json.loads(json.dumps(trained.metrics))["rows_per_second"] > 100


def test_training_with_real_noise_runs_for_any_number_of_epochs(tmp_path: Path) -> None:
    release, tensors = released("adlm", tmp_path, epsilon=1.0)
    first, again = (
        mechanism("adlm", "open").train(TrainParams(epochs=3), release, tensors) for _ in range(2)
    )
    assert np.isfinite([loss for _, loss in first.curve]).all()
    assert all(np.array_equal(first.model.state[key], again.model.state[key]) for key in first.model.state)


def test_the_infinite_epsilon_of_a_published_reading_is_still_json(tmp_path: Path) -> None:
    release, tensors = released("ilm", tmp_path, preset="authors-code", batch=100)
    trained = mechanism("ilm", "open").train(TrainParams(epochs=1), release, tensors)
    assert json.loads(json.dumps(trained.metrics, allow_nan=False))["epsilon"] == "infinity"


def test_a_released_network_is_loaded_and_survives_the_disk(tmp_path: Path) -> None:
    release, tensors = released(
        "dp-sgd", tmp_path / "release", epsilon=8.0, epochs=5, batch=50, learning_rate=1.0
    )
    trained = mechanism("dp-sgd", "open").train(TrainParams(), release, tensors)
    records, labels = blobs(300, seed=1)
    assert (trained.model.predict(records) == labels).mean() > 0.9
    save_model(trained.model, tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert isinstance(loaded, NetworkModel)
    assert np.array_equal(loaded.logits(records), trained.model.logits(records))
    assert loaded.logits(records[:0]).shape == (0, 3)


def test_training_goes_on_from_a_checkpoint_to_the_same_bytes(tmp_path: Path) -> None:
    release, tensors = released("ilm", tmp_path / "release", epsilon=40.0)
    train, kept = mechanism("ilm", "open").train, tmp_path / "kept"
    whole = train(TrainParams(epochs=4), release, tensors)
    train(TrainParams(epochs=2), release, tensors, checkpoint=kept)
    resumed = train(TrainParams(epochs=4), release, tensors, checkpoint=kept)
    assert resumed.curve == pytest.approx(whole.curve)
    assert all(np.array_equal(whole.model.state[key], resumed.model.state[key]) for key in whole.model.state)
    other = train(TrainParams(epochs=4, seed=1), release, tensors, checkpoint=kept)
    assert other.curve != pytest.approx(whole.curve)
