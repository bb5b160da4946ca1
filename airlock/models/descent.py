"""Gradient descent without data: every batch is drawn from the class-conditional model that a release
describes.

Rows of class c are Gaussian with the released class mean and the released covariance, damped like the closed
form. Each epoch has its own seed, so that a run that was resumed from a checkpoint ends in the same bytes as
one that never stopped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from airlock.models.devices import choose_device
from airlock.models.model import Layers
from airlock.params import TrainParams

if TYPE_CHECKING:
    import torch

    from airlock.models.moments import Moments

STEPS_AN_EPOCH = 4
Build = Callable[[int, int], Any]
"""Width and classes to a torch module."""
CHECKPOINT_EPOCHS = 50
JUDGED, JUDGED_BATCH = 16, 512
"""Batches, and rows of each, on which two heads are compared."""


class Keeper(Protocol):
    """Where progress is kept, for a run that may be interrupted (stages/open/training_state.py)."""

    def keep(self, network: Any, optimiser: Any, curve: Sequence[tuple[int, float]]) -> None:
        """Keep it."""

    def resume(self, network: Any, optimiser: Any, epochs: int) -> list[tuple[int, float]]:
        """Put it back, and return the learning curve so far."""


class Source(Protocol):
    """Rows and labels without end, made from a release."""

    def draw(self, batch: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """So many; the same generator, the same rows."""


def descend(
    params: TrainParams,
    moments: Moments,
    ridge: float | None,
    *,
    keeper: Keeper | None = None,
    build: Build | None = None,
    start: NDArray[np.float64] | None = None,
) -> tuple[Layers, list[tuple[int, float]]]:
    """Train the head that `params` names; return its layers and its learning curve.

    Args:
        params: head, epochs, learning rate, batch, seed, device.
        moments: the release.
        ridge: how strongly its covariance is damped (models/moments.py).
        keeper: from which an interrupted run of the same training (`identity`) goes on.
        build: makes a network of one's own, from the width of rows and the number of classes, in place of a
            head. It is trained in single precision, on an accelerator in mixed precision and compiled.
        start: weights of a linear head from which to go on.
    """
    device = choose_device(params.device, "train.device")
    source = Sampler(moments, ridge, device)
    return descend_on(
        params,
        source,
        moments.size,
        moments.cross.shape[1],
        device=device,
        keeper=keeper,
        build=build,
        start=start,
    )


def descend_on(
    params: TrainParams,
    source: Source,
    width: int,
    classes: int,
    *,
    device: str,
    keeper: Keeper | None = None,
    build: Build | None = None,
    start: NDArray[np.float64] | None = None,
) -> tuple[Layers, list[tuple[int, float]]]:
    """As `descend`, on rows of `width` numbers from any source; an epoch has a generator of its own."""
    import torch

    torch.manual_seed(params.seed)
    network = build(width, classes).float() if build else _network(params, width, classes).double()
    if start is not None:
        weights = {"0.weight": torch.as_tensor(start.T.copy()), "0.bias": torch.zeros(classes)}
        network.load_state_dict(weights)
    network = network.to(device)
    optimiser = torch.optim.Adam(network.parameters(), lr=params.learning_rate)
    curve = keeper.resume(network, optimiser, params.epochs) if keeper else []
    # Compiling pays where a step is long, which on a processor it is not.
    running = torch.compile(network) if build and accelerated(device) else network
    for epoch in range(len(curve), params.epochs):
        if stale(curve, params.patience):
            break
        # Rows have a generator of their own; the other seed is for dropout, so that a resumed run drops the same.
        torch.manual_seed(params.seed * 1_000_003 + epoch)
        generator = torch.Generator().manual_seed(params.seed * 1_000_003 + epoch)
        curve.append((epoch + 1, _epoch(running, optimiser, source, params.batch, generator)))
        if keeper and (epoch + 1) % CHECKPOINT_EPOCHS == 0:
            keeper.keep(network, optimiser, curve)
    if build:
        from airlock.models.dense import dense_layers

        return dense_layers(network.cpu(), width), curve
    return _layers(network), curve


def accelerated(device: str) -> bool:
    """Whether a device is one on which steps are compiled and of mixed precision."""
    return device.split(":")[0] != "cpu"


def stale(curve: Sequence[tuple[int, float]], patience: int | None) -> bool:
    """Whether the likelihood of the release has not become better for `patience` epochs. Every batch is drawn
    anew, so the loss of an epoch is that of rows which were never trained on.
    """
    if patience is None or len(curve) <= patience:
        return False
    return min(loss for _, loss in curve[-patience:]) >= min(loss for _, loss in curve[:-patience])


def _network(params: TrainParams, size: int, classes: int) -> torch.nn.Sequential:
    from torch import nn

    if params.head == "linear":
        return nn.Sequential(nn.Linear(size, classes))
    return nn.Sequential(nn.Linear(size, params.hidden), nn.ReLU(), nn.Linear(params.hidden, classes))


class Sampler:
    """Draws rows and labels from the released model.

    Means are damped as the closed form damps them, labels are balanced.
    """

    def __init__(self, moments: Moments, ridge: float | None, device: str) -> None:
        import torch

        damped = moments.damped(ridge)
        means = (
            moments.vectors
            @ ((np.maximum(moments.values, 0.0) / damped)[:, None] * (moments.vectors.T @ moments.cross))
            / moments.n
        )
        # A unit of spread in every direction is what makes the head's learning rate independent of the noise
        # level.
        self.scale = float(np.sqrt(damped.sum() / moments.n))
        root = moments.vectors * np.sqrt(damped / moments.n)
        self.means, self.root = (
            torch.as_tensor(array.T / self.scale, device=device) for array in (means, root)
        )
        self.device = device

    def draw(self, batch: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        import torch

        labels = torch.randint(len(self.means), (batch,), generator=generator).to(self.device)
        normal = torch.randn(batch, len(self.root), generator=generator, dtype=torch.float64).to(self.device)
        return self.means[labels] * len(self.means) + normal @ self.root, labels


def _epoch(network: Any, optimiser: Any, source: Source, batch: int, generator: torch.Generator) -> float:
    import torch

    total = 0.0
    for _ in range(STEPS_AN_EPOCH):
        rows, labels = source.draw(batch, generator)
        kind, single = rows.device.type, next(network.parameters()).dtype == torch.float32
        mixed = single and accelerated(kind) and torch.amp.is_autocast_available(kind)
        with torch.autocast(kind, torch.bfloat16) if mixed else nullcontext():
            scores = network(rows.float() if single else rows)
        loss = torch.nn.functional.cross_entropy(scores.to(rows.dtype), labels)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        total += value_of(loss)
    return total / STEPS_AN_EPOCH


def likelihoods(
    weights: NDArray[np.float64], offset: NDArray[np.float64], source: Source
) -> NDArray[np.float64]:
    """Cross entropies of a linear head on rows that no training draws: the lower, the likelier is the release."""
    import torch

    found = []
    for batch in range(JUDGED):
        generator = torch.Generator().manual_seed(2**62 + batch)
        rows, labels = source.draw(JUDGED_BATCH, generator)
        scores = rows.cpu() @ torch.as_tensor(weights) + torch.as_tensor(offset)
        found.append(float(torch.nn.functional.cross_entropy(scores, labels.cpu())))
    return np.array(found)


def value_of(loss: Any) -> float:
    """Of a loss, wherever it is."""
    return float(loss.detach())


def _layers(network: Any) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    dense = [layer for layer in network if hasattr(layer, "weight")]
    return [
        (layer.weight.detach().cpu().numpy().T.copy(), layer.bias.detach().cpu().numpy().copy())
        for layer in dense
    ]


def identity(params: TrainParams, moments: Moments, ridge: float | None) -> str:
    """A checkpoint belongs to one training of one release; the number of epochs may grow."""
    named = params.model_dump(exclude={"epochs", "device"})
    content = (
        json.dumps([named, ridge, moments.n], sort_keys=True).encode()
        + moments.cross.tobytes()
        + moments.values.tobytes()
    )
    return sha256(content).hexdigest()
