"""Progress of a long computation in a folder, from which an interrupted run goes on as if it had never stopped.

The release room keeps functions of noisy sums only (stages/release/interactive.py), the open room networks and
optimisers (stages/open/training_state.py); both keep tensors under a name of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from airlock.files import replacing

if TYPE_CHECKING:
    from torch import Tensor


class Checkpoint:
    """Tensors at rest, replaced in one step, so that a kill leaves the last good ones; nothing where there is no
    folder.

    Args:
        folder: where, if anywhere.
        identity: of the computation; what another one kept is left alone.
    """

    def __init__(self, folder: Path | None, identity: str) -> None:
        self._path = folder / f"{identity[:32]}.safetensors" if folder else None
        self._identity = identity

    def keep(self, step: int, tensors: Mapping[str, Tensor]) -> None:
        """Keep these, and how far it is, in the place of what was kept before."""
        if self._path is None:
            return
        from safetensors.torch import save_file

        about = {"identity": self._identity, "step": str(step)}
        with replacing(self._path) as fresh:
            save_file(
                {name: value.detach().cpu().contiguous() for name, value in tensors.items()}, fresh, about
            )

    def resume(self) -> tuple[int, dict[str, Tensor]] | None:
        """How far it was and what was kept; None for a fresh start."""
        if self._path is None or not self._path.exists():
            return None
        from safetensors import safe_open

        with safe_open(str(self._path), "pt") as kept:
            about: Mapping[str, str] = kept.metadata() or {}
            if about.get("identity") != self._identity:
                return None
            return int(about["step"]), {name: kept.get_tensor(name) for name in kept.keys()}  # noqa: SIM118
