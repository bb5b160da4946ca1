"""The ablations of the AdLM paper at a modest size: AdLM, ILM and no noise, by reading, epsilon and epochs, beside DP-SGD.

    AIRLOCK_DATA_HOME=../shared/data python -m bench.adlm --records 6000 --epochs 4

Public data (MNIST) in memory, the mechanisms' own two halves, no wall: what is measured is accuracy. Every run is added to
bench/results/adlm.json as soon as it ends; `airlock compare` makes the table. Inside the pipeline one row is, for example,
`dvc exp run -S dataset=mnist -S release.mechanism=adlm -S 'release.options={preset: authors-code}' -S train.epochs=4`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stages.boundary.manifest import Manifest
from stages.models import taylor
from stages.params import Params
from stages.privacy import accounting, events
from stages.privacy.plan import Facts, Plan
from stages.registry import mechanism

RESULTS = Path(__file__).parent / "results" / "adlm.json"
KEY = bytes(32)
ROWS = 1024
# What Phan et al. report for MNIST (Sec. IV): epsilon to accuracy.
PAPER = {("adlm", 0.25): 0.902, ("adlm", 0.5): 0.9366, ("ilm", 0.25): 0.8846, ("ilm", 0.5): 0.9239, ("dp-sgd", 0.5): 0.8859}


def read_mnist(part: str) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """Images and labels of the IDX files."""
    folder = Path(os.environ.get("AIRLOCK_DATA_HOME", "../shared/data")) / "mnist"
    images, labels = (gzip.decompress((folder / f"{part}-{name}-ubyte.gz").read_bytes()) for name in ("images-idx3", "labels-idx1"))
    pixels = np.frombuffer(images, np.uint8, offset=16).reshape(-1, 28, 28, 1)
    return pixels, np.frombuffer(labels, np.uint8, offset=8).astype(np.int32)


def as_batches(images: NDArray[np.uint8], labels: NDArray[np.int32]) -> list[pa.RecordBatch]:
    """As a sealed file would give them."""
    from stages.models.encoding import Encoded, pack

    encoded = Encoded(images, labels, np.ones(len(labels), np.uint8))
    return [pack(encoded).slice(start, ROWS) for start in range(0, len(labels), ROWS)]


def experiments(epochs: int, long: bool) -> Iterator[dict[str, Any]]:
    """One dictionary a run: mechanism, epsilon, release options, epochs of data-free training."""
    light = {"relevance_records": 2000, "pretraining_epochs": 2}
    yield {"mechanism": "none", "epsilon": math.inf, "options": {}, "epochs": epochs}
    for epsilon in (0.5, 0.25) if long else (0.5,):
        yield {"mechanism": "adlm", "epsilon": epsilon, "options": {"preset": "authors-code", **light}, "epochs": epochs}
        yield {"mechanism": "ilm", "epsilon": epsilon, "options": {"preset": "authors-code"}, "epochs": epochs}
    record = {"preset": "paper-literal", "sensitivity": "pooled-map", "coefficients": "labels", **light}
    for options in ({**record, "network": "public"}, {"preset": "paper-literal", "network": "public", **light}):
        yield {"mechanism": "adlm", "epsilon": 0.5, "options": options, "epochs": epochs}
    yield {"mechanism": "ilm", "epsilon": 0.5, "options": {**record, "network": None}, "epochs": epochs}
    yield {"mechanism": "dp-sgd", "epsilon": 1.0, "options": {"epochs": 4, "batch": 256}, "epochs": 0}
    for epsilon in (1.0, 8.0):
        for name in ("adlm", "ilm"):
            yield {"mechanism": name, "epsilon": epsilon, "options": {"preset": "sound", "relevance_records": 2000}, "epochs": epochs}
    yield {"mechanism": "dp-sgd", "epsilon": 0.5, "options": {"epochs": 4, "batch": 256}, "epochs": 0}


def run(asked: dict[str, Any], train: tuple[Any, Any], test: tuple[Any, Any]) -> dict[str, Any]:
    """Release, train, judge; accuracy after every epoch would read the test set, so only the last is judged."""
    images, labels = train
    facts = Facts("mnist", True, "image", len(labels), 0, (28, 28, 1), tuple("0123456789"), schema="", fingerprint="")
    name = asked["mechanism"]
    params = _params(asked)
    start = time.monotonic()
    plan: Plan | None
    details: dict[str, Any]
    if name == "none":
        plan, tensors, details = None, _without_noise(images, labels), {"grid": 255, "fine": 2**16, "clip": 10.0}
    else:
        module = mechanism(name)
        plan = module.plan(params, facts)
        tensors, details = module.make(params, facts, as_batches(images, labels), key=KEY, release_id=json.dumps(asked))
    details["data"] = {"kind": "image", "shape": [28, 28, 1], "labels": list("0123456789"), "n": len(labels)}
    release = _manifest(name, plan, details)
    trained = mechanism("adlm" if name == "none" else name, "open").train(params.train, release, tensors)
    accuracy = float((trained.model.predict(test[0]) == test[1]).mean())
    return {**_row(asked, params, plan), "accuracy": accuracy, "records": len(labels), "seconds": round(time.monotonic() - start)}


def _params(asked: dict[str, Any]) -> Params:
    release = {"mechanism": asked["mechanism"], "epsilon": min(asked["epsilon"], 1e3), "options": asked["options"]}
    train = {"epochs": max(asked["epochs"], 1), "learning_rate": 3e-3, "batch": 64}
    return Params.model_validate({"dataset": "mnist", "release": release, "train": train})


def _without_noise(images: NDArray[np.uint8], labels: NDArray[np.int32]) -> dict[str, Any]:
    table = taylor.coefficients(labels, 10)
    return {
        "inputs": images.reshape(len(images), -1).astype(np.int32),
        "coefficients": np.trunc(table * 2**16).astype(np.int32),
        "bias": np.zeros(32, np.int64),
    }


def _manifest(name: str, plan: Plan | None, details: dict[str, Any]) -> Manifest:
    from stages.privacy.guarantees import Guarantee

    nothing = Guarantee("proven", "record", "zero-out", math.inf, 0.0, reason="no noise")
    return Manifest("bench", name, 1, {}, "record", "zero-out", None, plan.proven if plan else nothing, 0, False, "", {}, details)


def _row(asked: dict[str, Any], params: Params, plan: Plan | None) -> dict[str, Any]:
    """What `airlock compare` shows; infinity is a word, for JSON has none."""
    name = asked["mechanism"]
    row = {"dataset": "mnist", "mechanism": name, "options": asked["options"], "epochs": asked["epochs"], "delta": params.release.delta}
    if plan is None:
        return {**row, "reading": "no noise, same network and loss", "passes": 1, "paper_accuracy": None}
    proven = plan.proven
    event = events.from_json(proven.event) if proven.event else None
    return {
        **row,
        "reading": ", ".join(f"{key} {value}" for key, value in asked["options"].items() if isinstance(value, str)) or "published",
        "neighbours": proven.neighbours,
        "passes": plan.passes,
        "epsilon": asked["epsilon"],
        "claimed": plan.claimed.epsilon if plan.claimed else None,
        "proven_pure": _word(accounting.epsilon(event, 0.0)) if event and name != "dp-sgd" else "infinity",
        "proven": _word(proven.epsilon),
        "reason": proven.reason,
        "paper_accuracy": PAPER.get((name, asked["epsilon"])) if asked["options"].get("preset") != "sound" else None,
    }


def _word(epsilon: float) -> float | str:
    return "infinity" if math.isinf(epsilon) else epsilon


def main() -> None:
    """Run what is not in the results yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--records", type=int, default=6000)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--long", action="store_true", help="more values of epsilon")
    chosen = parser.parse_args()
    images, labels = read_mnist("train")
    train, test = (images[: chosen.records], labels[: chosen.records]), read_mnist("t10k")
    rows = json.loads(RESULTS.read_text())["runs"] if RESULTS.exists() else []
    done = {json.dumps([row["mechanism"], row.get("epsilon"), row["options"], row["epochs"], row["records"]]) for row in rows}
    for asked in experiments(chosen.epochs, chosen.long):
        epsilon = asked["epsilon"] if asked["mechanism"] != "none" else None
        if json.dumps([asked["mechanism"], epsilon, asked["options"], asked["epochs"], chosen.records]) in done:
            continue
        rows.append(run(asked, train, test))
        print(rows[-1]["mechanism"], rows[-1]["reading"], rows[-1]["accuracy"], f"{rows[-1]['seconds']} s", flush=True)
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps({"runs": rows}, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
