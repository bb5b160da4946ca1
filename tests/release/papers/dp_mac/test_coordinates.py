"""Steps of DP-MAC: directions from a noisy covariance, rectified units with biases, tensors on the wanted
device.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from airlock.errors import ParamsError
from airlock.models.papers import networks
from stages.release import interactive
from stages.release.papers.dp_mac import coordinates, dp_mac
from stages.release.papers.dp_sgd import dp_sgd
from tests.support.comparison import KEY, batches, blobs, facts, params

torch.set_num_threads(1)
ABOUT = facts((12,), 500, 3)
PROGRAM = {
    "hidden": (8,),
    "epochs": 6,
    "batch": 50,
    "learning_rate": 0.05,
    "units": "relu",
    "initial": "glorot",
    "thresholds": "fixed",
}
WHOLE = {**PROGRAM, "thresholds": "learned", "histogram_sigma": 5.0, "projection": 4, "projection_sigma": 3.0}


def run_of(
    records: Any, labels: Any, *, device: str = "cpu", **options: Any
) -> coordinates.CoordinateDescent:
    recipe = dp_mac.resolve(params("dp-mac", **{"sigma": 0.8, **options}), ABOUT)
    data = dp_sgd.Data(torch.as_tensor(records).float(), torch.as_tensor(labels))
    return coordinates.CoordinateDescent(recipe, data, interactive.Keyed(KEY, "a"), device)


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.floats(1e-3, 1e3))
def test_one_record_moves_the_covariance_by_at_most_what_is_priced(seed: int, size: float) -> None:
    generator = np.random.default_rng(seed)
    records, labels = size * generator.normal(size=(6, 12)), np.zeros(6, np.int64)
    records[1] = 0  # a record without a direction
    whole = run_of(records, labels, **WHOLE).covariance()
    gone, replaced = labels.copy(), records.copy()
    gone[0], replaced[0] = -1, -size * generator.normal(size=12)
    assert float((whole - run_of(records, gone, **WHOLE).covariance()).norm()) == pytest.approx(1, abs=1e-5)
    assert float((whole - run_of(replaced, labels, **WHOLE).covariance()).norm()) <= math.sqrt(2) + 1e-5


def test_noise_on_a_covariance_is_symmetric_and_as_large_as_priced(monkeypatch: pytest.MonkeyPatch) -> None:
    run, seen = run_of(*blobs(60), **{**WHOLE, "projection_sigma": 30.0}), []
    plain = torch.linalg.eigh

    def spy(matrix: torch.Tensor) -> Any:
        seen.append(matrix)
        return plain(matrix)

    monkeypatch.setattr(torch.linalg, "eigh", spy)
    directions = run.learn_projection(4)
    noise = seen[0] - run.covariance()
    assert torch.equal(noise, noise.T)
    # |noise|_F^2 / sigma^2 has the mean of a chi-square with 78 degrees of freedom: isotropic on symmetric
    # matrices.
    assert float(noise.square().sum()) / 30.0**2 == pytest.approx(78, abs=4 * math.sqrt(2 * 78))
    assert torch.allclose(directions.T @ directions, torch.eye(4), atol=1e-5)


def test_replacing_costs_the_covariance_twice_the_variance() -> None:
    for neighbours, far in (("zero-out", 1.0), ("replace-one", math.sqrt(2))):
        recipe = dp_mac.resolve(params("dp-mac", neighbours=neighbours, sigma=0.8, **WHOLE), ABOUT)
        histograms, covariance = recipe.once()
        assert covariance == {"kind": "gaussian", "noise_multiplier": pytest.approx(3.0 / far)}
        assert histograms["event"]["noise_multiplier"] == pytest.approx(5.0 / far)


@pytest.mark.parametrize("options", [PROGRAM, WHOLE])
def test_the_programs_units_learn_stop_and_go_on(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records, labels = blobs(500)
    asked = params("dp-mac", **{"sigma": 0.5, **options})
    monkeypatch.setattr(interactive, "CHECKPOINT_STEPS", 15)

    def train(checkpoint: Path | None, until: int | None = None) -> Any:
        def tick(done: int, total: int) -> None:
            if done == until:
                raise InterruptedError

        given_to = {"key": KEY, "release_id": "a", "checkpoint": checkpoint, "tick": tick}
        return dp_mac.make(asked, ABOUT, batches(records, labels), **given_to)[0]

    whole = train(None)
    for stop in (20, 40):
        with pytest.raises(InterruptedError):
            train(tmp_path, stop)
    assert all(np.array_equal(whole[name], value) for name, value in train(tmp_path).items())
    network = networks.build("relu:8", (12,), 3, seed=0)
    network.load_state_dict(
        {name.removeprefix("network."): torch.from_numpy(value) for name, value in whole.items()}
    )
    test_records, test_labels = blobs(300, seed=1)
    assert (network(torch.from_numpy(test_records).float()).argmax(1).numpy() == test_labels).mean() > 0.8


def test_rate_falls_and_then_stays() -> None:
    run = run_of(*blobs(60), **{**PROGRAM, "decay": 0.5, "decay_epochs": 3, "batch": 250})
    state = run.start()
    slope = [torch.ones_like(weight) for weight in run.weights(state)]
    moved = [
        float((run.update(step, state, slope)["weight0"] - state["weight0"]).abs().mean())
        for step in (0, 2, 4, 6, 8)
    ]
    # Adam's first direction differs with the step's number; divided by it the rate is left.
    rates = [one / float(coordinates.mac.adam(torch.ones(1), torch.zeros(1), torch.zeros(1), step + 1))
             for one, step in zip(moved, (0, 2, 4, 6, 8), strict=True)]  # fmt: skip
    assert rates == pytest.approx([0.05, 0.025, 0.0125, 0.0125, 0.0125], rel=1e-3)


@pytest.mark.parametrize(
    "options",
    [{**WHOLE, "task": "classify"}, {**PROGRAM, "task": "reconstruct"}, {"order": 2, "hidden": (8,)}],
)
def test_a_step_stays_on_its_device(options: dict[str, Any]) -> None:
    # Nothing can be computed on `meta`, and nothing on it can meet a tensor that is elsewhere: as on a GPU,
    # but without one.
    run = run_of(*blobs(60), device="meta", **options)
    state = run.start()
    totals = run.sums(state, torch.arange(60))
    assert {total.device.type for total in totals} == {"meta"}
    after = run.update(0, state, totals)
    few = ("thresholds", "path", "told")
    assert {value.device.type for name, value in after.items() if name not in few} == {"meta"}
    assert {state[name].device.type for name in few} == {"cpu"}


@pytest.mark.parametrize("name", ["dp-mac", "ellipsoid-noise", "optimized-noise"])
def test_a_device_that_is_not_there_is_named_before_training(name: str) -> None:
    from stages.mechanisms import mechanism

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    records, labels = blobs(60)
    for wanted in ("cuda", "cuda:1", "tpu"):
        asked = params(name, epochs=1, batch=10, device=wanted)
        with pytest.raises(
            ParamsError, match=f"release.options.device '{wanted}' is not on this machine: use auto or cpu"
        ):
            mechanism(name).make(
                asked, facts((12,), 60, 3), batches(records, labels), key=KEY, release_id="a"
            )
