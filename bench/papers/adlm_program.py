"""AdLM and ILM by their authors' program, in the shape of the design: noise drawn once, in the release, and trained
from it alone.

    AIRLOCK_DATA_HOME=../shared/data python -m bench.papers.adlm_program --mechanism ilm --epsilon 0.5
    AIRLOCK_DATA_HOME=../shared/data python -m bench.papers.adlm_program --epsilon 0.5 --read 120
    AIRLOCK_DATA_HOME=../shared/data python -m bench.papers.adlm_program --epsilon 0.5 --read 120 --every-step
    AIRLOCK_DATA_HOME=../shared/data python -m bench.papers.adlm_program --mechanism ilm --epsilon 0.5 --reconstruct
    AIRLOCK_DATA_HOME=../shared/data python -m bench.papers.adlm_program --dataset cifar10-jpeg --epsilon 2.5 --read 720

MNIST, 60,000 records: 33 fixed batches of 1,800, each with one noise vector. CIFAR-10 (JPEG copies), 50,000 records:
one noise image for all, 7 steps of 7,200 records an epoch. The same command again goes on where it stopped, on
another machine too: `--state` (bench/results/papers/state) holds network, optimiser and curve after each epoch, and
the relevance that was released. Rows go to bench/results/adlm-program.json after each of POINTS, with accuracy by the
running statistics of training (what a model predicts with) and by those of the whole test set (what the program does;
for CIFAR-10 of 2,500 test images at a time). `--every-step` trains as the authors do instead, on MNIST: raw records are
read and noise is drawn anew in every step, all else is the same; rows go to bench/results/adlm-every-step.json.
`--reconstruct` takes the release apart: how many of its records come out of it as they went in. `--unit` is the
program with pixels in [0, 1], and shares by the size of noisy relevance: what `authors-code` was when most curves were
made (docs/errata/adlm.md).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.files import replacing
from bench.papers import adlm, every_step
from bench.papers.pcdbn import same
from stages.mechanisms import mechanism
from stages.release.papers.adlm import perturbation
from stages.release.papers.adlm.recipe import resolve

RESULTS = Path(__file__).parents[1] / "results"
ROWS, RECONSTRUCTED = RESULTS / "adlm-program.json", RESULTS / "adlm-reconstructed.json"
EVERY_STEP = RESULTS / "adlm-every-step.json"
STATE = RESULTS / "papers" / "state"
POINTS = (1, 5, 10, 25, *range(50, 501, 50), *range(600, 1501, 100))
"""Epochs after which accuracy is told."""
RELEVANCE_RECORDS = 2000


@dataclass(frozen=True)
class Setting:
    """What the program has for a data set: records, its batch and its rate; and epochs after which the paper's figure
    is looked for (its Figs. 4c and 5b; the program for CIFAR-10 has 1,500).
    """

    records: int
    batch: int
    rate: float
    epochs: int


SETTINGS = {"mnist": Setting(60_000, 1800, 3e-4, 500), "cifar10-jpeg": Setting(50_000, 7200, 1.0, 800)}
TESTED = 2500
"""Images at a time that the program for CIFAR-10 predicts."""


UNIT = {"pixels": "unit", "allocation": "clamped"}
"""Options of `--unit`."""


def ask(
    name: str, epsilon: float, epochs: int, read: int, dataset: str = "mnist", *, unit: bool = False
) -> dict[str, Any]:
    """One cell's parameters."""
    setting = SETTINGS[dataset]
    options: dict[str, Any] = {"preset": "authors-code", **(UNIT if unit else {})}
    if name == "adlm":
        options |= {"relevance_records": RELEVANCE_RECORDS, "pretraining_epochs": 1}
    train = {"epochs": epochs, "learning_rate": setting.rate, "batch": read, "seed": 0}
    asked = {"dataset": dataset, "records": setting.records, "mechanism": name, "epsilon": epsilon}
    return asked | {"options": options, "copies": 1, "train": train}


def make(asked: dict[str, Any], facts: Any, batches: Any, state: Path | None = None) -> tuple[Any, ...]:
    """Parameters, plan, tensors and details of its release."""
    params = adlm._params(asked)
    # All that it asks in one stage; the relevance stage would release the same sum under an id of its own.
    params = params.model_copy(update={"relevance": params.relevance.model_copy(update={"mode": "off"})})
    recipe = resolve(params, facts, adaptive=asked["mechanism"] == "adlm")
    named: dict[str, Any] = {"key": adlm.KEY, "release_id": identity_of(asked)}
    if recipe.adaptive:
        # Of what this file may have been made with before there was a choice.
        unit = UNIT.items() <= asked["options"].items()
        whose = "" if unit else f"{asked['dataset']}-"
        known = state / f"relevance-{whose}{asked['epsilon']:g}.safetensors" if state else None
        named["relevance"] = _relevance(
            known, lambda: perturbation.average(recipe, params, facts, batches, **named)
        )
    tensors, details = perturbation.perturb(recipe, params, facts, batches, **named)
    return params, mechanism(asked["mechanism"]).plan(params, facts), tensors, details


def identity_of(asked: dict[str, Any]) -> str:
    """That the noise of a release is drawn for."""
    # The noise of what is `unit` now was drawn for a name without it.
    options = {name: value for name, value in asked["options"].items() if UNIT.get(name) != value}
    return json.dumps([asked["mechanism"], asked["epsilon"], options], sort_keys=True)


def _relevance(known: Path | None, release: Callable[[], Any]) -> Any:
    """What was released once: another machine's network may differ in the last bit, and its noise wholly."""
    from safetensors.numpy import load_file, save_file

    if known is None:
        return release()
    if not known.exists():
        save_file({"relevance": release()}, known)
    return load_file(known)["relevance"]


def identified(release: Any, tensors: dict[str, Any]) -> Any:
    """The release by its bytes: a training goes on from what was trained from the same ones, or not at all."""
    digest = sha256()
    for name in ("inputs", "coefficients", "label_noise"):
        digest.update(np.ascontiguousarray(tensors[name]).tobytes())
    return replace(release, release_id=digest.hexdigest())


def reconstruct(inputs: NDArray[Any], batch: int) -> NDArray[np.int64]:
    """Records from their release: all of a batch share one noise vector, and somewhere in 1,800 digits nearly
    every pixel is black, so that its least value in the batch is the noise.
    """
    parts = [inputs[start : start + batch].astype(np.int64) for start in range(0, len(inputs), batch)]
    return np.concatenate([part - part.min(axis=0) for part in parts])


def attack(asked: dict[str, Any]) -> None:
    """Print and keep how much of the training set a release gives away."""
    facts, batches = adlm._records(asked)
    _, _, tensors, details = make(asked, facts, batches)
    whole = len(tensors["inputs"]) // details["batch"] * details["batch"]
    images, labels = adlm.read_mnist("train")
    truth = images.reshape(len(images), -1)[:whole].astype(np.int64)
    same_pixels = reconstruct(tensors["inputs"][:whole], details["batch"]) == truth
    # The trainer cuts inputs at +-clip (of pixels in [-1, 1]), and a pixel that is cut in all of its batch is lost.
    grid = details["grid"]
    low, high = int((1 - details["clip"]) / 2 * grid), int((1 + details["clip"]) / 2 * grid)
    cut = reconstruct(np.clip(tensors["inputs"][:whole], low, high), details["batch"])
    told = tensors["coefficients"][:whole, 1].argmin(axis=1) == labels[:whole]
    found = {name: asked[name] for name in ("dataset", "mechanism", "epsilon", "options")} | {
        "records": whole,
        "records_exact": int(same_pixels.all(axis=1).sum()),
        "pixels_exact": float(same_pixels.mean()),
        "ink_exact_after_the_cut": float((cut == truth)[truth > 0].mean()),
        "labels_exact": int(told.sum()),
    }
    RECONSTRUCTED.write_text(json.dumps({"reconstructed": found}, indent=1, sort_keys=True) + "\n")
    print(found, flush=True)


def run(
    name: str,
    epsilon: float,
    epochs: int,
    read: int,
    state: Path,
    dataset: str = "mnist",
    *,
    fresh: bool = False,
    unit: bool = False,
) -> None:
    """Release once, train from point to point, judge at each; `fresh`: from raw records, under new noise in each
    step.
    """
    state.mkdir(parents=True, exist_ok=True)
    asked, setting = ask(name, epsilon, epochs, read, dataset, unit=unit), SETTINGS[dataset]
    facts, batches = adlm._records(asked)
    params, plan, tensors, details = make(asked, facts, batches, state)
    data = {"kind": "image", "shape": list(facts.shape), "labels": list(facts.labels), "n": facts.n}
    release = identified(adlm._manifest(name, plan, {**details, "data": data}), tensors)
    row = adlm.row_of(asked, params, plan)
    row["reading"] += ", predicting by a batch's statistics"
    if read < setting.batch:
        row["reading"] += f", {read:,} of each {setting.batch:,}"
    row |= {"records": facts.n, "learning_rate": setting.rate}
    if fresh:
        row |= {"reading": row["reading"] + every_step.READING, "reason": every_step.REASON}
        release = replace(release, release_id=release.release_id + every_step.READING)
        images, _ = adlm.read(dataset, "train", setting.records)
        tensors = every_step.unperturbed(tensors, images, details["grid"], release.release_id)
    rows, test = EVERY_STEP if fresh else ROWS, adlm.read(dataset, "t10k", 10_000)
    known = next((one for one in kept_rows(rows) if same(one, row)), {})
    curves = known.get("curves", {"stored": {}, "batch": {}})
    for point in [*(point for point in POINTS if point < epochs), epochs]:
        if str(point) in curves["stored"]:
            continue
        asked_for = params.train.model_copy(update={"epochs": point})
        trained: Any = mechanism(name, "open").train(asked_for, release, tensors, checkpoint=state)
        for how, curve in curves.items():
            curve[str(point)] = accuracy(trained.model.module(), *test, stored=how == "stored")
        # The last pass of a release reads the records once, a training from raw ones in each epoch.
        told = {"epochs": point, "passes": plan.passes + (point - 1 if fresh else 0), "curves": curves}
        # The program's own way to predict; what a model of ours would answer is `stored`.
        keep({**row, **told, "accuracy": curves["batch"][str(point)]}, rows)


def accuracy(network: Any, images: Any, labels: Any, *, stored: bool) -> float:
    """On the test set, by the one kind of statistics or the other."""
    import torch

    size = 500
    with torch.no_grad():
        network.eval()
        if not stored and images.shape[3] == 1:
            _take_statistics(network, images)
        elif not stored:
            network, size = _by_batches(network), TESTED
        parts = torch.split(torch.from_numpy(images.copy()), size)
        scores = torch.cat([network(few.float() / 255) for few in parts])
    return float((scores.argmax(1).numpy() == labels).mean())


def _by_batches(network: Any) -> Any:
    """A copy that normalises by the records at hand, in all of its layers, and else predicts."""
    import copy

    import torch

    changed = copy.deepcopy(network)
    for layer in changed.modules():
        if isinstance(layer, torch.nn.BatchNorm1d):
            layer.train()
    return changed


def _take_statistics(network: Any, images: Any) -> None:
    """Mean and variance of all these records before normalising."""
    import torch

    seen: list[Any] = []
    hook = network.norm.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    for few in torch.split(torch.from_numpy(images.copy()), 500):
        network.eval()(few.float() / 255)
    hook.remove()
    every = torch.cat(seen)
    network.norm.running_mean.copy_(every.mean(0))
    network.norm.running_var.copy_(every.var(0, unbiased=False))


def kept_rows(path: Path) -> list[dict[str, Any]]:
    """What was measured so far."""
    found: list[dict[str, Any]] = json.loads(path.read_text())["runs"] if path.exists() else []
    return found


def keep(row: dict[str, Any], path: Path) -> None:
    """Put a row in the place of its predecessor."""
    kept = [one for one in kept_rows(path) if not same(one, row)] + [row]
    with replacing(path) as fresh:
        fresh.write_text(json.dumps({"runs": kept}, indent=1, sort_keys=True) + "\n")
    print(row["mechanism"], row["epsilon"], row["epochs"], row["curves"], flush=True)


def main() -> None:
    """One cell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", choices=tuple(SETTINGS), default="mnist")
    parser.add_argument("--mechanism", choices=("adlm", "ilm"), default="adlm")
    parser.add_argument("--epsilon", type=float, default=0.5)
    parser.add_argument("--epochs", type=int, help="the paper's, if not given: 500 on MNIST, 800 on CIFAR-10")
    parser.add_argument("--read", type=int, help="records of each batch; all in the program")
    parser.add_argument(
        "--every-step", action="store_true", help="read raw records and draw noise in every step (MNIST)"
    )
    parser.add_argument(
        "--reconstruct", action="store_true", help="take the release of MNIST apart, train nothing"
    )
    parser.add_argument(
        "--unit", action="store_true", help="pixels in [0, 1], as earlier curves of MNIST were made"
    )
    parser.add_argument("--state", type=Path, default=STATE, help="folder of what it goes on from")
    asked = parser.parse_args()
    if asked.every_step and asked.dataset != "mnist":
        parser.error("--every-step is for MNIST: the program for CIFAR-10 has one noise image for all steps")
    if asked.unit and asked.dataset != "mnist":
        parser.error("--unit is for MNIST")
    setting = SETTINGS[asked.dataset]
    read, epochs = asked.read or setting.batch, asked.epochs or setting.epochs
    if asked.reconstruct:
        attack(ask(asked.mechanism, asked.epsilon, epochs, read))
        return
    ways = {"fresh": asked.every_step, "unit": asked.unit}
    run(asked.mechanism, asked.epsilon, epochs, read, asked.state, asked.dataset, **ways)


if __name__ == "__main__":
    main()
