"""Labels that are numbers: on a public grid between their bounds, back in their own units, and how well they were
predicted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

HALF = 2**14
"""Steps of the grid from the middle of the bounds to either of them: a label is an integer from 0 to 2 HALF."""
Floats = NDArray[np.float64]
Bounds = tuple[float, float]


def on_grid(values: Floats, bounds: Bounds) -> NDArray[np.int32]:
    """The nearest step of each value, which must lie within the bounds."""
    low, high = bounds
    return np.rint((values - low) * (2 * HALF / (high - low))).astype(np.int32)


def of_grid(steps: NDArray[Any], bounds: Bounds) -> Floats:
    """Steps in the label's own units."""
    low, high = bounds
    values: Floats = low + (high - low) * (np.asarray(steps, np.float64) / (2 * HALF))
    return values


def centred(steps: NDArray[np.integer], level: int = 0) -> Floats:
    """Integer targets from -HALF to HALF, one column: steps above the middle of the bounds less `level`, cut to
    that range; a null record (label -1) is 0.
    """
    targets = np.clip(steps.astype(np.float64) - (HALF + level), -HALF, HALF)
    return np.where(steps >= 0, targets, 0.0)[:, None]


def level_of(total: int, n: int, noise: float) -> int:
    """Where labels lie about the middle of their bounds, from a noisy sum of targets: as far as it is sure, one
    deviation of the noise taken off.
    """
    sure = max(abs(total) - noise, 0.0) / n
    return int(min(round(sure), HALF)) * (1 if total > 0 else -1)


def line(bounds: Bounds, level: int) -> tuple[float, float]:
    """Factor and offset that bring a score in units of HALF steps above `level` to the label's own units."""
    low, high = bounds
    return (high - low) / 2, (high + low) / 2 + (high - low) / 2 * (level / HALF)


def measures(predicted: Floats, actual: Floats) -> dict[str, float | None]:
    """R^2, root of the mean squared error and mean absolute error; None where there is nothing to measure."""
    if not len(actual):
        return {"r2": None, "rmse": None, "mae": None}
    gap = predicted - actual
    squares, spread = float((gap * gap).mean()), float(actual.var())
    return {
        "r2": 1.0 - squares / spread if spread > 0 else None,
        "rmse": float(np.sqrt(squares)),
        "mae": float(np.abs(gap).mean()),
    }


def of_noisy_sums(figures: Mapping[str, Any]) -> dict[str, float | None]:
    """R^2 with an interval from its noise, and errors in the label's own units, from the noisy sums of a private
    evaluation (stages/release/judged_numbers.py).

    The interval takes two deviations of the noise off and on, where that hurts and helps most; that the holdout
    is a sample is not in it. There is no R^2 where the noise covers the spread of the labels. An error that the
    noise covers is told as two deviations of the noise: no smaller one can be known.

    Raises:
        ValueError, KeyError, TypeError: these are no such sums.
    """
    whole = float(figures["unit"]) * int(figures["records"])
    squared, absolute, mean, second = (float(one) / whole for one in figures["errors"])
    noise = 2.0 * float(figures["noise_of_errors"]) / whole
    width = float(figures["high"]) - float(figures["low"])
    squared, absolute = (min(max(one, 0.0), 1.0) for one in (squared, absolute))
    spread, slack = second - mean * mean, noise * (1 + 2 * abs(mean))
    told = spread > slack
    return {
        "r2": 1 - squared / spread if told else None,
        "r2_low": 1 - (squared + noise) / (spread - slack) if told else None,
        "r2_high": 1 - max(squared - noise, 0.0) / (spread + slack) if told else None,
        "rmse": math.sqrt(min(max(squared, noise), 1.0)) * width,
        "mae": min(max(absolute, noise), 1.0) * width,
    }
