"""`behaviour-published`: pCDBN's human behaviour model (Sec. 4.1) as the paper and its authors' code train
it. For public data only.

Contrastive divergence on raw windows with the dynamic biases of Eqs. 23-26, in which hidden and visible units
are p(drive / Z), p the polynomial of degree 7 whose public constants got Laplace noise once, scaled by Delta
/ (epsilon * batch) with Delta of Lemma 2 on each batch; then a softmax layer on the pooled units, x and I,
with one noise vector Lap(Delta_C / (epsilon * batch)) on the pooled units in every step, shared by the batch,
and raw labels. Nothing finite is proven (docs/errata/pcdbn.md); `behaviour` is the sound counterpart.
What the paper leaves open: epsilon is spent in full on both parts, as in the code for MNIST; the second layer
(2 x 6) does not fit the 10 x 1 units that the first leaves and is not there.
"""

from __future__ import annotations

import math
from dataclasses import asdict

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from airlock.errors import ParamsError
from airlock.models.features.rows import LIMIT
from airlock.models.papers.behaviour import (
    FINE_GRID,
    WEIGHT,
    MachineUnits,
    RowMap,
    Scales,
    WindowLayout,
    layout_of,
)
from airlock.models.papers.boltzmann import Machine, fresh, normalise, statistics
from airlock.models.papers.chebyshev import Polynomial, polynomial
from airlock.models.papers.dynamics import Dynamics
from airlock.params import Params, Section, check
from airlock.privacy.plan import Facts, Plan
from airlock.records.encoding import unpack
from stages.mechanisms import Given, Released, makes, makes_nothing, no_relevance
from stages.release.keyed_noise import KeyedNoise
from stages.release.papers import guarantees
from stages.release.units import check_local

NAME, VERSION = "behaviour-published", 2
ARGUMENT = "docs/proofs/pcdbn.md#public-constants"
FLAW = (
    "noise is added to the polynomial's public constants, while "
    "raw windows are read without noise in every step"
)
SEED, GRID = 0, 2**16
SCALES = Scales(0.1, 1.0, 0.3)


class Options(Section):
    """release.options of `behaviour-published`; epochs of the softmax layer are 600 in the paper."""

    days: int = Field(4, ge=1, le=10_000)
    groups: int = Field(10, ge=1, le=10_000)
    height: int = Field(12, ge=1)
    approximation: str = "published-7"
    batch: int = Field(111, ge=1)
    pretraining_epochs: int = Field(2, ge=1, le=100_000)
    epochs: int = Field(600, ge=1, le=100_000)
    rate: float = Field(1e-3, gt=0, le=1e3)


def resolve(params: Params, facts: Facts) -> tuple[Options, WindowLayout]:
    """Options, and the layout of the windows."""
    options = check(Options, params.release.options, "params.yaml: release.options")
    if facts.friends is None:
        raise ParamsError(f"params.yaml: '{NAME}' needs a schema with `user.friends` (docs/behaviour.md)")
    check_local(params, NAME)
    if params.release.unit != "record" or params.relevance.weighs:
        raise ParamsError(
            f"params.yaml: '{NAME}' offers release.unit record, "
            "release.engine local and relevance.mode auto only"
        )
    return options, layout_of(facts.shape, facts.friends["slots"], options.days, options.height)


def plan(params: Params, facts: Facts) -> Plan:
    """What is claimed, and that nothing finite is proven."""
    options, release = resolve(params, facts)[0], params.release
    claimed = guarantees.claimed(release, argument="Phan, Wu and Dou, Lemmas 1 and 2")
    proven = guarantees.unproven(release, argument=ARGUMENT, reason=FLAW)
    steps = math.ceil(facts.n / options.batch) * (options.pretraining_epochs + options.epochs)
    return Plan(
        NAME,
        VERSION,
        {"epsilon": release.epsilon, **options.model_dump()},
        steps,
        proven,
        claimed,
        True,
        public_only=True,
    )


relevance, make_relevance = no_relevance, makes_nothing


@makes
def make(given: Given) -> Released:
    """Train on raw windows and release the model."""
    options, layout = resolve(given.params, given.facts)
    keyed, epsilon = KeyedNoise(given.key, given.release_id), given.params.release.epsilon
    parts = [unpack(batch, given.facts.shape) for batch in given.reader]
    kept = np.concatenate([part.valid for part in parts]) > 0
    x, y = (np.concatenate([getattr(part, name) for part in parts])[kept] for name in ("x", "y"))
    past, present, influence = (torch.from_numpy(part / FINE_GRID).float() for part in layout.split(x))
    windows = (past[:, None], present, influence[:, 0] / layout.slots)
    machine, dynamics = pretrain(windows, layout, options, _constants(keyed, options, epsilon))
    rows = RowMap(layout, np.zeros(layout.attributes, np.int64), SCALES, _units(machine, dynamics, layout))
    made = torch.from_numpy(rows(x, np.ones(len(x), np.uint8)) / LIMIT).float()
    known = (made, torch.from_numpy(y).long(), len(given.facts.labels))
    head, losses = fine_tune(known, layout, options, keyed, epsilon)
    details = {"layout": asdict(layout), "scales": asdict(SCALES), "epochs": options.epochs}
    return {**rows.tensors(), **head}, {**details, "losses": losses}


def _constants(keyed: KeyedNoise, options: Options, epsilon: float) -> tuple[Tensor, Tensor]:
    """Laplace draws of scale 1 / epsilon for the constants of the polynomial, for the way up and the way
    down.
    """
    zeros = np.zeros(len(polynomial(options.approximation).alphas), np.int64)
    up, down = (
        keyed.add_laplace(zeros, GRID / epsilon, release_pass=1, purpose=f"constants {way}")
        for way in ("up", "down")
    )
    return torch.from_numpy(up / GRID), torch.from_numpy(down / GRID)


def batch_delta(windows: tuple[Tensor, Tensor, Tensor], layout: WindowLayout, sigmoid: Polynomial) -> float:
    """Delta of Lemma 2 on a batch: twice the largest L1 of a record's energy coefficients at weights 1,
    absolute values inside.
    """
    past, present, influence = windows
    inside = functional.conv2d(past, torch.ones(1, 1, layout.height, layout.days))
    driven = inside + (1 + present.sum(1) + influence)[:, None, None, None]
    value = Polynomial("absolute", tuple(abs(alpha) for alpha in sigmoid.alphas))(
        normalise(driven.expand(-1, 5, -1, -1))[:, 2:3]
    )
    return 2 * float(((value * driven.abs()).sum((1, 2, 3)) + past.sum((1, 2, 3))).max())


def pretrain(
    windows: tuple[Tensor, Tensor, Tensor],
    layout: WindowLayout,
    options: Options,
    draws: tuple[Tensor, Tensor],
) -> tuple[Machine, Dynamics]:
    """CD-1 with dynamic biases on raw windows."""
    order, sigmoid = torch.Generator().manual_seed(SEED), polynomial(options.approximation)
    machine = fresh(options.groups, 1, (layout.height, layout.days), order)
    d, groups = layout.attributes, options.groups
    dynamics = Dynamics(torch.zeros(groups, d), torch.zeros(groups), torch.zeros(d), torch.zeros(()))
    for _ in range(options.pretraining_epochs):
        for few in torch.split(torch.randperm(len(windows[1]), generator=order), options.batch):
            part = (windows[0][few], windows[1][few], windows[2][few])
            scale = batch_delta(part, layout, sigmoid) / len(few)
            machine, dynamics = step(
                machine, dynamics, part, [_noisy(sigmoid, one, scale) for one in draws], options.rate
            )
    return machine, dynamics


def _noisy(sigmoid: Polynomial, draws: Tensor, scale: float) -> Polynomial:
    return Polynomial(
        "perturbed",
        tuple(alpha + scale * float(draw) for alpha, draw in zip(sigmoid.alphas, draws, strict=True)),
    )


def step(
    machine: Machine,
    dynamics: Dynamics,
    windows: tuple[Tensor, Tensor, Tensor],
    ways: list[Polynomial],
    rate: float,
) -> tuple[Machine, Dynamics]:
    """One step of contrastive divergence for all weights of Eqs. 23-26, per position."""
    past, present, influence = windows
    biases, (up, down) = dynamics.biases(present, influence), ways
    hidden = up(normalise(machine.drive(past, biases.hidden))).clamp(0, 1)
    again = down(normalise(machine.answer(hidden, biases.visible))).clamp(0, 1)
    found = up(normalise(machine.drive(again, biases.hidden))).clamp(0, 1)
    gap = statistics(machine, past, hidden).moved(statistics(machine, again, found), -1.0)
    positions = hidden.shape[2] * hidden.shape[3]
    units, seen = (hidden - found).mean((2, 3)), (past - again).mean((1, 2, 3))
    count = len(present)
    return machine.moved(gap, rate / positions), Dynamics(
        dynamics.own + rate * units.T @ present / count,
        dynamics.social + rate * units.T @ influence / count,
        dynamics.visible_own + rate * seen @ present / count,
        dynamics.visible_social + rate * seen @ influence / count,
    )


def _units(machine: Machine, dynamics: Dynamics, layout: WindowLayout) -> MachineUnits:
    filters = machine.filters.reshape(len(machine.filters), -1)
    parts = (filters, machine.hidden, dynamics.own, dynamics.social / layout.slots)
    weights, hidden, own, social = (
        np.rint(part.double().numpy() * WEIGHT).astype(np.int64) for part in parts
    )
    return MachineUnits(weights, hidden, own, social, np.zeros(len(filters), np.int64))


def fine_tune(
    known: tuple[Tensor, Tensor, int],
    layout: WindowLayout,
    options: Options,
    keyed: KeyedNoise,
    epsilon: float,
) -> tuple[dict[str, NDArray[np.float64]], list[float]]:
    """The softmax layer on rows, labels and a number of classes by Adam, with shared noise on the pooled units in
    every step (Eq. 18: Delta_C = |p| + |p|^2 / 4), and the mean perturbed loss of every epoch.
    """
    rows, labels, classes = known
    pooled, order = options.groups * layout.blocks, torch.Generator().manual_seed(SEED)
    head = torch.nn.Linear(rows.shape[1], classes)
    torch.nn.init.zeros_(head.weight)
    torch.nn.init.zeros_(head.bias)
    optimiser = torch.optim.Adam(head.parameters(), lr=10 * options.rate)
    count = math.ceil(len(rows) / options.batch) * options.epochs
    scale = GRID * (pooled + pooled**2 / 4) / epsilon
    drawn = (
        keyed.add_laplace(np.zeros((count, pooled), np.int64), scale, release_pass=2, purpose="softmax")
        / GRID
    )
    unit, place, told = SCALES.gain * SCALES.stretch, 0, list[float]()
    for epoch in range(options.epochs):
        told.append(0.0)
        for few in torch.split(torch.randperm(len(rows), generator=order), options.batch):
            noise = torch.zeros(rows.shape[1])
            noise[:pooled] = torch.from_numpy(drawn[place]).float() * (unit / len(few))
            loss = functional.cross_entropy(head(rows[few] + noise), labels[few])
            optimiser.zero_grad()
            torch.autograd.backward(loss)
            optimiser.step()
            place += 1
            told[epoch] += float(loss.detach()) * len(few) / len(rows)
    weight, offset = (part.detach().double().numpy() for part in (head.weight.T, head.bias))
    return {"head": weight.copy(), "head_offset": offset}, told
