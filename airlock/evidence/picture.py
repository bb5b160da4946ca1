"""The boundary picture, as Mermaid text and as SVG: rooms, their stages, and what passes between them.

Pure text in, text out. The SVG carries its own colours for light and dark, so it stands alone in a README and
inside the report alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from airlock.evidence.edges import RECORDS_NODE, ROOMS, Edge, describe, edges, room_of, rooms
from airlock.evidence.zones import Graph, Stage

Place = tuple[float, float]
LABEL_OF_TAINT = {
    "raw": "outside git",
    "sealed": "encrypted",
    "released": "noise added",
    "open": "for anyone",
}
BOX_WIDTH, BOX_HEIGHT, ROW = 178, 74, 108
ROOM_WIDTH, GAP, LEFT, HEAD, FOOT = 214, 92, 112, 84, 34
RECORDS_WIDTH, TIP = 96, 9
EYE = '<circle r="12"/><path d="M-8 0Q0 -8 8 0Q0 8 -8 0Z"/><circle class="pupil" r="2.4"/>'

STYLE = Path(__file__).with_name("picture.css")


def mermaid(graph: Graph) -> str:
    """The picture as Mermaid text, which many forges draw by themselves."""
    ids = {stage.name: f"stage{index}" for index, stage in enumerate(graph)} | {RECORDS_NODE: "records"}
    lines = ["flowchart LR", '  records[("raw records")]']
    for room, inside in rooms(graph).items():
        lines += [f'  subgraph {room}["{ROOMS[room][0]} ({ROOMS[room][1]})"]', "    direction TB"]
        lines += [f'    {ids[stage.name]}["{_plain(stage.name)}"]' for stage in inside] + ["  end"]
    for edge in edges(graph):
        arrow = "==>" if edge.breach else "-->"
        lines.append(
            f'  {ids[edge.source]} {arrow}|"{edge.label}{" BREACH" if edge.breach else ""}"| '
            f"{ids[edge.target]}"
        )
    return "\n".join(lines) + "\n"


def _plain(words: str) -> str:
    return words.replace('"', "'").replace("\n", " ")


def picture(graph: Graph, audit: Sequence[Mapping[str, Any]] = ()) -> str:
    """The picture as one SVG element, with the audit's answers in each box where there are any."""
    inside = rooms(graph)
    height = HEAD + FOOT + ROW * max(1, *(len(stages) for stages in inside.values())) - (ROW - BOX_HEIGHT)
    width = _room_left(len(inside))
    places = _places(inside, height)
    columns = {stage.name: column for column, room in enumerate(inside) for stage in inside[room]} | {
        RECORDS_NODE: -1
    }
    parts = [_room(room, column, height) for column, room in enumerate(inside)]
    parts += [_passing(label, column) for column, label in enumerate(LABEL_OF_TAINT)]
    parts.append(_records(height))
    parts += _arrows(edges(graph), places, columns)
    parts += [_box(stage, places[stage.name], *describe(stage, audit)) for stage in graph]
    label = escape(_summary(inside, audit))
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="airlock-graph" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="{label}">'
    )
    return f"{head}<style>{STYLE.read_text()}</style>{''.join(parts)}</svg>"


def _summary(inside: Mapping[str, Sequence[Stage]], audit: Sequence[Mapping[str, Any]]) -> str:
    listed = [
        f"{ROOMS[room][0]} holds {', '.join(stage.name for stage in stages) or 'no stage'}"
        for room, stages in inside.items()
    ]
    readers = [stage.name for stages in inside.values() for stage in stages if describe(stage, audit)[2]]
    return (
        f"Boundary picture. {'; '.join(listed)}. Stages that could read records: "
        f"{', '.join(readers) or 'none'}."
    )


def _room_left(column: int) -> int:
    return LEFT + GAP + column * (ROOM_WIDTH + GAP)


def _centre(height: int) -> float:
    return (HEAD + height - FOOT) / 2


def _places(inside: Mapping[str, Sequence[Stage]], height: int) -> dict[str, Place]:
    """Top left corner of every box: rooms are columns, and each column's boxes are centred."""
    places = {RECORDS_NODE: (float(LEFT - RECORDS_WIDTH), _centre(height) - BOX_HEIGHT / 2)}
    for column, stages in enumerate(inside.values()):
        top = _centre(height) - (ROW * len(stages) - (ROW - BOX_HEIGHT)) / 2
        for index, stage in enumerate(stages):
            places[stage.name] = (_room_left(column) + (ROOM_WIDTH - BOX_WIDTH) / 2, top + index * ROW)
    return places


def _room(room: str, column: int, height: int) -> str:
    left, (name, rule) = _room_left(column), ROOMS[room]
    return (
        f'<rect class="room {room}" x="{left}" y="8" width="{ROOM_WIDTH}" height="{height - 16}" rx="14"/>'
        f'<text class="room-name" x="{left + ROOM_WIDTH / 2:.0f}" y="34">{name}</text>'
        f'<text class="room-rule" x="{left + ROOM_WIDTH / 2:.0f}" y="53">{rule}</text>'
    )


def _passing(label: str, column: int) -> str:
    middle = _room_left(column) - GAP / 2
    return (
        f'<rect class="pill {label}" x="{middle - 38:.0f}" y="19" width="76" height="22" rx="11"/>'
        f'<text class="pill-name" x="{middle:.0f}" y="34">{label}</text>'
        f'<text class="room-rule" x="{middle:.0f}" y="57">{LABEL_OF_TAINT[label]}</text>'
    )


def _records(height: int) -> str:
    left, middle, half = LEFT - RECORDS_WIDTH, _centre(height), BOX_HEIGHT / 2
    right, top, bottom, curve = (
        LEFT,
        middle - half + 10,
        middle + half - 10,
        f"A{RECORDS_WIDTH / 2:.0f} 10 0 0",
    )
    barrel = f"M{left} {top:.0f}V{bottom:.0f}{curve} 0 {right} {bottom:.0f}V{top:.0f}"
    lid = f"M{left} {top:.0f}{curve} 1 {right} {top:.0f}{curve} 1 {left} {top:.0f}Z"
    words = left + RECORDS_WIDTH / 2
    return (
        f'<path class="records" d="{barrel}"/><path class="records" d="{lid}"/>'
        f'<text class="name" x="{words:.0f}" y="{middle + 10:.0f}">records</text>'
        f'<text class="fact" x="{words:.0f}" y="{middle + 26:.0f}">raw file</text>'
    )


def _box(stage: Stage, place: Place, could: str, did: str, reader: bool) -> str:
    (x, y), middle = place, place[0] + BOX_WIDTH / 2
    name = stage.name if len(stage.name) <= 17 else stage.name[:16] + "…"
    facts = [
        f'<text class="fact" x="{middle:.0f}" y="{y + 46 + 17 * row:.0f}">{escape(line)}</text>'
        for row, line in enumerate((could, did))
    ]
    eye = (
        f'<g class="eye" transform="translate({x + BOX_WIDTH - 10:.0f} {y + 2:.0f})">{EYE}</g>'
        if reader
        else ""
    )
    tip = f"{stage.name}: {stage.description}" if stage.description else stage.name
    return (
        f"<g><title>{escape(tip)}</title>"
        f'<rect class="box {room_of(stage)}" x="{x:.0f}" y="{y:.0f}" width="{BOX_WIDTH}" '
        f'height="{BOX_HEIGHT}" rx="9"/>'
        f'<text class="name" x="{middle:.0f}" y="{y + 26:.0f}">{escape(name)}</text>{"".join(facts)}{eye}</g>'
    )


def _arrows(found: Sequence[Edge], places: Mapping[str, Place], columns: Mapping[str, int]) -> list[str]:
    crossing = [edge for edge in found if columns[edge.source] != columns[edge.target]]
    ports = _ports(crossing, places)
    drawn = [
        _arrow(edge, *_within(places[edge.source], places[edge.target]))
        for edge in found
        if edge not in crossing
    ]
    for edge in crossing:
        width = RECORDS_WIDTH if edge.source == RECORDS_NODE else BOX_WIDTH
        forward = columns[edge.source] < columns[edge.target]
        x1 = places[edge.source][0] + (width if forward else 0)
        x2 = places[edge.target][0] + (-TIP if forward else BOX_WIDTH + TIP)
        y1, y2, bend = ports[edge, "source"], ports[edge, "target"], (x2 - x1) / 2
        curve = f"M{x1:.0f} {y1:.0f}C{x1 + bend:.0f} {y1:.0f} {x2 - bend:.0f} {y2:.0f} {x2:.0f} {y2:.0f}"
        drawn.append(_arrow(edge, curve, f"M{x2:.0f} {y2 - 5:.0f}v10l{TIP if forward else -TIP} -5Z"))
    return drawn


def _ports(crossing: Sequence[Edge], places: Mapping[str, Place]) -> dict[tuple[Edge, str], float]:
    """Heights at which arrows leave and reach the sides of boxes: each has its own, so that none hides
    another.
    """
    ports: dict[tuple[Edge, str], float] = {}
    for end, other in (("source", "target"), ("target", "source")):
        groups: dict[str, list[Edge]] = {}
        for edge in sorted(crossing, key=lambda edge: places[getattr(edge, other)][1]):
            groups.setdefault(getattr(edge, end), []).append(edge)
        for name, group in groups.items():
            for index, edge in enumerate(group, start=1):
                ports[edge, end] = places[name][1] + BOX_HEIGHT * index / (len(group) + 1)
    return ports


def _within(source: Place, target: Place) -> tuple[str, str]:
    """Line and tip from box to box in one room: straight down to the next, else around the right side."""
    middle, below, top = source[0] + BOX_WIDTH / 2, source[1] + BOX_HEIGHT, target[1] - TIP
    if 0 < target[1] - source[1] <= ROW:
        return f"M{middle:.0f} {below:.0f}V{top:.0f}", f"M{middle - 5:.0f} {top:.0f}h10l-5 {TIP}Z"
    right, start, end = source[0] + BOX_WIDTH, source[1] + BOX_HEIGHT / 2, target[1] + BOX_HEIGHT / 2
    curve = (
        f"M{right:.0f} {start:.0f}C{right + 18:.0f} {start:.0f} {right + 18:.0f} {end:.0f} "
        f"{right + TIP:.0f} {end:.0f}"
    )
    return curve, f"M{right + TIP:.0f} {end - 5:.0f}v10l-{TIP} -5Z"


def _arrow(edge: Edge, line: str, tip: str) -> str:
    """One arrow. Its tip is a shape of our own: SVG markers need ids, which clash when two pictures share a
    page.
    """
    kind = "breach" if edge.breach else edge.label
    words = (
        f"{edge.source or 'raw records'} to {edge.target}, "
        f"{edge.label}{' (breach)' if edge.breach else ''}: {', '.join(edge.paths)}"
    )
    return (
        f'<g><title>{escape(words)}</title><path class="arrow {kind}" d="{line}"/><path class="tip '
        f'{kind}" d="{tip}"/></g>'
    )
