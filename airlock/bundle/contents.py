"""An unpacked bundle as values: its graph, the receipts that bear witness to it, its releases and ledgers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from airlock.bundle import LEDGER
from airlock.bundle.extract import Extract, read
from airlock.evidence import checker, zones
from airlock.evidence.checker import Evidence
from airlock.evidence.receipts import Receipt
from airlock.evidence.revisions import Tree, Workspace
from airlock.inside import manifest
from airlock.inside.manifest import Manifest

NAMES = {False: "real.json", True: "scratch.json"}


def made_in(tree: Tree, graph: zones.Graph) -> dict[str, Mapping[str, Any]]:
    """What dvc.lock says of the stages that there are; it may remember others that dvc.yaml no longer has."""
    return {name: locked for name, locked in checker.lock_of(tree).items() if name in graph.stages}


@dataclass(frozen=True)
class Contents:
    """What lies below `root`, a bundle's top folder."""

    root: Path

    @property
    def tree(self) -> Tree:
        """As the audit wants it."""
        return Workspace(self.root, name="bundle", compiled=True)

    @cached_property
    def evidence(self) -> Evidence:
        """As the checker wants it."""
        return Evidence(self.tree)

    @property
    def graph(self) -> zones.Graph:
        """The stages."""
        return self.evidence.graph

    @cached_property
    def lock(self) -> Mapping[str, Mapping[str, Any]]:
        """What was made, by stage."""
        return made_in(self.tree, self.graph)

    @property
    def witnesses(self) -> dict[str, Receipt]:
        """For each stage that was run, the newest believable receipt with the hashes in dvc.lock."""
        return self.evidence.witnesses

    @cached_property
    def releases(self) -> dict[str, Manifest]:
        """Every release that was made, by its path. Files are checked against release.json."""
        outs = [
            out
            for stage in self.graph
            if stage.zone == "release" and stage.name in self.lock
            for out in stage.outs
        ]
        loaded = {out: manifest.load(self.root / out) for out in outs}
        return {out: made for out, made in loaded.items() if made.applies}

    @cached_property
    def extracts(self) -> dict[bool, Extract]:
        """Ledgers, by whether they are scratch."""
        return {
            scratch: read(path)
            for scratch, name in NAMES.items()
            if (path := self.root / LEDGER / name).exists()
        }

    def stages(self, zone: str) -> list[zones.Stage]:
        """The stages of a room that were run and made something, each after those that it builds on."""
        made = [stage for stage in self.graph if stage.name in self.lock and stage.outs]
        waiting = [stage for stage in made if stage.zone == zone]
        ordered: list[zones.Stage] = []
        while waiting:
            ready = [
                stage for stage in waiting if not any(self._builds_on(stage, other) for other in waiting)
            ]
            ordered += ready or waiting
            waiting = [stage for stage in waiting if stage not in ordered]
        return ordered

    def _builds_on(self, stage: zones.Stage, other: zones.Stage) -> bool:
        return stage is not other and any(
            zones.overlaps(dep, out) for dep in stage.deps for out in other.outs
        )
