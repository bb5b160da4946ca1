"""A trained network as a model: rebuilt from its name and its weights, it predicts like any other
(airlock/models/model.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.models.bounds import check_data, check_floats, check_integers
from airlock.models.model import Model, Scorer, Tensors

PREFIX = "network."


@dataclass(frozen=True)
class NetworkModel(Model):
    """A classifier that is a network on encoded records.

    Attributes:
        network: its name in airlock/models/papers/networks.py.
        state: its weights.
    """

    network: str = ""
    state: Tensors = field(default_factory=dict)

    @property
    def reconstructs(self) -> bool:
        """Its scores are records, not classes."""
        return self.network.partition(":")[0].endswith("autoencoder")

    def scorer(self) -> Scorer:
        """What gives a batch its scores: the network with its weights."""
        import torch

        module = self.module()

        def scores(records: NDArray[Any]) -> NDArray[np.float64]:
            with torch.no_grad():
                found: NDArray[np.float64] = module(torch.from_numpy(scaled(records))).double().numpy()
            return found

        return scores

    def check(self) -> None:
        """Look at name, types, shapes and ranges; the network is laid out without any memory to compare with.

        Raises:
            ValueError: this is no model.
        """
        from airlock.models.papers.networks import state_shapes

        check_data(self.kind, self.shape, self.labels)
        wanted = state_shapes(self.network, self.shape, len(self.labels))
        if set(wanted) != set(self.state):
            raise ValueError("the weights are not those of the network")
        for name, shape in wanted.items():
            value = np.asarray(self.state[name])
            # A file has no numbers without a dimension.
            shape = shape or value.shape if value.size == 1 else shape
            (check_integers if value.dtype == np.int64 else check_floats)(value, shape)

    def module(self) -> Any:
        """The network with its weights, for use."""
        import torch

        from airlock.models.papers.networks import build

        module = build(self.network, self.shape, len(self.labels), seed=0)
        module.load_state_dict(
            {name: torch.from_numpy(np.array(value)) for name, value in self.state.items()}
        )
        return module.eval()

    def tensors(self) -> dict[str, NDArray[Any]]:
        """For model.safetensors."""
        return {PREFIX + name: np.asarray(value) for name, value in self.state.items()}

    def describe(self) -> dict[str, Any]:
        """For model.json."""
        return {**super().describe(), "network": self.network}


def network_model(
    network: str, data: Mapping[str, Any], tensors: Tensors, document: Mapping[str, Any] | None = None
) -> NetworkModel:
    """A model from the name of its network, what the data are like, and tensors whose names begin with
    `network.`.
    """
    state = {name.removeprefix(PREFIX): value for name, value in tensors.items() if name.startswith(PREFIX)}
    return NetworkModel(
        "",
        data["kind"],
        tuple(data["shape"]),
        tuple(data["labels"]),
        [],
        [],
        dict(document or {}),
        network=network,
        state=state,
    )


def scaled(records: NDArray[Any]) -> NDArray[np.float32]:
    """Encoded records as networks take them: pixels from 0..255 to [0, 1], tables as they are."""
    pixels = records.dtype == np.uint8
    return records.astype(np.float32) / np.float32(255 if pixels else 1)
