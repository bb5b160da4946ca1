"""What passes between the stages, and between which rooms: the facts behind the boundary picture.

`evidence.picture` draws them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airlock.evidence.zones import LABEL_OF_ZONE, RECORDS, ZONES, Graph, Stage

RECORDS_NODE = ""
ENTRANTS = {
    "sensitive": ("raw", "sealed", "released", "open"),
    "release": ("sealed", "released", "open"),
    "open": ("released", "open"),
}
ROOMS = {
    "sensitive": ("Room 1: sensitive", "may read raw records"),
    "release": ("Room 2: the airlock", "may read sealed records"),
    "open": ("Room 3: open", "never sees a record"),
    "unknown": ("No zone", "may not run"),
}


@dataclass(frozen=True)
class Edge:
    """Something that one stage makes and another reads.

    The source is RECORDS_NODE where it comes from outside.
    """

    source: str
    target: str
    label: str
    paths: tuple[str, ...]
    breach: bool


def edges(graph: Graph) -> list[Edge]:
    """Everything that passes between stages, in the order of dvc.yaml; `breach` marks what the zone does not
    allow.
    """
    found: dict[tuple[str, str, str], list[str]] = {}
    for stage in graph:
        for dep in stage.deps:
            for source, label in _origins(dep, stage, graph):
                found.setdefault((source, stage.name, label), []).append(dep)
    return [
        Edge(
            source,
            target,
            label,
            tuple(paths),
            label not in ENTRANTS.get(graph.stages[target].zone or "", ()),
        )
        for (source, target, label), paths in found.items()
    ]


def _origins(dep: str, stage: Stage, graph: Graph) -> Iterable[tuple[str, str]]:
    makers = [maker for maker in graph.makers(dep) if maker.name != stage.name]
    if makers:
        return [(maker.name, LABEL_OF_ZONE.get(maker.zone or "", "sealed")) for maker in makers]
    # A handle stands in for the raw file, which only the broker knows.
    label = "raw" if dep.startswith("data/handles") else graph.label(dep)
    return [(RECORDS_NODE, label)] if label in RECORDS else []


def room_of(stage: Stage) -> str:
    """The room that a stage is drawn in; "unknown" for one without a zone."""
    return stage.zone if stage.zone in ZONES else "unknown"


def rooms(graph: Graph) -> dict[str, list[Stage]]:
    """The stages of each room. The three rooms are always there; "unknown" only where it is needed."""
    inside: dict[str, list[Stage]] = {zone: [] for zone in ZONES}
    for stage in graph:
        inside.setdefault(room_of(stage), []).append(stage)
    return inside


def describe(stage: Stage, audit: Sequence[Mapping[str, Any]]) -> tuple[str, str, bool]:
    """Two short lines about a stage (could it read records, did it) and whether it could."""
    row = next((row for row in audit if row.get("name") == stage.name), None)
    if row is None:
        could = {"sensitive": "raw records", "release": "sealed records", "open": "no records"}.get(
            stage.zone or "", "unknown"
        )
        return f"may read: {could}", "", stage.zone != "open"
    kinds = [kind for kind in RECORDS if row.get(f"could_read_{kind}")]
    could = f"could read: {' + '.join(kinds) or 'no records'}"
    return could, f"did read: {answer(row.get('did_read_records'), row.get('passes'))}", bool(kinds)


def answer(did_read: Any, passes: Any = None) -> str:
    """Whether records were read, in words; never "no" where nothing watched."""
    if did_read in (True, "yes"):
        return "yes" + (
            f", {passes} pass{'' if passes == 1 else 'es'}" if isinstance(passes, int) and passes else ""
        )
    if did_read in ("not run", "running"):
        return str(did_read)
    return "no" if did_read in (False, "no") else "unknown"
