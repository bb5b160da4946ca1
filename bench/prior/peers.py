"""Opacus' linear model on the same map, and the map's ceiling without privacy, beside what Airlock reaches there.

    OMP_NUM_THREADS=1 python -m bench.prior.peers cifar10-jpeg prior-1 --folder WORK

One epsilon. Opacus' rate and clip are the best of six, around the best of sixteen on MNIST, on 10,000 training
pictures that it was not trained on, each with the whole budget; then three seeds on the test pictures. Airlock's row
is bench/results/accuracy.json's. What was tried is kept beside the result (bench/results/prior/peers.json), so that a
run which was stopped goes on.
"""

from __future__ import annotations

import argparse
import json
import statistics
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from bench.flagship.accuracy import keep
from bench.flagship.dpsgd import DELTA, VALIDATION, Setting, descend, judge
from bench.prior.memory import remembered

RESULTS = Path(__file__).parents[1] / "results/prior/peers.json"
BATCH, EPOCHS, SEEDS = 1024, 5, 3
SETTINGS = [Setting(rate, BATCH, clip, EPOCHS) for clip, rate in product((0.1, 1.0), (4.0, 16.0, 64.0))]
OPACUS, CEILING = "dp-sgd linear, same map (opacus)", "none (logistic regression, same map)"


def main() -> None:
    """Measure what is not there yet."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dataset")
    parser.add_argument("features")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--folder", type=Path, required=True)
    asked = parser.parse_args()
    with remembered(asked.folder / "memory"):
        _opacus(asked)
        if not _there(asked, CEILING):
            _keep(asked, CEILING, [_ceiling(asked)], None)


def _opacus(asked: Any) -> None:
    import torch

    if _there(asked, OPACUS):
        return
    (x, y), (test_x, test_y) = ((torch.as_tensor(rows), labels) for rows, labels in _rows(asked))
    tried = {}
    for setting in SETTINGS:
        name = f"{OPACUS}: clip {setting.clip:g}, rate {setting.rate:g}"
        if not _there(asked, name):
            found = _trained(asked, x[:-VALIDATION], y[:-VALIDATION], setting, 0)
            _keep(asked, name, [judge(found, x[-VALIDATION:], y[-VALIDATION:])], setting)
        tried[setting] = _row(asked, name)["accuracy_mean"]
    best = max(tried, key=lambda setting: tried[setting])
    found = [judge(_trained(asked, x, y, best, seed), test_x, test_y) for seed in range(SEEDS)]
    _keep(asked, OPACUS, found, best)


def _trained(asked: Any, x: Any, y: Any, setting: Setting, seed: int) -> Any:
    from torch import nn

    from airlock.privacy.calibration import sampled_gaussian_multiplier

    rate = setting.batch / len(x)
    steps = round(setting.epochs / rate)
    multiplier = sampled_gaussian_multiplier(asked.epsilon, DELTA, rate=rate, steps=steps)
    return descend(nn.Linear(x.shape[1], int(y.max()) + 1), x, y, setting, multiplier, seed)


def _rows(asked: Any) -> list[tuple[Any, Any]]:
    """Rows and labels of the training and the test pictures, as the pipeline makes them."""
    from airlock.models.features import features
    from airlock.models.features.rows import LIMIT
    from bench.flagship.dpsgd import load

    found = []
    for images, labels in load(asked.folder / asked.dataset, asked.dataset):
        made = features.feature_map(asked.features, "image", images.shape[1:])
        parts = [made.transform(images[start : start + 1024]) for start in range(0, len(images), 1024)]
        found.append(((np.concatenate(parts) / LIMIT).astype(np.float32), labels))
    return found


def _ceiling(asked: Any) -> float:
    from bench.flagship.pipeline import Pipeline

    pipeline = Pipeline(asked.folder / asked.dataset, asked.dataset)
    params = pipeline.params(release={"mechanism": "coefficients-iterated", "features": asked.features})
    pipeline.seal(params)
    found = pipeline.run(params, noise=0, reference=True).reference
    if found is None:
        raise SystemExit(f"{asked.dataset} has no public holdout")
    return float(found)


def _identity(asked: Any, mechanism: str) -> dict[str, Any]:
    return {
        "dataset": asked.dataset,
        "mechanism": mechanism,
        "features": asked.features,
        "epsilon": None if mechanism == CEILING else asked.epsilon,
    }


def _row(asked: Any, mechanism: str) -> dict[str, Any]:
    rows = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    wanted = _identity(asked, mechanism)
    return next((row for row in rows if all(row[name] == value for name, value in wanted.items())), {})


def _there(asked: Any, mechanism: str) -> bool:
    return bool(_row(asked, mechanism))


def _keep(asked: Any, mechanism: str, found: list[float], setting: Setting | None) -> None:
    row = {
        **_identity(asked, mechanism),
        "neighbours": "zero-out" if setting else "none",
        "passes": setting.epochs if setting else 0,
        "setting": setting and {"rate": setting.rate, "batch": setting.batch, "clip": setting.clip},
        "keys": len(found),
        "accuracy_mean": statistics.fmean(found),
        "accuracy_std": statistics.stdev(found) if len(found) > 1 else 0.0,
    }
    keep(row, RESULTS)
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
