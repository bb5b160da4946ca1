"""AdLM's Figs. 1 and 3 on MNIST: relevance of the pixels of single digits, its mean, and what is released of the mean.

    AIRLOCK_DATA_HOME=../shared/data python -m bench.papers.adlm_maps          two minutes, then the picture
    python -m bench.papers.adlm_maps --draw                                    the picture alone

Relevance (LRP, of all outputs together, pixels in [-1, 1]) goes through the network that the program's releases of
bench/papers/adlm_program.py use, which saw all raw records once, with the same key: the released maps are those that
its trainings went on from. Maps go to bench/results/adlm-maps.json, the picture to docs/papers/adlm-relevance.svg.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from bench.papers import adlm, adlm_program

RESULTS = Path(__file__).parents[1] / "results" / "adlm-maps.json"
PICTURE = Path(__file__).parents[2] / "docs/papers/adlm-relevance.svg"
EPSILONS = (0.25, 0.5, 2.0)
SIDE, DIGITS = 28, (0, 1, 2, 3, 4, 5, 6, 7, 8, 9)


def measure() -> None:
    """Train the network, follow relevance through it, release its mean at each claimed epsilon."""
    from airlock.models import lrp
    from stages.release.papers.adlm import perturbation, pretraining

    asked = adlm_program.ask("adlm", EPSILONS[0], 1, 1800)
    facts, batches = adlm._records(asked)
    params, recipe = adlm._settled(asked, facts)
    network = pretraining.network(recipe, params, facts, batches, key=adlm.KEY, release_id="")
    (train, _), (test, labels) = adlm.read_mnist("train"), adlm.read_mnist("t10k")
    chosen = test[[int(np.flatnonzero(labels == digit)[0]) for digit in DIGITS]]

    def maps(images: Any) -> Any:
        return perturbation.of_each(recipe, network, images.astype(np.float32) / 255)

    document: dict[str, Any] = {
        "records": recipe.counted,
        "digits": {
            str(digit): _plain(one) for digit, one in zip(DIGITS, lrp.normalise(maps(chosen)), strict=True)
        },
        "mean": _plain(lrp.normalise(maps(train[: recipe.counted]).mean(0, keepdims=True))),
        "released": {},
        "noise_scale": {},
    }
    for epsilon in EPSILONS:
        asked = adlm_program.ask("adlm", epsilon, 1, 1800)
        params, recipe = adlm._settled(asked, facts)
        found = perturbation.average(
            recipe,
            params,
            facts,
            batches,
            key=adlm.KEY,
            release_id=adlm_program.identity_of(asked),
            network=network,
        )
        document["released"][f"{epsilon:g}"] = _plain(found / (recipe.counted * perturbation.FINE_GRID))
        document["noise_scale"][f"{epsilon:g}"] = recipe.relevance_scale
    RESULTS.write_text(json.dumps(document, sort_keys=True) + "\n")


def _plain(values: Any) -> list[float]:
    return [round(float(value), 4) for value in np.ravel(values)]


def draw() -> None:
    """Digits above, the mean and what is released of it below."""
    from airlock.compare.papers import canvas, keep

    found = json.loads(RESULTS.read_text())
    powered = _powered(np.array(found["mean"]))
    below = {"mean, no noise": found["mean"], "to the fourth power": powered}
    below |= {f"released, claimed {name}": values for name, values in found["released"].items()}
    figure, first = canvas((10, 4.6))
    first.remove()
    grid = figure.add_gridspec(2, 10, height_ratios=(1, 2))
    for column, digit in enumerate(DIGITS):
        _panel(figure.add_subplot(grid[0, column]), found["digits"][str(digit)], str(digit))
    for column, (title, values) in enumerate(below.items()):
        _panel(figure.add_subplot(grid[1, 2 * column : 2 * column + 2]), values, title)
    keep(figure, PICTURE)


def _powered(mean: Any) -> Any:
    """What the program adds noise to: rescaled, to the fourth power."""
    return ((mean - mean.min()) / (mean.max() - mean.min())) ** 4


def _panel(place: Any, values: Any, title: str) -> None:
    """One map, from its least to its greatest value; red is more."""
    place.imshow(np.reshape(values, (SIDE, SIDE)), cmap="RdYlGn_r")
    place.set_title(title, fontsize=8)
    place.set(xticks=[], yticks=[])


def main() -> None:
    """Measure and draw, or draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draw", action="store_true", help="only draw what was measured")
    if not parser.parse_args().draw:
        measure()
    draw()


if __name__ == "__main__":
    main()
