"""Records a second and core that the papers' programs train on: as it was, with pages kept, by frequencies.

    python -m bench.papers.throughput          a minute; results go to bench/results/throughput.json as they come

Made-up digits, processor time of one thread, each cell in a process of its own. `before` gives freed memory back
to the kernel in every step, as it was; `pages` is airlock/models/memory.py, with the same bytes; `now` has AdLM's
convolutions by airlock/models/papers/pooled_convolutions.py too, and pCDBN's by cells.py, with gradients in closed
form; the same up to rounding. `pooling` is another network: pCDBN's `architecture: pooling`, which `authors-code` was
at commit a25e4d9, by its code of today.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parents[1] / "results/throughput.json"
CELLS = {
    "adlm, 120 of a batch": 40,
    "adlm, batches of 1,800": 2,
    "pcdbn, pre-training of layer 1, 120 of a batch": 15,
    "pcdbn, pre-training of layer 2, 120 of a batch": 15,
    "pcdbn, pre-training of both layers, 120 of a batch": 8,
    "pcdbn, above the layers, 120 of a batch": 400,
    "pcdbn, above the layers, batches of 3,600": 15,
}
"""And how many steps are timed."""
WAYS = ("before", "pages", "now", "pooling")


def main() -> None:
    """Measure all cells; or (with --cell) one here."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cell", choices=CELLS, help=argparse.SUPPRESS)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.cell:
        print(json.dumps(measure(asked.cell, asked.way)))
        return
    known: list[dict[str, Any]] = json.loads(RESULTS.read_text())["throughput"] if RESULTS.exists() else []
    for cell in CELLS:
        if all(row["cell"] != cell for row in known):
            known += _each(cell)
            RESULTS.write_text(json.dumps({"throughput": known, "machine": _machine()}, indent=1) + "\n")


def _each(cell: str) -> list[dict[str, Any]]:
    import subprocess
    import sys

    command = [sys.executable, "-m", "bench.papers.throughput", "--cell", cell, "--way"]
    ways = WAYS if "both layers" in cell else WAYS[:3]
    found = [subprocess.run([*command, way], check=True, stdout=-1, text=True).stdout for way in ways]
    rows = [json.loads(text.splitlines()[-1]) for text in found]
    for row in rows:
        row["ratio"] = round(row["records_a_second"] / rows[0]["records_a_second"], 2)
        print(row, flush=True)
    return rows


def _machine() -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    known = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    wanted = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
    return {"model": known.get("model name"), "has": [one for one in wanted if one in known.get("flags", "")]}


def measure(cell: str, way: str) -> dict[str, Any]:
    """Steps of a cell, after one that is not counted."""
    import torch

    from airlock.models.memory import keep_pages
    from airlock.models.papers import pooled_convolutions

    torch.set_num_threads(1)
    if way != "before":
        keep_pages()
    if way != "now":
        pooled_convolutions.fits = lambda records: False
    if way == "pooling":
        step, records = _pooling()
    else:
        step, records = _adlm(cell) if cell.startswith("adlm") else _pcdbn(cell, as_it_was=way != "now")
    step(0)
    start = time.process_time()
    for number in range(1, CELLS[cell] + 1):
        step(number)
    took = (time.process_time() - start) / CELLS[cell]
    return {
        "cell": cell,
        "way": way,
        "records_a_second": round(records / took),
        "step_seconds": round(took, 5),
    }


def _adlm(cell: str) -> tuple[Callable[[int], object], int]:
    from airlock.models.papers import taylor
    from airlock.params import TrainParams
    from stages.open.mechanisms.adlm import PROGRAM, Program

    drawn, read = np.random.default_rng(0), 120 if "120" in cell else 1800
    labels = drawn.integers(0, 10, 1800)
    tensors: dict[str, Any] = {
        "inputs": drawn.integers(-2000, 2000, (1800, 784)).astype(np.int32),
        "coefficients": np.trunc(taylor.coefficients(labels, 10) * 2**16).astype(np.int32),
        "label_noise": drawn.integers(-1000, 1000, (25, 10)),
    }
    data = {"shape": [28, 28, 1], "labels": list("0123456789")}
    details = {"network": PROGRAM, "grid": 255, "fine": 2**16, "clip": 10.0, "batch": 1800, "data": data}
    course = Program(TrainParams(batch=read, learning_rate=3e-4), details, tensors, "cpu")
    course.network.train()
    return course.epoch, read


def _digits(count: int) -> tuple[Any, Any]:
    drawn = np.random.default_rng(0)
    images = drawn.integers(0, 256, (count, 28, 28, 1)).astype(np.uint8)
    return images, drawn.integers(0, 10, count).astype(np.int32)


def _pcdbn(cell: str, *, as_it_was: bool) -> tuple[Callable[[int], object], int]:
    from bench.papers.adlm import as_batches
    from bench.papers.pcdbn import settle
    from stages.release.interactive import Keyed
    from stages.release.papers.dp_sgd import dp_sgd
    from stages.release.papers.pcdbn import pcdbn, program

    read, (images, labels) = 120 if "120" in cell else 3600, _digits(7200)
    options = {"preset": "authors-code", "epochs": 300, "step_records": read}
    params, facts = settle({"epsilon": 0.5, "options": options}, len(labels))
    data = dp_sgd.load(as_batches(images, labels), facts)
    course = program.Program(pcdbn.resolve(params, facts), facts, data, Keyed(bytes(32), "throughput"))
    tune = _as_it_was(course) if as_it_was else course.tune
    if "above" not in cell:
        depths = [depth for depth, name in enumerate(("layer 1", "layer 2")) if name in cell] or [0, 1]
        return lambda number: [course.learn(depth, number) for depth in depths], read
    first = course.pretraining * course.batches.an_epoch
    return lambda number: tune(first + number), read


def _as_it_was(course: Any) -> Callable[[int], float]:
    """Steps of version 2: strided convolutions and automatic differentiation; the step above the layers."""
    import torch

    from airlock.models.papers import cells, strided, taylor
    from airlock.models.papers.epsilon_hat import EpsilonHatAdam

    def activations(drives: Any, sigmoid: Any) -> Any:
        normal = drives / drives.amax()
        return torch.cat([sigmoid(few).clamp(0, 1) for few in torch.split(normal, 16)])

    strided.activations, cells.fit = activations, lambda visible: False
    network = course.network
    above = [*network.hidden.parameters(), *network.outputs.parameters()]
    optimiser = EpsilonHatAdam(above, rate=course.recipe.learning_rate)

    def tune(number: int) -> float:
        rows = course.batches[number]
        network.train()
        units = network.last(torch.index_select(course.below, 0, rows, out=course._room[: len(rows)]))
        noisy = units + course.noise[number - course.pretraining * course.batches.an_epoch]
        loss = taylor.polynomial(network.outputs(noisy), course.table[rows]).sum()
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
        return float(loss.detach()) / len(rows)

    return tune


def _pooling() -> tuple[Callable[[int], object], int]:
    from bench.papers.adlm import as_batches
    from bench.papers.pcdbn import settle
    from stages.release.interactive import Keyed
    from stages.release.papers.dp_sgd import dp_sgd
    from stages.release.papers.pcdbn import pcdbn, training

    images, labels = _digits(120)
    options = {
        "preset": "authors-code",
        "architecture": "pooling",
        "epochs": 1,
        "batch": 120,
        "pretraining_epochs": 1,
    }
    params, facts = settle({"epsilon": 0.5, "options": options}, len(labels))
    recipe, data = pcdbn.resolve(params, facts), dp_sgd.load(as_batches(images, labels), facts)
    network, keyed = training.fresh(recipe, facts), Keyed(bytes(32), "throughput")
    return lambda number: training.pretrain(network, data, recipe, keyed), len(labels)


if __name__ == "__main__":
    main()
