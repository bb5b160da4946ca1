"""The constants of `coefficients` for tables, chosen on tables that are not in the results: scikit-learn's
`digits` and `wine`.

    OMP_NUM_THREADS=1 python -m bench.flagship.choose

The rule was fixed before the first run; the grid was moved once, because the first choice (reach 2, bias 0.2,
shares 0.05 and 0.15) lay
on its edge: shares went down to 0.02 and 0.05 instead of up to 0.25 and 0.5, and reach 1 and bias 0.8, which
had lost, were left out. Every cell of the grid is trained and judged on 10 folds, three epsilons a table and
several noise draws, which all cells share. A cell's score is its accuracy's distance to the best cell,
averaged over the six settings. The plateau is every cell whose score is within one standard error (of the
paired difference) of the best score. The chosen cell is the one of the plateau that is nearest, in steps of
the grid, to the plateau's median on every axis; of equally near ones the better.

Rows, sums, noise scales and training are the pipeline's own functions. Only the noise is simulated: numpy's
Gaussians, rounded to the grid. Pixels of digits are bounded by their depth, 0 to 16. The bounds of wine are
round numbers around what a table of wine analyses would allow, written down without computing anything from
the records. Wine has a third of the records of a table of 500, so its epsilons are three times as large. The
ridge is the rule of airlock.models.moments; how much it loses on these tables is reported beside.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

RESULT = Path(__file__).parents[1] / "results/choice.json"
FOLDS = 10
EPSILONS = {"digits": (0.5, 1.0, 3.0), "wine": (1.5, 3.0, 9.0)}
KEYS = {"digits": 5, "wine": 20}
AXES = {
    "reach": (1.25, 1.5, 2.0, 2.5),
    "bias": (0.1, 0.2, 0.4),
    "mean_share": (0.02, 0.05, 0.1, 0.15),
    "gram_share": (0.05, 0.1, 0.15, 0.25),
}
RIDGES = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)
WINE = {
    "alcohol": (8, 18),  # per cent by volume: the law's range for wine, near enough
    "malic_acid": (0, 10),  # g/l
    "ash": (0, 5),  # g/l
    "alcalinity_of_ash": (0, 50),  # meq/l
    "magnesium": (0, 200),  # mg/l
    "total_phenols": (0, 5),  # g/l
    "flavanoids": (0, 5),  # a part of the phenols
    "nonflavanoid_phenols": (0, 1),  # a small part of the phenols
    "proanthocyanins": (0, 5),  # a part of the phenols
    "color_intensity": (0, 20),  # sum of absorbances
    "hue": (0, 2),  # ratio of absorbances
    "od280/od315_of_diluted_wines": (0, 5),  # ratio of absorbances
    "proline": (0, 2000),  # mg/l
}

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Fold:
    """One fold of one table: encoded records to train on and to judge by."""

    dataset: str
    fold: int
    x: Array
    y: NDArray[np.int64]
    test_x: Array
    test_y: NDArray[np.int64]


@dataclass(frozen=True)
class Draws:
    """Standard noise of one key, shared by all cells."""

    mean: Array
    gram: Array
    cross: Array


def main() -> None:
    """Judge every cell, choose, write down."""
    tasks = [(dataset, fold) for dataset in EPSILONS for fold in range(FOLDS)]
    with ProcessPoolExecutor(4) as pool:
        found = dict(zip(tasks, pool.map(judge, *zip(*tasks, strict=True)), strict=True))
        accuracies = {
            name: np.concatenate([found[name, fold] for fold in range(FOLDS)], axis=-1) for name in EPSILONS
        }
        losses, errors = score(accuracies)
        plateau = losses <= losses.min() + errors
        chosen = choose(losses, plateau)
        damping = dict(
            zip(
                tasks,
                pool.map(judge_ridges, *zip(*tasks, strict=True), [cell(chosen)] * len(tasks)),
                strict=True,
            )
        )
    ridges = {name: np.mean([damping[name, fold] for fold in range(FOLDS)], axis=0) for name in EPSILONS}
    RESULT.write_text(
        json.dumps(report(accuracies, losses, errors, plateau, chosen, ridges), indent=1) + "\n"
    )
    print(
        json.dumps(
            {
                **cell(chosen),
                "loss": float(losses[chosen]),
                "least loss": float(losses.min()),
                "plateau": int(plateau.sum()),
            }
        )
    )


def judge(dataset: str, fold: int) -> Array:
    """Accuracy by (reach, bias, mean share, gram share, epsilon, key)."""
    part = open_part(dataset, fold)
    shape = tuple(len(axis) for axis in AXES.values())
    accuracies = np.zeros((*shape, len(EPSILONS[dataset]), KEYS[dataset]))
    for place in np.ndindex(shape[:3]):
        wanted = cell((*place, 0))
        for at, epsilon in enumerate(EPSILONS[dataset]):
            for key in range(KEYS[dataset]):
                for gram, accuracy in enumerate(
                    train(part, key, epsilon, wanted, AXES["gram_share"], ("auto",))
                ):
                    accuracies[(*place, gram, at, key)] = accuracy
    return accuracies


def judge_ridges(dataset: str, fold: int, wanted: dict[str, float]) -> Array:
    """Accuracy of the chosen cell by (epsilon, ridge), the rule's ridge first; the mean over keys."""
    part = open_part(dataset, fold)
    runs = [
        [
            list(train(part, key, epsilon, wanted, (wanted["gram_share"],), ("auto", *RIDGES)))
            for key in range(KEYS[dataset])
        ]
        for epsilon in EPSILONS[dataset]
    ]
    means: Array = np.array(runs).mean(axis=1)
    return means


def train(
    part: Fold,
    key: int,
    epsilon: float,
    wanted: dict[str, float],
    gram_shares: tuple[float, ...],
    ridges: tuple[float | str, ...],
) -> Iterator[float]:
    """Two passes as in stages.release.mechanisms.coefficients, then the closed form; the accuracy for every
    gram share and ridge.
    """
    from airlock.models.features import tables
    from airlock.models.features.projection import centre, spectral_radius
    from airlock.models.features.rows import LIMIT
    from airlock.models.moments import Moments, choose_ridge, closed_form

    n, width = part.x.shape
    classes = int(part.y.max()) + 1
    bias = tables.bias(width, reach=wanted["reach"], part=wanted["bias"])
    rows, test = (tables.linear(x, reach=wanted["reach"]) for x in (part.x, part.test_x))
    draws = draw(part, key, width + 1, classes)
    scale = scales(width, classes, epsilon, wanted["mean_share"], gram_shares[0])["mean"]
    step = centre(np.rint(rows.sum(axis=0) + scale * draws.mean).astype(np.int64), n, bias=bias)
    rows, test = (step(these, np.ones(len(these), np.uint8)) for these in (rows, test))
    gram, cross = rows.T @ rows, rows.T @ (classes * np.eye(classes)[part.y] - 1)
    for share in gram_shares:
        scaled = scales(width, classes, epsilon, wanted["mean_share"], share)
        # As moments_of does, but for its eigen(), which looks for threads to forbid each time: that would
        # take most of the time here.
        values, vectors = np.linalg.eigh(np.rint(gram + scaled["gram"] * draws.gram))
        noisy = np.rint(cross + scaled["cross"] * draws.cross) / (LIMIT * classes)
        moments = Moments(
            values / LIMIT**2, vectors, noisy, spectral_radius(width + 1, scaled["gram"]) / LIMIT**2, n
        )
        for ridge in ridges:
            weights = closed_form(moments, choose_ridge(moments, ridge))
            yield float(((test @ weights).argmax(axis=1) == part.test_y).mean())


def scales(width: int, classes: int, epsilon: float, mean: float, gram: float) -> dict[str, float]:
    """Noise in grid units, as a release would price it."""
    from airlock.params import Params
    from stages.release.mechanisms.recipes import Recipe, queries
    from stages.release.noisy_sums import price

    known = (width, classes, epsilon, mean, gram)
    if known not in _scales:
        params = Params.model_validate({"dataset": "choice", "release": {"epsilon": epsilon}})
        shares = {"mean": mean, "gram": gram, "cross": 1.0 - mean - gram}
        recipe = Recipe("tabular", width, 1, classes, 2, shares, 0.0, 1)
        _scales[known] = {
            one.query.purpose: one.scale for one in price(queries(recipe, params), params.release)
        }
    return _scales[known]


_scales: dict[tuple[float, ...], dict[str, float]] = {}


def draw(part: Fold, key: int, size: int, classes: int) -> Draws:
    """Noise of standard deviation 1; of the symmetric matrix, 1 on the diagonal and 1 / sqrt 2 off it."""
    noise = np.random.default_rng([key, part.fold, list(EPSILONS).index(part.dataset)])
    square = noise.standard_normal((size, size))
    return Draws(
        noise.standard_normal(size - 1), (square + square.T) / 2, noise.standard_normal((size, classes))
    )


def open_part(dataset: str, fold: int) -> Fold:
    """A fold of a table, its columns scaled to [0, 1] by public bounds; the folds come from a fixed
    permutation.
    """
    from sklearn import datasets

    loaded = datasets.load_digits() if dataset == "digits" else datasets.load_wine()
    bounds = np.array(
        [(0, 16)] * 64 if dataset == "digits" else [WINE[name] for name in loaded.feature_names], dtype=float
    )
    x = np.clip((loaded.data - bounds[:, 0]) / (bounds[:, 1] - bounds[:, 0]), 0, 1)
    held = np.random.default_rng(0).permutation(len(x)) % FOLDS == fold
    return Fold(dataset, fold, x[~held], loaded.target[~held], x[held], loaded.target[held])


def score(accuracies: dict[str, Array]) -> tuple[Array, Array]:
    """Of every cell the mean loss against the best cell of each setting, and the standard error of its
    distance to the best score.
    """
    settings = [found[..., at, :] for found in accuracies.values() for at in range(found.shape[-2])]
    means = [found.mean(axis=-1) for found in settings]
    losses: Array = np.mean([mean.max() - mean for mean in means], axis=0)
    best = np.unravel_index(losses.argmin(), losses.shape)
    variances = [(found[best] - found).var(axis=-1, ddof=1) / found.shape[-1] for found in settings]
    errors: Array = np.sqrt(np.sum(variances, axis=0)) / len(settings)
    return losses, errors


def choose(losses: Array, plateau: NDArray[np.bool_]) -> tuple[int, ...]:
    """The cell of the plateau nearest to its median, in steps of the grid."""
    places = np.argwhere(plateau)
    distances = np.abs(places - np.median(places, axis=0)).sum(axis=1)
    nearest = min(range(len(places)), key=lambda one: (distances[one], losses[tuple(places[one])]))
    return tuple(int(index) for index in places[nearest])


def cell(place: tuple[int, ...]) -> dict[str, float]:
    """The constants at a place of the grid."""
    return {name: axis[index] for (name, axis), index in zip(AXES.items(), place, strict=True)}


def report(
    accuracies: dict[str, Array],
    losses: Array,
    errors: Array,
    plateau: NDArray[np.bool_],
    chosen: tuple[int, ...],
    ridges: dict[str, Array],
) -> dict[str, Any]:
    """What bench/results/choice.json holds."""

    def describe(place: tuple[int, ...]) -> dict[str, Any]:
        means = {
            name: [round(float(one), 5) for one in found[place].mean(axis=-1)]
            for name, found in accuracies.items()
        }
        numbers = {"loss": round(float(losses[place]), 5), "standard_error": round(float(errors[place]), 5)}
        return {**cell(place), **numbers, "plateau": bool(plateau[place]), "accuracy": means}

    best = np.unravel_index(losses.argmin(), losses.shape)
    return {
        "settings": {"folds": FOLDS, "keys": KEYS, "epsilons": EPSILONS, "axes": AXES, "wine_bounds": WINE},
        "chosen": describe(chosen),
        "best": describe(tuple(int(index) for index in best)),
        "plateau_cells": int(plateau.sum()),
        "ridge_check": {
            name: [
                {
                    "epsilon": epsilon,
                    "rule": round(float(row[0]), 5),
                    "fixed": {
                        str(ridge): round(float(one), 5) for ridge, one in zip(RIDGES, row[1:], strict=True)
                    },
                }
                for epsilon, row in zip(EPSILONS[name], found, strict=True)
            ]
            for name, found in ridges.items()
        },
        "grid": [describe(place) for place in product(*(range(len(axis)) for axis in AXES.values()))],
    }


if __name__ == "__main__":
    main()
