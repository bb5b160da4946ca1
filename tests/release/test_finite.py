"""What is not finite: a record that overflows contributes nothing, and nothing that is not finite is
released.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from airlock.errors import ParamsError, ReleaseError
from airlock.inside import manifest
from airlock.inside.room import Room
from airlock.models.papers import mac
from airlock.models.papers.networks import build
from airlock.params import Params
from stages.mechanisms import MECHANISMS, Whole, mechanism
from stages.release import interactive, perturb
from stages.release.papers.dp_sgd import dp_sgd, gradients
from tests.support.sealed_records import KEY, facts, seal

N = 24
SPECIAL = {"ones": 1.0, "least": 5e-324, "tiny": 1e-45, "nothing": 0.0}
EXTREMES: dict[str, list[dict[str, Any]]] = {
    "dp-sgd": [
        {"learning_rate": 1e3, "clip": 1e6},
        {"learning_rate": 1e3, "clip": 1e-3, "model": "perceptron"},
        {"learning_rate": 1e3, "clip": 1e6, "model": "autoencoder"},
    ],
    "ellipsoid-noise": [
        {"learning_rate": 1e3, "clip": 1e6, "patience": 1},
        {"learning_rate": 1e3, "clip": 1e-3, "memory": 0, "floor": 1e-6},
    ],
    "optimized-noise": [
        {"learning_rate": 1e3, "clip": 1e6},
        {"learning_rate": 1e3, "clip": 1e-3, "noise": "average"},
    ],
    "dp-mac": [
        {"learning_rate": 1e3, "bound_w": 1e6, "bound_z": 1e6, "threshold": 1e6, "hidden": [4]},
        {
            "learning_rate": 1e3,
            "bound_w": 1e6,
            "bound_z": 1e6,
            "z_rate": 1e3,
            "order": 2,
            "threshold": 1e-6,
            "hidden": [4],
        },
    ],
    "neuron-noise": [{"learning_rate": 1e3, "hidden": [4, 4], "iterations": 3, "epochs": 1, "batch": 8}],
    "coefficients-iterated": [{"step": 1e3, "ridge": 1e-6, "clip": 1e-6}],
    "neuron-allocation": [{"hidden": 3, "epochs": 1}],
}
"""The interactive mechanisms that take any table, and options at the ends of what they take."""


def interactive_names() -> set[str]:
    """Mechanisms whose reads depend on a model that is being trained."""
    known = facts(np.zeros((N, 3)), 2)
    found = set()
    for name in MECHANISMS:
        try:
            plan = mechanism(name).plan(Params.model_validate({"release": {"mechanism": name}}), known)
        except ParamsError:
            continue  # for pictures or windows
        found |= {name} if plan.interactive else set()
    return found


def test_every_interactive_mechanism_is_driven_to_the_edge() -> None:
    assert interactive_names() == set(EXTREMES)


@contextmanager
def totals(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, Any]]]:
    """Every sum that meets its noise in float, with its purpose."""
    seen: list[tuple[str, Any]] = []
    plain = interactive.Keyed.stream

    def watched(self: Any, step: int, purpose: str, total: Any) -> Any:
        seen.append((f"{purpose} {step}", total.detach().clone()))
        return plain(self, step, purpose, total)

    with monkeypatch.context() as patch:
        patch.setattr(interactive.Keyed, "stream", watched)
        yield seen


CASES = [(name, number) for name, listed in EXTREMES.items() for number in range(len(listed))]


@pytest.mark.parametrize(("name", "number"), CASES)
def test_no_record_makes_a_sum_that_is_not_finite(
    name: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**EXTREMES[name][number]}
    if name in ("dp-sgd", "ellipsoid-noise", "optimized-noise", "dp-mac"):
        options |= {"epochs": 6, "batch": 8}
    params = Params.model_validate({"release": {"mechanism": name, "epsilon": 8.0, "options": options}})
    known = facts(np.zeros((N, 3)), 2)
    half, ends = Whole(mechanism(name)), {}
    for special, value in SPECIAL.items():
        x = np.zeros((N, 3))
        x[-1] = value
        with seal(tmp_path, x, np.arange(N) % 2) as reader, totals(monkeypatch) as seen:
            tensors, _ = half.make(params, known, reader, key=bytes(32), release_id="a")
        assert all(bool(total.isfinite().all()) for _, total in seen)
        ends[special] = all(bool(np.isfinite(one).all()) for one in tensors.values())
    assert name == "neuron-noise" or len(set(ends.values())) == 1


class Weights:
    """A linear network whose weights make one record overflow, and only that one."""

    def __init__(self, clip: float = 1.0) -> None:
        self.network = build("linear", (3,), 2, seed=0)
        with torch.no_grad():
            for parameter in self.network.parameters():
                parameter.zero_()
            self.network.get_parameter("layers.1.weight").copy_(
                torch.tensor([[3e38, 3e38, 3e38], [-3e38, -3e38, -3e38]])
            )
        records = torch.full((N, 3), 1e-39)
        records[5] = 1.0
        self.data = dp_sgd.Data(records, torch.arange(N) % 2)


@pytest.mark.parametrize("kind", [dp_sgd.Clipped, gradients.Ellipsoid])
def test_a_record_that_overflows_contributes_nothing(kind: Any) -> None:
    case = Weights()
    clipped = kind(case.network, 1.0) if kind is dp_sgd.Clipped else kind(case.network, torch.ones(2))
    rows, others = torch.arange(N), torch.tensor([row for row in range(N) if row != 5])
    # The control: as it was, one record makes the whole sum not a number.
    whole, sound = clipped._clipped(case.data.scaled(rows), case.data.labels)
    assert not sound
    assert not bool(whole.isfinite().all())
    total, without = clipped.sum_of(case.data, rows), clipped.sum_of(case.data, others)
    assert bool(total.isfinite().all())
    assert torch.allclose(total, without, rtol=1e-5)
    assert float(without.abs().sum()) > 0


@pytest.mark.parametrize("order", [1, 2])
def test_coefficients_that_overflow_contribute_nothing(order: int) -> None:
    inputs, linear = torch.rand(6, 3), torch.rand(6, 2)
    bend = torch.rand(6, 2) if order == 2 else None
    for place, value in ((0, float("inf")), (2, float("nan")), (4, 1e30)):
        inputs[place], linear[place] = value, 1e30
    found = mac.Coefficients(inputs, linear, bend).clipped_sums([0.1, 0.1][:order])
    kept = torch.tensor([1, 3, 5])
    wanted = mac.Coefficients(inputs[kept], linear[kept], bend[kept] if bend is not None else None)
    for one, other in zip(found, wanted.clipped_sums([0.1, 0.1][:order]), strict=True):
        assert torch.allclose(one, other)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_tensor_that_is_not_finite_is_not_released(
    bad: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.zeros((N, 3))
    seal(tmp_path, x, np.arange(N) % 2)
    half = mechanism("coefficients")
    known, out = facts(x, 2), perturb.RELEASE
    asked = {"release": {"mechanism": "coefficients"}, "relevance": {"mode": "off"}}
    room = Room(
        stage="release",
        params=Params.model_validate(asked),
        facts={"facts": asdict(known), "releases": {out: {"id": "a"}}},
        keys={"seal:train": KEY, f"noise:{out}": bytes(32)},
        paths={"data/sealed": tmp_path, out: tmp_path / "release"},
    )
    monkeypatch.setattr(half, "make", lambda *given, **named: ({"a": np.array([1.0, bad])}, {}))
    with pytest.raises(ReleaseError, match="not finite"):
        perturb.main(room)
    assert not any((tmp_path / "release").iterdir())
    monkeypatch.setattr(half, "make", lambda *given, **named: ({"a": np.array([1.0])}, {"loss": bad}))
    with pytest.raises(ReleaseError, match="not finite"):
        perturb.main(room)
    assert not (tmp_path / "release" / manifest.NAME).exists()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("dp-sgd", {"clip": 1e30}),
        ("dp-sgd", {"clip": 1e-30}),
        ("dp-sgd", {"learning_rate": 1e30}),
        ("optimized-noise", {"clip": 1e30}),
        ("ellipsoid-noise", {"learning_rate": 1e30}),
        ("dp-mac", {"bound_w": 1e30}),
        ("dp-mac", {"threshold": 1e30}),
        ("dp-mac", {"sigma": 1e-30}),
        ("neuron-noise", {"learning_rate": 1e30}),
        ("coefficients-iterated", {"step": 1e30}),
        ("adlm", {"stabiliser": 1e-30}),
    ],
)
def test_options_are_bounded(name: str, options: dict[str, float]) -> None:
    params = Params.model_validate({"release": {"mechanism": name, "options": options}})
    with pytest.raises(ParamsError, match=next(iter(options))):
        mechanism(name).plan(params, facts(np.zeros((N, 3)), 2))
