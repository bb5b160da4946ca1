"""Accuracy of rounds on learned features, through the pipeline's own code, beside the map's ceiling.

    OMP_NUM_THREADS=1 python -m bench.prior.measure cifar10-jpeg --folder WORK
    OMP_NUM_THREADS=1 python -m bench.prior.measure mnist --features hog-2 --folder WORK
    OMP_NUM_THREADS=1 python -m bench.prior.measure cifar10-jpeg --ceiling --folder WORK

Rows go to bench/results/accuracy.json, as those of bench.flagship.accuracy do; a cell that is there already with as
many keys is left out, so that a run which was stopped goes on; --again makes it again. The ceiling is what a logistic
regression without privacy, the pipeline's own reference, reaches on the same rows. Only the rows of pictures are
remembered between runs (bench/prior/memory.py): seconds are therefore not those of a first run.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from bench.flagship.accuracy import RESULTS, keep, row_of
from bench.prior.memory import remembered

EPSILONS = {
    "cifar10-jpeg": (0.5, 1.0, 3.0, 8.0),
    "fashion-mnist": (0.5, 1.0, 3.0),
    "mnist": (0.5, 1.0, 3.0),
}
MECHANISM, KEYS = "coefficients-iterated", 3


def main() -> None:
    """Measure what is asked for and not there yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", choices=list(EPSILONS))
    parser.add_argument("--features", default="prior-1")
    parser.add_argument("--keys", type=int, default=KEYS)
    parser.add_argument(
        "--epsilon", type=float, nargs="*", help="the data set's own three or four if left out"
    )
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--ceiling", action="store_true")
    parser.add_argument("--folder", type=Path, required=True)
    asked = parser.parse_args()
    with remembered(asked.folder / "memory"):
        _measure(asked)


def _measure(asked: Any) -> None:
    from bench.flagship.pipeline import Pipeline

    pipeline = Pipeline(asked.folder / asked.dataset, asked.dataset)
    release = {"mechanism": MECHANISM, "features": asked.features}
    pipeline.seal(pipeline.params(release=release))
    if asked.ceiling:
        params = pipeline.params(release={**release, "epsilon": 1.0})
        found = pipeline.run(params, noise=0, reference=True).reference
        print(json.dumps({"dataset": asked.dataset, "features": asked.features, "reference": found}))
        return
    for epsilon in asked.epsilon or EPSILONS[asked.dataset]:
        params = pipeline.params(release={**release, "epsilon": epsilon})
        if asked.again or not _is_there(asked, epsilon):
            runs = [[pipeline.run(params, noise=key * 1000)] for key in range(asked.keys)]
            row = row_of(pipeline, params, runs, 0)
            keep(row)
            print(json.dumps(row), flush=True)


def _is_there(asked: Any, epsilon: float) -> bool:
    wanted = {
        "dataset": asked.dataset,
        "mechanism": MECHANISM,
        "features": asked.features,
        "epsilon": epsilon,
    }
    rows = json.loads(RESULTS.read_text())
    return any(
        all(row[name] == value for name, value in wanted.items()) and row["keys"] >= asked.keys
        for row in rows
    )


if __name__ == "__main__":
    main()
