"""Could `inputs` serve pictures? One attempt: mean and covariance of the pixels of each class, released once, and a
convolutional network trained on pictures that are drawn from them.

    python -m bench.synthetic_images [mnist fashion-mnist] [--epsilon 1]    adds to bench/results/synthetic_images.json

A simulation: noise of the priced scale is drawn by NumPy. Rows are pixels scaled to norm 1; a record adds to the sum
and the second moments of its own class, so that all of them together have sensitivity 1 each. What lies below the
radius of the noise is cut off, and pixels are clipped to their range. Constants were not tuned.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.privacy import gaussian
from bench.flagship.adaptive import load

RESULTS = Path(__file__).parent / "results/synthetic_images.json"
MEANS, DELTA = 0.1, 1e-5
"""Share of mu squared for the means; the rest is for the covariances."""
Array = NDArray[np.float64]


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("datasets", nargs="*", default=["mnist", "fashion-mnist"])
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--each", type=int, default=2000, help="pictures of a class")
    parser.add_argument("--epochs", type=int, default=4)
    asked = parser.parse_args()
    for dataset in asked.datasets:
        started = time.process_time()
        task = next(iter(load(dataset)))
        x, labels, classes = task.x.reshape(len(task.y), -1) / 255.0, task.y, len(task.facts.labels)
        for epsilon in (asked.epsilon, None):
            drawn = draw(x, labels, classes, epsilon, asked.each)
            right = trained(*drawn, task.x_test / 255.0, task.y_test, classes, asked.epochs)
            row = {"dataset": dataset, "epsilon": epsilon, "accuracy": right, "each": asked.each}
            row |= {"epochs": asked.epochs, "cpu_seconds": round(time.process_time() - started)}
            print(json.dumps(row), flush=True)
            known = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
            RESULTS.write_text(json.dumps([*known, row], indent=1) + "\n")


def draw(
    x: Array, labels: NDArray[Any], classes: int, epsilon: float | None, each: int
) -> tuple[Array, NDArray[np.int64]]:
    """Pictures of each class from its noisy mean and covariance; without epsilon from the true ones."""
    random, size = np.random.default_rng(0), x.shape[1]
    lengths = np.linalg.norm(x, axis=1)
    mu = np.inf if epsilon is None else gaussian.mu_at(epsilon, DELTA)
    first, second = 1 / (mu * MEANS**0.5), 1 / (mu * (1 - MEANS) ** 0.5)
    made = []
    for label in range(classes):
        rows = x[labels == label] / lengths[labels == label, None]
        # Taken to be of one size, as in the mechanism: how large a class is was not asked.
        n = len(x) / classes
        mean = (rows.sum(axis=0) + first * random.standard_normal(size)) / n
        noise = random.standard_normal((size, size)) * second
        values, vectors = np.linalg.eigh(
            rows.T @ rows / n + (noise + noise.T) / (2 * n) - np.outer(mean, mean)
        )
        radius = np.sqrt(2 * size) * second / n
        spread = np.where(values > radius, (values + np.sqrt(np.maximum(values**2 - radius**2, 0))) / 2, 0.0)
        parts = random.standard_normal((each, size)) * np.sqrt(spread)
        made.append(mean + parts @ vectors.T)
    pictures = np.concatenate(made) * float(np.median(lengths))
    return np.clip(pictures, 0, 1), np.repeat(np.arange(classes), each)


def trained(
    x: Array, y: NDArray[np.int64], x_test: Array, y_test: NDArray[Any], classes: int, epochs: int
) -> float:
    """Test accuracy of a small convolutional network."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    side = x_test.shape[1]
    network = nn.Sequential(
        nn.Conv2d(1, 16, 5, stride=2, padding=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(32 * ((side + 3) // 4) ** 2, 64), nn.ReLU(), nn.Linear(64, classes),
    )  # fmt: skip
    optimiser = torch.optim.Adam(network.parameters(), 1e-3)
    pictures = torch.as_tensor(x, dtype=torch.float32).reshape(-1, 1, side, side)
    labels = torch.as_tensor(y)
    for epoch in range(epochs):
        order = torch.randperm(len(y), generator=torch.Generator().manual_seed(epoch))
        for part in torch.split(order, 128):
            optimiser.zero_grad()
            nn.functional.cross_entropy(network(pictures[part]), labels[part]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    with torch.no_grad():
        tested = torch.as_tensor(x_test, dtype=torch.float32).reshape(-1, 1, side, side)
        found = torch.cat([network(part).argmax(1) for part in torch.split(tested, 1000)]).numpy()
    return float(np.mean(found == y_test))


if __name__ == "__main__":
    main()
