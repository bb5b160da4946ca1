"""Optimized noise's Algorithm 1 as published, step by step, against a slow oracle: Eqs. 8 to 12, clipping, noise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from airlock.models.papers import minimax, networks
from stages.release import interactive
from stages.release.papers.dp_sgd.dp_sgd import SEED, Data
from stages.release.papers.optimized_noise import optimized_noise
from tests.support.comparison import KEY, MNIST, blobs, facts, params

COUNT, BATCH, STEPS, ALPHA, EPSILON, DELTA = 40, 8, 5, 0.7, 2.0, 1e-5
ABOUT = facts((12,), COUNT, 3)
X, Y = blobs(COUNT)
Y[3] = -1


class Told(interactive.Keyed):
    """Remembers which records and which noise it drew for each step."""

    rows: list[Any]
    drawn: list[Any]

    def sample(self, step: int, rate: float, count: int) -> torch.Tensor:
        assert (rate, count) == (BATCH / COUNT, COUNT)
        self.rows.append(super().sample(step, rate, count))
        return self.rows[-1]  # type: ignore[no-any-return]

    def gaussian(self, step: int, purpose: str, total: torch.Tensor, scale: Any) -> torch.Tensor:
        self.drawn.append(super().gaussian(step, purpose, total, scale))
        return self.drawn[-1]  # type: ignore[no-any-return]


def told() -> Told:
    keyed = Told(KEY, "a")
    object.__setattr__(keyed, "rows", [])
    object.__setattr__(keyed, "drawn", [])
    return keyed


def slope(theta: Any, row: int) -> Any:
    """Of one record's cross-entropy: 64 units of tanh, three scores; back by hand."""
    parts = np.split(theta, np.cumsum([64 * 12, 64, 3 * 64]))
    lower, upper = parts[0].reshape(64, 12), parts[2].reshape(3, 64)
    units = np.tanh(lower @ X[row] + parts[1])
    powers = np.exp(upper @ units + parts[3])
    gap = powers / powers.sum() - np.eye(3)[Y[row]]
    inner = (upper.T @ gap) * (1 - units**2)
    return np.concatenate([np.outer(inner, X[row]).ravel(), inner, np.outer(gap, units).ravel(), gap])


def slow_bound(order: float) -> float:
    """Eq. 12, then Eq. 10b with Eq. 9's moment."""
    epsilon = EPSILON / math.sqrt(16 * (BATCH / COUNT) ** 2 * STEPS * math.log(math.e + EPSILON / DELTA))
    return 2 * epsilon + 2 / order * math.log(DELTA / (2 * STEPS))


def slow_frozen(weights: Any, bound: float) -> Any:
    """sum |w| sigma at its least for one shift, the even one: by Lagrange |w_i| ~ Delta_i^2 / sigma_i^3."""
    shape = np.array([abs(one) ** (-1 / 3) for one in weights])
    even = ALPHA**2 / len(weights)
    return shape * math.sqrt(sum(even / one**2 for one in shape) / bound)


def slow_alternate(weights: Any, bound: float) -> Any:
    """Eq. 11 coordinate by coordinate: noise down the slope of cost and penalty, the shift up that of the penalty."""
    size, sigma = len(weights), [1.0] * len(weights)
    shift, cost = [size**-0.5] * size, [abs(one) / np.abs(weights).sum() for one in weights]
    for step in range(50):
        penalty = 0.1 * 10 ** (step / 49)
        excess = sum((d / s) ** 2 for d, s in zip(shift, sigma, strict=True)) - 1
        chance = 1 / (1 + math.exp(-min(max(30 * excess, -60), 60)))
        push = penalty * 30 * chance * (1 - chance)
        slopes = [c - 2 * push * d**2 / s**3 for c, d, s in zip(cost, shift, sigma, strict=True)]
        moved = [s - 0.02 * min(max(size * one, -1), 1) for s, one in zip(sigma, slopes, strict=True)]
        sigma = [max(one, 1e-3) for one in moved]
        shift = [d + 0.02 * push * 2 * d / s**2 for d, s in zip(shift, sigma, strict=True)]
        length = math.sqrt(sum(one**2 for one in shift))
        shift = [one / length for one in shift]
    return np.array(sigma) * ALPHA / math.sqrt(bound)


def slow_training(keyed: Told, solution: str, bound: float, unit: float) -> Any:
    network = networks.build("perceptron", (12,), 3, seed=SEED)
    theta = torch.nn.utils.parameters_to_vector(network.parameters()).detach().double().numpy()
    speed = np.zeros_like(theta)
    for rows, drawn in zip(keyed.rows, keyed.drawn, strict=True):
        total = np.zeros_like(theta)
        for row in rows.tolist():
            if Y[row] >= 0:
                found = slope(theta, row)
                total += found * min(1.0, ALPHA / math.sqrt((found**2).sum()))
        sigma = np.full(len(theta), ALPHA / math.sqrt(bound))
        if solution != "isotropic":
            known = [row for row in range(COUNT) if Y[row] >= 0]
            weights = sum(slope(theta, row) for row in known) / COUNT
            sigma = {"frozen": slow_frozen, "alternating": slow_alternate}[solution](weights, bound)
        speed = 0.9 * speed + (total + unit * sigma * drawn.double().numpy()) / BATCH
        theta = theta - 0.25 * speed
    return theta


@pytest.mark.parametrize(
    ("solution", "order", "noise"),
    [
        ("isotropic", None, "lot"),
        ("isotropic", 400.0, "lot"),
        ("isotropic", None, "average"),
        ("frozen", None, "lot"),
        ("alternating", None, "lot"),
    ],
)
def test_a_training_is_what_the_slow_oracle_says(solution: str, order: float | None, noise: str) -> None:
    """In `average` alpha is taken for what a record moves the mean by, so that a sum gets a batch's worth of it."""
    asked = params(
        "optimized-noise", epsilon=EPSILON, calibration="published", solution=solution, order=order, noise=noise,
        model="perceptron", epochs=1, batch=BATCH, clip=ALPHA, learning_rate=0.25,
    )  # fmt: skip
    data = Data(torch.from_numpy(X).float(), torch.from_numpy(Y.astype(np.int64)))
    keyed = told()
    tensors, _ = optimized_noise.train(asked, ABOUT, data, interactive.Course(keyed))
    assert len(keyed.drawn) == STEPS
    assert len({tuple(rows.tolist()) for rows in keyed.rows}) == STEPS
    bound = slow_bound(order or math.inf)
    wanted = slow_training(keyed, solution, bound, BATCH if noise == "average" else 1)
    names = ("layers.1.weight", "layers.1.bias", "layers.3.weight", "layers.3.bias")
    found = np.concatenate([tensors[f"network.{name}"].ravel() for name in names])
    # `frozen` divides by the slopes' size: where one is nearly nought, its rounding is in the noise.
    most = 0.5 if solution == "frozen" else 1.0
    assert np.quantile(np.abs(found - wanted), most) < 1e-3 * np.quantile(np.abs(wanted), most)
    normal = torch.cat(keyed.drawn).numpy()
    assert normal.std() == pytest.approx(1, rel=0.03)
    # Of a normal variable; a Laplace one would have 1.41.
    assert normal.std() / np.abs(normal).mean() == pytest.approx(math.sqrt(math.pi / 2), rel=0.03)


def test_presets_are_table_two() -> None:
    for preset, clip in (("paper-mnist", 4.0), ("paper-cifar10", 0.2)):
        recipe = optimized_noise.resolve(params("optimized-noise", preset=preset), MNIST)
        assert (recipe.alpha, recipe.schedule.batch, recipe.schedule.steps) == (clip, 1000, 1800)
        assert (recipe.options.solution, recipe.options.calibration) == ("isotropic", "published")


def test_a_step_may_spend_what_equation_12_says() -> None:
    """With so large a delta that e counts beside epsilon / delta."""
    wanted = 1.5 / math.sqrt(16 * 0.1**2 * 7 * math.log(math.e + 3)), 0.5 / 14
    assert minimax.step_budget(1.5, 0.5, rate=0.1, steps=7) == pytest.approx(wanted)
