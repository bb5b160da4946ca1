"""`dp-sgd`: Abadi et al. 2016 (arXiv 1607.00133) with Opacus: Poisson samples, clipped gradients, Gaussian
noise; the release is the model.

Every step reads a sample of the records that depends on nothing, and adds noise of standard deviation z times
the sensitivity to the sum of gradients of norm at most C. Sensitivity: C under zero-out (a null record has no
gradient), 2 C under replace-one (docs/proofs/accounting.md#poisson-samples). Samples and noise come from the
keyed generator, never from a torch seed; the arithmetic is floating point used as if it were exact, and the
manifest says so. Norms come from ghost clipping (Li et al. 2021) where Opacus has it for a layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field

from airlock.errors import InputError, ParamsError
from airlock.models.devices import choose_device
from airlock.params import Params, Section, check
from airlock.privacy import events
from airlock.privacy.guarantees import Neighbours
from airlock.privacy.plan import Facts, Plan
from stages.mechanisms import Released, Tick, makes_nothing, no_relevance, silent
from stages.release import interactive, told_loss
from stages.release.papers import guarantees
from stages.release.papers.dp_sgd import lower_layers

if TYPE_CHECKING:
    from torch import Tensor, nn

    from airlock.attack.targets import Target

NAME, VERSION = "dp-sgd", 2
ARGUMENT = "docs/proofs/dp-sgd.md#guarantee"
SEED = 0
"""Of the network's first weights, which are public."""
PIECE = 256
"""Records whose gradients are in memory at a time."""
MOMENTUM = 0.9
MOST_EPOCHS = 1e5
AUTOENCODER = "relu-autoencoder:300-100-20-100-300"


class Options(Section):
    """release.options of `dp-sgd`.

    Attributes:
        model: auto is Opacus' convolutional network for images and a linear model for tables; `autoencoder`
            is the one of DP-MAC's authors' program, which learns to return the record itself.
        epochs: in expectation; steps = epochs * n / batch.
        batch: expected size of a sample; auto is n / 100, between 16 and 1024.
        clip: bound on the norm of a record's gradient.
        lower: `raw` is for public data: see stages/release/papers/dp_sgd/lower_layers.py.
        device: cpu, an accelerator, or auto: the latter if there is one. It is in no id.
    """

    model: Literal[
        "auto", "opacus-cnn", "two-convolutions", "six-convolutions", "perceptron", "linear", "autoencoder"
    ] = "auto"
    lower: lower_layers.Lower = "private"
    epochs: float = Field(10, gt=0, le=MOST_EPOCHS)
    batch: int | None = Field(None, ge=1)
    clip: float = Field(1.0, ge=1e-3, le=1e6)
    learning_rate: float = Field(0.5, gt=0, le=1e3)
    device: str = "cpu"


@dataclass(frozen=True)
class Settings:
    """Everything that the steps need, and nothing of the records."""

    rate: float
    steps: int
    clip: float
    learning_rate: float
    multiplier: float
    reach: int
    batch: float

    @property
    def noise(self) -> float:
        """Standard deviation of the noise on the sum of gradients: z times the sensitivity."""
        return self.multiplier * self.clip * self.reach

    def event(self) -> dict[str, Any]:
        """For the ledger."""
        step = {"kind": "gaussian", "noise_multiplier": self.multiplier}
        sampled = {"kind": "poisson-sampled", "sampling_probability": self.rate, "event": step}
        return {"kind": "self-composed", "count": self.steps, "event": sampled}


@dataclass(frozen=True)
class Data:
    """Records in memory, as they are encoded; labels -1 for null records."""

    records: Tensor
    labels: Tensor

    def scaled(self, rows: Any) -> Tensor:
        """Some of them, in [0, 1]."""
        chosen = self.records[rows]
        return chosen.float() / 255 if not chosen.dtype.is_floating_point else chosen


def resolve(params: Params, facts: Facts) -> tuple[str, Settings]:
    """The network's name and the settings, calibrated to (epsilon, delta)."""
    interactive.check_unit(params, facts, NAME)
    options = check(Options, params.release.options, "params.yaml: release.options")
    model = name_network(options.model, options.lower, facts)
    batch = min(options.batch or max(16, min(1024, facts.n // 100)), facts.n)
    rate, steps = batch / facts.n, max(1, round(options.epochs * facts.n / batch))
    release = params.release
    return model, calibrate(
        rate,
        steps,
        options.clip,
        options.learning_rate,
        release.epsilon,
        release.delta,
        release.neighbours,
        facts.n,
    )


def name_network(wanted: str, lower: lower_layers.Lower, facts: Facts) -> str:
    """The network's name, for all mechanisms that are compared with this one."""
    if wanted in lower_layers.CONVOLUTIONAL_NETWORKS and facts.kind != "image":
        raise ParamsError(
            f"params.yaml: release.options.model '{wanted}' is for images: use perceptron or linear"
        )
    model = {
        "auto": {"image": "opacus-cnn", "tabular": "linear"}[facts.kind],
        "autoencoder": AUTOENCODER,
    }.get(wanted, wanted)
    lower_layers.check_lower(lower, model)
    return model


@lru_cache(maxsize=64)
def calibrate(
    rate: float,
    steps: int,
    clip: float,
    learning_rate: float,
    epsilon: float,
    delta: float,
    neighbours: Neighbours,
    n: int,
) -> Settings:
    """The least noise that is (epsilon, delta)-DP for these steps."""
    multiplier = interactive.multiplier_of(epsilon, delta, rate=rate, steps=steps, neighbours=neighbours)
    return Settings(
        rate, steps, clip, learning_rate, multiplier, 2 if neighbours == "replace-one" else 1, rate * n
    )


def plan(params: Params, facts: Facts) -> Plan:
    """The price of a release, from parameters and public facts alone."""
    model, settings = resolve(params, facts)
    release = params.release
    proven = guarantees.proven(
        release,
        settings.event(),
        sensitivity=f"L2 {settings.clip * settings.reach:g} a step",
        argument=ARGUMENT,
    )
    parameters = {
        "epsilon": release.epsilon,
        "delta": release.delta,
        "model": model,
        "rate": settings.rate,
        "steps": settings.steps,
        "clip": settings.clip,
        "learning_rate": settings.learning_rate,
    }
    upper = Plan(NAME, VERSION, parameters, passes=settings.steps, proven=proven, interactive=True)
    return lower_layers.price(upper, lower_of(params))


def lower_of(params: Params) -> lower_layers.Lower:
    """How the lower layers are trained."""
    return _options(params).lower


def _options(params: Params) -> Options:
    return check(Options, params.release.options, "params.yaml: release.options")


def train(params: Params, facts: Facts, data: Data, course: interactive.Course) -> Released:
    """Train, and release the last iterate."""
    from airlock.models.papers.networks import build

    model, settings = resolve(params, facts)
    device = choose_device(_options(params).device, "release.options.device")
    network = build(model, facts.shape, len(facts.labels), seed=SEED).to(device)
    curve = descend(
        *lower_layers.fix(network, data, lower_of(params), device),
        settings,
        key=course.keyed.key,
        release_id=course.keyed.release_id,
        checkpoint=course.checkpoint,
        tick=course.tick,
    )
    tensors = {
        f"network.{name}": value.detach().cpu().numpy() for name, value in network.state_dict().items()
    }
    return tensors, {
        "network": model,
        "n": facts.n,
        "steps": settings.steps,
        "multiplier": settings.multiplier,
        "curve": curve,
    }


make = interactive.maker(train, resolve)
relevance, make_relevance = no_relevance, makes_nothing


def load(reader: Any, facts: Facts) -> Data:
    """All records: an interactive mechanism reads them again and again."""
    import torch

    from airlock.records.encoding import unpack

    parts = [unpack(batch, facts.shape) for batch in reader]
    records = np.concatenate([part.x for part in parts])
    labels = np.concatenate([np.where(part.valid > 0, part.y, -1) for part in parts])
    if facts.kind == "tabular":
        records = records.astype(np.float32)
    return Data(torch.from_numpy(records), torch.from_numpy(labels.astype(np.int64)))


def descend(
    network: nn.Module,
    data: Data,
    settings: Settings,
    *,
    key: bytes,
    release_id: str,
    checkpoint: Path | None = None,
    tick: Tick = silent,
) -> dict[str, Any]:
    """Stochastic gradient descent with momentum on noisy sums; `network` ends up trained. Returns its curve."""
    import torch
    from torch.nn.utils import parameters_to_vector, vector_to_parameters

    course = interactive.Course(interactive.Keyed(key, release_id), checkpoint, tick)
    clipped = Clipped(network, settings.clip)
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    optimiser = torch.optim.SGD(parameters, lr=settings.learning_rate, momentum=MOMENTUM)

    def advance(step: int, state: interactive.State) -> interactive.State:
        _put(optimiser, parameters, state)
        total = clipped.sum_of(data, course.keyed.sample(step, settings.rate, len(data.labels)))
        noisy = _add_noise(total, settings, course.keyed, step)
        slope, deviation = noisy / settings.batch, settings.noise / settings.batch
        told = told_loss.follow(
            step, settings.steps, state, state["theta"], slope, deviation, settings.learning_rate
        )
        for parameter, gradient in zip(parameters, _shares(noisy, parameters), strict=True):
            parameter.grad = gradient / settings.batch
        optimiser.step()
        speeds = [optimiser.state[parameter]["momentum_buffer"].reshape(-1) for parameter in parameters]
        theta = parameters_to_vector(parameters).detach().clone()
        return {"theta": theta, "velocity": torch.cat(speeds), **told}

    theta = parameters_to_vector(parameters).detach().clone()
    start = {"theta": theta, "velocity": torch.zeros_like(theta), **told_loss.start(theta, settings.steps)}
    final = course.walk(start, advance, settings.steps)
    vector_to_parameters(final["theta"], parameters)
    clipped.remove()
    return told_loss.curve(final, settings.steps)


def _shares(flat: Tensor, parameters: list[nn.Parameter]) -> list[Tensor]:
    """A flat vector, divided among tensors."""
    import torch

    parts = torch.split(flat, [one.numel() for one in parameters])
    return [part.reshape(one.shape) for part, one in zip(parts, parameters, strict=True)]


def _put(optimiser: Any, parameters: list[nn.Parameter], state: interactive.State) -> None:
    """Weights and momentum as they were after a step, whoever took it."""
    from torch.nn.utils import vector_to_parameters

    vector_to_parameters(state["theta"], parameters)
    for parameter, speed in zip(parameters, _shares(state["velocity"], parameters), strict=True):
        optimiser.state[parameter]["momentum_buffer"] = speed.clone()


def _add_noise(total: Tensor, settings: Settings, keyed: interactive.Keyed, step: int) -> Tensor:
    import torch

    drawn = keyed.standard(step, "gradient", total, settings.noise)
    return total + torch.from_numpy(settings.noise * drawn).to(total)


class Clipped:
    """Sums of clipped per-record gradients by Opacus: norms in a first backward pass, the weighted sum in a
    second.
    """

    def __init__(self, network: nn.Module, clip: float) -> None:
        import logging
        import warnings

        from opacus.grad_sample import GradSampleModuleFastGradientClipping

        # Opacus 1.6 takes a convolution's inputs for contiguous when it unfolds them. Where torch chose
        # another layout, norms of gradients came out up to a fifth too small, and the clipping bound did not
        # hold.
        self._mended = [
            module.register_forward_pre_hook(lambda module, inputs: tuple(one.contiguous() for one in inputs))
            for module in network.modules()
            if type(module).__name__ == "Conv2d"
        ]
        logging.getLogger("opacus").setLevel(logging.ERROR)
        warnings.filterwarnings("ignore", message="Full backward hook")
        self._module = GradSampleModuleFastGradientClipping(
            network, loss_reduction="sum", max_grad_norm=clip, use_ghost_clipping=True
        )
        self._parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
        self._reconstructs = getattr(network, "reconstructs", False)

    def sum_of(self, data: Data, rows: Tensor) -> Tensor:
        """The sum over `rows`, flat; null records have no gradient and an empty sample has the sum 0."""
        import torch

        device = self._parameters[0].device
        total = torch.zeros(sum(parameter.numel() for parameter in self._parameters), device=device)
        for piece in torch.split(rows[data.labels[rows] >= 0], PIECE):
            if len(piece):
                total += self._piece(data.scaled(piece).to(device), data.labels[piece].to(device))
        return total

    def _piece(self, records: Tensor, labels: Tensor) -> Tensor:
        """The sum over some records.

        Where it cannot be told whose number is not finite, they are taken one by one.
        """
        import torch

        flat, finite = self._clipped(records, labels)
        sound = bool(finite)
        if sound or len(records) == 1:
            # A record whose loss, norm or gradient is not finite contributes nothing
            # (docs/proofs/dp-sgd.md#finite-gradients).
            return flat if sound else torch.zeros_like(flat)
        alone = [
            self._piece(*one) for one in zip(torch.split(records, 1), torch.split(labels, 1), strict=True)
        ]
        return torch.stack(alone).sum(0)

    def _clipped(self, records: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The sum of clipped gradients, and whether every number on the way to it is finite."""
        import torch

        self._module.zero_grad()
        losses = self._losses(self._module(records), records, labels)
        torch.autograd.backward(losses.sum(), retain_graph=True)
        factors = self._module.get_clipping_coef()
        self._module.zero_grad()
        self._module.disable_hooks()
        torch.autograd.backward((factors * losses).sum())
        self._module.enable_hooks()
        flat = torch.cat(
            [parameter.grad.reshape(-1) for parameter in self._parameters if parameter.grad is not None]
        )
        self._module.zero_grad()
        return flat, torch.stack([one.isfinite().all() for one in (losses, factors, flat)]).all()

    def _losses(self, outputs: Tensor, records: Tensor, labels: Tensor) -> Tensor:
        import torch

        from airlock.models.papers.networks import channels_first

        if self._reconstructs:
            return (outputs - channels_first(records).flatten(1)).square().sum(1) / 2
        return torch.nn.functional.cross_entropy(outputs, labels, reduction="none")

    def remove(self) -> None:
        """Take the hooks off the network."""
        self._module.to_standard_module()
        for hook in self._mended:
            hook.remove()


def targets(
    params: Params, facts: Facts, *, factor: float = 1.0, release: dict[str, Any] | None = None
) -> list[Target]:
    """Every noisy sum seen, a record whose gradient is always at the bound: the worst case that accounting is
    for.
    """
    from airlock.attack import laws
    from airlock.attack.targets import Target

    priced = plan(params, facts).proven
    if priced.event is None:
        raise InputError(f"'{NAME}' has no known law to attack: {priced.reason}")
    law = laws.of_event(
        events.from_json(priced.event), name="all steps", neighbours=priced.neighbours, factor=factor
    )
    return [Target(law, None, priced.epsilon, priced.delta)]
