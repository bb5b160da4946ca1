"""`optimized-noise`: Xiang, Yang and Li, Algorithm 1, as published; an interactive mechanism whose release is
the model.

The paper can be read in several ways, each a different mechanism, and each an option:

    solution   isotropic    the optimum of Eq. 10, which is the same noise for every parameter, whatever w is
                            (airlock/models/papers/minimax.py)
               alternating  what the paper's solver of Eq. 11 returns; it depends on w, the mean gradient of
               all raw records
               frozen       the minimiser for one Delta instead of all, also from w
    noise      lot          clipped sums get the noise, that is alpha / |B| on the average (the only reading that can
                            train)
               average      standard deviation from alpha on the average itself, as the proof of Theorem 1 has it
    order      lambda of Eq. 9, which the paper does not give; infinity asks for the least noise
    calibration  published  Eq. 12, which proves more than the epsilon that is asked for, or less
                 proven     as much isotropic noise as is proven to be enough: the default without a preset

|B| is the expected size of a sample, which is public. Sensitivity of the clipped sum: alpha under zero-out, 2 alpha
under replace-one. The
isotropic readings are Poisson-sampled Gaussian steps and proven by privacy loss distributions, at more than
the claimed epsilon (docs/errata/optimized-noise.md). With noise shaped by raw gradients nothing finite is
proven: public data only.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field

from airlock.errors import ParamsError
from airlock.models.devices import choose_device
from airlock.models.papers import minimax
from airlock.params import Params, Section, check
from airlock.privacy.guarantees import Guarantee
from airlock.privacy.plan import Facts, Plan
from stages.mechanisms import Released, makes_nothing, no_relevance
from stages.release import interactive
from stages.release.interactive import State
from stages.release.papers import guarantees
from stages.release.papers.dp_sgd import dp_sgd, gradients, lower_layers

if TYPE_CHECKING:
    from torch import Tensor, nn

NAME, VERSION = "optimized-noise", 2
ARGUMENT = "docs/proofs/optimized-noise.md#isotropic-noise"
RAW_ARGUMENT = "docs/proofs/optimized-noise.md#raw-gradients"
FLAW = "the noise of every step is shaped by the raw mean gradient of all records, used without noise"


class Options(Section):
    """release.options of `optimized-noise`. None means the preset's value, or dp-sgd's where there is no
    preset.

    Attributes:
        solution, noise, order, calibration: see above; order null is infinity, calibration null is `proven`
            where the reading has a proof and nothing of the paper's (preset, order) is named.
        batch: expected size of a sample, the paper's lot. clip: alpha.
        lower: `raw` is the paper's way with CIFAR-10, for public data: see
            stages/release/papers/dp_sgd/lower_layers.py.
    """

    preset: Literal["paper-mnist", "paper-cifar10"] | None = None
    solution: Literal["isotropic", "alternating", "frozen"] = "isotropic"
    noise: Literal["lot", "average"] = "lot"
    calibration: Literal["published", "proven"] | None = None
    order: float | None = Field(None, gt=0, le=1e9)
    model: Literal["auto", "opacus-cnn", "two-convolutions", "six-convolutions", "perceptron", "linear"] = (
        "auto"
    )
    lower: lower_layers.Lower = "private"
    epochs: float | None = Field(None, gt=0, le=dp_sgd.MOST_EPOCHS)
    batch: int | None = Field(None, ge=1)
    clip: float | None = Field(None, ge=1e-3, le=1e6)
    learning_rate: float = Field(0.5, gt=0, le=1e3)
    device: str = "auto"


PRESETS: dict[str | None, dict[str, Any]] = {
    None: {"epochs": 10, "clip": 1.0},
    "paper-mnist": {"epochs": 30, "batch": 1000, "clip": 4.0},
    "paper-cifar10": {"epochs": 30, "batch": 1000, "clip": 0.2},
}
"""Table II; the number of iterations for CIFAR-10 is not in the paper."""


@dataclass(frozen=True)
class Recipe:
    """One reading on one data set.

    Attributes:
        bound: tau of Eq. 10b.
        deviation: of the isotropic noise on the sum.
        reach: sensitivity of the sum in units of alpha.
    """

    options: Options
    model: str
    schedule: gradients.Schedule
    alpha: float
    bound: float
    reach: int

    @property
    def deviation(self) -> float:
        return minimax.isotropic(self.alpha, self.bound) * (
            self.schedule.batch if self.options.noise == "average" else 1.0
        )

    @property
    def multiplier(self) -> float:
        """Noise over sensitivity, of the isotropic readings."""
        return self.deviation / (self.alpha * self.reach)

    @property
    def flaw(self) -> str:
        return "" if self.options.solution == "isotropic" else FLAW

    def event(self) -> dict[str, Any]:
        return interactive.sampled(self.schedule.rate, self.schedule.steps, self.multiplier)


def resolve(params: Params, facts: Facts) -> Recipe:
    """Settle the reading and what Eq. 12 gives each step."""
    interactive.check_unit(params, facts, NAME)
    given = check(Options, params.release.options, "params.yaml: release.options")
    options = given.model_copy(
        update={name: value for name, value in PRESETS[given.preset].items() if getattr(given, name) is None}
    )
    release, model = params.release, dp_sgd.name_network(options.model, options.lower, facts)
    batch = min(options.batch or max(16, min(1024, facts.n // 100)), facts.n)
    rate, count = batch / facts.n, max(1, round((options.epochs or 1) * facts.n / batch))
    reach = 2 if release.neighbours == "replace-one" else 1
    options = options.model_copy(update={"calibration": _calibration(options)})
    bound = (
        _proven_bound(params, rate, count, reach)
        if options.calibration == "proven"
        else _published_bound(params, options, rate, count)
    )
    schedule = gradients.Schedule(rate, count, rate * facts.n, options.learning_rate, options.device)
    return Recipe(options, model, schedule, options.clip or 1.0, bound, reach)


def _calibration(options: Options) -> Literal["published", "proven"]:
    """What is asked for, or what goes with the rest.

    Raises:
        ParamsError: noise of a reading without a proof cannot be calibrated to one.
    """
    sound = options.solution == "isotropic" and options.noise == "lot"
    if options.calibration == "proven" and (not sound or options.order is not None):
        raise ParamsError(
            "params.yaml: release.options.calibration 'proven' is for solution isotropic and noise lot, "
            "without an order: use published"
        )
    if options.calibration is not None:
        return options.calibration
    return "proven" if sound and options.preset is None and options.order is None else "published"


def _published_bound(params: Params, options: Options, rate: float, steps: int) -> float:
    """tau, by Eqs. 9 and 12.

    Raises:
        ParamsError: nothing is left for a step.
    """
    release = params.release
    epsilon, delta = minimax.step_budget(release.epsilon, release.delta, rate=rate, steps=steps)
    bound = minimax.tau(epsilon, delta, options.order or math.inf)
    if bound <= 0:
        least = math.ceil(minimax.least_order(epsilon, delta)) + 1
        raise ParamsError(
            f"params.yaml: release.options.order must be at least {least} here, or null for infinity (tau "
            "is not positive)"
        )
    return bound


def _proven_bound(params: Params, rate: float, steps: int, reach: int) -> float:
    """The tau at which all steps together are proven to cost what was asked, rounded to more noise."""
    release = params.release
    multiplier = interactive.multiplier_of(
        release.epsilon, release.delta, rate=rate, steps=steps, neighbours=release.neighbours
    )
    return (1 - 1e-12) / (multiplier * reach) ** 2


def plan(params: Params, facts: Facts) -> Plan:
    """Claimed (Theorem 1) and proven guarantee of one reading."""
    recipe, release = resolve(params, facts), params.release
    published = recipe.options.calibration == "published"
    claimed = guarantees.claimed(release, delta=release.delta, argument="Xiang et al., Theorem 1")
    parameters = {"epsilon": release.epsilon, "delta": release.delta, "network": recipe.model}
    # Ids from before there was a choice stay what they were.
    unsaid = {"lower", "calibration"} if published else {"lower"}
    parameters |= recipe.options.model_dump(mode="json", exclude=unsaid)
    reads = recipe.schedule.steps * (2 if recipe.flaw else 1)
    proven = _proven(recipe, params)
    claim, raw = claimed if published else None, bool(recipe.flaw)
    upper = Plan(NAME, VERSION, parameters, reads, proven, claim, interactive=True, public_only=raw)
    return lower_layers.price(upper, recipe.options.lower)


def _proven(recipe: Recipe, params: Params) -> Guarantee:
    if recipe.flaw:
        return guarantees.unproven(params.release, argument=RAW_ARGUMENT, reason=recipe.flaw)
    return guarantees.proven(
        params.release,
        recipe.event(),
        sensitivity=f"L2 {recipe.alpha * recipe.reach:g} a step",
        argument=ARGUMENT,
    )


class Published(gradients.Noise):
    """Clipping to alpha, and the noise of line 5; `weights` is filled at every step where the reading wants
    it.
    """

    def __init__(self, recipe: Recipe) -> None:
        self.recipe, self.weights = recipe, np.zeros(0)
        self._sizes: list[int] = []

    def start(self, sizes: list[int]) -> State:
        self._sizes = sizes
        return {}

    def axes(self, state: State) -> Tensor:
        import torch

        return torch.full((len(self._sizes),), self.recipe.alpha)

    def scale(self, state: State) -> Tensor:
        import torch

        recipe = self.recipe
        if not recipe.flaw:
            return torch.full((sum(self._sizes),), recipe.deviation)
        solve = minimax.alternate if recipe.options.solution == "alternating" else minimax.frozen
        units = recipe.deviation / minimax.isotropic(recipe.alpha, recipe.bound)
        return torch.from_numpy(units * solve(self.weights, recipe.alpha, recipe.bound)).float()


def train(params: Params, facts: Facts, data: dp_sgd.Data, course: interactive.Course) -> Released:
    """Train as Algorithm 1 does, and release the last iterate."""
    recipe = resolve(params, facts)
    network, device = (
        gradients.network_of(recipe.model, facts),
        choose_device(recipe.options.device, "release.options.device"),
    )
    above, seen = lower_layers.fix(network, data, recipe.options.lower, device)
    # The twin has no hooks for clipping.
    twin, way = copy.deepcopy(above), Published(recipe)

    def peek() -> None:
        if recipe.flaw:
            twin.to(next(above.parameters()).device).load_state_dict(above.state_dict())
            way.weights = mean_gradient(twin, seen)

    curve = gradients.descend(above, seen, way, recipe.schedule, course, peek=peek)
    details = {
        "network": recipe.model,
        "n": facts.n,
        "steps": recipe.schedule.steps,
        "multiplier": recipe.multiplier,
        "curve": curve,
    }
    return gradients.tensors_of(network), details


make = interactive.maker(train, resolve)
relevance, make_relevance = no_relevance, makes_nothing


def mean_gradient(network: nn.Module, data: dp_sgd.Data) -> Any:
    """Line 3: w, from all raw records."""
    return summed_gradient(network, data).double().cpu().numpy() / max(len(data.labels), 1)


def summed_gradient(network: nn.Module, data: dp_sgd.Data) -> Tensor:
    """Over all records, flat, where the network is."""
    import torch

    parameters, rows = list(network.parameters()), torch.nonzero(data.labels >= 0).flatten()
    device = parameters[0].device
    total = torch.zeros(sum(parameter.numel() for parameter in parameters), device=device)
    for piece in torch.split(rows, 1024):
        loss = torch.nn.functional.cross_entropy(
            network(data.scaled(piece).to(device)), data.labels[piece].to(device), reduction="sum"
        )
        total += torch.cat([one.reshape(-1) for one in torch.autograd.grad(loss, parameters)])
    return total
