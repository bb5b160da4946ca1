"""One run of the AdLM paper's ablations: release, train, judge after every epoch. bench/papers/ablation.py
makes DVC experiments of many.

    python -m bench.papers.adlm network     # of params.yaml in this folder (bench/papers/ablations/params.yaml is the
                                            model)
    python -m bench.papers.adlm run

Public data in memory, the mechanisms' own two halves, no wall: what is measured is accuracy. Inside the
project one run is, for example, `dvc exp run -S dataset=mnist -S release.mechanism=adlm -S
'release.options={preset: authors-code}' -S train.epochs=4`.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import yaml
from numpy.typing import NDArray

from airlock.inside.manifest import Manifest
from airlock.models.papers import taylor
from airlock.params import Params
from airlock.privacy import accounting, events
from airlock.privacy.plan import Facts, Plan
from stages.mechanisms import Whole, mechanism

KEY = bytes(32)
ROWS = 1024
NETWORK = Path("network.safetensors")
# What Phan et al. report (Sec. IV); for CIFAR-10 only means over epsilon and figures are given: 77 % for
# AdLM, 71.1 % for DP-SGD.
PAPER = {
    ("mnist", "adlm", 0.25): 0.902,
    ("mnist", "adlm", 0.5): 0.9366,
    ("mnist", "ilm", 0.25): 0.8846,
    ("mnist", "ilm", 0.5): 0.9239,
    ("mnist", "dp-sgd", 0.25): 0.8209,
    ("mnist", "dp-sgd", 0.5): 0.8859,
    ("cifar10-jpeg", "adlm", 8.0): 0.77,
}
Images = tuple[NDArray[np.uint8], NDArray[np.int32]]


def read_mnist(part: str) -> Images:
    """Images and labels of the IDX files."""
    folder = _data_home() / "mnist"
    images, labels = (
        gzip.decompress((folder / f"{part}-{name}-ubyte.gz").read_bytes())
        for name in ("images-idx3", "labels-idx1")
    )
    pixels = np.frombuffer(images, np.uint8, offset=16).reshape(-1, 28, 28, 1)
    return pixels, np.frombuffer(labels, np.uint8, offset=8).astype(np.int32)


def as_batches(images: NDArray[np.uint8], labels: NDArray[np.int32]) -> list[pa.RecordBatch]:
    """As a sealed file would give them."""
    from airlock.records.encoding import Encoded, pack

    encoded = Encoded(images, labels, np.ones(len(labels), np.uint8))
    return [pack(encoded).slice(start, ROWS) for start in range(0, len(labels), ROWS)]


def read_cifar(part: str, most: int | None = None) -> Images:
    """Decoded JPEG images (lossy, unlike the original) and labels;
    only the first ones where few are wanted.
    """
    import io

    import pyarrow.parquet as pq
    from PIL import Image

    table = pq.read_table(
        _data_home() / "cifar10-jpeg" / f"{'train' if part == 'train' else 'test'}.parquet"
    ).slice(0, most)
    images = np.stack(
        [np.asarray(Image.open(io.BytesIO(one)).convert("RGB")) for one in table["image_jpeg"].to_pylist()]
    )
    return images, table["label"].to_numpy().astype(np.int32)


def read(dataset: str, part: str, most: int) -> Images:
    """The first records of a part of a data set."""
    images, labels = read_mnist(part) if dataset == "mnist" else read_cifar(part, most)
    return images[:most], labels[:most]


def _data_home() -> Path:
    return Path(os.environ.get("AIRLOCK_DATA_HOME", "../shared/data"))


def pretrain(asked: dict[str, Any]) -> None:
    """The network of line 1, trained on the raw records, to network.safetensors."""
    from safetensors.torch import save_file

    from stages.release.papers.adlm import pretraining

    facts, batches = _records(asked)
    options = {"network": "raw", "pretraining_epochs": asked["pretraining"]["epochs"]}
    params, recipe = _settled({**asked, "mechanism": "adlm", "options": options}, facts)
    save_file(
        pretraining.network(recipe, params, facts, batches, key=KEY, release_id="network").state_dict(),
        NETWORK,
    )


def run(asked: dict[str, Any]) -> dict[str, Any]:
    """Release, train, judge: the row that `airlock compare` shows, and accuracy.csv."""
    start = time.monotonic()
    facts, batches = _records(asked)
    params = _params(asked)
    plan = Whole(mechanism(asked["mechanism"])).plan(params, facts) if asked["mechanism"] != "none" else None
    tensors, details = _release(asked, facts, batches)
    data = {"kind": "image", "shape": list(facts.shape), "labels": list(facts.labels), "n": facts.n}
    release = _manifest(asked["mechanism"], plan, {**details, "data": data})
    test = read(asked["dataset"], "t10k", asked["judged"])
    accuracies = _judge_epochs(params, release, tensors, test)
    seconds = round(time.monotonic() - start)
    row = row_of(asked, params, plan)
    curve = {row["epochs"] - len(accuracies) + number: found for number, found in enumerate(accuracies, 1)}
    Path("accuracy.csv").write_text(
        "epoch,accuracy\n" + "".join(f"{epoch},{found:.4f}\n" for epoch, found in curve.items())
    )
    return {
        **row,
        "accuracy": accuracies[-1],
        "curve": {f"epoch_{epoch}": found for epoch, found in curve.items()},
        "records": facts.n,
        "judged": asked["judged"],
        "seconds": seconds,
    }


def _judge_epochs(params: Params, release: Manifest, tensors: dict[str, Any], test: Images) -> list[float]:
    """Accuracy on the test set after each epoch: every training but the first goes on from the checkpoint of
    the one before.

    An interactive mechanism is through with its epochs by now: its model is judged once.
    """
    train = mechanism("adlm" if release.mechanism == "none" else release.mechanism, "open").train
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for epochs in range(1, params.train.epochs + 1):
            trained = train(
                params.train.model_copy(update={"epochs": epochs}), release, tensors, checkpoint=Path(folder)
            )
            found.append(float((trained.model.predict(test[0]) == test[1]).mean()))
    return found


def _records(asked: dict[str, Any]) -> tuple[Facts, list[pa.RecordBatch]]:
    images, labels = read(asked["dataset"], "train", asked["records"])
    facts = Facts(
        asked["dataset"],
        True,
        "image",
        len(labels),
        0,
        images.shape[1:],
        tuple("0123456789"),
        schema="",
        fingerprint="",
    )
    return facts, as_batches(images, labels)


def _params(asked: dict[str, Any]) -> Params:
    name = "coefficients" if asked["mechanism"] == "none" else asked["mechanism"]
    release = {"mechanism": name, "epsilon": asked["epsilon"], "options": asked["options"]}
    return Params.model_validate({"dataset": asked["dataset"], "release": release, "train": asked["train"]})


def _settled(asked: dict[str, Any], facts: Facts) -> tuple[Params, Any]:
    from stages.release.papers.adlm import recipe

    params = _params(asked)
    return params, recipe.resolve(params, facts, adaptive=asked["mechanism"] == "adlm")


def _release(
    asked: dict[str, Any], facts: Facts, batches: list[pa.RecordBatch]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """As the release stage makes it; with `copies` as often as that, one after the other."""
    from stages.release.papers.adlm import perturbation

    if asked["mechanism"] == "none":
        return _without_noise(batches, facts), {"grid": 255, "fine": 2**16, "clip": 10.0}
    identity = json.dumps(asked, sort_keys=True)
    if asked["mechanism"] == "dp-sgd":
        return mechanism("dp-sgd").make(_params(asked), facts, batches, key=KEY, release_id=identity)
    params, recipe = _settled(asked, facts)
    given = _pretrained(facts) if recipe.adaptive and recipe.options.network == "raw" else None
    made = [
        perturbation.perturb(
            recipe, params, facts, batches, key=KEY, release_id=f"{identity} {copy}", network=given
        )
        for copy in range(asked["copies"])
    ]
    rows = {
        name: np.concatenate([tensors[name] for tensors, _ in made]) for name in ("inputs", "coefficients")
    }
    return {**made[0][0], **rows}, made[0][1]


def _pretrained(facts: Facts) -> Any:
    from safetensors.torch import load_file

    from airlock.models.papers.networks import build

    network = build("pretraining", facts.shape, len(facts.labels), seed=0)
    network.load_state_dict(load_file(NETWORK))
    return network.eval()


def _without_noise(batches: list[pa.RecordBatch], facts: Facts) -> dict[str, Any]:
    from airlock.records.encoding import unpack
    from stages.release.papers.adlm.recipe import geometry

    parts = [unpack(batch, facts.shape) for batch in batches]
    images, labels = np.concatenate([part.x for part in parts]), np.concatenate([part.y for part in parts])
    return {
        "inputs": images.reshape(len(images), -1).astype(np.int32),
        "coefficients": np.trunc(taylor.coefficients(labels, len(facts.labels)) * 2**16).astype(np.int32),
        "bias": np.zeros(geometry(facts.shape)[1], np.int64),
    }


def _manifest(name: str, plan: Plan | None, details: dict[str, Any]) -> Manifest:
    from airlock.privacy.guarantees import Guarantee

    nothing = Guarantee("proven", "record", "zero-out", math.inf, 0.0, reason="no noise")
    return Manifest(
        "bench",
        name,
        1,
        {},
        "record",
        "zero-out",
        None,
        plan.proven if plan else nothing,
        0,
        False,
        "",
        {},
        details,
    )


def row_of(asked: dict[str, Any], params: Params, plan: Plan | None) -> dict[str, Any]:
    """What `airlock compare` shows; infinity is a word, for JSON has none."""
    name = asked["mechanism"]
    row = {
        "dataset": asked["dataset"],
        "mechanism": name,
        "options": asked["options"],
        "delta": params.release.delta,
    }
    # An interactive mechanism's epochs are among its options: it trains while it reads.
    row |= {"epochs": asked["options"].get("epochs", asked["train"]["epochs"]), "copies": asked["copies"]}
    row |= {"learning_rate": asked["options"].get("learning_rate", asked["train"]["learning_rate"])}
    if plan is None:
        return {**row, "reading": "no noise, same network and loss", "passes": 1, "paper_accuracy": None}
    proven = plan.proven
    words = [f"{key} {value}" for key, value in asked["options"].items() if isinstance(value, str)]
    drawn = [f"noise drawn {asked['copies']} times"] if asked["copies"] > 1 else []
    event = events.from_json(proven.event) if proven.event else None
    return {
        **row,
        "reading": ", ".join([*words, *drawn]) or "published",
        "neighbours": proven.neighbours,
        "passes": plan.passes * asked["copies"],
        "epsilon": asked["epsilon"],
        "claimed": plan.claimed.epsilon if plan.claimed else None,
        "proven_pure": _word(accounting.epsilon(event, 0.0)) if event and name != "dp-sgd" else "infinity",
        "proven": _word(proven.epsilon),
        "reason": proven.reason,
        "paper_accuracy": PAPER.get((asked["dataset"], name, asked["epsilon"]))
        if asked["options"].get("preset") != "sound"
        else None,
    }


def _word(epsilon: float) -> float | str:
    return "infinity" if math.isinf(epsilon) else epsilon


def main() -> None:
    """One stage of bench/papers/ablations/pipeline.yaml, in the current folder."""
    if sys.argv[1:] not in (["network"], ["run"]):
        sys.exit(
            "usage: python -m bench.papers.adlm network|run, in a folder with a params.yaml like "
            "bench/papers/ablations/params.yaml"
        )
    asked = yaml.safe_load(Path("params.yaml").read_text())
    if sys.argv[1] == "network":
        pretrain(asked)
    else:
        Path("row.json").write_text(json.dumps(run(asked), indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
