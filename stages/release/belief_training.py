"""`pcdbn` as its authors' code has it: noise on the constants of the polynomial, raw records in every step. For public data only.

Each layer: contrastive divergence in which hidden and visible units are p(drive / Z), p the polynomial whose constants got Laplace noise,
drawn once for the way up and once for the way down, scaled at run time by Delta / (epsilon * batch), Delta of Lemma 2 on the batch.
Then back-propagation through the fully connected and the softmax layer, with one noise vector Lap(Delta_C / (epsilon * batch)) on the 25
units in every step, shared by the batch, and raw labels. Nothing finite is proven of any of this.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from stages.models import boltzmann
from stages.models.belief import Belief, brackets
from stages.models.boltzmann import Machine
from stages.models.chebyshev import Polynomial
from stages.models.classifier import PREFIX
from stages.models.networks import build
from stages.params import Params
from stages.privacy.plan import Facts
from stages.release import dp_sgd
from stages.release.pcdbn import Part, Recipe
from stages.release.perturbation import Keyed

SEED = 0
FINE = 2**16
# Of a step of contrastive divergence that is kept for the next one.
MOMENTUM = 0.5


def train(
    recipe: Recipe, params: Params, facts: Facts, reader: Any, *, key: bytes, release_id: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Pre-train the layers, fine-tune what is above them, release the network."""
    network = build(recipe.network, facts.shape, len(facts.labels), seed=SEED)
    assert isinstance(network, Belief)
    network.maximal.fill_(float(recipe.options.pooling == "maximum"))
    data, keyed = dp_sgd.load(reader, facts), Keyed(key, release_id)
    rows = torch.nonzero(data.labels >= 0).flatten()
    order = torch.Generator().manual_seed(SEED)
    for depth, part in enumerate(recipe.parts[:-1]):
        # Where the noise is scaled by each batch, the constants that stay are those of a batch of the usual size.
        up, down = (_noisy_constants(recipe, part, keyed, depth, way) for way in ("up", "down"))
        scale = pretrain(network, depth, data, rows, recipe, (up, down), order)
        network.set_activation(_perturbed(recipe.sigmoid, up, scale).alphas)
    curve = fine_tune(network, data, rows, recipe, keyed, order)
    tensors = {PREFIX + name: value.detach().numpy() for name, value in network.state_dict().items()}
    return tensors, {"network": recipe.network, "trained": True, "n": facts.n, "losses": curve}


def _noisy_constants(recipe: Recipe, part: Part, keyed: Keyed, depth: int, way: str) -> Tensor:
    """Laplace draws of scale 1 / epsilon for every constant of the polynomial, once for all steps."""
    zeros = np.zeros(len(recipe.sigmoid.alphas), np.int64)
    drawn = keyed.add(zeros, FINE / part.epsilon, release_pass=depth + 1, purpose=f"constants {way}")
    return torch.from_numpy(drawn / FINE)


def _perturbed(sigmoid: Polynomial, draws: Tensor, scale: float) -> Polynomial:
    return Polynomial("perturbed", tuple(alpha + scale * float(draw) for alpha, draw in zip(sigmoid.alphas, draws, strict=True)))


def pretrain(
    network: Belief, depth: int, data: dp_sgd.Data, rows: Tensor, recipe: Recipe, draws: tuple[Tensor, Tensor], order: torch.Generator
) -> float:
    """CD-1 on one layer; returns the last scale Delta / batch of the noise on the constants."""
    machine, speed, scale = network.machine(depth), None, 0.0
    with torch.no_grad():
        for _ in range(recipe.options.pretraining_epochs):
            for few in torch.split(rows[torch.randperm(len(rows), generator=order)], recipe.options.batch):
                units = network.units(data.scaled(few), depth)
                scale = 2 * float(brackets(units, recipe.sigmoid).max()) / len(few)
                up, down = (_perturbed(recipe.sigmoid, one, scale) for one in draws)
                step = contrast(machine, units, up, down)
                speed = step if speed is None else step.moved(speed, MOMENTUM)
                machine = machine.moved(speed, recipe.options.pretraining_rate)
    network.set_machine(depth, machine)
    return scale


def contrast(machine: Machine, units: Tensor, up: Polynomial, down: Polynomial) -> Machine:
    """One step of contrastive divergence with polynomials for both ways, per hidden position."""
    hidden = up(boltzmann.normalise(machine.drive(units))).clamp(0, 1)
    again = down(boltzmann.normalise(machine.answer(hidden))).clamp(0, 1)
    found = up(boltzmann.normalise(machine.drive(again))).clamp(0, 1)
    gap = boltzmann.statistics(machine, units, hidden).moved(boltzmann.statistics(machine, again, found), -1.0)
    positions = hidden.shape[2] * hidden.shape[3]
    return Machine(gap.filters / positions, gap.hidden / positions, gap.visible / (again.shape[2] * again.shape[3]))


def fine_tune(network: Belief, data: dp_sgd.Data, rows: Tensor, recipe: Recipe, keyed: Keyed, order: torch.Generator) -> list[float]:
    """Back-propagation with Adam through the last two layers; the loss after every epoch."""
    part, options, losses = recipe.parts[-1], recipe.options, list[float]()
    parameters = [*network.hidden.parameters(), *network.outputs.parameters()]
    optimiser = torch.optim.Adam(parameters, lr=options.learning_rate)
    with torch.no_grad():
        # The layers below are fixed from here on.
        below = torch.cat([network.units(data.scaled(few), len(network.filters)).flatten(1) for few in torch.split(rows, 256)])
    count = len(torch.split(rows, options.batch)) * options.epochs
    drawn = keyed.add(np.zeros((count, options.hidden), np.int64), FINE * part.printed / part.epsilon, release_pass=3, purpose="softmax")
    noise, labels, step = torch.from_numpy(drawn / FINE).float(), data.labels[rows], 0
    for _ in range(options.epochs):
        total = 0.0
        for few in torch.split(torch.randperm(len(rows), generator=order), options.batch):
            top = torch.sigmoid(network.hidden(below[few])) + noise[step] / len(few)
            loss = functional.cross_entropy(network.outputs(top), labels[few])
            optimiser.zero_grad()
            torch.autograd.backward(loss)
            optimiser.step()
            total, step = total + float(loss.detach()) * len(few), step + 1
        losses.append(total / max(len(rows), 1))
    return losses
