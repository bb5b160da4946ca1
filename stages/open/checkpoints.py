"""Progress of a training in a folder, from which an interrupted run goes on as if it had never stopped."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class Checkpoint:
    """Progress in a folder: network, optimiser and curve, replaced in one step, so that a kill leaves the
    last good one.
    """

    def __init__(self, folder: Path | None, identity: str) -> None:
        self._path = folder / f"{identity[:32]}.safetensors" if folder else None

    def keep(self, network: Any, optimiser: Any, curve: Sequence[tuple[int, float]]) -> None:
        """Write network, optimiser and curve; without a folder, nothing."""
        if not self._path:
            return
        import torch
        from safetensors.torch import save_file

        state = {
            f"network.{name}": value.detach().cpu().contiguous()
            for name, value in network.state_dict().items()
        }
        for index, one in optimiser.state_dict()["state"].items():
            state |= {
                f"optimiser.{index}.{name}": torch.as_tensor(value).detach().cpu().contiguous()
                for name, value in one.items()
            }
        state["curve"] = torch.tensor(curve, dtype=torch.float64)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_suffix(".part")
        save_file(state, temporary)
        os.replace(temporary, self._path)

    def resume(self, network: Any, optimiser: Any, epochs: int) -> list[tuple[int, float]]:
        """Put the last progress back and return its curve; empty for a fresh start, also where it went
        further than is wanted.
        """
        if not self._path or not self._path.exists():
            return []
        from safetensors.torch import load_file

        state = load_file(self._path)
        if len(state["curve"]) > epochs:
            return []
        network.load_state_dict(
            {
                name.removeprefix("network."): value
                for name, value in state.items()
                if name.startswith("network.")
            }
        )
        kept: dict[int, dict[str, Any]] = {}
        for name, value in state.items():
            if name.startswith("optimiser."):
                _, index, field = name.split(".", 2)
                kept.setdefault(int(index), {})[field] = value
        optimiser.load_state_dict({"state": kept, "param_groups": optimiser.state_dict()["param_groups"]})
        return [(int(epoch), float(loss)) for epoch, loss in state["curve"].tolist()]
