"""`pcdbn` with the noise of its authors' code and the pooling of the paper (`architecture: pooling`): noise on
the constants of the polynomial, raw records in every step. For public data only; program.py has the authors'
program itself.

Each layer: hidden units are p(drive / Z), p the polynomial whose constants got Laplace noise, drawn once for
the records and once for their reconstructions, scaled at run time by Delta / (epsilon * batch), Delta from
the batch itself. What is minimised is |h' - h| + |v' - v| by Adam, as in the code, or the energy by
contrastive divergence, as in the paper. Then back-propagation through the fully connected and the softmax
layer. They see exact sigmoids of the raw records; one noise vector Lap(M (25 + 25^2/4) / (epsilon * batch)) a
step is added to the 25 units of the whole batch, and labels are raw. Nothing finite is proven of any of this.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.grad import conv2d_weight

from airlock.models.classifier import PREFIX
from airlock.models.papers import boltzmann, taylor
from airlock.models.papers.belief import Belief, code_delta
from airlock.models.papers.boltzmann import Machine
from airlock.models.papers.chebyshev import Polynomial
from airlock.models.papers.networks import build
from airlock.privacy.plan import Facts
from stages.mechanisms import Tick, silent
from stages.release.keyed_noise import KeyedNoise
from stages.release.papers.dp_sgd import dp_sgd
from stages.release.papers.pcdbn.pcdbn import PerturbedPart, Recipe

SEED = 0
FINE_GRID, FACTOR = 2**16, 2**5
# Records at a time, so that what they give stays in the cache: a step takes a tenth of the time.
CHUNK = 40
# Of a step of contrastive divergence that is kept for the next one.
MOMENTUM = 0.5


def train(
    recipe: Recipe,
    facts: Facts,
    reader: Any,
    *,
    key: bytes,
    release_id: str,
    tick: Tick = silent,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Pre-train the layers, fine-tune what is above them, release the network."""
    network, data, keyed = fresh(recipe, facts), dp_sgd.load(reader, facts), KeyedNoise(key, release_id)
    pretrain(network, data, recipe, keyed)
    curve = fine_tune(network, data, recipe, keyed, tick)
    tensors = {PREFIX + name: value.detach().numpy() for name, value in network.state_dict().items()}
    return tensors, {"network": recipe.network, "trained": True, "n": facts.n, "losses": curve}


def fresh(recipe: Recipe, facts: Facts) -> Belief:
    """The network before any record."""
    network = build(recipe.network, facts.shape, len(facts.labels), seed=SEED)
    assert isinstance(network, Belief)
    network.maximal.fill_(float(recipe.options.pooling == "maximum"))
    return network


def pretrain(network: Belief, data: dp_sgd.Data, recipe: Recipe, keyed: KeyedNoise) -> None:
    """The layers below, one after the other."""
    order = torch.Generator().manual_seed(SEED)
    for depth, part in enumerate(recipe.parts[:-1]):
        draws = [_noisy_constants(recipe, part, keyed, depth, which) for which in ("data", "model")]
        steps = _steps(network, depth, data, recipe, draws, order)
        learn, rate = LEARNERS[str(recipe.options.pretraining)]
        network.set_machine(
            depth, learn(network.machine(depth), steps, recipe.options.pretraining_rate or rate)
        )


def _known(data: dp_sgd.Data) -> Tensor:
    """Null records train nothing."""
    return torch.nonzero(data.labels >= 0).flatten()


def units_of(network: Belief, data: dp_sgd.Data, rows: Tensor, depth: int) -> Tensor:
    """What layer `depth` sees of these records."""
    with torch.no_grad():
        return torch.cat([network.units(data.scaled(few), depth) for few in torch.split(rows, CHUNK)])


def _noisy_constants(
    recipe: Recipe, part: PerturbedPart, keyed: KeyedNoise, depth: int, which: str
) -> Tensor:
    """Laplace draws of scale 1 / epsilon for every constant that is not zero, once for all steps.

    The code adds them to -5, 21, -35, 35 and 16, that is, before the factor 2^-5.
    """
    zeros = np.zeros(len(recipe.sigmoid.alphas), np.int64)
    drawn = keyed.add_laplace(
        zeros, FINE_GRID / part.epsilon, release_pass=depth + 1, purpose=f"constants {which}"
    )
    return torch.from_numpy(drawn * (np.array(recipe.sigmoid.alphas) != 0) / (FINE_GRID * FACTOR))


def _perturbed(sigmoid: Polynomial, draws: Tensor, scale: float) -> Polynomial:
    return Polynomial(
        "perturbed",
        tuple(alpha + scale * float(draw) for alpha, draw in zip(sigmoid.alphas, draws, strict=True)),
    )


Step = tuple[Tensor, Polynomial, Polynomial]


def _steps(
    network: Belief,
    depth: int,
    data: dp_sgd.Data,
    recipe: Recipe,
    draws: list[Tensor],
    order: torch.Generator,
) -> Iterator[Step]:
    """Batch after batch: what the layer sees of it, and the two polynomials whose noise the batch scales."""
    rows = _known(data)
    for _ in range(recipe.options.pretraining_epochs):
        for few in torch.split(rows[torch.randperm(len(rows), generator=order)], recipe.options.batch):
            units = units_of(network, data, few, depth)
            scale = code_delta(units, recipe.sigmoid) / len(few)
            yield (
                units,
                _perturbed(recipe.sigmoid, draws[0], scale),
                _perturbed(recipe.sigmoid, draws[1], scale),
            )


def diverge(machine: Machine, steps: Iterator[Step], rate: float) -> Machine:
    """CD-1 on one layer, with momentum."""
    speed = None
    for step in steps:
        direction = contrast(machine, *step)
        speed = direction if speed is None else direction.moved(speed, MOMENTUM)
        machine = machine.moved(speed, rate)
    return machine


def reconstruct(machine: Machine, steps: Iterator[Step], rate: float) -> Machine:
    """The code's cost, mean |h' - h| + mean |v' - v|, by Adam."""
    filters, hidden = machine.filters.clone().requires_grad_(), machine.hidden.clone().requires_grad_()
    machine, optimiser = (
        Machine(filters, hidden, machine.visible),
        torch.optim.Adam([filters, hidden], lr=rate),
    )
    for units, first, second in steps:
        optimiser.zero_grad()
        for few in torch.split(units, CHUNK):
            up, again, found = walk(machine, few, first, second)
            cost = (found - up).abs().mean() + (again - few).abs().mean()
            torch.autograd.backward(cost * (len(few) / len(units)))
        optimiser.step()
    return Machine(filters.detach(), hidden.detach(), machine.visible)


def walk(
    machine: Machine, units: Tensor, first: Polynomial, second: Polynomial
) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden units of records, the reconstruction, and its hidden units, with polynomials for the sigmoid of
    hidden units.
    """
    hidden = first(boltzmann.normalise(machine.drive(units))).clamp(0, 1)
    again = torch.sigmoid(machine.answer(hidden))
    return hidden, again, second(boltzmann.normalise(machine.drive(again))).clamp(0, 1)


@torch.no_grad()
def contrast(machine: Machine, units: Tensor, first: Polynomial, second: Polynomial) -> Machine:
    """One step of contrastive divergence with polynomials for hidden units, of the records and of their
    reconstructions; per position.
    """
    total = machine.moved(machine, -1.0)
    for few in torch.split(units, CHUNK):
        hidden, again, found = walk(machine, few, first, second)
        total = total.moved(_sums(few, hidden), 1.0).moved(_sums(again, found), -1.0)
    positions, places = (
        len(units) * hidden.shape[2] * hidden.shape[3],
        len(units) * units.shape[2] * units.shape[3],
    )
    return Machine(total.filters / positions, total.hidden / positions, total.visible / places)


def _sums(visible: Tensor, hidden: Tensor) -> Machine:
    """`boltzmann.statistics` of all records together, by the convolution's own derivative: a third of the
    time for many channels.
    """
    side = visible.shape[2] - hidden.shape[2] + 1
    shape = [hidden.shape[1], visible.shape[1], side, side]
    filters = conv2d_weight(visible, shape, hidden)  # type: ignore[no-untyped-call]
    return Machine(filters, hidden.sum((0, 2, 3)), visible.sum((0, 2, 3)))


LEARNERS = {"reconstruction": (reconstruct, 0.01), "divergence": (diverge, 0.05)}


def fine_tune(
    network: Belief, data: dp_sgd.Data, recipe: Recipe, keyed: KeyedNoise, tick: Tick = silent
) -> list[float]:
    """Back-propagation of the Taylor loss with Adam through the
    last two layers; the loss after every epoch.
    """
    part, options, losses, rows = recipe.parts[-1], recipe.options, list[float](), _known(data)
    optimiser = torch.optim.Adam(
        [*network.hidden.parameters(), *network.outputs.parameters()], lr=recipe.learning_rate
    )
    # The layers below are fixed from here on.
    below = units_of(network, data, rows, len(network.filters)).flatten(1)
    count = len(torch.split(rows, options.batch)) * recipe.epochs
    drawn = keyed.add_laplace(
        np.zeros((count, options.hidden), np.int64),
        FINE_GRID * part.printed / part.epsilon,
        release_pass=3,
        purpose="softmax",
    )
    noise, order = iter(torch.from_numpy(drawn / FINE_GRID).float()), torch.Generator().manual_seed(SEED)
    table = torch.from_numpy(
        taylor.coefficients(data.labels[rows].numpy(), network.outputs.out_features)
    ).float()
    network.train()
    for epoch in range(recipe.epochs):
        total = 0.0
        for few in torch.split(torch.randperm(len(rows), generator=order), options.batch):
            top = network.last(below[few]) + next(noise) / len(few)
            loss = taylor.polynomial(network.outputs(top), table[few]).mean()
            optimiser.zero_grad()
            torch.autograd.backward(loss)
            optimiser.step()
            total += float(loss.detach()) * len(few)
        losses.append(total / max(len(rows), 1))
        tick(epoch + 1, recipe.epochs)
    return losses
