"""`pcdbn` as its authors' code has it: noise on the constants of the polynomial, raw records in every step. For public data only.

Each layer: contrastive divergence in which hidden units are p(drive / Z), p the polynomial whose constants got Laplace noise, drawn once
for the records and once for their reconstructions, scaled at run time by Delta / (epsilon * batch), Delta from the batch itself.
Then back-propagation through the fully connected and the softmax layer. They see exact sigmoids of the raw records; one noise vector
Lap(M (25 + 25^2/4) / (epsilon * batch)) a step is added to the 25 units of the whole batch, and labels are raw. Nothing finite is
proven of any of this. Pooling follows the paper, where the code has strides of 2.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from stages.models import boltzmann, taylor
from stages.models.belief import Belief, code_delta
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
FINE, FACTOR = 2**16, 2**5
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
        draws = [_noisy_constants(recipe, part, keyed, depth, which) for which in ("data", "model")]
        pretrain(network, depth, data, rows, recipe, draws, order)
    curve = fine_tune(network, data, rows, recipe, keyed, order)
    tensors = {PREFIX + name: value.detach().numpy() for name, value in network.state_dict().items()}
    return tensors, {"network": recipe.network, "trained": True, "n": facts.n, "losses": curve}


def _noisy_constants(recipe: Recipe, part: Part, keyed: Keyed, depth: int, which: str) -> Tensor:
    """Laplace draws of scale 1 / epsilon for every constant that is not zero, once for all steps.

    The code adds them to -5, 21, -35, 35 and 16, that is, before the factor 2^-5.
    """
    zeros = np.zeros(len(recipe.sigmoid.alphas), np.int64)
    drawn = keyed.add(zeros, FINE / part.epsilon, release_pass=depth + 1, purpose=f"constants {which}")
    return torch.from_numpy(drawn * (np.array(recipe.sigmoid.alphas) != 0) / (FINE * FACTOR))


def _perturbed(sigmoid: Polynomial, draws: Tensor, scale: float) -> Polynomial:
    return Polynomial("perturbed", tuple(alpha + scale * float(draw) for alpha, draw in zip(sigmoid.alphas, draws, strict=True)))


def pretrain(
    network: Belief, depth: int, data: dp_sgd.Data, rows: Tensor, recipe: Recipe, draws: list[Tensor], order: torch.Generator
) -> None:
    """CD-1 on one layer."""
    machine, speed = network.machine(depth), None
    with torch.no_grad():
        for _ in range(recipe.options.pretraining_epochs):
            for few in torch.split(rows[torch.randperm(len(rows), generator=order)], recipe.options.batch):
                units = network.units(data.scaled(few), depth)
                scale = code_delta(units, recipe.sigmoid) / len(few)
                first, second = (_perturbed(recipe.sigmoid, one, scale) for one in draws)
                step = contrast(machine, units, first, second)
                speed = step if speed is None else step.moved(speed, MOMENTUM)
                machine = machine.moved(speed, recipe.options.pretraining_rate)
    network.set_machine(depth, machine)


def contrast(machine: Machine, units: Tensor, first: Polynomial, second: Polynomial) -> Machine:
    """One step of contrastive divergence with polynomials for hidden units, of the records and of their reconstructions; per position."""
    hidden = first(boltzmann.normalise(machine.drive(units))).clamp(0, 1)
    again = torch.sigmoid(machine.answer(hidden))
    found = second(boltzmann.normalise(machine.drive(again))).clamp(0, 1)
    gap = boltzmann.statistics(machine, units, hidden).moved(boltzmann.statistics(machine, again, found), -1.0)
    positions = hidden.shape[2] * hidden.shape[3]
    return Machine(gap.filters / positions, gap.hidden / positions, gap.visible / (again.shape[2] * again.shape[3]))


def fine_tune(network: Belief, data: dp_sgd.Data, rows: Tensor, recipe: Recipe, keyed: Keyed, order: torch.Generator) -> list[float]:
    """Back-propagation of the Taylor loss with Adam through the last two layers; the loss after every epoch."""
    part, options, losses = recipe.parts[-1], recipe.options, list[float]()
    parameters = [*network.hidden.parameters(), *network.outputs.parameters()]
    optimiser = torch.optim.Adam(parameters, lr=options.learning_rate)
    with torch.no_grad():
        # The layers below are fixed from here on.
        below = torch.cat([network.units(data.scaled(few), len(network.filters)).flatten(1) for few in torch.split(rows, 256)])
    count = len(torch.split(rows, options.batch)) * options.epochs
    drawn = keyed.add(np.zeros((count, options.hidden), np.int64), FINE * part.printed / part.epsilon, release_pass=3, purpose="softmax")
    noise, step = torch.from_numpy(drawn / FINE).float(), 0
    table = torch.from_numpy(taylor.coefficients(data.labels[rows].numpy(), network.outputs.out_features)).float()
    network.train()
    for _ in range(options.epochs):
        total = 0.0
        for few in torch.split(torch.randperm(len(rows), generator=order), options.batch):
            top = network.last(below[few]) + noise[step] / len(few)
            loss = taylor.polynomial(network.outputs(top), table[few]).mean()
            optimiser.zero_grad()
            torch.autograd.backward(loss)
            optimiser.step()
            total, step = total + float(loss.detach()) * len(few), step + 1
        losses.append(total / max(len(rows), 1))
    return losses
