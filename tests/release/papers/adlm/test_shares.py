"""How AdLM's authors' program for grey images shares its noise: relevance, what is added to it and where, shares, and
the law of the noise on inputs, against a slow oracle.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from airlock.models.papers import networks
from airlock.models.papers.networks import Ordered
from airlock.params import Params
from stages.release.papers.adlm import adlm, perturbation, pretraining
from tests.support.comparison import KEY, batches, facts, params

SIDE, COUNT, UNIT_GRID = 28, 60, 2**16
PIXELS = SIDE * SIDE
DRAWN = np.random.default_rng(0)
X = DRAWN.integers(0, 256, (COUNT, SIDE, SIDE, 1)).astype(np.uint8)
Y = DRAWN.integers(0, 3, COUNT).astype(np.int32)
X[7], Y[7] = 0, -1
"""A null record, which has no relevance."""
WEIGHTS, BIASES = DRAWN.normal(size=(3, PIXELS)), DRAWN.normal(size=3)


def linear() -> Ordered:
    """A network through which relevance can be written out by hand."""
    layer = torch.nn.Linear(PIXELS, 3)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(WEIGHTS))
        layer.bias.copy_(torch.from_numpy(BIASES))
    return Ordered(torch.nn.Sequential(torch.nn.Flatten(), layer))


UNIT: dict[str, Any] = {"pixels": "unit", "allocation": "clamped"}
"""What the preset was before it had the program's pixels and shares."""


def released(epsilon: float, **options: Any) -> tuple[Any, dict[str, Any]]:
    about, asked = (
        facts((SIDE, SIDE, 1), COUNT, 3),
        params("adlm", epsilon=epsilon, preset="authors-code", **options),
    )
    recipe = adlm.resolve(asked, about)
    named: dict[str, Any] = {"key": KEY, "release_id": "a", "network": linear()}
    return recipe, perturbation.perturb(recipe, asked, about, batches(X, Y, 16), **named)[0]


def slow_mean(rows: Any) -> Any:
    """The rule with 1 beside each sum (Eqs. 4-9) of pixels in [-1, 1], from each output with its own value; the mean
    over all records, of relevances as they are.
    """
    total = np.zeros(PIXELS)
    for x, y in zip(rows.reshape(-1, PIXELS) / 127.5 - 1, Y, strict=False):
        if y >= 0:
            for weight, bias in zip(WEIGHTS, BIASES, strict=True):
                score = float(weight @ x + bias)
                total += x * weight / (score + (1 if score >= 0 else -1)) * score
    return total / len(rows)


def slow_unit_mean(rows: Any) -> Any:
    """Of pixels in [0, 1], from the largest output; from least to greatest 0 to 1 in each record; their mean."""
    total = np.zeros(PIXELS)
    for x, y in zip(rows.reshape(-1, PIXELS) / 255, Y, strict=False):
        if y >= 0:
            scores = WEIGHTS @ x + BIASES
            top = int(scores.argmax())
            found = x * WEIGHTS[top] / (scores[top] + np.sign(scores[top])) * scores[top]
            total += (found - found.min()) / (found.max() - found.min())
    return total / len(rows)


def slow_map(mean: Any, least: float) -> Any:
    """From its own least to its own greatest value 0 to 1, to the fourth power, and so much at least."""
    share = (mean - mean.min()) / (mean.max() - mean.min())
    return np.array([max(one * one * one * one, least) for one in share])


def slow_shares(relevance: Any) -> Any:
    """The program: what is below 1e-5 after the noise is 1e-5; shares sum to the number of pixels, and are not below
    1e-5 either.
    """
    kept = [1e-5 if one < 1e-5 else float(one) for one in relevance]
    shares = [PIXELS * one / sum(kept) for one in kept]
    return np.array([1e-5 if one < 1e-5 else one for one in shares])


def slow_unit_shares(relevance: Any) -> Any:
    """By size; at least a ten-thousandth of an even share, and then again summing to the number of pixels."""
    share = np.maximum(np.abs(relevance) / np.abs(relevance).mean(), 1e-4)
    return share * PIXELS / share.sum()


WAYS = {
    "program": ({}, slow_mean, 0.0, slow_shares, 4900),
    "unit": (UNIT, slow_unit_mean, 1e-5, slow_unit_shares, 9800),
}
"""Options, the mean, the least of its map, shares, and Delta of a pooled map of 14 x 14 for pixels in [0, 1]: half of
what the program has for pixels in [-1, 1].
"""


@pytest.mark.parametrize("count", [None, 40])
@pytest.mark.parametrize("way", WAYS)
def test_relevance_is_the_rescaled_mean_to_the_fourth_power(way: str, count: int | None) -> None:
    """With hardly any noise; of the first records only, where so many are asked for."""
    options, mean, least, shares, delta = WAYS[way]
    _, tensors = released(1e9, relevance_records=count, **options)
    used = count or COUNT
    # Each record's relevance is cut to the grid, which the fourth power makes four times as large at most.
    wanted = slow_map(mean(X[:used]), least)
    assert tensors["relevance"] / (used * UNIT_GRID) == pytest.approx(wanted, abs=4 / UNIT_GRID)
    # Of 784 draws of noise, each of 0.4 steps of the grid.
    assert tensors["relevance"].min() == pytest.approx(int(least * used * UNIT_GRID), abs=8)
    # A quarter of epsilon.
    even = delta / (COUNT * 1e9 / 4)
    assert tensors["scales"] == pytest.approx(even / shares(tensors["relevance"] / (used * UNIT_GRID)))


@pytest.mark.parametrize("allocation", ["floored", "clamped"])
def test_relevance_of_other_pixels_is_another_release(allocation: str) -> None:
    """A release that is there is not made again: by one id that of [0, 1] would have served for [-1, 1]. What was
    asked for before there was a choice has the parameters of then.
    """
    options = {"preset": "authors-code", "allocation": allocation}
    plans = [
        adlm.relevance(
            Params.model_validate(
                {"release": {"mechanism": "adlm", "options": {**options, "pixels": pixels}}}
            ),
            facts((SIDE, SIDE, 1), COUNT, 3),
        )
        for pixels in ("signed", "unit")
    ]
    signed, unit = (plan.parameters for plan in plans if plan is not None)
    assert signed == {**unit, "pixels": "signed"}


@pytest.mark.parametrize("way", WAYS)
def test_noise_comes_after_the_fourth_power_and_before_the_shares(way: str) -> None:
    """Lap(2 d / (n e1)) on each pixel's relevance; noise in inverse proportion to what comes out."""
    options, mean, least, shares, delta = WAYS[way]
    _, tensors = released(40.0, **options)
    found = tensors["relevance"] / (COUNT * UNIT_GRID)
    noise = found - slow_map(mean(X), least)
    scale = 2 * PIXELS / (COUNT * 10.0)
    assert np.abs(noise).mean() == pytest.approx(scale, rel=0.1)
    # Of a Laplace variable; a normal one would have 1.25.
    assert noise.std() / np.abs(noise).mean() == pytest.approx(2**0.5, rel=0.08)
    assert (found < 0).mean() > 0.3
    assert tensors["scales"] == pytest.approx(delta / (COUNT * 10.0) / shares(found))


@pytest.mark.parametrize("way", WAYS)
def test_a_network_is_trained_on_the_pixels_that_relevance_is_of(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On raw records in [-1, 1], as the program has it, or in [0, 1]; null records are not learned from."""
    seen, build = list[Any](), networks.build

    def recorded(*asked: Any, **more: Any) -> Any:
        made = build(*asked, **more)
        made.register_forward_pre_hook(lambda _, given: seen.append(given[0].detach().numpy()))
        return made

    about = facts((SIDE, SIDE, 1), COUNT, 3)
    asked = params("adlm", preset="authors-code", pretraining_epochs=1, **WAYS[way][0])
    recipe, named = adlm.resolve(asked, about), {"key": KEY, "release_id": "a"}
    monkeypatch.setattr("airlock.models.papers.networks.build", recorded)
    network = pretraining.network(recipe, asked, about, batches(X, Y, 16), **named)
    low = -1.0 if way == "program" else 0.0
    wanted = low + (1 - low) * X[Y >= 0] / 255
    (trained,) = seen
    assert sorted(trained.sum((1, 2, 3))) == pytest.approx(sorted(wanted.sum((1, 2, 3))), abs=1e-2)
    seen.clear()
    perturbation.of_each(recipe, network, (X[:5] / 255).astype(np.float32))
    assert seen and all(one == pytest.approx(low + (1 - low) * X[:5] / 255, abs=1e-6) for one in seen)


@pytest.mark.parametrize(("network", "low"), [("public", -1.0), ("released", 0.0)])
def test_a_network_that_is_trained_with_privacy_looks_at_pixels_in_0_1(network: str, low: float) -> None:
    """As DP-SGD trains it."""
    seen: list[Any] = []
    looked_through = linear()
    looked_through.register_forward_pre_hook(lambda _, given: seen.append(float(given[0].min())))
    recipe = adlm.resolve(
        params("adlm", preset="authors-code", network=network), facts((SIDE, SIDE, 1), COUNT, 3)
    )
    perturbation.of_each(recipe, looked_through, (X[:8] / 255).astype(np.float32))
    assert set(seen) == {low}


def test_inputs_of_a_batch_get_one_laplace_draw_of_their_own_scale() -> None:
    """Every batch another; the last one is what is left."""
    recipe, tensors = released(4000.0, batch=8)
    drawn = (tensors["inputs"] - X.reshape(COUNT, -1).astype(np.int64)) / 255
    vectors = [drawn[first : first + 8] for first in range(0, COUNT, 8)]
    assert len(vectors) == 8
    assert all(np.array_equal(rows, np.repeat(rows[:1], len(rows), axis=0)) for rows in vectors)
    unit = np.stack([rows[0] for rows in vectors]) / tensors["scales"]
    assert len(np.unique(unit, axis=0)) == 8
    assert np.abs(unit).mean() == pytest.approx(1, rel=0.05)
    assert unit.std() == pytest.approx(2**0.5, rel=0.05)
    assert unit.mean() == pytest.approx(0, abs=0.05)
    assert recipe.input_scale == pytest.approx(4900 / (8 * 1000.0))
