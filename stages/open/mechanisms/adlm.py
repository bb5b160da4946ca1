"""Training AdLM's network from perturbed inputs and coefficients (Algorithm 1, lines 20-29). No record is
read, whatever the epochs.

Each epoch has a seed of its own, so that a run that goes on from a checkpoint ends in the same bytes as one
that never stopped.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.inside.manifest import Manifest
from airlock.models.classifier import PREFIX, network_model
from airlock.models.papers import taylor
from airlock.params import TrainParams
from stages.mechanisms import Trained
from stages.open.training_state import TrainingState

UNIT_PROGRAM, PROGRAM, COLOUR_PROGRAM = "adlm-program", "adlm-grey", "adlm-colour"


def train(
    params: TrainParams,
    release: Manifest,
    tensors: Mapping[str, NDArray[Any]],
    *,
    checkpoint: Path | None = None,
) -> Trained:
    """Minimise the perturbed degree-2 loss by Adam; a release of the authors' program by the program's own
    network, loss and steps.
    """
    from airlock.models.devices import choose_device
    from airlock.models.memory import keep_pages

    keep_pages()
    details, device = release.details, choose_device(params.device, "train.device")
    kinds = {PROGRAM: Program, UNIT_PROGRAM: UnitProgram, COLOUR_PROGRAM: ColourProgram}
    kind = kinds.get(details.get("network", ""), Paper)
    course = kind(params, details, tensors, device)
    keeper = TrainingState(checkpoint, _identity(params, release))
    curve = keeper.resume(course.kept(), course.optimiser, params.epochs)
    course.network.train()
    start = time.perf_counter()
    for epoch in range(len(curve), params.epochs):
        curve.append((epoch + 1, course.epoch(epoch)))
        keeper.keep(course.kept(), course.optimiser, curve)
    state = {
        PREFIX + name: value.detach().cpu().numpy() for name, value in course.result().state_dict().items()
    }
    metrics = {"loss": curve[-1][1], "epochs": params.epochs, "epsilon": _number(release.proven.epsilon)}
    if course.rows:
        metrics["rows_per_second"] = round(course.rows / (time.perf_counter() - start))
    return Trained(network_model(course.name, details["data"], state), curve, metrics)


class Course:
    """Epochs over perturbed records, each in an order of its own."""

    name: str
    rows = 0
    """That steps were made with, all epochs together."""

    def __init__(
        self,
        params: TrainParams,
        details: Mapping[str, Any],
        tensors: Mapping[str, NDArray[Any]],
        device: str,
    ) -> None:
        from airlock.models.papers.networks import build

        self.params, self.details, self.tensors, self.device = params, details, tensors, device
        data = details["data"]
        network = build(self.name, tuple(data["shape"]), len(data["labels"]), seed=params.seed)
        self.network: Any = network.to(device)
        self.optimiser = self.make_optimiser()

    def kept(self) -> Any:
        """The module that a checkpoint holds."""
        return self.network

    def result(self) -> Any:
        """The network that predicts."""
        return self.network

    def make_optimiser(self) -> Any:
        """Of all parameters."""
        raise NotImplementedError

    def steps(self, epoch: int) -> Iterator[Any]:
        """Rows of each step of an epoch."""
        raise NotImplementedError

    def loss(self, inputs: Any, table: Any) -> Any:
        """The sum that a step minimises."""
        raise NotImplementedError

    def epoch(self, epoch: int) -> float:
        """Once through the perturbed records; the mean loss."""
        import torch

        total, count = 0.0, 0
        for rows in self.steps(epoch):
            arrays = batch_of(self.tensors, self.details, rows.numpy())
            inputs, table = (torch.from_numpy(one).to(self.device) for one in arrays)
            loss = self.loss(inputs, table)
            self.optimiser.zero_grad()
            torch.autograd.backward(loss)
            self.optimiser.step()
            self.stepped()
            total, count = total + self.counted(float(loss.detach()), len(rows)), count + len(rows)
        self.rows += count
        return total / max(count, 1)

    def counted(self, loss: float, rows: int) -> float:
        """A step's loss, added up over its records."""
        raise NotImplementedError

    def stepped(self) -> None:
        """After each step."""

    def order(self, count: int, epoch: int) -> Any:
        """Of this epoch."""
        import torch

        seed = self.params.seed * 1_000_003 + epoch
        return torch.randperm(count, generator=torch.Generator().manual_seed(seed))


class Paper(Course):
    """The paper's network; steps of `train.batch` records, whatever batch their noise is of."""

    name = "adlm"

    def make_optimiser(self) -> Any:
        import torch

        bias = bounded(self.tensors["bias"] / self.details["fine"], self.details["clip"])
        self.network.bias.copy_(torch.from_numpy(bias))
        return torch.optim.Adam(self.network.parameters(), lr=self.params.learning_rate)

    def steps(self, epoch: int) -> Iterator[Any]:
        import torch

        yield from torch.split(self.order(len(self.tensors["inputs"]), epoch), self.params.batch)

    def loss(self, inputs: Any, table: Any) -> Any:
        return taylor.polynomial(self.network(inputs), table).mean()

    def counted(self, loss: float, rows: int) -> float:
        return loss * rows


class Program(Course):
    """The authors' program: a step is one batch, whose records share one noise vector (or `train.batch` of its
    records, where that is fewer), and batch normalisation takes the common part out again. What does not fill
    a batch is dropped, as there.
    """

    name = PROGRAM

    def make_optimiser(self) -> Any:
        import torch

        from airlock.models.papers.epsilon_hat import EpsilonHatAdam

        noise = self.tensors["label_noise"] / self.details["fine"]
        self.label_noise = torch.from_numpy(noise.astype(np.float32)).to(self.device)
        return EpsilonHatAdam(self.network.parameters(), rate=self.params.learning_rate)

    def steps(self, epoch: int) -> Iterator[Any]:
        size = self.details["batch"]
        whole, read = len(self.tensors["inputs"]) // size, min(size, self.params.batch)
        for batch in self.order(whole, epoch).tolist():
            yield batch * size + self.order(size, epoch * whole + batch)[:read]

    def loss(self, inputs: Any, table: Any) -> Any:
        from airlock.models.papers import adlm_program

        return adlm_program.loss(self.network, inputs, table, self.label_noise)

    def counted(self, loss: float, rows: int) -> float:
        return loss


class UnitProgram(Program):
    """The same over pixels in [0, 1]."""

    name = UNIT_PROGRAM


class ColourProgram(Program):
    """The authors' program for colour images: all records share one noise image, so that a step is any records, as
    many as a batch has (or `train.batch` of them), a fresh square of each. Plain steps down the slope; what
    predicts is a moving average of the weights, which begins short.
    """

    name = COLOUR_PROGRAM

    def make_optimiser(self) -> Any:
        import copy

        import torch

        super().make_optimiser()
        self.average, self.done = copy.deepcopy(self.network).requires_grad_(False), 0
        return torch.optim.SGD(self.network.parameters(), lr=self.params.learning_rate)

    def kept(self) -> Any:
        import torch

        return torch.nn.ModuleDict({"now": self.network, "average": self.average})

    def result(self) -> Any:
        return self.average

    def steps(self, epoch: int) -> Iterator[Any]:
        import torch

        size, count = self.details["batch"], len(self.tensors["inputs"])
        steps, order = -(-count // size), self.order(count, epoch)
        self.done, self.places = epoch * steps, np.random.default_rng((self.params.seed, epoch))
        # The last step of an epoch is as long as the others: it goes on with the first records.
        order = torch.cat([order, order])
        for start in range(0, steps * size, size):
            yield order[start : start + min(size, self.params.batch)]

    def loss(self, inputs: Any, table: Any) -> Any:
        import torch

        from airlock.models.papers import adlm_colour, crops

        room = np.array(inputs.shape[1:3]) - crops.side(inputs.shape[1:]) + 1
        tops, lefts = self.places.integers(room[:, None], size=(2, len(inputs)))
        squares = torch.from_numpy(crops.cut(inputs.cpu().numpy(), tops, lefts)).to(self.device)
        return adlm_colour.loss(self.network, squares, table, self.label_noise)

    def counted(self, loss: float, rows: int) -> float:
        return loss * rows

    def stepped(self) -> None:
        import torch

        self.done += 1
        weight = 1 - min(0.9999, (1 + self.done) / (10 + self.done))
        with torch.no_grad():
            for kept, now in zip(self.average.parameters(), self.network.parameters(), strict=True):
                kept.lerp_(now, weight)
            for kept, now in zip(self.average.buffers(), self.network.buffers(), strict=True):
                kept.copy_(now)


def _identity(params: TrainParams, release: Manifest) -> str:
    """A checkpoint belongs to one training of one release; the number of epochs may grow."""
    named = params.model_dump(exclude={"epochs", "device"})
    return sha256(json.dumps([named, release.release_id], sort_keys=True).encode()).hexdigest()


def batch_of(
    tensors: Mapping[str, NDArray[Any]], details: Mapping[str, Any], rows: NDArray[Any]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Perturbed inputs in units of x, cut off at +-clip as in the authors' code for grey images (whose pixels are in
    [-1, 1]), and their coefficients.
    """
    signed = details.get("network") == PROGRAM
    inputs = bounded(tensors["inputs"][rows] / details["grid"], details.get("clip", np.inf), signed=signed)
    table = (tensors["coefficients"][rows] / details["fine"]).astype(np.float32)
    return inputs.reshape(-1, *details["data"]["shape"]), table


def bounded(values: NDArray[Any], clip: float, *, signed: bool = False) -> NDArray[np.float32]:
    """Cut off where they are +-clip, or (`signed`) where 2 x - 1 is."""
    low, high = ((1 - clip) / 2, (1 + clip) / 2) if signed else (-clip, clip)
    cut: NDArray[np.float32] = np.clip(values, low, high).astype(np.float32)
    return cut


def _number(epsilon: float) -> float | str:
    """JSON has no infinity."""
    return "infinity" if np.isinf(epsilon) else epsilon
