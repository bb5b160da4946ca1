"""The comparison on MNIST, in one run on this machine: Airlock, Opacus' own CNN, Opacus on the same features,
no privacy at all.

    python -m bench.flagship.dpsgd            about forty minutes on two idle cores; most of it tuning, which is not
                                              counted
    python -m bench.flagship.dpsgd tune       only that; kept in bench/results/tuning/comparison.json
    python -m bench.flagship.dpsgd measure    the rest, with the best settings found

All private ones have the same (epsilon, delta) and relation (zero-out, where a Poisson-sampled Gaussian has
the add/remove constants), one accountant. DP-SGD's rate, batch, clip and epochs are the best of twelve or
more on a validation split of the training set (50,000 to train, 10,000 to judge), each tried with the whole
privacy budget. Airlock's settings are its defaults. Time is from records at rest to trained model, measured
at the same priority in the same run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.flagship.accuracy import in_own_process, keep

RESULTS = Path(__file__).parents[1] / "results/comparison.json"
TUNING = Path(__file__).parents[1] / "results/tuning/comparison.json"
DATASET, EPSILON, DELTA = "mnist", 0.5, 1e-5
VALIDATION = 10_000
# Learning rate in units of 1/clip (so that clips can be compared), expected batch size, clip, epochs. Many
# epochs need lower rates.
SETTINGS: dict[str, list[tuple[float, int, float, int]]] = {
    "dp-sgd cnn (opacus)": [
        *((rate, batch, clip, 2) for batch, clip, rate in product((512, 2048), (0.1, 1.0), (0.5, 1.0, 2.0))),
        *(
            (rate, batch, 1.0, 5)
            for batch, rates in ((512, (0.5, 1.0, 2.0)), (2048, (2.0, 4.0)))
            for rate in rates
        ),
        *(
            (rate, batch, 1.0, 10)
            for batch, rates in ((512, (0.25, 0.5, 1.0, 2.0)), (2048, (2.0, 4.0)))
            for rate in rates
        ),
    ],
    "dp-sgd linear, same features (opacus)": [
        (rate, batch, clip, 5)
        for batch, clip, rate in product((1024, 4096), (0.1, 1.0), (4.0, 16.0, 64.0, 256.0))
    ],
}
SEEDS = 3


@dataclass(frozen=True)
class Setting:
    """See SETTINGS."""

    rate: float
    batch: int
    clip: float
    epochs: int


def main() -> None:
    """Tune, then measure everything; or (with --cell) one of the measurements here."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("phase", nargs="?", choices=("all", "tune", "measure"), default="all")
    parser.add_argument("--mechanism")
    parser.add_argument("--setting", type=json.loads)
    parser.add_argument("--validate", action="store_true")
    parser.add_argument("--cell", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.cell:
        row = (
            reference(asked.cell)
            if asked.mechanism == "none"
            else measure(asked.cell, asked.mechanism, asked.setting, asked.validate)
        )
        print(json.dumps(row))
        return
    with tempfile.TemporaryDirectory(prefix="airlock-bench-") as folder:
        if asked.phase != "measure":
            for name, settings in SETTINGS.items():
                tune(folder, name, settings)
        if asked.phase == "tune":
            return
        for name in SETTINGS:
            keep(_cell(folder, name, ranked(name)[0]), RESULTS)
        for mechanism in ("coefficients", "coefficients-iterated"):
            keep(
                in_own_process(
                    "bench.flagship.accuracy",
                    DATASET,
                    mechanism,
                    "--epsilon",
                    str(EPSILON),
                    "--keys",
                    str(SEEDS),
                    "--cell",
                    folder,
                ),
                RESULTS,
            )
        keep(_cell(folder, "none", {}), RESULTS)


def tune(folder: str, name: str, settings: list[tuple[float, int, float, int]]) -> None:
    """Try all settings on the validation split, but those that were tried before."""
    for setting in (asdict(Setting(*one)) for one in settings):
        if setting not in ranked(name):
            keep(_cell(folder, name, setting, "--validate"), TUNING)


def ranked(name: str) -> list[dict[str, Any]]:
    """The settings that were tried, best first."""
    tried = [
        row for row in (json.loads(TUNING.read_text()) if TUNING.exists() else []) if row["mechanism"] == name
    ]
    return [dict(row["setting"]) for row in sorted(tried, key=lambda row: -float(row["accuracy_mean"]))]


def _cell(folder: str, name: str, setting: dict[str, Any], *flags: str) -> dict[str, Any]:
    return in_own_process(
        "bench.flagship.dpsgd",
        "--mechanism",
        name,
        "--setting",
        json.dumps(setting),
        "--cell",
        folder,
        *flags,
    )


def measure(folder: Path, name: str, given: dict[str, Any], validate: bool) -> dict[str, Any]:
    """DP-SGD with one setting: on the validation split once, or on the test set with several seeds."""
    from airlock.privacy.calibration import sampled_gaussian_multiplier
    from bench.flagship.pipeline import peak_memory_mb

    setting = Setting(**given)
    (x, y), (test_x, test_y) = load(folder)
    if validate:
        (x, y), (test_x, test_y) = (x[:-VALIDATION], y[:-VALIDATION]), (x[-VALIDATION:], y[-VALIDATION:])
    rate = setting.batch / len(x)
    multiplier = sampled_gaussian_multiplier(EPSILON, DELTA, rate=rate, steps=round(setting.epochs / rate))
    accuracies, seconds = [], []
    for seed in range(1 if validate else SEEDS):
        start = time.perf_counter()
        network, prepare = networks(name)
        trained = descend(network, prepare(x), y, setting, multiplier, seed)
        seconds.append(time.perf_counter() - start)
        accuracies.append(judge(trained, prepare(test_x), test_y))
    return {
        "dataset": DATASET,
        "mechanism": name,
        "features": json.dumps(given, sort_keys=True) if validate else None,
        "setting": given,
        "noise_multiplier": multiplier,
        "epsilon": EPSILON,
        "delta": DELTA,
        "neighbours": "zero-out",
        "passes": setting.epochs,
        "keys": len(accuracies),
        "accuracy_mean": statistics.fmean(accuracies),
        "accuracy_std": statistics.stdev(accuracies) if len(accuracies) > 1 else 0.0,
        "seconds": statistics.median(seconds),
        "peak_memory_mb": round(peak_memory_mb(), 1),
    }


def load(
    folder: Path, dataset: str = DATASET
) -> tuple[tuple[NDArray[np.uint8], NDArray[np.int64]], tuple[NDArray[np.uint8], NDArray[np.int64]]]:
    """Images and labels of the training and the test set, as the pipeline encodes them."""
    from airlock.records.encoding import encode
    from airlock.records.schema_file import load_schema
    from airlock.records.tables import open_table
    from bench.flagship.pipeline import Pipeline

    pipeline = Pipeline(folder, dataset)
    schema = load_schema(pipeline.workspace / f"data/schemas/{dataset}.yaml")
    parts = []
    for role in ("records", "holdout"):
        encoded = [
            encode(batch, schema)
            for batch in open_table(pipeline.workspace / f"data/raw/{dataset}/{role}.parquet").batches()
        ]
        parts.append(
            (
                np.concatenate([one.x for one in encoded]),
                np.concatenate([one.y for one in encoded]).astype(np.int64),
            )
        )
    return parts[0], parts[1]


def networks(name: str) -> tuple[Any, Any]:
    """A fresh network and what turns images into its inputs: the CNN of Opacus' examples/mnist.py, or a
    linear layer on our features.
    """
    import torch
    from torch import nn

    if "cnn" in name:
        layers = [
            nn.Conv2d(1, 16, 8, 2, padding=3),
            nn.ReLU(),
            nn.MaxPool2d(2, 1),
            nn.Conv2d(16, 32, 4, 2),
            nn.ReLU(),
            nn.MaxPool2d(2, 1),
        ]
        network = nn.Sequential(
            *layers, nn.Flatten(), nn.Linear(32 * 4 * 4, 32), nn.ReLU(), nn.Linear(32, 10)
        )
        return (
            network,
            lambda x: (torch.as_tensor(x[..., 0], dtype=torch.float32)[:, None] / 255 - 0.1307) / 0.3081,
        )
    return nn.Linear(1029, 10), lambda x: torch.as_tensor(_rows(x))


def _rows(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    from airlock.models.features.features import DEFAULTS, feature_map
    from airlock.models.features.rows import LIMIT
    from stages.release.passes import bounded_map

    transform = feature_map(DEFAULTS["image"], "image", images.shape[1:]).transform
    parts = bounded_map(
        lambda start: (transform(images[start : start + 1024]) / LIMIT).astype(np.float32),
        range(0, len(images), 1024),
    )
    return np.concatenate(list(parts))


def descend(
    network: Any, x: Any, y: NDArray[np.int64], setting: Setting, multiplier: float, seed: int
) -> Any:
    """Opacus' DP-SGD: Poisson batches, clipped per-record gradients, Gaussian noise."""
    import torch
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(seed)
    # The network was made before the seed was set for the noise; give it the seed's own start.
    network.apply(lambda layer: layer.reset_parameters() if hasattr(layer, "reset_parameters") else None)
    optimiser = torch.optim.SGD(network.parameters(), lr=setting.rate / setting.clip, momentum=0.0)
    loader = DataLoader(TensorDataset(x, torch.as_tensor(y)), batch_size=setting.batch)
    network, optimiser, loader = PrivacyEngine().make_private(
        module=network,
        optimizer=optimiser,
        data_loader=loader,
        noise_multiplier=multiplier,
        max_grad_norm=setting.clip,
    )
    for _ in range(setting.epochs):
        for inputs, labels in loader:
            optimiser.zero_grad()
            if len(labels):
                torch.nn.functional.cross_entropy(network(inputs), labels).backward()  # type: ignore[no-untyped-call]
                optimiser.step()
    return network


def judge(network: Any, x: Any, y: NDArray[np.int64]) -> float:
    """Accuracy."""
    import torch

    with torch.no_grad():
        found = torch.cat([network(part).argmax(1) for part in torch.split(x, 1024)]).numpy()
    return float(np.mean(found == y))


def reference(folder: Path) -> dict[str, Any]:
    """Logistic regression without privacy on the same features."""
    from airlock.models.features.features import choose
    from bench.flagship.pipeline import Pipeline, peak_memory_mb
    from stages.open.evaluate import judge as judge_model
    from stages.release.doors import fit_reference
    from stages.release.perturb import HOLDOUT

    pipeline = Pipeline(folder, DATASET)
    params = pipeline.params()
    facts = pipeline.seal(params)
    pipeline.open_holdout(params)
    start = time.perf_counter()
    with pipeline.sealed(params) as reader:
        model = fit_reference(reader, choose("auto", facts.kind, facts.features), facts)
    seconds = time.perf_counter() - start
    accuracy = judge_model(model, pipeline.workspace / HOLDOUT / "holdout.parquet")[0]["accuracy"]
    return {
        "dataset": DATASET,
        "mechanism": "none (logistic regression, same features)",
        "epsilon": None,
        "delta": None,
        "neighbours": "none",
        "passes": 0,
        "keys": 1,
        "accuracy_mean": accuracy,
        "accuracy_std": 0.0,
        "seconds": seconds,
        "peak_memory_mb": round(peak_memory_mb(), 1),
    }


if __name__ == "__main__":
    main()
