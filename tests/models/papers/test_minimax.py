"""Xiang et al.'s optimisation problem: its optimum is the same noise everywhere, and the published solver
does not find it.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from airlock.models.papers import minimax
from airlock.privacy import accounting, events
from stages.release import interactive

seeds = st.integers(0, 2**32 - 1)


@given(seeds, st.integers(1, 30), st.floats(0.1, 10), st.floats(0.01, 10))
def test_no_feasible_noise_is_cheaper_than_the_isotropic_one(
    seed: int, size: int, alpha: float, bound: float
) -> None:
    random = np.random.default_rng(seed)
    weights, sigma = random.lognormal(0, 2, size), random.lognormal(0, 2, size)
    sigma *= math.sqrt(minimax.worst(sigma, alpha) / bound)  # on the edge of the feasible set
    best = np.full(size, minimax.isotropic(alpha, bound))
    assert minimax.worst(best, alpha) <= bound * (1 + 1e-12)
    assert minimax.cost(weights, best) <= minimax.cost(weights, sigma) * (1 + 1e-9)


@given(seeds, st.integers(2, 30))
def test_worst_shift_is_never_beaten(seed: int, size: int) -> None:
    random = np.random.default_rng(seed)
    sigma, shifts = random.lognormal(0, 1, size), random.standard_normal((200, size))
    shifts *= 3.0 / np.linalg.norm(shifts, axis=1, keepdims=True)
    assert ((shifts / sigma) ** 2).sum(axis=1).max() <= minimax.worst(sigma, 3.0) * (1 + 1e-12)


def test_general_purpose_solver_finds_the_isotropic_optimum() -> None:
    weights, alpha, bound = np.array([5.0, 1.0, 0.1, 0.01]), 2.0, 0.5
    # Only shifts along one axis at a time: fewer constraints than Eq. 10 has, and the optimum is isotropic
    # all the same.
    limits = {"type": "ineq", "fun": lambda sigma: bound - (alpha / sigma) ** 2}
    found = minimize(
        lambda sigma: weights @ sigma,
        np.array([9.0, 4.0, 6.0, 5.0]),
        constraints=[limits],
        options={"maxiter": 500},
    )
    assert found.success
    assert found.x == pytest.approx(np.full(4, minimax.isotropic(alpha, bound)), rel=1e-4)


def test_noise_that_is_right_for_one_shift_is_wrong_for_another() -> None:
    weights = np.random.default_rng(0).lognormal(0, 2, 5000)
    sigma, uniform = minimax.frozen(weights, 4.0, 0.2), np.full(5000, 4.0 / math.sqrt(5000))
    assert ((uniform / sigma) ** 2).sum() == pytest.approx(0.2)
    assert minimax.worst(sigma, 4.0) > 10 * 0.2


@pytest.mark.parametrize("slope", [10.0, 30.0, 100.0])
@pytest.mark.parametrize("penalties", [(0.1, 1.0), (1.0, 100.0)])
def test_published_solver_is_dearer_than_the_optimum_or_breaks_the_constraint(
    slope: float, penalties: tuple[float, float]
) -> None:
    weights = np.random.default_rng(0).lognormal(0, 2, 5000)
    sigma = minimax.alternate(weights, 4.0, 0.2, slope=slope, penalties=penalties)
    best = np.full(5000, minimax.isotropic(4.0, 0.2))
    assert sigma.std() > 0.01 * sigma.mean()
    assert minimax.cost(weights, sigma) > minimax.cost(weights, best) or minimax.worst(sigma, 4.0) > 0.2


def test_moment_of_the_privacy_loss_has_a_factor_that_the_paper_lacks() -> None:
    square, order = 0.3**2, 3
    losses = np.random.default_rng(0).normal(square / 2, math.sqrt(square), 2_000_000)
    measured = np.exp(order * losses).mean()
    assert measured == pytest.approx(math.exp(order * (order + 1) * square / 2), rel=0.01)
    assert measured > 1.5 * math.exp(order * square / 2)


@pytest.mark.parametrize(
    ("claimed", "multiplier", "proven"), [(1.0, 2.24, 1.36), (0.3, 3.98, 0.689), (0.05, 9.28, 0.268)]
)
def test_provable_epsilon_of_the_published_calibration(
    claimed: float, multiplier: float, proven: float
) -> None:
    rate, count = 1000 / 55_000, 1650
    noise = minimax.isotropic(1.0, minimax.tau(*minimax.step_budget(claimed, 1e-5, rate=rate, steps=count)))
    assert noise == pytest.approx(multiplier, rel=0.005)
    assert accounting.epsilon(
        events.from_json(interactive.sampled(rate, count, noise)), 1e-5
    ) == pytest.approx(proven, rel=0.01)


def test_right_moment_asks_for_far_more_noise() -> None:
    epsilon, delta = minimax.step_budget(1.0, 1e-5, rate=1000 / 55_000, steps=1650)
    orders = np.geomspace(1.01, 1000, 400) * minimax.least_order(epsilon, delta)
    needed = min(minimax.isotropic(1.0, minimax.tau(epsilon, delta, order) / (order + 1)) for order in orders)
    assert needed > 20 * minimax.isotropic(1.0, minimax.tau(epsilon, delta))
