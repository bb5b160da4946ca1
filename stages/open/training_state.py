"""A training at rest: network, optimiser and curve as tensors of a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stages.checkpoints import Checkpoint


class TrainingState:
    """What `descend` keeps and goes on from, epoch by epoch."""

    def __init__(self, folder: Path | None, identity: str) -> None:
        self._checkpoint = Checkpoint(folder, identity)

    def keep(self, network: Any, optimiser: Any, curve: Sequence[tuple[int, float]]) -> None:
        """Keep network, optimiser and curve."""
        import torch

        state = {f"network.{name}": value for name, value in network.state_dict().items()}
        for index, one in optimiser.state_dict()["state"].items():
            state |= {f"optimiser.{index}.{name}": torch.as_tensor(value) for name, value in one.items()}
        state["curve"] = torch.tensor(curve, dtype=torch.float64)
        self._checkpoint.keep(len(curve), state)

    def resume(self, network: Any, optimiser: Any, epochs: int) -> list[tuple[int, float]]:
        """Put the last progress back and return its curve; empty for a fresh start, also where it went
        further than is wanted.
        """
        kept = self._checkpoint.resume()
        if kept is None or kept[0] > epochs:
            return []
        state = kept[1]
        network.load_state_dict(
            {
                name.removeprefix("network."): value
                for name, value in state.items()
                if name.startswith("network.")
            }
        )
        parts: dict[int, dict[str, Any]] = {}
        for name, value in state.items():
            if name.startswith("optimiser."):
                _, index, field = name.split(".", 2)
                parts.setdefault(int(index), {})[field] = value
        optimiser.load_state_dict({"state": parts, "param_groups": optimiser.state_dict()["param_groups"]})
        return [(int(epoch), float(loss)) for epoch, loss in state["curve"].tolist()]
