"""pCDBN's program in plain NumPy: slow, and nothing shared with the code that it is compared with."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Floats = Any


def sigmoid(values: Floats) -> Floats:
    return 1 / (1 + np.exp(-values))


def drive(visible: Floats, filters: Floats, bias: Floats) -> Floats:
    """A convolution with strides of 2: positions beyond the picture count as zeros, the odd one behind."""
    side = visible.shape[2]
    out = (side + 1) // 2
    before = max((out - 1) * 2 + 5 - side, 0) // 2
    made = np.zeros((len(visible), len(filters), out, out))
    for i, j in itertools.product(range(out), repeat=2):
        for r, s in itertools.product(range(5), repeat=2):
            y, x = 2 * i + r - before, 2 * j + s - before
            if 0 <= y < side and 0 <= x < side:
                made[:, :, i, j] += visible[:, :, y, x] @ filters[:, :, r, s].T
    return made + bias[None, :, None, None]


def value(alphas: Any, x: Floats) -> Floats:
    return sum(alpha * x**order for order, alpha in enumerate(alphas))


def activations(drives: Floats, alphas: Any) -> Floats:
    return np.clip(value(alphas, drives / drives.max()), 0, 1)


def answer(hidden: Floats, filters: Floats, side: int) -> Floats:
    """Nearest neighbours, then a convolution that keeps the size, with w[s][r] where the drive has w[r][s]."""
    small = hidden.shape[2]
    places = [int(np.floor(i * small / side)) for i in range(side)]
    blown = hidden[:, :, places][:, :, :, places]
    made = np.zeros((len(hidden), filters.shape[1], side, side))
    for i, j in itertools.product(range(side), repeat=2):
        for r, s in itertools.product(range(5), repeat=2):
            y, x = i + r - 2, j + s - 2
            if 0 <= y < side and 0 <= x < side:
                made[:, :, i, j] += blown[:, :, y, x] @ filters[:, :, s, r]
    return sigmoid(made)


def cost(visible: Floats, filters: Floats, bias: Floats, first: Any, second: Any) -> float:
    hidden = activations(drive(visible, filters, bias), first)
    again = answer(hidden, filters, visible.shape[2])
    found = activations(drive(again, filters, bias), second)
    return float(np.abs(found - hidden).mean() + np.abs(again - visible).mean())


def delta(visible: Floats, alphas: Any) -> float:
    ones = np.ones((4, visible.shape[1], 5, 5))
    hidden = activations(drive(visible, ones, np.ones(4)), alphas)
    return float(2 * np.abs(hidden.sum((2, 3))).max() + 2 * np.abs(visible.sum((2, 3))).max())


def below(records: Floats, parts: Mapping[str, Floats]) -> Floats:
    """What the fully connected units see, maps last."""
    units = records.transpose(0, 3, 1, 2)
    for depth in (0, 1):
        units = sigmoid(drive(units, parts[f"filters.{depth}"], parts[f"biases.{depth}"]))
    return units.transpose(0, 2, 3, 1).reshape(len(records), -1)


def top(seen: Floats, parts: Mapping[str, Floats], *, batch: bool) -> Floats:
    affine = seen @ parts["hidden.weight"].T + parts["hidden.bias"]
    mean = affine.mean(0) if batch else parts["norm.running_mean"]
    variance = affine.var(0) if batch else parts["norm.running_var"]
    return np.clip(np.maximum((affine - mean) / np.sqrt(variance + 1e-3), 0), 0, 1)


def scores(records: Floats, parts: Mapping[str, Floats], *, batch: bool) -> Floats:
    return top(below(records, parts), parts, batch=batch) @ parts["outputs.weight"].T + parts["outputs.bias"]


def taylor_loss(scored: Floats, labels: Floats) -> float:
    """The program's own formula: max(x, 0) - x y + log 2 - |x| / 2 + x^2 / 8, summed over everything."""
    hot = np.eye(scored.shape[1])[labels]
    return float(
        (np.maximum(scored, 0) - scored * hot + np.log(2) - np.abs(scored) / 2 + scored**2 / 8).sum()
    )


def adam(start: Floats, gradients: Any, *, rate: float) -> Floats:
    """Step by step, epsilon added to the root of what is not yet corrected."""
    place, first, second = start.copy(), 0 * start, 0 * start
    for step, gradient in enumerate(gradients, 1):
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        length = rate * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        place = place - length * first / (np.sqrt(second) + 1e-8)
    return place


def gradient(
    function: Callable[[Floats], float], place: Floats, few: Any = None, width: float = 1e-6
) -> Floats:
    """By differences, one number after the other; of a few of them only, where others are not wanted."""
    found = np.zeros(place.size)
    for index in range(place.size) if few is None else few:
        shift = np.zeros(place.size)
        shift[index] = width
        moved = shift.reshape(place.shape)
        found[index] = (function(place + moved) - function(place - moved)) / (2 * width)
    return found.reshape(place.shape)
