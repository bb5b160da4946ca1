"""`pcdbn` as its authors' program has it, step by step (preset `authors-code`). For public data only.

Each layer is pre-trained for `pretraining_epochs`: |h' - h| + |v' - v| by Adam at 0.01, hidden units being
perturbed polynomials (airlock/models/papers/strided.py). The five constants get Laplace noise of scale
1 / (epsilon * batch), drawn once for the records and once for their reconstructions, times Delta, which every
batch gives anew. Then `epochs` of Adam on what is above the layers: its inputs are exact sigmoids of the raw
records, its labels are raw, and one vector Lap(M (25 + 25^2 / 4) / (epsilon * batch)) a step is added to the 25
units of the whole batch. The loss is the sum, over records and classes, of the degree-2 cross-entropy.

All batches are of one size: records are taken in their order, what is left of a pass is dropped, and every
further pass is in a new order. An epoch is as many steps as batches fit, rounded up. Nothing finite is proven
of any of this.

The program trains on 55,000 of MNIST's 60,000 records and keeps the first 5,000 for its figures; here all are
trained on.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import torch
from torch import Tensor, nn

from airlock.models.classifier import PREFIX
from airlock.models.devices import choose_device
from airlock.models.memory import keep_pages
from airlock.models.papers import strided, taylor
from airlock.models.papers.chebyshev import Polynomial
from airlock.models.papers.epsilon_hat import EpsilonHatAdam
from airlock.models.papers.networks import build
from airlock.privacy.plan import Facts
from stages.mechanisms import Given, Released
from stages.release.interactive import Course, Keyed, State
from stages.release.keyed_noise import KeyedNoise
from stages.release.papers.dp_sgd import dp_sgd
from stages.release.papers.pcdbn.pcdbn import Recipe

SEED = 0
FINE_GRID, FACTOR = 2**16, 2**5
PRETRAINING_RATE = 0.01
# Records at a time where no gradient is wanted.
CHUNK = 500


def train(recipe: Recipe, given: Given) -> Released:
    """Pre-train the layers, fine-tune what is above them, release the network."""
    keep_pages()
    device = choose_device(recipe.options.device, "release.options.device")
    data = dp_sgd.load(given.reader, given.facts)
    # No checkpoint: those are for functions of noisy numbers, and this network is none.
    course = Course(Keyed(given.key, given.release_id), tick=given.tick)
    program = Program(recipe, given.facts, data, course.keyed, device)
    state = course.walk(program.start(), program.advance, program.epochs)
    program.put(state)
    network = program.network.cpu().state_dict()
    tensors = {PREFIX + name: value.detach().numpy() for name, value in network.items()}
    losses = [float(loss) for loss in state["losses"][program.pretraining :]]
    return tensors, {"network": recipe.network, "trained": True, "n": given.facts.n, "losses": losses}


@dataclass(frozen=True)
class Batches:
    """Rows of the batches, one after the other; the same number always gives the same rows.

    Attributes:
        size: of a batch. read: how many of its records a step reads, all of them in the program.
    """

    rows: Tensor
    size: int
    read: int

    @property
    def an_epoch(self) -> int:
        """Steps of an epoch."""
        return -(-len(self.rows) // self.size)

    def __getitem__(self, number: int) -> Tensor:
        """The rows of one batch."""
        whole = len(self.rows) // self.size
        passed, place = divmod(number, whole)
        return self.rows[_order(len(self.rows), passed)[place * self.size :][: self.read]]


@lru_cache(maxsize=1)
def _order(count: int, passed: int) -> Tensor:
    """Of one pass; the first is in the records' own order."""
    drawn = torch.Generator().manual_seed(SEED + passed)
    return torch.randperm(count, generator=drawn) if passed else torch.arange(count)


def _joined(parameters: list[nn.Parameter]) -> nn.Parameter:
    """Parameters, and their gradients, as parts of one: a step is as many calls for one as for each."""
    whole = nn.Parameter(torch.cat([one.detach().flatten() for one in parameters]))
    whole.grad = torch.zeros_like(whole)
    sizes = [one.numel() for one in parameters]
    parts = zip(parameters, torch.split(whole.detach(), sizes), torch.split(whole.grad, sizes), strict=True)
    for one, values, slopes in parts:
        one.data, one.grad = values.view_as(one), slopes.view_as(one)
    return whole


class Program:
    """All epochs of a training, from any state to the next."""

    def __init__(
        self, recipe: Recipe, facts: Facts, data: dp_sgd.Data, keyed: KeyedNoise, device: str = "cpu"
    ) -> None:
        self.recipe, self.data, self.keyed, self.device = recipe, data, keyed, device
        self.options, self.depth = recipe.options, len(recipe.options.maps)
        # Null records train nothing.
        known = torch.nonzero(data.labels >= 0).flatten()
        size = min(self.options.batch, max(len(known), 1))
        self.batches = Batches(known, size, min(self.options.step_records or size, size))
        self.classes = len(facts.labels)
        network = build(recipe.network, facts.shape, self.classes, seed=SEED)
        assert isinstance(network, strided.Strided)
        self.network = network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        rate = self.options.pretraining_rate or PRETRAINING_RATE
        self.optimisers = [
            EpsilonHatAdam([filters, bias], rate=rate)
            for filters, bias in zip(network.filters, network.biases, strict=True)
        ]
        above = [*network.hidden.parameters(), *network.outputs.parameters()]
        self.optimisers.append(EpsilonHatAdam([_joined(above)], rate=recipe.learning_rate))

    @property
    def pretraining(self) -> int:
        """Epochs of pre-training, all layers together."""
        return self.depth * self.options.pretraining_epochs

    @property
    def epochs(self) -> int:
        """All epochs."""
        return self.pretraining + self.recipe.epochs

    def start(self) -> State:
        """The state before any record."""
        return self._state(torch.zeros(0, dtype=torch.float64))

    def put(self, state: State) -> None:
        """Into the network and the optimisers."""
        network = {
            name.removeprefix("network."): value
            for name, value in state.items()
            if name.startswith("network.")
        }
        self.network.load_state_dict(network)
        for name, value in self._moments().items():
            value.copy_(state[name])

    def advance(self, epoch: int, state: State) -> State:
        """One epoch of the layer whose turn it is, or of what is above all layers."""
        self.put(state)
        depth = min(epoch // self.options.pretraining_epochs, self.depth)
        numbers = range(epoch * self.batches.an_epoch, (epoch + 1) * self.batches.an_epoch)
        total = sum(
            self.learn(depth, number) if depth < self.depth else self.tune(number) for number in numbers
        )
        return self._state(
            torch.cat([state["losses"], torch.tensor([total / max(len(numbers), 1)]).double()])
        )

    def _state(self, losses: Tensor) -> State:
        network = {f"network.{name}": value for name, value in self.network.state_dict().items()}
        kept = {
            name: value.detach().clone(memory_format=torch.contiguous_format)
            for name, value in {**network, **self._moments()}.items()
        }
        return {**kept, "losses": losses}

    def _moments(self) -> State:
        found: State = {}
        for depth, optimiser in enumerate(self.optimisers):
            for number, one in enumerate(optimiser.param_groups[0]["params"]):
                kept = optimiser.state[one]
                found |= {f"optimiser.{depth}.{number}.{name}": value for name, value in kept.items()}
        return found

    def learn(self, depth: int, number: int) -> float:
        """One step of a layer; its cost."""
        rows = self.batches[number]
        with torch.no_grad():
            units = self.network.units(self.data.scaled(rows).to(self.device), depth)
        units = units.contiguous(memory_format=torch.channels_last)
        optimiser = self.optimisers[depth]
        optimiser.zero_grad()
        size = strided.delta(units, self.recipe.sigmoid)
        loss = strided.cost(
            units,
            self.network.filters[depth],
            self.network.biases[depth],
            *(self.perturbed(draws, size) for draws in self.constants[depth]),
        )
        torch.autograd.backward(loss)
        optimiser.step()
        return float(loss.detach())

    def perturbed(self, draws: Tensor, size: float) -> Polynomial:
        """The polynomial whose constants got noise that a batch's Delta scales."""
        noisy = [
            alpha + size * float(draw) for alpha, draw in zip(self.recipe.sigmoid.alphas, draws, strict=True)
        ]
        return Polynomial("perturbed", tuple(noisy))

    @cached_property
    def constants(self) -> list[list[Tensor]]:
        """For each layer, draws for the records and for their reconstructions: Laplace of scale
        1 / (epsilon * batch) for every constant that is not zero, before the factor 2^-5.
        """
        return [[self._constants(depth, which) for which in ("data", "model")] for depth in range(self.depth)]

    def _constants(self, depth: int, which: str) -> Tensor:
        alphas = np.array(self.recipe.sigmoid.alphas)
        drawn = self.keyed.add_laplace(
            np.zeros(len(alphas), np.int64),
            FINE_GRID / self.recipe.parts[depth].epsilon,
            release_pass=depth + 1,
            purpose=f"constants {which}",
        )
        return torch.from_numpy(drawn * (alphas != 0) / (FINE_GRID * FACTOR * self.batches.size))

    @cached_property
    def below(self) -> Tensor:
        """What the fully connected units see of every record: the layers are fixed once they are
        pre-trained.
        """
        rows = torch.split(torch.arange(len(self.data.labels)), CHUNK)
        with torch.no_grad():
            return torch.cat([self.network.flat(self.data.scaled(few).to(self.device)) for few in rows])

    @cached_property
    def _room(self) -> Tensor:
        return torch.empty(self.batches.read, self.below.shape[1], device=self.device)

    @cached_property
    def noise(self) -> Tensor:
        """A vector for each step of fine-tuning."""
        part = self.recipe.parts[-1]
        drawn = self.keyed.add_laplace(
            np.zeros((self.recipe.epochs * self.batches.an_epoch, self.options.hidden), np.int64),
            FINE_GRID * part.printed / part.epsilon,
            release_pass=self.depth + 1,
            purpose="softmax",
        )
        return torch.from_numpy(drawn / (FINE_GRID * self.batches.size)).float().to(self.device)

    @cached_property
    def table(self) -> Tensor:
        """Coefficients of every record's loss."""
        table = torch.from_numpy(taylor.coefficients(self.data.labels.numpy(), self.classes))
        return table.float().to(self.device)

    def tune(self, number: int) -> float:
        """One step of what is above the layers; the mean loss of its records."""
        rows, optimiser = self.batches[number].to(self.device), self.optimisers[-1]
        # One place in memory for all batches: fresh pages would take as long as the product.
        seen = torch.index_select(self.below, 0, rows, out=self._room[: len(rows)])
        noise = self.noise[number - self.pretraining * self.batches.an_epoch]
        loss = self.network.descend(seen, noise, self.table[rows])
        optimiser.step()
        return float(loss) / len(rows)
