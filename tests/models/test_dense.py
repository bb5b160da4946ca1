"""A network of one's own, trained without data: kept as tensors, stopped in time, and on whatever device there
is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from airlock.errors import ParamsError
from airlock.models import descent
from airlock.models.dense import dense_layers
from airlock.models.devices import choose_device
from airlock.models.model import forward
from airlock.models.moments import Moments
from airlock.params import TrainParams
from stages.open.training_state import TrainingState


class Mine(nn.Module):
    """As somebody would write one."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(width, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1))
        self.head = nn.Sequential(nn.Linear(16, 8, bias=False), nn.Linear(8, classes))

    def forward(self, rows: Any) -> Any:
        return self.head(self.body(rows))


class Twisted(Mine):
    """More than its layers."""

    def forward(self, rows: Any) -> Any:
        return super().forward(rows) ** 2


def moments(width: int = 6, classes: int = 3) -> Moments:
    """Of classes that lie apart."""
    random = np.random.default_rng(0)
    vectors, _ = np.linalg.qr(random.standard_normal((width, width)))
    cross = 300 * random.standard_normal((width, classes))
    return Moments(
        np.linspace(100, 1000, width), vectors, cross - cross.mean(axis=1, keepdims=True), 1.0, 3000
    )


def test_a_network_becomes_layers_that_say_the_same() -> None:
    torch.manual_seed(0)
    network = Mine(6, 3)
    network.train()
    for _ in range(3):
        network(torch.randn(32, 6))
    layers = dense_layers(network, 6)
    rows = torch.randn(20, 6)
    with torch.no_grad():
        assert np.allclose(forward(rows.double().numpy(), layers), network(rows).numpy(), atol=1e-4)
    assert len(layers) == 2


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (Twisted(6, 3), "more than its layers"),
        (nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3)), "a layer 'Tanh'"),
        (nn.Sequential(nn.ReLU(), nn.Linear(6, 3)), "a layer 'ReLU'"),
    ],
)
def test_what_cannot_be_kept_as_tensors_is_refused(network: Any, words: str) -> None:
    with pytest.raises(ParamsError, match=words):
        dense_layers(network, 6)


def test_it_learns_from_the_release_and_stops_when_nothing_is_gained() -> None:
    params = TrainParams(method="sgd", epochs=40, learning_rate=0.02, batch=64, device="cpu")
    layers, curve = descent.descend(params, moments(), 0.3, build=Mine)
    assert curve[-1][1] < 0.8 * curve[0][1]
    assert layers[-1][0].shape[1] == 3
    again, _ = descent.descend(params, moments(), 0.3, build=Mine)
    assert all(np.array_equal(one[0], other[0]) for one, other in zip(layers, again, strict=True))
    patient = params.model_copy(update={"patience": 3})
    assert len(descent.descend(patient, moments(), 0.3, build=Mine)[1]) < 40


def test_stopping_waits_as_long_as_it_was_told() -> None:
    curve = [(epoch, loss) for epoch, loss in enumerate([3.0, 2.0, 1.0, 1.5, 1.2])]
    assert not descent.stale(curve, None)
    assert not descent.stale(curve, 3)
    assert descent.stale(curve, 2)


@pytest.mark.parametrize("build", [None, Mine])
def test_a_step_works_on_a_device_that_is_not_the_processor(
    build: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch's `meta` device computes nothing, but refuses every tensor of another device: a step that names
    the processor fails on it.
    """
    monkeypatch.setattr(descent, "value_of", lambda loss: 0.0 if loss.device.type == "meta" else 1.0)
    network = build(6, 3) if build else descent._network(TrainParams(head="mlp"), 6, 3).double()
    network = network.to("meta")
    sampler = descent.Sampler(moments(), 0.3, "meta")
    optimiser = torch.optim.Adam(network.parameters())
    generator = torch.Generator().manual_seed(0)
    assert descent._epoch(network, optimiser, sampler, 16, generator) == 0.0
    assert {one.device.type for one in network.parameters()} == {"meta"}


def test_the_accelerator_is_whatever_torch_calls_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("xpu"))
    assert choose_device("auto", "train.device") == "xpu"
    assert choose_device("xpu:1", "train.device") == "xpu:1"
    assert choose_device("cpu", "train.device") == "cpu"
    with pytest.raises(ParamsError, match="is not on this machine"):
        choose_device("cuda", "train.device")
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    assert choose_device("auto", "train.device") == "cpu"


class Watched(Mine):
    """Remembers of what kind its scores were."""

    kinds: ClassVar[set[torch.dtype]] = set()

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = super().forward(rows)
        self.kinds.add(scores.dtype)
        return scores


def test_an_accelerator_gets_mixed_precision_compiled_steps_and_goes_on_from_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processor stands for one, which has mixed precision too: what is compiled, what is kept and what is gone
    on from are the same as there.
    """
    compiled: list[Any] = []
    monkeypatch.setattr(descent, "accelerated", lambda device: True)
    monkeypatch.setattr(torch, "compile", lambda network: compiled.append(network) or network)
    monkeypatch.setattr(descent, "CHECKPOINT_EPOCHS", 5)
    params = TrainParams(method="sgd", epochs=20, learning_rate=0.02, batch=64, device="cpu")
    whole, curve = descent.descend(params, moments(), 0.3, build=Watched)
    # The last look at it, when layers are taken from it, is in full precision.
    assert Watched.kinds == {torch.bfloat16, torch.float32}
    assert len(compiled) == 1
    assert curve[-1][1] < 0.9 * curve[0][1]
    assert all(weight.dtype == np.float64 for weight, _ in whole)
    keepers = [TrainingState(tmp_path, "i" * 64) for _ in range(2)]
    short = params.model_copy(update={"epochs": 13})
    descent.descend(short, moments(), 0.3, build=Watched, keeper=keepers[0])
    resumed, again = descent.descend(params, moments(), 0.3, build=Watched, keeper=keepers[1])
    assert again == curve
    assert all(np.array_equal(one[0], other[0]) for one, other in zip(whole, resumed, strict=True))
