"""Fig. 2 of optimized noise (bench/papers/optimized_surface.py): its network is the paper's, and slopes are slopes."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.papers import optimized_surface


def test_the_slope_is_what_small_steps_say() -> None:
    generator = np.random.default_rng(0)
    x, truth = optimized_surface.draw_samples(generator)
    theta = generator.standard_normal((2, len(optimized_surface.NAMES)))
    found, step = optimized_surface.slope(theta, x, truth), 1e-6
    for place in range(theta.shape[1]):
        away = np.zeros(theta.shape[1])
        away[place] = step
        up, down = (optimized_surface.cost(theta + sign * away, x, truth) for sign in (1, -1))
        assert np.allclose((up - down) / (2 * step), found[:, place], atol=1e-8)


def test_a_score_is_the_papers() -> None:
    """Sec. IV-A: h1 = sigmoid(θ1 x1 + θ3 x2 + b1), y = θ5 h1 + θ6 h2 + b3."""
    theta = {name: number + 1.0 for number, name in enumerate(optimized_surface.NAMES)}
    x1, x2 = 0.3, 0.7

    def unit(a: float, b: float, c: float) -> Any:
        return 1 / (1 + np.exp(-(a * x1 + b * x2 + c)))

    h1, h2 = unit(theta["θ1"], theta["θ3"], theta["b1"]), unit(theta["θ2"], theta["θ4"], theta["b2"])
    wanted = theta["θ5"] * h1 + theta["θ6"] * h2 + theta["b3"]
    found = optimized_surface.forward(np.array(list(theta.values())), np.array([[x1, x2]]))[1]
    assert np.allclose(found, wanted)


def test_training_lowers_the_cost_and_moving_begins_at_the_network() -> None:
    theta, x, truth = optimized_surface.train(3, 5)
    start, _, _ = optimized_surface.train(3, 0)
    assert (optimized_surface.cost(theta, x, truth) < optimized_surface.cost(start, x, truth)).all()
    places = optimized_surface.moved(theta[0], ("θ1", "b3"))
    assert np.array_equal(places[0, 0], theta[0])
    assert np.allclose((places[-1, -1] - theta[0])[[0, 8]], optimized_surface.REACH)
