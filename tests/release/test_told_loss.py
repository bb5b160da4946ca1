"""The learning curve of noisy gradients: where noise is nothing it is the loss, and noise moves it as it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from airlock.models.papers import networks
from airlock.privacy import calibration
from stages.mechanisms import mechanism
from stages.release import interactive
from stages.release.papers.dp_sgd import dp_sgd
from tests.support.comparison import KEY, batches, blobs, facts, params

ABOUT = facts((12,), 500, 3)
QUIET = {"epochs": 40, "batch": 250, "clip": 100.0, "learning_rate": 0.02}


def mean_loss(tensors: dict[str, Any] | None) -> float:
    """Over all records; of the network before its training where there are no tensors."""
    network, (records, labels) = networks.build("linear", (12,), 3, seed=dp_sgd.SEED), blobs(500)
    if tensors:
        state = {name.removeprefix("network."): torch.from_numpy(value) for name, value in tensors.items()}
        network.load_state_dict(state)
    scores = network(torch.from_numpy(records).float())
    return float(torch.nn.functional.cross_entropy(scores, torch.from_numpy(labels)).detach())


def made(name: str, key: int = 0, *, epsilon: float, **options: Any) -> Any:
    asked = params(name, epsilon=epsilon, **options)
    noise = bytes([key]) * 32
    return mechanism(name).make(asked, ABOUT, batches(*blobs(500)), key=noise, release_id="a")


@pytest.mark.parametrize("name", ["dp-sgd", "ellipsoid-noise"])
def test_without_noise_it_is_the_change_of_the_loss(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The least noise that is looked for, which is what this epsilon gives after ten seconds.
    monkeypatch.setattr(calibration, "sampled_gaussian_multiplier", lambda *_, **__: 1 / 64)
    tensors, details = made(name, epsilon=1e7, **QUIET)
    points = details["curve"]["points"]
    assert [step for step, _ in points] == list(range(80)) and points[0][1] == 0
    assert points[-1][1] == pytest.approx(mean_loss(tensors) - mean_loss(None), rel=0.1)
    assert points[-1][1] < points[40][1] < points[10][1] < -0.05


def test_noise_moves_the_last_point_as_far_as_the_release_says() -> None:
    """Against what the loss did in truth, over forty keys and with no gradient clipped: no drift, and the deviation
    that is told.
    """
    apart = []
    for key in range(40):
        tensors, details = made("dp-sgd", key, epsilon=8.0, epochs=4, batch=50, clip=10.0, learning_rate=0.1)
        truth = mean_loss(tensors) - mean_loss(None)
        apart.append((details["curve"]["points"][-1][1] - truth) / details["curve"]["noise"])
    assert abs(np.mean(apart)) < 0.6
    assert 0.7 < np.std(apart) < 1.4


def test_a_checkpoint_from_before_the_curve_is_begun_again(tmp_path: Path) -> None:
    """With the same bytes in the end: a run of an earlier version was killed, and this one goes on."""
    asked = params("dp-sgd", epochs=30, batch=50)
    given = {"key": KEY, "release_id": "a" * 40, "checkpoint": tmp_path}
    whole = dp_sgd.make(asked, ABOUT, batches(*blobs(500)), **given)
    (kept,) = tmp_path.glob("*.safetensors")
    with safe_open(str(kept), "pt") as file:
        about, old = file.metadata(), {name: file.get_tensor(name) for name in ("theta", "velocity")}
    save_file({name: torch.full_like(one, 9.0) for name, one in old.items()}, kept, about)
    again = dp_sgd.make(asked, ABOUT, batches(*blobs(500)), **given)
    assert all(np.array_equal(whole[0][name], again[0][name]) for name in whole[0])
    assert whole[1] == again[1]
    assert interactive.CHECKPOINT_STEPS < 300
