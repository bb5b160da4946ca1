"""Accuracy of neuron noise injection after every epoch: the paper's Figs. 5 to 7.

    AIRLOCK_DATA_HOME=../shared/data python -m bench.papers.neuron_epochs              tables: a few minutes of a core
    AIRLOCK_DATA_HOME=../shared/data python -m bench.papers.neuron_epochs mnist        Fig. 7: six minutes a curve
    AIRLOCK_DATA_HOME=../shared/data python -m bench.papers.neuron_epochs mnist --batch 1800 --epsilon 0.1
    python -m bench.papers.neuron_epochs --draw                                        docs/papers/neuron-epochs.svg

The mechanism's own training (`algorithm`: Algorithms 1 and 2 to the letter), looked at between two steps; the panels
"non private" are the same network without noise. On tables the mean over the ten folds, 100 epochs as in the paper, of
`--iterations` steps instead of 3,000; on MNIST one key, 25 epochs of 100 steps of 250 records or, with `--batch`, of
the paper's 1,800 under the same noise.
Each curve is written to bench/results/papers/neuron-epochs.json as soon as it ends, and is not made again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from airlock.compare.papers import canvas
from airlock.compare.papers import keep as keep_picture
from bench.flagship.accuracy import FOLDS
from bench.papers.neurons import PAPER, PUBLISHED_SETTINGS

RESULTS = Path(__file__).parents[1] / "results/papers/neuron-epochs.json"
PICTURE = Path(__file__).parents[2] / "docs/papers/neuron-epochs.svg"
WITHOUT_NOISE = {"dermatology": 0.992, "wdbc": 0.995}
"""Table 1's last row."""
EPOCHS, ITERATIONS, PRETRAINING = 100, 10, 100
"""Epochs and steps in one of them, on tables; steps of pre-training, as in bench.papers.neurons."""
WHOLE = 1800
"""The paper's batch on MNIST."""
LOOKS = ((None, "#55616a"), (1.0, "#15803d"), (0.5, "#1d5fae"), (0.1, "#a8433b"))
"""Epsilon (None: without noise) and colour."""
Curve = dict[str, Any]


def options_of(dataset: str, iterations: int, batch: int | None) -> dict[str, Any]:
    """Of the release."""
    options = {"preset": "algorithm", **PUBLISHED_SETTINGS[dataset]}
    if dataset in FOLDS:
        before = max(1, PRETRAINING // iterations)
        return options | {"epochs": EPOCHS, "iterations": iterations, "pretraining_epochs": before}
    return options | ({"batch": batch} if batch else {})


def measure(dataset: str, epsilon: float | None, options: dict[str, Any]) -> Curve:
    """The mean curve over folds; entry e is after e + 1 epochs."""
    from bench.flagship.pipeline import Pipeline

    folds = FOLDS.get(dataset, 0)
    release = {"mechanism": "neuron-noise", "epsilon": epsilon or 1.0, "options": options}
    curves = []
    with tempfile.TemporaryDirectory(prefix="airlock-bench-") as folder:
        pipeline = Pipeline(Path(folder), dataset)
        for fold in range(max(folds, 1)):
            params = pipeline.params(ingest={"folds": folds, "fold": fold}, release=release)
            pipeline.seal(params)
            curves.append(follow(pipeline, params, epsilon is not None, fold))
    asked = {"dataset": dataset, "epsilon": epsilon, "options": options, "records": pipeline.facts.n}
    means = [statistics.fmean(values) for values in zip(*curves, strict=True)]
    return {**asked, "folds": folds, "accuracies": means, "last": [curve[-1] for curve in curves]}


def follow(pipeline: Any, params: Any, noisy: bool, number: int) -> list[float]:
    """Train as the mechanism does, and judge the network after every epoch on the held-out records."""
    from airlock.models.papers.networks import build
    from stages.release.keyed_noise import KeyedNoise
    from stages.release.papers.dp_sgd.dp_sgd import load
    from stages.release.papers.neuron import neuron_noise, training

    recipe, facts = neuron_noise.resolve(params, pipeline.facts), pipeline.facts
    data, held_out = load(pipeline.sealed(params), facts), load(holdout(pipeline, params), facts)
    network, noise = build(recipe.network, recipe.shape, recipe.classes, seed=training.SEED), {}
    if noisy:
        parts = training.proportions(training.found_ratios(recipe, data), recipe)
        scales = parts * (training.sensitivity(data, recipe) / recipe.epsilons[0])
        noise = {"scales": scales, "keyed": KeyedNoise(bytes([number]) * 32, f"epochs {facts.population}")}
    found: list[float] = []

    def tick(step: int, count: int) -> None:
        if step and step % (recipe.options.iterations or 1) == 0:
            found.append(judge(network, held_out))

    training.descend(network, data, recipe, recipe.steps, tick=tick, **noise)  # type: ignore[arg-type]
    return [*found, judge(network, held_out)]


def holdout(pipeline: Any, params: Any) -> Any:
    """The held-out records, through their door."""
    import pyarrow.parquet as pq

    from stages.release import perturb

    pipeline.open_holdout(params)
    return pq.ParquetFile(pipeline.workspace / perturb.HOLDOUT / "holdout.parquet").iter_batches(4096)


def judge(network: Any, held_out: Any) -> float:
    """Accuracy as the network is now; training goes on as if nobody had looked."""
    import torch

    from stages.release.papers.neuron.training import known_rows

    network.eval()
    with torch.no_grad():
        right = [
            network(held_out.scaled(rows)).argmax(1) == held_out.labels[rows]
            for rows in torch.split(known_rows(held_out), 1000)
        ]
    network.train()
    return float(torch.cat(right).double().mean())


def draw(curves: list[Curve]) -> None:
    """A panel a data set: ours as lines, crosses where the paper ends."""
    shown = [name for name in PAPER if any(curve["dataset"] == name for curve in curves)]
    figure, first = canvas((3.7 * len(shown) + 0.4, 3.6))
    first.remove()
    for panel, dataset in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
        for epsilon, colour in LOOKS:
            paper = PAPER[dataset].get(epsilon) if epsilon else WITHOUT_NOISE.get(dataset)
            for curve in curves:
                if (curve["dataset"], curve["epsilon"]) == (dataset, epsilon):
                    up = [100 * value for value in curve["accuracies"]]
                    label = f"claimed {epsilon:g}" if epsilon else "without noise"
                    whole = curve["options"].get("batch") == WHOLE
                    label += f", batches of {WHOLE:,}" if whole else ""
                    panel.plot(range(1, len(up) + 1), up, ":" if whole else "-", color=colour, label=label)
                    if paper:
                        panel.plot([len(up)], [100 * paper], "x", color=colour)
        panel.set(title=dataset, xlabel="epochs", xscale="log")
        panel.grid(alpha=0.3)
        panel.legend(fontsize=8, frameon=False, loc="lower right")
    figure.axes[0].set_ylabel("accuracy, per cent")
    keep_picture(figure, PICTURE)


def main() -> None:
    """Make the wanted curves that are not there, or draw all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dataset", nargs="*", help="wdbc and dermatology, if none is given")
    parser.add_argument("--epsilon", type=float, help="only this one; 0 is without noise")
    parser.add_argument("--iterations", type=int, default=ITERATIONS, help="steps in an epoch, on tables")
    parser.add_argument("--batch", type=int, help="records in a step, on MNIST")
    parser.add_argument("--draw", action="store_true", help="only draw")
    wanted = parser.parse_args()
    if wanted.draw:
        draw(read())
        return
    for dataset in wanted.dataset or ("wdbc", "dermatology"):
        options = options_of(dataset, wanted.iterations, wanted.batch)
        for epsilon, _ in LOOKS:
            named = (dataset, epsilon, options.get("batch"))
            known = any(
                (one["dataset"], one["epsilon"], one["options"].get("batch")) == named for one in read()
            )
            offered = epsilon in PAPER[dataset] if epsilon else dataset in WITHOUT_NOISE
            if offered and not known and wanted.epsilon in (None, epsilon or 0.0):
                curve = measure(dataset, epsilon, options)
                RESULTS.write_text(json.dumps([*read(), curve], indent=1, sort_keys=True) + "\n")
                print(dataset, epsilon, f"{100 * curve['accuracies'][-1]:.1f} %", flush=True)


def read() -> list[Curve]:
    """What is there."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else []


if __name__ == "__main__":
    main()
