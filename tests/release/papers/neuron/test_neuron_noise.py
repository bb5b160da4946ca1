"""Neuron noise injection as published: its noise is what Eq. 19 says, and it protects nothing."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from airlock.attack import attack
from airlock.errors import ParamsError
from airlock.inside import manifest
from airlock.models.papers import networks, neurons
from airlock.params import TrainParams
from stages.mechanisms import mechanism
from stages.release.keyed_noise import KeyedNoise
from stages.release.papers.dp_sgd.dp_sgd import Data
from stages.release.papers.neuron import neuron_noise, training
from tests.support import attacks
from tests.support.comparison import KEY, MNIST, batches, blobs, facts, params

ABOUT = facts((12,), 300, 3)
SHORT = {"epochs": 2, "iterations": 60, "batch": 32, "hidden": [12, 8, 6]}
KEYED = KeyedNoise(KEY, "a")


def recipe(**options: Any) -> neuron_noise.Recipe:
    return neuron_noise.resolve(params("neuron-noise", **{**SHORT, **options}), ABOUT)


def double_data(shape: tuple[int, ...] = (12,)) -> Data:
    records, labels = blobs(300, size=math.prod(shape))
    return Data(torch.from_numpy(records.reshape(-1, *shape)), torch.from_numpy(labels.astype(np.int64)))


@pytest.mark.parametrize("preset", ["algorithm", "prose"])
def test_nothing_is_proven_and_the_reason_is_said(preset: str) -> None:
    plan = neuron_noise.plan(params("neuron-noise", preset=preset), ABOUT)
    assert plan.public_only and plan.interactive and math.isinf(plan.proven.epsilon)
    assert "no gradient" in plan.proven.reason
    assert plan.claimed is not None and plan.claimed.epsilon == 1.0


@pytest.mark.parametrize(
    ("setting", "reads"), [("dermatology", 303_001), ("wdbc", 303_001), ("mnist", 2_601)]
)
def test_settings_of_the_paper_are_counted(setting: str, reads: int) -> None:
    about = MNIST if setting == "mnist" else ABOUT
    assert neuron_noise.plan(params("neuron-noise", setting=setting), about).passes == reads
    with pytest.raises(ParamsError, match="did you mean 'setting'"):
        neuron_noise.plan(params("neuron-noise", settings=setting), about)


# --- A constant on a neuron is a bias
# ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "hidden", "steps", "rounding"), [((12,), [12, 8, 6], 200, 1e-12), ((8, 8, 1), [8, 6], 20, 1e-6)]
)
def test_noise_on_neurons_is_another_first_value_of_their_biases(
    shape: tuple[int, ...], hidden: list[int], steps: int, rounding: float
) -> None:
    """The same trajectory, up to rounding: trained with the noise, and without it from biases that have it
    added.

    A bias in front of batch normalisation has the gradient 0, of which rounding leaves 1e-17 and Adam makes
    steps of 1e-10.
    """
    about, data = facts(shape, 300, 3), double_data(shape)
    chosen = neuron_noise.resolve(
        params("neuron-noise", **{**SHORT, "hidden": hidden}, maps="channel"), about
    )
    noisy, plain = (networks.build(chosen.network, shape, 3, seed=0).double() for _ in range(2))
    assert isinstance(noisy, networks.Ordered) and isinstance(plain, networks.Ordered)
    scales = training.proportions(np.random.default_rng(0).random(chosen_count(noisy)) + 0.1, chosen) * 30
    training.descend(noisy, data, chosen, steps, scales=scales, keyed=KEYED)
    drawn = [module.noise for module in neurons.offsets(noisy)]
    with torch.no_grad():
        for bias, noise in zip(biases(plain), drawn, strict=True):
            bias.add_(noise.reshape(len(bias), -1)[:, 0])
    assert max(float(noise.abs().max()) for noise in drawn) > 0.1
    training.descend(plain, data, chosen, steps)
    with torch.no_grad():
        for bias, noise in zip(biases(noisy), drawn, strict=True):
            bias.add_(noise.reshape(len(bias), -1)[:, 0])
            noise.zero_()
    for (name, one), (_, other) in zip(noisy.state_dict().items(), plain.state_dict().items(), strict=True):
        assert torch.allclose(one.double(), other.double(), rtol=0, atol=rounding), name


def chosen_count(network: networks.Ordered) -> int:
    return sum(module.noise.numel() for module in neurons.offsets(network))


def biases(network: networks.Ordered) -> list[torch.Tensor]:
    return [
        module.bias
        for module in network.layers
        if isinstance(module, torch.nn.Linear | torch.nn.Conv2d) and module.bias is not None
    ]


def test_noise_on_the_loss_changes_no_gradient() -> None:
    network, data = networks.build("neurons:12-8-6", (12,), 3, seed=0).double(), double_data()
    found = []
    for drawn in (0.0, 50.0, -1e6):
        losses = torch.nn.functional.cross_entropy(network(data.records), data.labels, reduction="none")
        perturbed = training.perturbed_loss(losses, 0.5, drawn)
        assert (float(perturbed.detach()) == float(losses.detach().mean())) is (drawn == 0.0)
        found.append(torch.autograd.grad(perturbed, list(network.parameters())))
    assert all(
        torch.equal(one, other)
        for gradients in found[1:]
        for one, other in zip(found[0], gradients, strict=True)
    )


def test_epsilon_of_the_loss_is_nowhere_in_the_model() -> None:
    """Lemmas 4 and 5 protect nothing: the released network is the same, bit for bit, whatever e2 is."""
    made = []
    for epsilon, split in ((1.0, 0.5), (1000.0, 0.0005)):
        asked = params("neuron-noise", epsilon=epsilon, split=split, update="perturbed", **SHORT)
        made.append(neuron_noise.make(asked, ABOUT, batches(*blobs(300)), key=KEY, release_id="a")[0])
    assert all(np.array_equal(made[0][name], made[1][name]) for name in made[0])


# --- Readings
# --------------------------------------------------------------------------------------------------


def test_noise_has_the_scale_of_equation_19() -> None:
    data, chosen = double_data(), recipe()
    network, ratios, _ = training.train_network(chosen, Data(data.records.float(), data.labels), KEYED)
    moved = np.abs(2 * data.records[-1].numpy() - 1).sum()
    scales = ratios / ratios.sum() * moved / 0.5
    drawn = np.concatenate([module.noise.numpy().ravel() for module in neurons.offsets(network)])
    assert drawn == pytest.approx(
        scales * KEYED.unit_laplace(0, "neurons", len(scales), about_of(chosen, data, ratios)),
        rel=1e-4,
        abs=1e-6,
    )


def about_of(chosen: neuron_noise.Recipe, data: Data, ratios: np.ndarray) -> bytes:
    used = Data(data.records.float(), data.labels)
    return (
        training.proportions(ratios, chosen) * (training.sensitivity(used, chosen) / chosen.epsilons[0])
    ).tobytes()


def test_proportions_follow_the_reading() -> None:
    ratios = np.random.default_rng(0).random(29) + 0.1
    straight, inverse = (
        training.proportions(ratios, recipe(proportion=name)) for name in ("ratio", "inverse")
    )
    assert straight == pytest.approx(ratios / ratios.sum())
    assert inverse == pytest.approx((1 / ratios) / (1 / ratios).sum())
    hidden = training.proportions(ratios, recipe(neurons="hidden"))
    assert not hidden[-3:].any() and hidden.sum() == pytest.approx(1)


@pytest.mark.parametrize("maps", ["unit", "channel"])
def test_a_map_is_many_neurons_or_one(maps: str) -> None:
    about = facts((8, 8, 1), 300, 3)
    chosen = neuron_noise.resolve(params("neuron-noise", maps=maps, hidden=[8, 6]), about)
    network = networks.build(chosen.network, (8, 8, 1), 3, seed=0)
    assert isinstance(network, networks.Ordered)
    count = chosen_count(network)
    scales = training.proportions(np.random.default_rng(0).random(count), chosen)
    training.set_noise(network, scales * training._draws(network, chosen, KEYED, 0, scales))
    first = neurons.offsets(network)[0].noise
    distinct = sum(len(np.unique(module.noise.numpy())) for module in neurons.offsets(network))
    assert (bool((first == first[:, :1, :1]).all()), distinct) == (maps == "channel", chosen.perturbed)
    assert chosen.perturbed == (count if maps == "unit" else 32 + 64 + 8 + 6 + 3)


def test_sensitivity_is_local_as_published() -> None:
    data = double_data()
    pair, lemma = (training.sensitivity(data, recipe(sensitivity=name)) for name in ("pair", "lemma"))
    assert pair == pytest.approx(sum(abs(2 * value - 1) for value in data.records[-1].tolist()))
    assert lemma == pytest.approx(2 * max(sum(row) for row in data.records.tolist()))


@pytest.mark.parametrize("preset", ["algorithm", "prose"])
def test_training_learns_and_the_model_is_loaded(preset: str, tmp_path: Path) -> None:
    records, labels = blobs(300)
    labels[7], records[7] = -1, 0.0
    asked = params(
        "neuron-noise", epsilon=2.0, preset=preset, **{**SHORT, "epochs": 3, "learning_rate": 0.01}
    )
    tensors, details = neuron_noise.make(asked, ABOUT, batches(records, labels), key=KEY, release_id="a")
    data = {"kind": "tabular", "shape": [12], "labels": ["0", "1", "2"], "n": 300, "schema": ABOUT.schema}
    manifest.write(
        tmp_path,
        plan=neuron_noise.plan(asked, ABOUT),
        facts=ABOUT,
        release_id="a",
        details={"data": data, **details},
    )
    trained = mechanism("neuron-noise", "open").train(TrainParams(), manifest.load(tmp_path), tensors)
    fresh, truth = blobs(300, seed=1)
    assert (trained.model.predict(fresh) == truth).mean() > 0.9
    assert json.loads(json.dumps(trained.metrics, allow_nan=False))["epsilon"] == "infinity"
    again, _ = neuron_noise.make(asked, ABOUT, batches(records, labels), key=KEY, release_id="a")
    assert all(np.array_equal(tensors[name], again[name]) for name in tensors)


def test_attacks_refute_the_claim() -> None:
    single = attacks.targets_of(params("neuron-noise"), MNIST)[0]
    assert single.claimed == 0.5 and single.proven == pytest.approx(
        0.5 * neuron_noise.resolve(params("neuron-noise"), MNIST).perturbed
    )
    small = attacks.targets_of(params("neuron-noise", epsilon=0.1, hidden=[12, 8, 6]), ABOUT)
    quiet = {"confidence": 0.95, "seed": 0, "sampler": "numpy", "tick": lambda done, total: None}
    verdicts = [attack.attack(target, trials=20_000, **quiet) for target in small]
    assert [verdict.word for verdict in verdicts] == ["refutes the claim"] * 2
    assert 0.05 < verdicts[0].finding.epsilon <= small[0].proven == pytest.approx(0.05 * 29)
    assert verdicts[1].finding.epsilon > 8
