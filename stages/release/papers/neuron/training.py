"""How `neuron-noise` trains: ratios from a network that saw the raw records, the noise tuple, Adam on raw
batches (Algorithms 1 and 2).
"""

from __future__ import annotations

from statistics import fmean

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from airlock.models.papers.networks import Ordered, build
from airlock.models.papers.neurons import contributions, offsets
from stages.mechanisms import Tick, silent
from stages.release.keyed_noise import KeyedNoise
from stages.release.papers.dp_sgd.dp_sgd import Data
from stages.release.papers.neuron.neuron_noise import Recipe

Ratios = NDArray[np.float64]
SEED, PRETRAINING_SEED = 0, 1
LEAST_RATIO = 1e-6
"""Of the mean |Cr|: below it the inverse of a ratio says nothing."""


def train_network(
    recipe: Recipe, data: Data, keyed: KeyedNoise, tick: Tick = silent, ratios: Ratios | None = None
) -> tuple[Ordered, Ratios, list[float]]:
    """The trained network, the merged tuple of contribution ratios, which may be known from before, and the
    perturbed loss of every epoch.
    """
    ratios = found_ratios(recipe, data) if ratios is None else ratios
    scales = proportions(ratios, recipe) * (sensitivity(data, recipe) / recipe.epsilons[0])
    network = _fresh(recipe, SEED)
    losses = descend(network, data, recipe, recipe.steps, scales=scales, keyed=keyed, tick=tick)
    return network.eval(), ratios, losses


def found_ratios(recipe: Recipe, data: Data) -> Ratios:
    """Contribution ratios in a network of the same layers that saw the raw records for a few epochs."""
    earlier = _fresh(recipe, PRETRAINING_SEED)
    descend(earlier, data, recipe, recipe.pretraining_steps)
    return merged_ratios(earlier, data, recipe)


def _fresh(recipe: Recipe, seed: int) -> Ordered:
    network = build(recipe.network, recipe.shape, recipe.classes, seed=seed)
    assert isinstance(network, Ordered)
    return network


def known_rows(data: Data) -> Tensor:
    """Null records train nothing."""
    return torch.nonzero(data.labels >= 0).flatten()


def merged_ratios(network: Ordered, data: Data, recipe: Recipe) -> Ratios:
    """Cr_merge: the mean over records of every layer's buffer (Eqs. 16 and 17), one after another (Sec.

    3.3).
    """
    rows, total = known_rows(data)[: recipe.options.relevance_records], np.zeros(0)
    for part in torch.split(rows, 256):
        layers = contributions(network, data.scaled(part), stabiliser=recipe.options.stabiliser)
        found = torch.cat([layer.double().sum(0).reshape(-1) for layer in layers]).numpy()
        total = found if not len(total) else total + found
    return total / max(len(rows), 1)


def proportions(ratios: Ratios, recipe: Recipe) -> Ratios:
    """What part of the noise each neuron gets: Cr / Cr_total (Eq.

    19), or the inverse; 0 for neurons that the reading leaves out.
    """
    options = recipe.options
    sizes = [module.noise.shape for module in offsets(_fresh(recipe, SEED))]
    layers = np.split(ratios.copy(), np.cumsum([size.numel() for size in sizes])[:-1])
    if options.maps == "channel":
        layers = [layer.reshape(size[0], -1).sum(1) for layer, size in zip(layers, sizes, strict=True)]
    if options.neurons == "hidden":
        layers = layers[:-1]
    flat = np.concatenate(layers)
    flat = np.abs(flat) if options.total == "absolute" else flat
    if options.proportion == "inverse":
        flat = 1 / np.maximum(np.abs(flat), LEAST_RATIO * np.abs(flat).mean())
    parts = np.split(flat / flat.sum(), np.cumsum([len(layer) for layer in layers])[:-1])
    spread = [np.repeat(part, size.numel() // len(part)) for part, size in zip(parts, sizes, strict=False)]
    return np.concatenate([*spread, *[np.zeros(size.numel()) for size in sizes[len(spread) :]]])


def sensitivity(data: Data, recipe: Recipe) -> float:
    """Delta_f of f(D) = sum of records: for the pair D, D' (the last record becomes 1 - x), or the bound of
    Lemma 3 a record.
    """
    rows = known_rows(data)
    if recipe.options.sensitivity == "pair":
        return float((2 * data.scaled(rows[-1:]).double() - 1).abs().sum())
    return 2 * max(
        float(data.scaled(part).double().flatten(1).abs().sum(1).max()) for part in torch.split(rows, 1024)
    )


def set_noise(network: Ordered, drawn: Ratios) -> None:
    """delta_tuple into the neurons; a map that is one neuron has the draw of its first place everywhere."""
    modules = offsets(network)
    for module, part in zip(
        modules, np.split(drawn, np.cumsum([one.noise.numel() for one in modules])[:-1]), strict=True
    ):
        module.noise.copy_(torch.from_numpy(part).reshape(module.noise.shape))


def descend(
    network: Ordered,
    data: Data,
    recipe: Recipe,
    count: int,
    *,
    scales: Ratios | None = None,
    keyed: KeyedNoise | None = None,
    tick: Tick = silent,
) -> list[float]:
    """So many steps; the mean of the perturbed loss in each epoch is returned, where there is one."""
    course, told = Descent(network, data, recipe, scales=scales, keyed=keyed), list[float]()
    for step in range(count):
        if step % max(1, count // 100) == 0:
            tick(step, count)
        told += course.take(step)
    epoch = recipe.options.iterations or 1
    return [fmean(told[place : place + epoch]) for place in range(0, len(told), epoch)]


class Descent:
    """Adam on random batches of raw records, with noise on neurons and loss where `scales` are given."""

    def __init__(
        self,
        network: Ordered,
        data: Data,
        recipe: Recipe,
        *,
        scales: Ratios | None = None,
        keyed: KeyedNoise | None = None,
    ) -> None:
        self.network, self.data, self.recipe, self.scales, self.keyed = network, data, recipe, scales, keyed
        self.rows, self.order = known_rows(data), torch.Generator().manual_seed(SEED)
        self.optimiser = torch.optim.Adam(network.parameters(), lr=recipe.options.learning_rate or 1e-3)
        network.train()

    def take(self, step: int) -> list[float]:
        """One step; the perturbed loss, where there is one."""
        network, options, keyed, rows = self.network, self.recipe.options, self.keyed, self.rows
        if self.scales is not None and keyed is not None and (step == 0 or options.refresh == "step"):
            set_noise(network, self.scales * _draws(network, self.recipe, keyed, step, self.scales))
        batch = rows[torch.randint(len(rows), (min(options.batch or 1, len(rows)),), generator=self.order)]
        losses = losses_of(network, self.data, batch)
        if not losses.isfinite().all():
            # A record whose loss is not finite has no part in this step.
            losses = losses_of(network, self.data, batch[losses.isfinite()])
        if not len(losses):
            return []
        loss, told = losses.mean(), list[float]()
        if keyed is not None:
            drawn = float(keyed.unit_laplace(step, "loss", 1)[0])
            perturbed = perturbed_loss(losses, self.recipe.epsilons[1], drawn)
            told.append(float(perturbed.detach()))
            loss = perturbed if options.update == "perturbed" else loss
        self.optimiser.zero_grad()
        torch.autograd.backward(loss)
        self.optimiser.step()
        return told


def losses_of(network: Ordered, data: Data, rows: Tensor) -> Tensor:
    """Cross entropy of each record, as the network is now."""
    return torch.nn.functional.cross_entropy(network(data.scaled(rows)), data.labels[rows], reduction="none")


def _draws(network: Ordered, recipe: Recipe, keyed: KeyedNoise, step: int, scales: Ratios) -> Ratios:
    """One draw a neuron (line 9 is inside the loop over neurons)."""
    drawn = keyed.unit_laplace(step, "neurons", len(scales), scales.tobytes())
    if recipe.options.maps == "unit":
        return drawn
    sizes = [module.noise.shape for module in offsets(network)]
    parts = np.split(drawn, np.cumsum([size.numel() for size in sizes])[:-1])
    return np.concatenate(
        [np.repeat(part[: size[0]], size.numel() // size[0]) for part, size in zip(parts, sizes, strict=True)]
    )


def perturbed_loss(losses: Tensor, epsilon: float, drawn: float) -> Tensor:
    """Phi(L) = L + Lap(Delta_L / e2) (Eq.

    25), with Lemma 4's Delta_L = 2 max L a record: a number, which no parameter can change.
    """
    spread = 2 * float(losses.detach().max()) / len(losses)
    return losses.mean() + spread / epsilon * drawn
