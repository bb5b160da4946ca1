"""Accuracy of the flagship mechanisms: every cell of the table, through the pipeline's own code.

    python -m bench.flagship.accuracy                        all cells, each in a process of its own
    python -m bench.flagship.accuracy mnist coefficients     some of them

A row is the mean over noise keys (and over the folds of tables). Results are added to
bench/results/accuracy.json as they come.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results/accuracy.json"
EPSILONS = {
    "mnist": (0.1, 0.5, 1.0, 3.0),
    "fashion-mnist": (0.1, 0.5, 1.0, 3.0),
    "wdbc": (0.5, 1.0, 3.0),
    "dermatology": (0.5, 1.0, 3.0),
}
OTHER_DATASETS = {"usps": (1.0, 3.0), "cifar10-jpeg": (1.0, 3.0)}
# The schema names a map before any read; these are the other one's numbers.
OTHER_MAPS = {"mnist": "gabor-1", "fashion-mnist": "hog-2"}
FOLDS = {"wdbc": 10, "dermatology": 10}
MECHANISMS = ("coefficients", "coefficients-iterated")
KEYS = 3


def main() -> None:
    """Run the wanted cells, or (with --cell) one of them here."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", nargs="?")
    parser.add_argument("mechanism", nargs="?")
    parser.add_argument("--epsilon", type=float, help="this one, whether or not it is in the table")
    parser.add_argument("--keys", type=int, default=KEYS)
    parser.add_argument(
        "--features",
        help="a map by name; without, the schema's, and for MNIST and Fashion-MNIST the other one too",
    )
    parser.add_argument("--cell", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.cell:
        print(
            json.dumps(
                measure(
                    asked.cell,
                    asked.dataset,
                    asked.mechanism,
                    asked.epsilon,
                    asked.keys,
                    asked.features or "auto",
                )
            )
        )
        return
    for dataset, epsilons in {**EPSILONS, **OTHER_DATASETS}.items():
        if asked.dataset not in (None, dataset):
            continue
        with tempfile.TemporaryDirectory(prefix="airlock-bench-") as folder:
            maps = (
                [asked.features]
                if asked.features
                else ["auto", *([OTHER_MAPS[dataset]] if dataset in OTHER_MAPS else [])]
            )
            wanted = epsilons if asked.epsilon is None else (asked.epsilon,)
            for mechanism, epsilon, features in product(MECHANISMS, wanted, maps):
                if asked.mechanism in (None, mechanism):
                    options = [
                        "--epsilon",
                        str(epsilon),
                        "--keys",
                        str(asked.keys),
                        "--features",
                        features,
                        "--cell",
                        folder,
                    ]
                    keep(in_own_process("bench.flagship.accuracy", dataset, mechanism, *options))


def measure(
    folder: Path, dataset: str, mechanism: str, epsilon: float, keys: int, features: str
) -> dict[str, Any]:
    """One cell: the row that bench/results holds."""
    from bench.flagship.pipeline import Pipeline

    pipeline = Pipeline(folder, dataset)
    folds = FOLDS.get(dataset, 0)
    runs: list[list[Any]] = [[] for _ in range(keys)]
    for fold in range(max(folds, 1)):
        params = pipeline.params(
            ingest={"folds": folds, "fold": fold},
            release={"mechanism": mechanism, "epsilon": epsilon, "features": features},
        )
        pipeline.seal(params)
        for key in range(keys):
            runs[key].append(pipeline.run(params, noise=key * 1000 + fold))
    return row_of(pipeline, params, runs, folds)


def row_of(pipeline: Any, params: Any, runs: list[list[Any]], folds: int) -> dict[str, Any]:
    """The row of a cell: runs by key and fold."""
    from airlock.models.features.choice import settle
    from bench.flagship.pipeline import peak_memory_mb

    accuracies = [statistics.fmean(one.accuracy for one in run) for run in runs]
    flat, keys, settled = (
        [one for run in runs for one in run],
        len(runs),
        settle(params, pipeline.facts).release,
    )
    return {
        "dataset": pipeline.dataset,
        "mechanism": settled.mechanism,
        "features": settled.features.partition("@")[0],
        "epsilon": params.release.epsilon,
        "proven_epsilon": max(one.proven for one in flat),
        "delta": params.release.delta,
        "neighbours": params.release.neighbours,
        "passes": flat[0].passes,
        "keys": keys,
        "folds": folds,
        "accuracy_mean": statistics.fmean(accuracies),
        "accuracy_std": statistics.stdev(accuracies) if keys > 1 else 0.0,
        "seconds": statistics.median(one.seconds for one in flat),
        "peak_memory_mb": round(peak_memory_mb(), 1),
    }


def in_own_process(module: str, *arguments: str) -> dict[str, Any]:
    """Run a measurement in a fresh process, so that its memory is its own; its last line is the row."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], check=True, stdout=subprocess.PIPE, text=True
    )
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(
        f"{row['dataset']} {row['mechanism']} epsilon {row['epsilon']}: {100 * row['accuracy_mean']:.2f} %",
        flush=True,
    )
    return row


def keep(row: dict[str, Any], path: Path = RESULTS) -> None:
    """Put a row into a results file in the place of its predecessor; several benches may do so at the same
    time.
    """
    identity = ("dataset", "mechanism", "features", "reading", "epsilon", "neighbours")
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.parent):
        rows = json.loads(path.read_text()) if path.exists() else []
        rows = [one for one in rows if any(one.get(name) != row.get(name) for name in identity)] + [row]
        rows.sort(
            key=lambda one: (
                one["dataset"],
                one["mechanism"],
                str(one.get("features")),
                one["epsilon"] or 0,
                one.get("reading") or "",
            )
        )
        path.write_text(json.dumps(rows, indent=1) + "\n")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder alone. The lock is on the folder itself, so that no lock file is left in it."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


if __name__ == "__main__":
    main()
