"""How bench.papers.neuron_epochs trains: the mechanism's own steps, in less time on images, from where they stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from airlock.models.papers.networks import Ordered, channels_first
from stages.checkpoints import Checkpoint
from stages.release.papers.neuron.training import Descent, known_rows

if TYPE_CHECKING:
    from stages.release.papers.dp_sgd.dp_sgd import Data

PART = 100
"""Records that the convolutions see at a time."""
TESTED = 1000
"""Records that are judged at a time."""


class Lean(Ordered):
    """The same scores of images, but for rounding, with less to do: the greatest of rectified values is the rectified
    greatest, and what a few records need at a time stays near the processor.
    """

    def __init__(self, ordered: Ordered) -> None:
        super().__init__(ordered.layers)
        layers = list(self.layers)
        place = next(number for number, layer in enumerate(layers) if isinstance(layer, nn.Flatten))
        # Lists, so that every layer has one name.
        self._lower, self._upper = list(_pooled_first(layers[:place])), layers[place:]
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, records: Tensor) -> Tensor:
        """Scores of a batch of records in their encoded shape."""
        parts = torch.split(channels_first(records), PART)
        scores = torch.cat([_through(self._lower, part) for part in parts])
        return _through(self._upper, scores)


def _pooled_first(layers: list[nn.Module]) -> Iterator[nn.Module]:
    waiting: list[nn.Module] = []
    for layer in layers:
        if isinstance(layer, nn.ReLU):
            waiting.append(layer)
        else:
            yield layer
            if isinstance(layer, nn.MaxPool2d):
                yield from waiting
                waiting.clear()
    yield from waiting


def _through(layers: list[nn.Module], values: Tensor) -> Tensor:
    for layer in layers:
        values = layer(values)
    return values


def walk(
    descent: Descent,
    keeper: Checkpoint,
    held_out: Data,
    *,
    epochs: int,
    until: float = float("inf"),
    told: Callable[[list[float]], None] = lambda found: None,
) -> list[float]:
    """Accuracy on the held-out records after every epoch, from where the keeper has it and until that time."""
    every = descent.recipe.options.iterations or 1
    earlier = keeper.resume()
    first, found = (earlier[0], put(descent, earlier[1])) if earlier else (0, list[float]())
    for step in range(first, epochs * every):
        if step % every == 0 and time.monotonic() > until:
            break
        descent.take(step)
        if (step + 1) % every == 0:
            found.append(judge(descent.network, held_out))
            keeper.keep(step + 1, kept(descent, found))
            told(found)
    return found


def kept(descent: Descent, found: list[float]) -> dict[str, Tensor]:
    """All that the next step depends on, and the curve. Noise that is drawn once is in the network."""
    tensors = {f"network.{name}": value for name, value in descent.network.state_dict().items()}
    for place, slots in descent.optimiser.state_dict()["state"].items():
        tensors |= {f"adam.{place}.{name}": value for name, value in slots.items()}
    return {**tensors, "order": descent.order.get_state(), "found": torch.tensor(found, dtype=torch.float64)}


def put(descent: Descent, tensors: dict[str, Tensor]) -> list[float]:
    """What `kept` took, in its place again; the curve."""
    state: dict[int, dict[str, Any]] = {}
    network = {}
    for name, value in tensors.items():
        kind, _, rest = name.partition(".")
        if kind == "adam":
            place, _, slot = rest.partition(".")
            state.setdefault(int(place), {})[slot] = value
        elif kind == "network":
            network[rest] = value
    descent.network.load_state_dict(network)
    groups = descent.optimiser.state_dict()["param_groups"]
    descent.optimiser.load_state_dict({"state": state, "param_groups": groups})
    descent.order.set_state(tensors["order"])
    found: list[float] = tensors["found"].tolist()
    return found


def answers(network: Ordered, held_out: Data) -> tuple[Tensor, Tensor]:
    """What the network says now of the held-out records, and what they are; training goes on as if nobody had asked."""
    rows = known_rows(held_out)
    network.eval()
    with torch.no_grad():
        said = [network(held_out.scaled(part)).argmax(1) for part in torch.split(rows, TESTED)]
    network.train()
    return torch.cat(said), held_out.labels[rows]


def judge(network: Ordered, held_out: Data) -> float:
    """Accuracy as the network is now."""
    said, truth = answers(network, held_out)
    return float((said == truth).double().mean())
