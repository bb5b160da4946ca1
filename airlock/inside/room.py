"""What a confined stage is given: its parameters, its paths, its keys, and one pipe to speak through."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from airlock.errors import BoundaryError
from airlock.inside.connection import Exchange
from airlock.params import Params

Item = TypeVar("Item")
Event = Mapping[str, Any]


def _silent(event: Event) -> None:
    """Where no broker listens."""


@dataclass(frozen=True)
class Room:
    """One stage's view of the world. Everything that it may touch is in here.

    Attributes:
        stage: name of the stage in dvc.yaml.
        params: the whole of params.yaml, already checked.
        facts: public facts from the broker (release ids, plans, dataset's public metadata, ledger totals).
        keys: the keys that this one stage needs, by name; never a master key.
        paths: each dep and out declared in dvc.yaml, and where it is inside the sandbox.
        send: passes an event (progress, note) to the broker.
        connection: the one granted connection, to a cluster (`release.engine: dask`); None for every other
            stage.
    """

    stage: str
    params: Params
    facts: Mapping[str, Any] = field(default_factory=dict)
    keys: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    paths: Mapping[str, Path] = field(default_factory=dict)
    send: Callable[[Event], None] = _silent
    connection: Exchange | None = None

    def path(self, declared: str) -> Path:
        """Where a declared dep or out is inside the sandbox."""
        try:
            return self.paths[declared]
        except KeyError:
            raise BoundaryError(
                f"stage '{self.stage}' did not declare '{declared}': add it to its deps or outs in dvc.yaml"
            ) from None

    def note(self, message: str, **details: Any) -> None:
        """Write to the owner's log. Value-dependent figures belong here and nowhere else."""
        self.send({"kind": "note", "message": message, **details})

    def progress(self, items: Iterable[Item], *, label: str, total: int) -> Iterator[Item]:
        """Yield from `items`, telling the broker how far the work has come."""
        for done, item in enumerate(items):
            self.send({"kind": "progress", "label": label, "done": done, "total": total})
            yield item
        self.send({"kind": "progress", "label": label, "done": total, "total": total})
