"""A learning curve that costs nothing: how far the training loss has come, as the noisy gradients tell it.

A move, times the mean of the noisy gradients at its two ends, is what it changed, to second order. The gradient at its
end has fresh noise. That at its beginning has made the move, by -rate times its noise: what this takes off on average
is known, and is put back, so that noise moves the sum both ways alike. Where the answer of a move to noise is not
known (no rate), the gradient at its end stands for both; a loss that is convex there comes out too high.
All of it is a function of noisy sums, as every iterate is. What it follows is the loss whose gradients are clipped,
from wherever it began.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stages.release.interactive import State

if TYPE_CHECKING:
    from torch import Tensor

POINTS = 100
"""Of the curve, at most."""


def start(theta: Tensor, steps: int) -> State:
    """What the walk remembers for it, before the first step."""
    import torch

    points, sums = min(POINTS, steps), torch.zeros(2, dtype=torch.float64)
    path = torch.zeros(points, dtype=torch.float64)
    return {"before": theta.clone(), "slope": torch.zeros_like(theta), "path": path, "told": sums}


def follow(
    step: int,
    steps: int,
    state: State,
    theta: Tensor,
    slope: Tensor,
    deviation: float | Tensor,
    rate: float | None = None,
) -> State:
    """After a noisy gradient `slope` was taken at `theta`; `deviation` is that of its noise."""
    import torch

    moved, path = theta - state["before"], state["path"].clone()
    change = (slope * moved).sum()
    if rate is not None and step:
        taken = rate * (torch.zeros_like(theta) + deviation).square().sum()
        change = (change + (state["slope"] * moved).sum() + taken) / 2
    told = state["told"] + torch.stack([change, (moved * deviation).square().sum()]).double().cpu()
    path[step * len(path) // steps] = told[0]
    return {"before": theta.clone(), "slope": slope.clone(), "path": path, "told": told}


def curve(state: State, steps: int) -> dict[str, Any]:
    """For the release's details: (steps before, change) and the noise's part of the last one."""
    path: list[float] = state["path"].tolist()
    points = [[((place + 1) * steps - 1) // len(path), change] for place, change in enumerate(path)]
    return {"over": "steps", "points": points, "noise": float(state["told"][1]) ** 0.5}
