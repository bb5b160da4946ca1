"""Does relevance help? Three ways to spend the same budget: adaptive weights, identical weights (same
spending), no relevance at all.

python -m bench.flagship.relevance                    results go to bench/results/relevance.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from bench.flagship.accuracy import FOLDS, in_own_process, keep

RESULTS = Path(__file__).parents[1] / "results/relevance.json"
CELLS = (("wdbc", 1.0, 10), ("dermatology", 1.0, 10), ("mnist", 0.5, 3), ("fashion-mnist", 0.5, 3))
WAYS = ("off", "statistics adaptive", "statistics identical", "lrp adaptive")


def main() -> None:
    """Run all cells, or (with --cell) one here."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", nargs="?")
    parser.add_argument("--way", choices=WAYS)
    parser.add_argument("--epsilon", type=float)
    parser.add_argument("--keys", type=int)
    parser.add_argument("--cell", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.cell:
        print(json.dumps(measure(asked.cell, asked.dataset, asked.way, asked.epsilon, asked.keys)))
        return
    for dataset, epsilon, keys in CELLS:
        if asked.dataset not in (None, dataset):
            continue
        with tempfile.TemporaryDirectory(prefix="airlock-bench-") as folder:
            for way in WAYS:
                options = [
                    "--way",
                    way,
                    "--epsilon",
                    str(epsilon),
                    "--keys",
                    str(asked.keys or keys),
                    "--cell",
                    folder,
                ]
                keep(in_own_process("bench.flagship.relevance", dataset, *options), RESULTS)


def measure(folder: Path, dataset: str, way: str, epsilon: float, keys: int) -> dict[str, Any]:
    """One cell."""
    from bench.flagship.pipeline import Pipeline, peak_memory_mb

    pipeline = Pipeline(folder, dataset, identical_weights=way.endswith("identical"))
    folds, mode = FOLDS.get(dataset, 0), way.split()[0]
    runs: list[list[Any]] = [[] for _ in range(keys)]
    for fold in range(max(folds, 1)):
        params = pipeline.params(
            ingest={"folds": folds, "fold": fold}, release={"epsilon": epsilon}, relevance={"mode": mode}
        )
        pipeline.seal(params)
        for key in range(keys):
            runs[key].append(pipeline.run(params, noise=key * 1000 + fold))
    accuracies = [statistics.fmean(one.accuracy for one in run) for run in runs]
    flat = [one for run in runs for one in run]
    return {
        "dataset": dataset,
        "mechanism": f"coefficients, relevance {way}",
        "epsilon": epsilon,
        "delta": params.release.delta,
        "neighbours": params.release.neighbours,
        "passes": flat[0].passes,
        "keys": keys,
        "accuracy_mean": statistics.fmean(accuracies),
        "accuracy_std": statistics.stdev(accuracies) if keys > 1 else 0.0,
        "seconds": statistics.median(one.seconds for one in flat),
        "peak_memory_mb": round(peak_memory_mb(), 1),
    }


if __name__ == "__main__":
    main()
