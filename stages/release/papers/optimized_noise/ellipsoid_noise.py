"""`ellipsoid-noise`: DP-SGD that clips and perturbs in an ellipsoid learned from its own noisy sums; what is
sound in `optimized-noise`.

A step clips each record's gradient to sum_p |g_p|^2 / D_p^2 <= 1 (p: the network's tensors) and adds noise of
standard deviation z D_p to tensor p. Divided by D_p, that is a Poisson-sampled Gaussian of sensitivity 1
(zero-out) or 2 (replace-one) *for every D*; D may therefore follow the transcript, and costs nothing: epsilon
is that of `dp-sgd` with the same steps (docs/proofs/dp-sgd.md#ellipsoid).

D minimises the energy of the noise, sum_p d_p D_p^2, such that the mean square of lengths before clipping
stays what it is for the
sphere of radius C: D_p^2 = C^2 sqrt(m_p / d_p) sum_j sqrt(m_j d_j) / sum_j m_j, with m_p the mean square of
|g_p|, estimated from noisy sums. The gain over the sphere is (sum sqrt(m d))^2 / (sum m sum d) <= 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from airlock.models.devices import choose_device
from airlock.params import Params, check
from airlock.privacy.plan import Facts, Plan
from stages.mechanisms import Released, makes_nothing, no_relevance
from stages.release import interactive
from stages.release.interactive import State
from stages.release.papers import guarantees
from stages.release.papers.dp_sgd import dp_sgd, gradients, lower_layers

if TYPE_CHECKING:
    from torch import Tensor

NAME, VERSION = "ellipsoid-noise", 2
ARGUMENT = "docs/proofs/dp-sgd.md#ellipsoid"


class Options(dp_sgd.Options):
    """release.options of `ellipsoid-noise`: those of `dp-sgd`, and how D is learned.

    Attributes:
        memory: of the running mean of squared sums; 0.95 looks back about 20 steps.
        floor: least m_p, as a share of what an even spread over tensors would give.
        patience: steps with a sphere before D is used.
    """

    memory: float = Field(0.95, ge=0, lt=1)
    floor: float = Field(0.05, ge=1e-6, le=1)
    patience: int = Field(10, ge=1, le=1_000_000)
    device: str = "auto"


def resolve(params: Params, facts: Facts) -> tuple[str, dp_sgd.Settings, Options]:
    """DP-SGD's settings at the same price, and the ellipsoid's own."""
    interactive.check_unit(params, facts, NAME)
    options = check(Options, params.release.options, "params.yaml: release.options")
    plain = options.model_dump(include=set(dp_sgd.Options.model_fields))
    model, settings = dp_sgd.resolve(
        params.model_copy(update={"release": params.release.model_copy(update={"options": plain})}), facts
    )
    return model, settings, options


def plan(params: Params, facts: Facts) -> Plan:
    """The price of a release, from parameters and public facts alone."""
    model, settings, options = resolve(params, facts)
    release, sensitivity = params.release, f"L2 {settings.reach} a step, in units of the ellipsoid"
    proven = guarantees.proven(params.release, settings.event(), sensitivity=sensitivity, argument=ARGUMENT)
    parameters = {
        "epsilon": release.epsilon,
        "delta": release.delta,
        "network": model,
        "rate": settings.rate,
        "steps": settings.steps,
    }
    parameters = {**options.model_dump(mode="json", exclude={"lower"}), **parameters}
    return lower_layers.price(
        Plan(NAME, VERSION, parameters, settings.steps, proven, interactive=True), options.lower
    )


class Learned(gradients.Noise):
    """The ellipsoid: a function of earlier noisy sums, and of nothing else."""

    def __init__(self, settings: dp_sgd.Settings, options: Options) -> None:
        self._settings, self._options = settings, options
        self._sizes: list[int] = []

    def start(self, sizes: list[int]) -> State:
        import torch

        self._sizes = sizes
        return {"squares": torch.zeros(len(sizes)), "seen": torch.zeros(1)}

    def axes(self, state: State) -> Tensor:
        """D_p; the sphere while little was seen."""
        import torch

        if float(state["seen"]) < self._options.patience:
            return torch.full((len(self._sizes),), self._settings.clip)
        # The running mean began at 0.
        squares = state["squares"] / (1 - self._options.memory ** float(state["seen"]))
        return ellipsoid(
            squares, torch.tensor(self._sizes).float(), clip=self._settings.clip, floor=self._options.floor
        )

    def scale(self, state: State) -> Tensor:
        import torch

        deviation = self._settings.multiplier * self._settings.reach * self.axes(state)
        return torch.repeat_interleave(deviation, torch.tensor(self._sizes))

    def learn(self, state: State, noisy: Tensor) -> State:
        """|noisy sum|^2 less the noise's share, a record: the mean square of |g_p|, and more where gradients
        agree, which harms nobody.
        """
        import torch

        deviation = self._settings.multiplier * self._settings.reach * self.axes(state)
        energy = torch.stack([part.square().sum() for part in torch.split(noisy, self._sizes)])
        found = (energy - deviation**2 * torch.tensor(self._sizes)) / self._settings.batch
        memory = self._options.memory
        return {"squares": memory * state["squares"] + (1 - memory) * found, "seen": state["seen"] + 1}


def ellipsoid(squares: Tensor, sizes: Tensor, *, clip: float, floor: float) -> Tensor:
    """D_p from estimates of the mean squares m_p, which noise may have made negative."""
    least = squares.clamp_min(0).mean() * floor
    m = squares.clamp_min(float(least)) if float(least) > 0 else sizes / sizes.sum()
    return clip * ((m / sizes).sqrt() * (m * sizes).sqrt().sum() / m.sum()).sqrt()


def train(params: Params, facts: Facts, data: dp_sgd.Data, course: interactive.Course) -> Released:
    """Train, and release the last iterate."""
    model, settings, options = resolve(params, facts)
    schedule = gradients.Schedule(
        settings.rate, settings.steps, settings.batch, settings.learning_rate, options.device
    )
    network = gradients.network_of(model, facts)
    above, seen = lower_layers.fix(
        network, data, options.lower, choose_device(options.device, "release.options.device")
    )
    curve = gradients.descend(above, seen, Learned(settings, options), schedule, course)
    details = {"network": model, "n": facts.n, "steps": settings.steps, "multiplier": settings.multiplier}
    return gradients.tensors_of(network), {**details, "curve": curve}


make = interactive.maker(train, resolve)
relevance, make_relevance = no_relevance, makes_nothing
