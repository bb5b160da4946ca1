"""Neuron noise injection's two readings, step by step, against a slow oracle: ratios, noise tuple, loss, Adam."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from airlock.models.papers import networks, neurons
from stages.release.keyed_noise import KeyedNoise
from stages.release.papers.dp_sgd.dp_sgd import Data
from stages.release.papers.neuron import neuron_noise, training
from tests.support.comparison import KEY, MNIST, blobs, facts, params

ABOUT = facts((12,), 300, 3)
LAYERS = (1, 4, 7)
"""Places of the affine layers among all of a network with two hidden ones; a constant is behind each."""
ASKED: dict[str, Any] = {"hidden": [5, 4], "epochs": 2, "iterations": 3, "batch": 16, "learning_rate": 0.01}
X, Y = blobs(300)
Y[5] = -1
KNOWN = np.flatnonzero(Y >= 0)


class Told(KeyedNoise):
    """Remembers what it drew, by purpose and step."""

    drawn: dict[tuple[str, int], Any]

    def unit_laplace(self, step: int, purpose: str, count: int, about: bytes = b"") -> Any:
        found = super().unit_laplace(step, purpose, count, about)
        assert (purpose, step) not in self.drawn
        self.drawn[purpose, step] = found
        return found


def told() -> Told:
    keyed = Told(KEY, "a")
    object.__setattr__(keyed, "drawn", {})
    return keyed


def data() -> Data:
    return Data(torch.from_numpy(X).float(), torch.from_numpy(Y.astype(np.int64)))


def recipe(**options: Any) -> neuron_noise.Recipe:
    return neuron_noise.resolve(params("neuron-noise", epsilon=2.0, **{**ASKED, **options}), ABOUT)


def first(seed: int) -> list[Any]:
    """Weights and biases, layer by layer."""
    state = networks.build("neurons:5-4", (12,), 3, seed=seed).state_dict()
    return parts_of(state)


def parts_of(state: Any) -> list[Any]:
    return [
        state[f"layers.{place}.{kind}"].double().numpy() for place in LAYERS for kind in ("weight", "bias")
    ]


def slow_slopes(parts: list[Any], rows: Any, noise: list[Any]) -> tuple[list[Any], Any]:
    """Of the mean cross-entropy, and each record's: affine, a constant, a rectifier; back by hand."""
    seen, drives = [X[rows]], []
    for layer in range(3):
        drives.append(seen[-1] @ parts[2 * layer].T + parts[2 * layer + 1] + noise[layer])
        seen.append(np.maximum(drives[-1], 0))
    scores = np.exp(drives[-1] - drives[-1].max(1, keepdims=True))
    chances = scores / scores.sum(1, keepdims=True)
    losses = -np.log(chances[range(len(rows)), Y[rows]])
    slope, found = (chances - np.eye(3)[Y[rows]]) / len(rows), list[Any]()
    for layer in (2, 1, 0):
        found = [slope.T @ seen[layer], slope.sum(0), *found]
        slope = (slope @ parts[2 * layer]) * (drives[layer - 1] > 0) if layer else slope
    return found, losses


def slow_training(
    parts: list[Any], steps: int, noise: Any, told_loss: Any = None
) -> tuple[list[Any], list[float]]:
    """Adam at 0.01, its means corrected; batches of 16 drawn with replacement from known records."""
    start, history, told_losses = parts, list[Any](), list[float]()
    order = torch.Generator().manual_seed(training.SEED)
    for step in range(steps):
        rows = KNOWN[torch.randint(len(KNOWN), (16,), generator=order).numpy()]
        slopes, losses = slow_slopes(parts, rows, noise(step))
        history.append(slopes)
        if told_loss is not None:
            # Lemma 4: 2 max L a record, over e2, three quarters of 2.
            told_losses.append(losses.mean() + 2 * losses.max() / 16 / 1.5 * told_loss(step))
        parts = [adam(start[k], [one[k] for one in history]) for k in range(6)]
    return parts, told_losses


def adam(place: Any, slopes: Any) -> Any:
    first_mean = second_mean = 0 * place
    for count, slope in enumerate(slopes, 1):
        first_mean, second_mean = 0.9 * first_mean + 0.1 * slope, 0.999 * second_mean + 0.001 * slope**2
        length = np.sqrt(second_mean / (1 - 0.999**count)) + 1e-8
        place = place - 0.01 * first_mean / (1 - 0.9**count) / length
    return place


def none(step: int) -> list[Any]:
    return [0.0, 0.0, 0.0]


@pytest.mark.parametrize("preset", ["algorithm", "prose"])
def test_a_training_is_what_the_slow_oracle_says(preset: str) -> None:
    """`algorithm`: Cr / sum of Cr, D and D' differ by the last record, drawn once. `prose`: 1 / |Cr|, hidden neurons
    only, twice the longest record, drawn again in every step. The loss's noise moves nothing in either.
    """
    keyed, ratios = told(), np.random.default_rng(1).normal(0.3, 1, 5 + 4 + 3)
    network, kept, losses = training.train_network(
        recipe(preset=preset, split=0.25), data(), keyed, ratios=ratios
    )
    assert np.array_equal(kept, ratios)
    if preset == "algorithm":
        share, size = ratios / ratios.sum(), sum(abs(2 * value - 1) for value in X[KNOWN[-1]])
    else:
        inverse = np.array([1 / abs(one) for one in ratios[:9]])
        share = np.concatenate([inverse / inverse.sum(), np.zeros(3)])
        size = 2 * max(sum(abs(value) for value in X[row]) for row in KNOWN)

    def noise(step: int) -> list[Any]:
        # e1 is a quarter of 2.
        drawn = keyed.drawn["neurons", 0 if preset == "algorithm" else step] * share * size / 0.5
        return [drawn[:5], drawn[5:9], drawn[9:]]

    wanted, wanted_losses = slow_training(first(0), 6, noise, lambda step: keyed.drawn["loss", step][0])
    steps = {step for purpose, step in keyed.drawn if purpose == "neurons"}
    assert steps == ({0} if preset == "algorithm" else set(range(6)))
    found = parts_of(network.state_dict())
    assert all(np.allclose(one, other, atol=2e-4) for one, other in zip(found, wanted, strict=True))
    assert losses == pytest.approx([np.mean(wanted_losses[:3]), np.mean(wanted_losses[3:])], rel=1e-3)
    last = [module.noise.numpy() for module in neurons.offsets(network)]
    assert all(
        np.allclose(one, other, rtol=1e-4, atol=1e-6) for one, other in zip(last, noise(5), strict=True)
    )


def test_draws_are_laplace_of_scale_one() -> None:
    drawn = KeyedNoise(KEY, "a").unit_laplace(0, "neurons", 20_000)
    assert np.abs(drawn).mean() == pytest.approx(1, rel=0.03)
    assert drawn.std() == pytest.approx(2**0.5, rel=0.03)


@pytest.mark.parametrize("used", [None, 270])
def test_ratios_are_the_mean_in_a_network_that_saw_the_records_for_an_epoch(used: int | None) -> None:
    """Another network than the one that is trained, without noise; over known records, in several pieces."""
    chosen = recipe(relevance_records=used)
    found = training.found_ratios(chosen, data())
    parts, _ = slow_training(first(1), 3, none)
    network: Any = networks.build("neurons:5-4", (12,), 3, seed=0)
    with torch.no_grad():
        for place, weight, bias in zip(LAYERS, parts[::2], parts[1::2], strict=True):
            network.layers[place].weight.copy_(torch.from_numpy(weight))
            network.layers[place].bias.copy_(torch.from_numpy(bias))
    total = np.zeros(12)
    for row in KNOWN[:used]:
        one = neurons.contributions(network, torch.from_numpy(X[row : row + 1]).float(), stabiliser=1e-3)
        total += np.concatenate([layer.double().numpy().ravel() for layer in one])
    assert found == pytest.approx(total / len(KNOWN[:used]), abs=1e-3)


def test_networks_are_the_papers_layer_by_layer() -> None:
    """Images: twice a convolution of 3 x 3, its constant, a rectifier, maxima over 2 x 2; batch normalisation between
    the first and the second hidden layer. Tables: three hidden layers.
    """
    end = [nn.Linear, neurons.Offset, nn.ReLU]
    image: Any = networks.build("neurons:8-6", (28, 28, 1), 10, seed=0)
    convolution = [nn.Conv2d, neurons.Offset, nn.ReLU, nn.MaxPool2d]
    wanted = [*convolution, *convolution, nn.Flatten, *end, nn.BatchNorm1d, *end, nn.Linear, neurons.Offset]
    assert [type(layer) for layer in image.layers] == wanted
    kernels = [
        (layer.out_channels, layer.kernel_size) for layer in image.layers if isinstance(layer, nn.Conv2d)
    ]
    assert kernels == [(32, (3, 3)), (64, (3, 3))]
    assert image.layers[9].weight.shape == (8, 7 * 7 * 64)
    assert tuple(image.layers[1].noise.shape) == (32, 28, 28)
    table: Any = networks.build("neurons:7-6-5", (12,), 3, seed=0)
    assert [type(layer) for layer in table.layers] == [nn.Flatten, *end * 3, nn.Linear, neurons.Offset]


def test_settings_and_readings_are_the_papers() -> None:
    figures = {
        "dermatology": (100, 3000, 50, 0.01),
        "wdbc": (100, 3000, 100, 0.01),
        "mnist": (25, 100, 1800, 0.001),
    }
    for setting, wanted in figures.items():
        about = MNIST if setting == "mnist" else ABOUT
        found = neuron_noise.resolve(params("neuron-noise", setting=setting), about).options
        assert (found.epochs, found.iterations, found.batch, found.learning_rate) == wanted
        assert found.hidden == ((128, 64) if setting == "mnist" else (64, 32, 16))
        assert (found.pretraining_epochs, found.stabiliser, found.split) == (1, 1e-3, 0.5)
    names = ("proportion", "refresh", "sensitivity", "total", "neurons", "maps", "update")
    readings = {
        "algorithm": ("ratio", "once", "pair", "signed", "all", "unit", "loss"),
        "prose": ("inverse", "step", "lemma", "absolute", "hidden", "channel", "perturbed"),
    }
    for preset, reading in readings.items():
        settled = recipe(preset=preset).options
        assert tuple(getattr(settled, name) for name in names) == reading
