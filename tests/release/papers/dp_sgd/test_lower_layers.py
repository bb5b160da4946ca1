"""Convolutions from raw records: nothing is proven, the upper layers begin anew, and all mechanisms stand on
the same ones.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from airlock.errors import AirlockError, ParamsError
from airlock.models.papers import networks
from stages.mechanisms import mechanism
from stages.release.papers.dp_sgd import dp_sgd, lower_layers
from tests.support import attacks
from tests.support.comparison import KEY, batches, facts, params

NAMES = ["dp-sgd", "ellipsoid-noise", "optimized-noise"]
SHAPE = (8, 8, 3)
ABOUT = facts(SHAPE, 300, 3)
SMALL = {"model": "six-convolutions", "epochs": 4, "batch": 50, "clip": 1.0}
RAW = {**SMALL, "lower": "raw"}


def images(n: int = 300, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Bright in the corner that belongs to the class; every tenth record is a null one."""
    generator = np.random.default_rng(seed)
    pixels, labels = generator.integers(0, 120, (n, *SHAPE)), generator.integers(0, 3, n)
    for row, label in enumerate(labels):
        pixels[row, 4 * (label // 2) :][:4, 4 * (label % 2) :][:, :4] += 100
    labels[::10] = -1
    return pixels.astype(np.uint8), labels


def data_of(pixels: np.ndarray, labels: np.ndarray) -> dp_sgd.Data:
    return dp_sgd.Data(torch.from_numpy(pixels), torch.from_numpy(labels))


def built() -> torch.nn.Module:
    return networks.build("six-convolutions", SHAPE, 3, seed=0)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lower_layers, "EPOCHS", 5)
    monkeypatch.setattr(lower_layers, "RATE", 3e-3)
    monkeypatch.setattr(lower_layers, "BATCH", 32)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_finite_is_proven_and_the_plan_says_why(name: str) -> None:
    whole, upper = (mechanism(name).plan(params(name, **options), ABOUT) for options in (RAW, SMALL))
    assert math.isinf(whole.proven.epsilon) and "raw records" in whole.proven.reason
    assert whole.public_only and whole.proven.event is None and whole.passes > upper.passes
    assert whole.claimed is not None and whole.claimed.epsilon == (upper.claimed or upper.proven).epsilon
    assert whole.parameters == {**upper.parameters, "lower": "raw"}
    assert math.isfinite(upper.proven.epsilon) and not upper.public_only and "lower" not in upper.parameters


def test_two_flaws_are_both_named() -> None:
    reason = (
        mechanism("optimized-noise")
        .plan(params("optimized-noise", solution="alternating", **RAW), ABOUT)
        .proven.reason
    )
    assert "convolutions" in reason and "mean gradient" in reason


@pytest.mark.parametrize("name", NAMES)
def test_networks_that_do_not_suit_are_refused(name: str) -> None:
    with pytest.raises(ParamsError, match="with convolutions"):
        mechanism(name).plan(params(name, model="perceptron", lower="raw"), ABOUT)
    with pytest.raises(ParamsError, match="for images"):
        mechanism(name).plan(params(name, model="six-convolutions"), facts((12,), 500, 3))


@pytest.mark.parametrize("name", NAMES)
def test_there_is_no_law_to_attack(name: str) -> None:
    with pytest.raises(AirlockError, match="no known law"):
        attacks.targets_of(params(name, **RAW), ABOUT)


@pytest.mark.parametrize("name", lower_layers.CONVOLUTIONAL_NETWORKS)
def test_the_two_parts_are_the_network(name: str) -> None:
    shape = (16, 16, 3)
    network, records = networks.build(name, shape, 3, seed=0), torch.rand(5, *shape)
    below, above = lower_layers.split(network)
    assert torch.equal(above(below(records)), network(records))
    assert not any(isinstance(layer, torch.nn.Conv2d) for layer in above.modules())
    assert not any(isinstance(layer, torch.nn.Linear) for layer in below.modules())


def test_upper_layers_begin_anew_above_trained_ones(quick: None) -> None:
    data, network, fresh = data_of(*images()), built(), built()
    above, seen = lower_layers.fix(network, data, "raw")
    (below, _), (_, first) = lower_layers.split(network), lower_layers.split(fresh)
    assert all(
        torch.equal(one, other) for one, other in zip(above.parameters(), first.parameters(), strict=True)
    )
    assert torch.equal(seen.records, below(data.scaled(torch.arange(300)))) and seen.labels is data.labels
    assert not torch.equal(next(network.parameters()), next(fresh.parameters()))


def test_private_layers_are_left_to_the_mechanism() -> None:
    data, network = data_of(*images()), built()
    assert lower_layers.fix(network, data, "private") == (network, data)


def test_null_records_train_nothing(quick: None) -> None:
    pixels, labels = images()
    networks_seen = []
    for value in (0, 255):
        pixels[labels < 0] = value
        networks_seen.append(built())
        lower_layers.pretrain(networks_seen[-1], data_of(pixels, labels), "cpu")
    assert all(
        torch.equal(one, other)
        for one, other in zip(*(each.parameters() for each in networks_seen), strict=True)
    )


def test_all_mechanisms_stand_on_the_same_layers_and_learn(quick: None) -> None:
    pixels, labels = images()
    known, truth = images(200, seed=1)
    lower = []
    for name in NAMES:
        asked = params(name, epsilon=50.0, learning_rate=0.1, **{**RAW, "epochs": 20})
        tensors, details = mechanism(name).make(
            asked, ABOUT, batches(pixels, labels), key=KEY, release_id=name
        )
        network = networks.build(details["network"], SHAPE, 3, seed=0)
        network.load_state_dict(
            {key.removeprefix("network."): torch.from_numpy(value) for key, value in tensors.items()}
        )
        found = network(torch.from_numpy(known).float() / 255).argmax(1).numpy()
        assert (found == truth)[truth >= 0].mean() > 0.9
        lower.append({key: value for key, value in tensors.items() if value.ndim == 4})
    assert len(lower[0]) == 6
    assert all(np.array_equal(one[key], lower[0][key]) for one in lower[1:] for key in one)


def test_pretraining_stays_on_its_device(quick: None) -> None:
    # Nothing on `meta` can meet a tensor that is elsewhere: as on a GPU, but without one.
    network = built()
    lower_layers.pretrain(network, data_of(*images()), "meta")
    assert all(parameter.device.type == "meta" for parameter in network.parameters())
