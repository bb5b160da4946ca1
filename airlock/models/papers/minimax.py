"""The optimisation problem of Xiang, Yang and Li (Eqs. 8-12): as published, and solved.

Minimise sum_i |w_i| sigma_i such that sum_i Delta_i^2 / sigma_i^2 <= tau for every Delta of norm alpha. The
left side is largest where all
of Delta sits on the smallest sigma_i: it is alpha^2 / min sigma^2. So sigma is feasible if and only if every
sigma_i is at least alpha / sqrt(tau), and the cheapest such sigma has equality everywhere: the optimum is
isotropic, whatever w is.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
ITERATIONS = 50
"""'The method takes around 50 iterations to converge' (Sec. V-A)."""
LEAST_SIGMA = 1e-3


def step_budget(epsilon: float, delta: float, *, rate: float, steps: int) -> tuple[float, float]:
    """Eq. 12: what one of `steps` iterations may spend, in the paper's view."""
    return epsilon / math.sqrt(16 * rate**2 * steps * math.log(math.e + epsilon / delta)), delta / (2 * steps)


def least_order(epsilon: float, delta: float) -> float:
    """The smallest lambda whose tau is positive (and then 0 itself)."""
    return math.log(1 / delta) / epsilon


def tau(epsilon: float, delta: float, order: float = math.inf) -> float:
    """The paper's bound on sum Delta_i^2 / sigma_i^2, 2 epsilon + (2 / lambda) ln delta; lambda = infinity
    asks for the least noise.

    The moment behind it is wrong by a factor lambda + 1 (docs/errata/optimized-noise.md); that is why epsilon
    stands here and not its square.
    """
    return 2 * epsilon + (2 / order) * math.log(delta)


def isotropic(alpha: float, bound: float) -> float:
    """The optimum of Eq. 10: this standard deviation for every coordinate."""
    return alpha / math.sqrt(bound)


def cost(weights: Array, sigma: Array) -> float:
    """Eq. 10a."""
    return float(np.abs(weights) @ sigma)


def worst(sigma: Array, alpha: float) -> float:
    """The left side of Eq. 10b at its largest over Delta: feasible where it is at most tau."""
    return (alpha / float(sigma.min())) ** 2


def frozen(weights: Array, alpha: float, bound: float) -> Array:
    """The minimiser for one Delta, the uniform one, in place of all: sigma_i ~ |w_i|^(-1/3).

    It is not feasible.
    """
    shape = np.maximum(np.abs(weights), np.abs(weights).max() * 1e-9 + 1e-300) ** (-1 / 3)
    scaled: Array = shape * (alpha / math.sqrt(bound) * math.sqrt(float(np.mean(shape**-2.0))))
    return scaled


def alternate(
    weights: Array,
    alpha: float,
    bound: float,
    *,
    iterations: int = ITERATIONS,
    rate: float = 0.02,
    slope: float = 30.0,
    penalties: tuple[float, float] = (0.1, 1.0),
) -> Array:
    """Eq. 11 as the paper solves it: a sigmoid for the step, projected gradients in turn, the penalty mu
    growing.

    The paper gives no first point, step size, slope or penalty, and the answer depends on them: from noise
    that is too large everywhere to noise of nearly 0 for some parameters. Here sigma starts at the isotropic
    optimum and Delta uniform; sigma is in units of that optimum and Delta of alpha, so that step sizes have
    no units.
    """
    size = len(weights)
    share = np.abs(weights) / max(float(np.abs(weights).sum()), 1e-300)
    sigma, shift = np.ones(size), np.full(size, size**-0.5)
    for penalty in np.geomspace(*penalties, iterations):
        push = penalty * _steepness(float(np.sum(shift**2 / sigma**2)) - 1, slope)
        gradient = share - 2 * push * shift**2 / sigma**3
        sigma = np.maximum(sigma - rate * np.clip(size * gradient, -1, 1), LEAST_SIGMA)
        shift = shift + rate * push * 2 * shift / sigma**2
        shift /= np.linalg.norm(shift)
    scaled: Array = sigma * isotropic(alpha, bound)
    return scaled


def _steepness(excess: float, slope: float) -> float:
    """Derivative of the sigmoid that stands for the step function."""
    value = 1 / (1 + math.exp(-min(max(slope * excess, -60.0), 60.0)))
    return slope * value * (1 - value)
