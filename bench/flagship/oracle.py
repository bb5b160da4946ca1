"""What could any adaptive noise gain? The three passes of `coefficients` in floating point, with what they learn
replaced by the truth, for nothing.

    python -m bench.flagship.oracle [DATASET ...]      adds to bench/results/oracle.jsonl
    python -m bench.flagship.oracle --tables

A simulation: noise of the priced scales is drawn by NumPy. Trained on two thirds of the training records and judged
on the other third, so that no test record is looked at. The same draws for every way.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.models.features.choice import settle
from airlock.models.features.features import feature_map
from airlock.models.features.rows import LIMIT
from airlock.models.moments import Moments, choose_damping
from airlock.params import Params
from airlock.privacy import gaussian
from bench.flagship.adaptive import Task, cells, load

RESULTS = Path(__file__).parents[1] / "results/oracle.jsonl"
EPSILONS, KEYS, DELTA = (0.1, 0.5), 5, 1e-5
MEAN, WHITENING, GRAM = 0.03, 0.30, 0.32
RIDGE = 0.3
Array = NDArray[np.float64]


class Trial:
    """One draw of the noise on one data set."""

    def __init__(self, rows: Array, y: NDArray[Any], classes: int, epsilon: float, key: int) -> None:
        cut = len(y) * 2 // 3
        self.rows, self.other, self.y, self.y_other = rows[:cut], rows[cut:], y[:cut], y[cut:]
        self.classes, self.mu = classes, gaussian.mu_at(epsilon, DELTA)
        self.random = np.random.default_rng(key)
        self.targets = np.eye(classes)[self.y] - 1 / classes

    def noisy(
        self, exact: Array, share: float, sensitivity: float = 1.0, *, symmetric: bool = False
    ) -> Array:
        """A sum, with the noise that its share buys."""
        drawn = self.random.standard_normal(exact.shape) * (sensitivity / (self.mu * share**0.5))
        found: Array = exact + ((drawn + drawn.T) / 2 if symmetric else drawn)
        return found

    def geometry(self, share: float | None) -> tuple[Array, Array]:
        """Rows of both parts, centred and whitened: by noisy sums, or (None) by the true ones, damped alike."""
        n = len(self.rows)
        total = self.rows.sum(axis=0)
        mean = (total if share is None else self.noisy(total, MEAN)) / n
        first = [_normal(part - mean) for part in (self.rows, self.other)]
        gram, size = first[0].T @ first[0], len(mean)
        values, vectors = np.linalg.eigh(gram if share is None else self.noisy(gram, share, symmetric=True))
        radius = np.sqrt(2 * size) / (self.mu * WHITENING**0.5)
        matrix = vectors / np.sqrt(np.maximum(values, 0.0) + RIDGE * radius)
        return _normal(first[0] @ matrix), _normal(first[1] @ matrix)

    def moments(self, rows: Array, gram: float, cross: float) -> tuple[Moments, float]:
        """Released moments of rows, and the deviation of the noise of the cross moments."""
        reach = ((self.classes - 1) / self.classes) ** 0.5
        noise = 1 / (self.mu * gram**0.5)
        values, vectors = np.linalg.eigh(self.noisy(rows.T @ rows, gram, symmetric=True))
        b = self.noisy(rows.T @ self.targets, cross, reach)
        radius = float(np.sqrt(2 * rows.shape[1]) * noise)
        return Moments(values, vectors, b, radius, len(rows)), reach / (self.mu * cross**0.5)

    def judge(self, moments: Moments, other: Array, cross: Array | None = None) -> float:
        """Accuracy of the closed form."""
        ridge = choose_damping(moments, "auto")
        head = moments.solve(moments.cross if cross is None else cross, ridge)
        return float(np.mean((other @ head).argmax(axis=1) == self.y_other))


def _normal(rows: Array) -> Array:
    found: Array = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return found


def plain(trial: Trial) -> float:
    """No whitening: mean 0.05, gram 0.15, cross 0.80."""
    mean = trial.noisy(trial.rows.sum(axis=0), 0.05) / len(trial.rows)
    rows, other = (_normal(part - mean) for part in (trial.rows, trial.other))
    return trial.judge(trial.moments(rows, 0.15, 0.80)[0], other)


def adaptive(
    trial: Trial, change: Callable[[Trial, Array, Array], tuple[Array, Array]] | None = None
) -> float:
    """The default of images, perhaps with the whitened rows changed."""
    rows, other = trial.geometry(WHITENING)
    if change:
        rows, other = change(trial, rows, other)
    return trial.judge(trial.moments(rows, GRAM, 1 - MEAN - WHITENING - GRAM)[0], other)


def true_geometry(trial: Trial) -> float:
    """Centre and whitening known for nothing, and the whole budget for the moments."""
    rows, other = trial.geometry(None)
    return trial.judge(trial.moments(rows, 0.48, 0.52)[0], other)


def true_energies(power: float) -> Callable[[Trial], float]:
    """Whitened directions weighted by their true class energy, known for nothing."""

    def change(trial: Trial, rows: Array, other: Array) -> tuple[Array, Array]:
        energy = ((rows.T @ trial.targets) ** 2).sum(axis=1)
        weights = (energy / energy.mean()) ** (power / 2)
        return _normal(rows * weights), _normal(other * weights)

    return lambda trial: adaptive(trial, change)


def selected(part: float, *, known: bool) -> Callable[[Trial], float]:
    """Only so many of the whitened directions: those of most true class energy, or of most released spread."""

    def change(trial: Trial, rows: Array, other: Array) -> tuple[Array, Array]:
        energy = ((rows.T @ trial.targets) ** 2).sum(axis=1)
        # Eigenvectors are in the order of their released eigenvalues.
        order = np.argsort(-energy) if known else np.arange(rows.shape[1])[::-1]
        kept = order[: max(trial.classes, int(part * len(order)))]
        return _normal(rows[:, kept]), _normal(other[:, kept])

    return lambda trial: adaptive(trial, change)


def shrunk(*, known: bool) -> Callable[[Trial], float]:
    """Cross moments shrunk direction by direction in the Gram matrix's eigenvectors: by their true energy, or by
    what is left of the noisy one, smoothed over 32 neighbours (empirical Bayes).
    """

    def found(trial: Trial) -> float:
        rows, other = trial.geometry(WHITENING)
        moments, noise = trial.moments(rows, GRAM, 1 - MEAN - WHITENING - GRAM)
        turned = moments.vectors.T @ moments.cross
        seen = (turned**2).sum(axis=1)
        true = ((moments.vectors.T @ (rows.T @ trial.targets)) ** 2).sum(axis=1)
        window = min(32, len(seen))
        kernel = np.ones(window) / window
        level = np.convolve(
            np.pad(seen, (window // 2, window - 1 - window // 2), mode="edge"), kernel, "valid"
        )
        floor = trial.classes * noise**2
        energy = true if known else np.maximum(level - floor, 0.0)
        return trial.judge(moments, other, moments.vectors @ (turned * (energy / (energy + floor))[:, None]))

    return found


WAYS: dict[str, Callable[[Trial], float]] = {
    "plain": plain,
    "adaptive": adaptive,
    "true geometry, free": true_geometry,
    "true energies, power 1/4": true_energies(0.25),
    "true energies, power 1": true_energies(1.0),
    "half of the directions, by released spread": selected(0.5, known=False),
    "half of the directions, by true energy": selected(0.5, known=True),
    "shrunk by empirical Bayes": shrunk(known=False),
    "shrunk by true energies": shrunk(known=True),
}


def main() -> None:
    """Measure what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("datasets", nargs="*", default=["texture", "wdbc", "vehicle"])
    parser.add_argument("--keys", type=int, default=KEYS, help="draws; small tables need more")
    parser.add_argument("--tables", action="store_true")
    parser.add_argument("--results", type=Path, default=RESULTS)
    asked = parser.parse_args()
    if asked.tables:
        print("\n".join(table(cells(asked.results))))
        return
    done = {(one["dataset"], one["epsilon"], one["key"]) for one in cells(asked.results)}
    for dataset in asked.datasets:
        task = next(iter(load(dataset)))
        rows, y = rows_of(task)
        for epsilon in EPSILONS:
            for key in range(asked.keys):
                if (dataset, epsilon, key) in done:
                    continue
                found = {
                    name: way(Trial(rows, y, len(task.facts.labels), epsilon, key))
                    for name, way in WAYS.items()
                }
                with asked.results.open("a") as file:
                    file.write(
                        json.dumps({"dataset": dataset, "epsilon": epsilon, "key": key, **found}) + "\n"
                    )


def rows_of(task: Task) -> tuple[Array, NDArray[Any]]:
    """Rows of the map that epsilon 0.5 chooses, in an order of their own, of norm 1."""
    params = settle(Params.model_validate({"release": {"mechanism": "auto", "epsilon": 0.5}}), task.facts)
    chosen = feature_map(params.release.features, task.facts.kind, task.facts.shape)
    order = np.random.default_rng(0).permutation(len(task.y))
    return chosen(task.x[order], np.ones(len(order), np.uint8)) / LIMIT, task.y[order]


def table(found: list[dict[str, Any]]) -> list[str]:
    """Means over keys, and the standard error of the difference from `adaptive`; of what was drawn more than once."""
    drawn = [(one["dataset"], one["epsilon"]) for one in found]
    settings = [setting for setting in dict.fromkeys(drawn) if drawn.count(setting) > 1]
    lines = [f"| way | {' | '.join(f'{name} {epsilon}' for name, epsilon in settings)} |"]
    lines.append("|" + "---|" * (len(settings) + 1))
    for way in WAYS:
        figures = []
        for setting in settings:
            own = [one for one in found if (one["dataset"], one["epsilon"]) == setting]
            apart = [100 * (one[way] - one["adaptive"]) for one in own]
            error = statistics.stdev(apart) / len(apart) ** 0.5
            figures.append(f"{100 * statistics.fmean(one[way] for one in own):.1f} (± {error:.1f})")
        lines.append(f"| {way} | {' | '.join(figures)} |")
    return lines


if __name__ == "__main__":
    main()
