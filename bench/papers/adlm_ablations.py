"""AdLM's program with one thing changed at a time: what each is worth, over the same few steps.

    AIRLOCK_DATA_HOME=../shared/data python -m bench.papers.adlm_ablations --steps 250
    AIRLOCK_DATA_HOME=../shared/data python -m bench.papers.adlm_ablations --steps 1000 --epsilon 0.25 0.5 2 --first 2

MNIST, 33 batches of 1,800, claimed 0.5 or as asked, 120 records of a batch in each step, one key and one first
network for all.
Accuracy is on the test set by the statistics of its own batch, as the program predicts. Rows go to
bench/results/adlm-ablations.json as they come; what is there is not run again.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from airlock.models.papers import taylor
from airlock.models.papers.adlm_program import UNITS, AdlmProgram
from airlock.models.papers.epsilon_hat import EpsilonHatAdam
from bench.papers import adlm
from stages.open.mechanisms.adlm import bounded
from stages.release.papers.adlm import perturbation, pretraining

RESULTS = Path(__file__).parents[1] / "results" / "adlm-ablations.json"
BATCH, BATCHES, READ, CLIP, RATE = 1800, 33, 120, 10.0, 3e-4
NETWORK_RECORDS = 6000
"""That the network of relevance is trained on, once through: the same for all."""


@dataclass(frozen=True)
class Variant:
    """One program; the defaults are the authors', with noise drawn once.

    Attributes:
        noise: `once` a batch, `fresh` in each step, for each `record` (once), or `none`.
        pixels: `signed`, in [-1, 1], or `unit`, in [0, 1], with the same noise.
        relevance: `floored`, of raw relevances, negative ones cut after the noise; `fourth` power of the mean of
            rescaled ones, of which the size counts after the noise; `absolute` value (Eq. 16), or `even` shares (ILM).
        labels: noise as one `matrix` for the training, on the coefficients of each `record`, or `none`.
        epsilon: claimed.
    """

    name: str
    epsilon: float = 0.5
    noise: str = "once"
    pixels: str = "signed"
    relevance: str = "floored"
    labels: str = "matrix"
    normalised: bool = True
    clipped: bool = True


BASE = Variant("the program, noise drawn once a batch")
VARIANTS = (
    BASE,
    replace(BASE, name="noise drawn anew in each step (the program)", noise="fresh"),
    replace(BASE, name="no batch normalisation", normalised=False),
    replace(BASE, name="units not cut to [-1, 1]", clipped=False),
    replace(BASE, name="noise for each record (the paper)", noise="record"),
    replace(BASE, name="pixels in [0, 1]", pixels="unit"),
    replace(BASE, name="shares by the size of noisy relevance, to the fourth power", relevance="fourth"),
    replace(BASE, name="shares by |R| (the paper)", relevance="absolute"),
    replace(BASE, name="even shares (ILM)", relevance="even"),
    replace(BASE, name="no label noise", labels="none"),
    replace(BASE, name="label noise for each record (the paper)", labels="record"),
    replace(BASE, name="no noise at all", noise="none", labels="none"),
)


class Ablated(AdlmProgram):
    """The program's network, perhaps without a part."""

    def __init__(self, variant: Variant) -> None:
        super().__init__((28, 28, 1), 10, signed=variant.pixels == "signed")
        self.variant = variant

    def above(self, below: torch.Tensor) -> torch.Tensor:
        """Scores of a batch."""
        affine = self.last(below)
        units = torch.nn.functional.relu(self.norm(affine) if self.variant.normalised else affine)
        scores: torch.Tensor = self.outputs(units.clamp(-1, 1) if self.variant.clipped else units)
        return scores

    def forward(self, records: torch.Tensor) -> torch.Tensor:
        return self.above(self.below(records))


@cache
def _digits() -> tuple[Any, Any]:
    images, labels = adlm.read_mnist("train")
    return images.reshape(len(images), 784)[: BATCH * BATCHES], labels[: BATCH * BATCHES]


@cache
def _recipe(epsilon: float) -> tuple[Any, Any, Any, Any]:
    asked = {"dataset": "mnist", "records": NETWORK_RECORDS, "mechanism": "adlm", "epsilon": epsilon}
    options = {"preset": "authors-code", "relevance_records": 500, "pretraining_epochs": 1}
    asked |= {"options": options, "train": {}, "copies": 1}
    facts, batches = adlm._records(asked)
    params, recipe = adlm._settled(asked, replace(facts, n=60_000))
    return recipe, params, facts, batches


@cache
def shares(kind: str, epsilon: float) -> Any:
    """beta of every pixel: the mean relevance, with the noise that its part of epsilon asks for."""
    if kind == "even":
        return np.ones(784)
    recipe, params, facts, batches = _recipe(epsilon)
    allocation = {"floored": "floored", "fourth": "clamped"}.get(kind, "absolute")
    chosen = replace(recipe, options=recipe.options.model_copy(update={"allocation": allocation}))
    network = _network(epsilon)
    total = perturbation.average(
        chosen, params, facts, batches, key=adlm.KEY, release_id="ablations", network=network
    )
    if kind == "floored":
        return perturbation.floored(total / (recipe.counted * perturbation.FINE_GRID))
    return perturbation.allocate(total.astype(np.float64))


@cache
def _network(epsilon: float) -> Any:
    recipe, params, facts, batches = _recipe(epsilon)
    return pretraining.network(recipe, params, facts, batches, key=adlm.KEY, release_id="ablations")


class Batches:
    """Perturbed inputs and coefficients of the steps."""

    def __init__(self, variant: Variant) -> None:
        self.variant, self.recipe = variant, _recipe(variant.epsilon)[0]
        self.images, self.labels = _digits()
        even = self.recipe.input_scale * (1 if variant.pixels == "signed" else 2)
        self.scales = even / shares(variant.relevance, variant.epsilon)
        # Noise of its own for whatever is drawn, so that no variant moves another's.
        self.drawn = np.random.default_rng([0, 1])
        self.once = self.drawn.laplace(0, 1, (BATCHES, 784)) * self.scales
        self.matrix = self._matrix()

    def _matrix(self) -> torch.Tensor:
        size = self.recipe.label_scale if self.variant.labels == "matrix" else 0.0
        return torch.from_numpy(size * np.random.default_rng([0, 2]).laplace(0, 1, (UNITS, 10))).float()

    def step(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Of one step: its batch, some rows of it, their noise."""
        order = np.random.default_rng([1, number // BATCHES]).permutation(BATCHES)
        batch = int(order[number % BATCHES])
        rows = batch * BATCH + np.random.default_rng([2, number]).permutation(BATCH)[:READ]
        noisy = self.images[rows] / 255 + self._noise(batch, rows, number)
        inputs = bounded(noisy, CLIP, signed=self.variant.pixels == "signed")
        table = taylor.coefficients(self.labels[rows], 10)
        if self.variant.labels == "record":
            table[:, 1] += self.recipe.label_scale * _by_row(rows, 10, 4)
        return torch.from_numpy(inputs.reshape(-1, 28, 28, 1)), torch.from_numpy(table.astype(np.float32))

    def _noise(self, batch: int, rows: Any, number: int) -> Any:
        if self.variant.noise == "none":
            return 0.0
        if self.variant.noise == "record":
            return self.scales * _by_row(rows, 784, 3)
        if self.variant.noise == "fresh":
            return self.scales * np.random.default_rng([5, number]).laplace(0, 1, 784)
        return self.once[batch]


def _by_row(rows: Any, width: int, purpose: int) -> Any:
    """Drawn once for a record: the same whenever it comes again."""
    return np.stack([np.random.default_rng([purpose, int(row)]).laplace(0, 1, width) for row in rows])


def run(variant: Variant, steps: int) -> dict[str, Any]:
    """Train and judge."""
    torch.manual_seed(0)
    network, batches = Ablated(variant), Batches(variant)
    optimiser = EpsilonHatAdam(network.parameters(), rate=RATE)
    network.train()
    for number in range(steps):
        inputs, table = batches.step(number)
        scores = network(inputs)
        noise = scores.numel() * (batches.matrix.T * network.outputs.weight).sum()
        optimiser.zero_grad()
        torch.autograd.backward(taylor.polynomial(scores, table).sum() - noise)
        optimiser.step()
    return {
        "variant": variant.name,
        "steps": steps,
        "read": READ,
        "claimed": variant.epsilon,
        "accuracy": judge(network),
    }


def judge(network: Ablated) -> float:
    """On the test digits, by the statistics of all of them together."""
    images, labels = adlm.read_mnist("t10k")
    with torch.no_grad():
        parts = torch.split(torch.from_numpy(images.copy()), 500)
        scores = network.train().above(torch.cat([network.below(few.float() / 255) for few in parts]))
    return float((scores.argmax(1).numpy() == labels).mean())


def main() -> None:
    """All variants, in their order."""
    from airlock.models.memory import keep_pages

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.5], help="claimed")
    parser.add_argument(
        "--first", type=int, default=len(VARIANTS), help="only so many variants, in their order"
    )
    asked = parser.parse_args()
    keep_pages()
    rows: list[dict[str, Any]] = json.loads(RESULTS.read_text())["ablations"] if RESULTS.exists() else []
    wanted = [replace(one, epsilon=value) for value in asked.epsilon for one in VARIANTS[: asked.first]]
    for variant in wanted:
        cell = (variant.name, asked.steps, variant.epsilon)
        if any((row["variant"], row["steps"], row["claimed"]) == cell for row in rows):
            continue
        rows.append(run(variant, asked.steps))
        RESULTS.write_text(json.dumps({"ablations": rows}, indent=1, sort_keys=True) + "\n")
        print(rows[-1], flush=True)


if __name__ == "__main__":
    main()
