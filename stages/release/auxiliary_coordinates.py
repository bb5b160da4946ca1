"""The steps of `dp-mac`: sums of clipped coefficients, noise on them, thresholds from noisy histograms."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from stages.models import mac
from stages.models.networks import channels_first
from stages.release.dp_sgd import Data
from stages.release.steps import Keyed, State, Tick, silent, walk

if TYPE_CHECKING:
    from stages.release.dp_mac import Recipe

SEED = 0
"""Of the first weights, which are public."""
PIECE = 1000


def train(
    recipe: Recipe, data: Data, keyed: Keyed, *, checkpoint: Path | None = None, tick: Tick = silent
) -> tuple[list[Tensor], list[float]]:
    """All three phases as one walk; the weights and the thresholds (of b, and of C to second order, layer by layer)."""
    run = _Run(recipe, data, keyed)
    count = recipe.pretraining + recipe.steps
    final = walk(run.start(), run.advance, steps=count, identity=keyed.release_id, checkpoint=checkpoint, tick=tick)
    return run.weights(final), final["thresholds"].tolist()


class _Run:
    def __init__(self, recipe: Recipe, data: Data, keyed: Keyed) -> None:
        options = recipe.options
        assert options.task and options.z_steps and options.z_rate and options.bound_z and options.bound_w and options.learning_rate
        self.recipe, self.data, self.keyed, self.task, self.device = recipe, data, keyed, options.task, torch.device(options.device)
        self.how = mac.Coordinates(options.z_steps, options.z_rate, options.bound_z, options.z_optimiser)
        self.bound, self.rate = options.bound_w, options.learning_rate
        self.epoch = max(1, round(1 / recipe.rate))

    def start(self) -> State:
        """First weights, no momentum, the largest threshold for every layer."""
        options, generator, state = self.recipe.options, torch.Generator().manual_seed(SEED), State()
        for k, (inputs, outputs) in enumerate(pairwise(self.recipe.sizes)):
            weight = torch.randn(inputs, outputs, generator=generator) / (1 if options.initial == "normal" else math.sqrt(inputs))
            state[f"weight{k}"] = weight.to(self.device)
            state[f"first{k}"], state[f"second{k}"] = (torch.zeros_like(state[f"weight{k}"]) for _ in range(2))
        largest = [options.threshold, options.threshold_second][: options.order] * self.recipe.layers
        return {**state, "thresholds": torch.tensor(largest, dtype=torch.float64)}

    def weights(self, state: State) -> list[Tensor]:
        return [state[f"weight{k}"] for k in range(self.recipe.layers)]

    def advance(self, step: int, state: State) -> State:
        """One step; between the phases the histograms are read and training begins anew."""
        first = self.recipe.pretraining
        if first and step == first:
            state = {**self.start(), "thresholds": self.learn_thresholds(step, state)}
        rows = self.keyed.sample(step, self.recipe.rate, len(self.data.labels))
        noisy = self.perturb(step, self.sums(self.weights(state), rows, state["thresholds"].tolist()), state["thresholds"])
        return self.update(step - (first if step >= first else 0), state, noisy)

    def sums(self, weights: list[Tensor], rows: Tensor, thresholds: list[float]) -> list[Tensor]:
        """Clipped coefficients, summed over records; null records have none."""
        order = self.recipe.options.order
        totals = [torch.zeros(0)] * len(thresholds)
        for number, layer in enumerate(self.coefficients(weights, rows)):
            own = slice(number * order, (number + 1) * order)
            totals[own] = layer.clipped_sums(thresholds[own])
        return totals

    def coefficients(self, weights: list[Tensor], rows: Tensor) -> list[mac.Coefficients]:
        known = rows[self.data.labels[rows] >= 0]
        records = channels_first(self.data.scaled(known)).flatten(1).to(self.device)
        targets = records
        if self.task == "classify":
            targets = torch.nn.functional.one_hot(self.data.labels[known], self.recipe.sizes[-1]).to(records)
        z = mac.find_coordinates(weights, records, targets, self.how, task=self.task)
        return mac.coefficients(weights, records, targets, z, task=self.task, order=self.recipe.options.order)

    def perturb(self, step: int, totals: list[Tensor], thresholds: Tensor) -> list[Tensor]:
        """Divided by the expected size of a sample."""
        scales = deviations(thresholds, self.recipe).tolist()
        return [
            (total + scale * self.keyed.gaussian(step, f"block {number}", total)) / self.recipe.batch
            for number, (total, scale) in enumerate(zip(totals, scales, strict=True))
        ]

    def update(self, step: int, state: State, noisy: list[Tensor]) -> State:
        """Adam on the noisy polynomial, `w_steps` times; columns of weights stay within their bound."""
        options, after = self.recipe.options, dict(state)
        rate = self.rate * options.decay ** (step // self.epoch)
        for k in range(self.recipe.layers):
            weight, first, second = (state[f"{name}{k}"].clone() for name in ("weight", "first", "second"))
            for extra in range(options.w_steps):
                slope = slope_of(weight, noisy[k * options.order : (k + 1) * options.order])
                weight = weight - rate * mac.adam(slope, first, second, step * options.w_steps + extra + 1)
            after |= {f"weight{k}": mac.shorten(weight.T, self.bound).T.contiguous(), f"first{k}": first, f"second{k}": second}
        return after

    def learn_thresholds(self, step: int, state: State) -> Tensor:
        """Upper edge of the fullest bin of each noisy histogram of norms; what is beyond the largest threshold is in the last bin."""
        bins, largest = self.recipe.options.bins, state["thresholds"]
        counts = torch.zeros(len(largest), bins, dtype=torch.float64)
        for rows in torch.split(torch.arange(len(self.data.labels)), PIECE):
            norms = [norm for layer in self.coefficients(self.weights(state), rows) for norm in layer.norms()]
            for number, norm in enumerate(norms):
                places = (norm.double().cpu() / largest[number] * bins).long().clamp(0, bins - 1)
                counts[number] += torch.bincount(places, minlength=bins)
        noisy = counts + self.recipe.options.histogram_sigma * self.keyed.gaussian(step, "histograms", counts)
        return largest * (noisy.argmax(dim=1) + 1) / bins


def slope_of(weight: Tensor, coefficients: list[Tensor]) -> Tensor:
    """Gradient of sum_h w_h . b_h + w_h^T C_h w_h."""
    if len(coefficients) == 1:
        return coefficients[0]
    linear, curved = coefficients
    return linear + torch.einsum("hij,jh->ih", curved + curved.transpose(1, 2), weight)


def deviations(thresholds: Tensor, recipe: Recipe) -> Tensor:
    """Standard deviation of the noise on every block: reach sigma T_k / lambda_k."""
    sizes = torch.tensor(recipe.blocks, dtype=torch.float64)
    weight = torch.ones_like(sizes) if recipe.options.allocation == "even" else thresholds * sizes.sqrt()
    return recipe.reach * recipe.sigma * thresholds / (weight / weight.sum()).sqrt()
