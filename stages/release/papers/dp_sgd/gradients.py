"""Noisy gradient descent in which clipping and noise may differ from tensor to tensor (ellipsoid) or from
parameter to parameter.

Momentum and the clipped sums are those of `dp-sgd`; the two mechanisms that use this differ in what they call
`Noise`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airlock.models.devices import choose_device
from airlock.privacy.plan import Facts
from stages.release import told_loss
from stages.release.interactive import Course, State
from stages.release.papers.dp_sgd.dp_sgd import MOMENTUM, SEED, Clipped, Data

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True)
class Schedule:
    """How samples are taken and steps made; nothing of the records."""

    rate: float
    steps: int
    batch: float
    learning_rate: float
    device: str = "cpu"


class Ellipsoid(Clipped):
    """Sums of gradients g scaled so that sum_p |g_p|^2 / D_p^2 <= 1 over the network's tensors p, each
    record's by one factor.
    """

    def __init__(self, network: nn.Module, axes: Tensor) -> None:
        super().__init__(network, 1.0)
        self.axes = axes
        self._module.get_clipping_coef = self._factors

    def _factors(self) -> Tensor:
        import torch

        norms = torch.stack([parameter._norm_sample for parameter in self._module.trainable_parameters])
        lengths = (norms / self.axes.to(norms)[:, None]).norm(dim=0)
        factors: Tensor = (1 / (lengths + 1e-6)).clamp(max=1.0)
        return factors


class Noise:
    """One way to clip and perturb: the axes of this step's ellipsoid, the noise on a sum, and what is learned
    from noisy sums.
    """

    def start(self, sizes: list[int]) -> State:
        """What the way remembers, before the first step."""
        return {}

    def axes(self, state: State) -> Tensor:
        """D_p of every tensor."""
        raise NotImplementedError

    def scale(self, state: State) -> Tensor:
        """Standard deviation of the noise on every parameter of the sum."""
        raise NotImplementedError

    def learn(self, state: State, noisy: Tensor) -> State:
        """The memory after a noisy sum; it sees nothing else."""
        return state


def network_of(name: str, facts: Facts) -> nn.Module:
    """The network before training, which is the one that `dp-sgd` begins with."""
    from airlock.models.papers.networks import build

    return build(name, facts.shape, len(facts.labels), seed=SEED)


def descend(
    network: nn.Module,
    data: Data,
    way: Noise,
    schedule: Schedule,
    course: Course,
    *,
    peek: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Train `network` on noisy sums, and return its curve.

    `peek` is called at every step with the network at its iterate (as published algorithms need).
    """
    import torch
    from torch.nn.utils import parameters_to_vector, vector_to_parameters

    device = choose_device(schedule.device, "release.options.device")
    network.to(device)
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    memory = way.start([parameter.numel() for parameter in parameters])
    clipped = Ellipsoid(network, way.axes(memory))
    theta = parameters_to_vector(parameters).detach().clone()

    def advance(step: int, state: State) -> State:
        vector_to_parameters(state["theta"], parameters)
        peek()
        own = {name: state[name] for name in memory}
        clipped.axes = way.axes(own)
        total = clipped.sum_of(data, course.keyed.sample(step, schedule.rate, len(data.labels)))
        scale = way.scale(own).to(total)
        noisy = total + scale * course.keyed.gaussian(step, "gradient", total, scale)
        velocity = MOMENTUM * state["velocity"] + noisy / schedule.batch
        slope, deviation = noisy / schedule.batch, scale / schedule.batch
        told = told_loss.follow(
            step, schedule.steps, state, state["theta"], slope, deviation, schedule.learning_rate
        )
        return {
            "theta": state["theta"] - schedule.learning_rate * velocity,
            "velocity": velocity,
            **told,
            **way.learn(own, noisy.cpu()),
        }

    told = told_loss.start(theta, schedule.steps)
    start = {"theta": theta, "velocity": torch.zeros_like(theta), **told, **memory}
    final = course.walk(start, advance, schedule.steps)
    vector_to_parameters(final["theta"], parameters)
    clipped.remove()
    return told_loss.curve(final, schedule.steps)


def tensors_of(network: nn.Module) -> dict[str, Any]:
    """A network's weights as a release holds them."""
    return {f"network.{name}": value.detach().cpu().numpy() for name, value in network.state_dict().items()}
