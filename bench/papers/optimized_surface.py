"""Fig. 2 of Xiang et al.: the cost of a tiny trained network when two of its parameters are moved by 0 to 0.3.

    python -m bench.papers.optimized_surface      seconds: bench/results/papers/optimized-surface.json and its picture

Sec. IV-A: two inputs, two sigmoid units, one output, nine parameters; x1 AND x2 of the rounded inputs, 1,000 samples,
150 epochs. Not in the paper: the cost (here the logistic one, which its Sec. III-B names: with a squared error the
derivative by b3 would change by at least 0.3 over the range, and it prints 0.032), rate, batches, first weights.
NETWORKS of them are trained side by side, of which the first is drawn. Beside the figure: whether the size of a
parameter's derivative, the weight of Eq. 10a, says what noise on it costs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.compare.papers import canvas, keep

RESULTS = Path(__file__).parents[1] / "results/papers/optimized-surface.json"
PICTURE = Path(__file__).parents[2] / "docs/papers/optimized-surface.svg"
NAMES = ("θ1", "θ2", "θ3", "θ4", "θ5", "θ6", "b1", "b2", "b3")
SAMPLES, EPOCHS, REACH = 1000, 150, 0.3
"""The paper's."""
NETWORKS, BATCH, RATE, SEED, PLACES = 100, 10, 0.1, 0, 31
"""Ours; taken once, before anything was seen."""
PAIRS = (("θ1", "b3"), ("θ6", "b3"))
"""Moved together, in Figs. 2a and 2b and in 2c."""
Array = NDArray[np.float64]


def sigmoid(values: Array) -> Array:
    """1 / (1 + exp(-t))."""
    return np.asarray(1 / (1 + np.exp(-values)))


def forward(theta: Array, x: Array) -> tuple[Array, Array]:
    """Hidden units (..., records, 2) and scores (..., records) of networks (..., 9) on records (..., records, 2)."""
    matrix = theta[..., :4].reshape(*theta.shape[:-1], 2, 2)
    hidden = sigmoid(x @ matrix + theta[..., None, 6:8])
    return hidden, (hidden * theta[..., None, 4:6]).sum(-1) + theta[..., None, 8]


def cost(theta: Array, x: Array, truth: Array) -> Array:
    """The mean logistic cost."""
    scores = forward(theta, x)[1]
    return np.asarray((np.logaddexp(0, scores) - truth * scores).mean(-1))


def slope(theta: Array, x: Array, truth: Array) -> Array:
    """Its derivative by every parameter."""
    hidden, scores = forward(theta, x)
    errors = ((sigmoid(scores) - truth) / truth.shape[-1])[..., None]
    below = errors * theta[..., None, 4:6] * hidden * (1 - hidden)
    first = (np.swapaxes(np.broadcast_to(x, (*below.shape[:-1], 2)), -1, -2) @ below).reshape(
        *theta.shape[:-1], 4
    )
    return np.concatenate([first, (errors * hidden).sum(-2), below.sum(-2), errors.sum(-2)], -1)


def draw_samples(generator: np.random.Generator) -> tuple[Array, Array]:
    """Records in the unit square; AND of their rounded values."""
    x = generator.uniform(size=(SAMPLES, 2))
    return x, np.rint(x).prod(-1)


def train(networks: int = NETWORKS, epochs: int = EPOCHS) -> tuple[Array, Array, Array]:
    """Trained networks, and the records that they were trained on."""
    generator = np.random.default_rng(SEED)
    x, truth = draw_samples(generator)
    theta = generator.standard_normal((networks, len(NAMES)))
    for _ in range(epochs):
        for rows in generator.permutation(SAMPLES).reshape(-1, BATCH):
            theta -= RATE * slope(theta, x[rows], truth[rows])
    return theta, x, truth


def moved(theta: Array, pair: tuple[str, str]) -> Array:
    """One network with two parameters moved, (places of the first, places of the second, 9)."""
    steps = np.linspace(0, REACH, PLACES)
    found = np.broadcast_to(theta, (PLACES, PLACES, len(NAMES))).copy()
    found[..., NAMES.index(pair[0])] += steps[:, None]
    found[..., NAMES.index(pair[1])] += steps
    return found


def rises(theta: Array, x: Array, truth: Array) -> Array:
    """By how much cost rises on average when a parameter gets even noise of both signs, a network a row."""
    steps, before = np.linspace(-REACH, REACH, 2 * PLACES - 1), cost(theta, x, truth)
    found = np.zeros_like(theta)
    for place in range(len(NAMES)):
        for step in steps:
            other = theta.copy()
            other[:, place] += step
            found[:, place] += (cost(other, x, truth) - before) / len(steps)
    return found


def agreement(one: Array, other: Array) -> float:
    """Spearman's rank correlation."""
    first, second = (np.argsort(np.argsort(values)) for values in (one, other))
    return float(np.corrcoef(first, second)[0, 1])


def summarise(theta: Array, x: Array, truth: Array) -> dict[str, Any]:
    """All numbers of the page."""
    slopes, rise = slope(theta, x, truth), rises(theta, x, truth)
    agreements = [agreement(abs(w), up) for w, up in zip(slopes, rise, strict=True)]
    right = [float(((row > 0) == (truth > 0)).mean()) for row in forward(theta, x)[1]]
    return {
        "networks": len(theta),
        "accuracy": {"drawn": right[0], "mean": float(np.mean(right))},
        "parameters": _named(theta[0]),
        "derivatives": _named(slopes[0]),
        "rises": _named(rise[0]),
        "surfaces": {", ".join(pair): _surface(theta[0], pair, x, truth) for pair in PAIRS},
        "rising by noise of both signs": float((rise > 0).mean()),
        "agreement": {
            "drawn": agreements[0],
            "mean": float(np.mean(agreements)),
            "range": _range(agreements),
        },
    }


def _surface(theta: Array, pair: tuple[str, str], x: Array, truth: Array) -> dict[str, Any]:
    """Where the cost is least, and between what it and the derivatives are."""
    places, steps = moved(theta, pair), np.linspace(0, REACH, PLACES)
    costs, steep = cost(places, x, truth), slope(places, x, truth)
    first, second = np.unravel_index(int(costs.argmin()), costs.shape)
    return {
        "cost": {"before": float(costs[0, 0]), "range": _range(costs)},
        "least at": [round(float(steps[first]), 3), round(float(steps[second]), 3)],
        "derivatives": {name: _range(steep[..., NAMES.index(name)]) for name in pair},
    }


def _named(values: Array) -> dict[str, float]:
    return dict(zip(NAMES, values.tolist(), strict=True))


def _range(values: Array | list[float]) -> list[float]:
    return [float(np.min(values)), float(np.max(values))]


def draw(theta: Array, x: Array, truth: Array) -> None:
    """Figs. 2a to 2c."""
    figure, first = canvas((11, 3.4))
    first.remove()
    shown = [(f"cost, {pair[0]} and {pair[1]}", pair, cost(moved(theta, pair), x, truth)) for pair in PAIRS]
    name = PAIRS[0][0]
    steep = slope(moved(theta, PAIRS[0]), x, truth)[..., NAMES.index(name)]
    shown.insert(1, (f"derivative by {name}", PAIRS[0], steep))
    steps = np.linspace(0, REACH, PLACES)
    for axes, (title, pair, values) in zip(figure.subplots(1, len(shown)), shown, strict=True):
        lines = axes.contour(steps, steps, values.T, levels=9, cmap="viridis_r")
        axes.clabel(lines, fontsize=7)
        axes.set(title=title, xlabel=f"added to {pair[0]}", ylabel=f"added to {pair[1]}")
    keep(figure, PICTURE)


def main() -> None:
    """Train, move, draw."""
    theta, x, truth = train()
    found = summarise(theta, x, truth)
    RESULTS.write_text(json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    draw(theta[0], x, truth)


if __name__ == "__main__":
    main()
