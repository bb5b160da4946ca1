"""The boundary picture shows every stage in its room, everything that passes, and every breach."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from airlock.evidence.edges import RECORDS_NODE, answer, describe, edges, rooms
from airlock.evidence.picture import mermaid, picture
from airlock.evidence.revisions import load_graph
from airlock.evidence.zones import Graph, parse

ROOT = Path(__file__).parents[2]
SPACE = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def graph() -> Graph:
    return load_graph(ROOT)


def pipeline(**stages: str) -> Graph:
    """A graph from `name: "zone: dep dep -> out out"`."""
    lines = ["stages:"]
    for name, text in stages.items():
        zone, rest = text.split(":")
        deps, outs = rest.split("->")
        meta = f"meta: {{zone: {zone}}}, " if zone else ""
        lines.append(
            f"  {name}: {{cmd: airlock run {name}, {meta}deps: [{','.join(deps.split())}], outs: "
            f"[{','.join(outs.split())}]}}"
        )
    return parse("\n".join(lines), "")


def test_every_stage_stands_in_the_room_of_its_zone(graph: Graph) -> None:
    assert {stage.name: room for room, stages in rooms(graph).items() for stage in stages} == {
        stage.name: stage.zone for stage in graph
    }


def test_the_shipped_pipeline_passes_raw_to_sealed_to_released_to_open(graph: Graph) -> None:
    found = edges(graph)
    assert [(edge.source, edge.label) for edge in found if edge.target == "ingest"] == [(RECORDS_NODE, "raw")]
    assert {edge.label for edge in found if edge.target in ("relevance", "release")} <= {"sealed", "released"}
    assert {edge.label for edge in found if edge.target == "train"} == {"released"}
    assert not [edge for edge in found if edge.breach]


@pytest.mark.parametrize(
    ("stages", "breach"),
    [
        (
            {
                "ingest": "sensitive: data/handles/a -> data/sealed",
                "train": "open: data/sealed -> data/model",
            },
            ("ingest", "train", "sealed"),
        ),
        ({"train": "open: data/raw/a.csv -> data/model"}, (RECORDS_NODE, "train", "raw")),
        ({"train": "open: data/handles/a -> data/model"}, (RECORDS_NODE, "train", "raw")),
        ({"release": "release: data/handles/a -> data/released/a"}, (RECORDS_NODE, "release", "raw")),
        (
            {"lost": ": stages -> data/odd", "train": "open: data/odd -> data/model"},
            ("lost", "train", "sealed"),
        ),
    ],
)
def test_what_a_zone_may_not_read_is_drawn_as_a_breach(
    stages: dict[str, str], breach: tuple[str, str, str]
) -> None:
    graph = pipeline(**stages)
    assert [(edge.source, edge.target, edge.label) for edge in edges(graph) if edge.breach] == [breach]
    assert 'class="arrow breach"' in picture(graph)
    assert "BREACH" in mermaid(graph)


def test_code_and_schemas_are_not_drawn() -> None:
    graph = pipeline(ingest="sensitive: data/handles/a data/schemas/a.yaml airlock/inside -> data/sealed")
    assert [edge.paths for edge in edges(graph)] == [("data/handles/a",)]


def test_a_stage_without_a_zone_has_a_room_of_its_own() -> None:
    graph = pipeline(lost=": stages -> data/odd")
    assert [stage.name for stage in rooms(graph)["unknown"]] == ["lost"]
    assert "No zone" in picture(graph)
    assert 'unknown["No zone' in mermaid(graph)


def test_the_svg_is_well_formed_and_names_every_stage(graph: Graph) -> None:
    root = ElementTree.fromstring(picture(graph))
    words = {text.text for text in root.iter(f"{SPACE}text")}
    assert {stage.name for stage in graph} <= words
    assert root.get("role") == "img"
    assert "Stages that could read records: ingest, relevance, release, evaluate-private." in str(
        root.get("aria-label")
    )


def test_the_svg_keeps_every_box_inside_and_apart(graph: Graph) -> None:
    root = ElementTree.fromstring(picture(graph))
    _, _, width, height = map(float, str(root.get("viewBox")).split())
    boxes = [rect for rect in root.iter(f"{SPACE}rect") if str(rect.get("class")).startswith("box")]
    corners = [tuple(float(str(box.get(name))) for name in ("x", "y", "width", "height")) for box in boxes]
    assert len(corners) == len(graph.stages)
    assert all(x >= 0 and y >= 0 and x + w <= width and y + h <= height for x, y, w, h in corners)
    apart = [
        one[0] + one[2] <= other[0]
        or other[0] + other[2] <= one[0]
        or one[1] + one[3] <= other[1]
        or other[1] + other[3] <= one[1]
        for index, one in enumerate(corners)
        for other in corners[:index]
    ]
    assert all(apart)


def test_the_picture_loads_nothing_and_is_the_same_every_time(graph: Graph) -> None:
    drawn = picture(graph)
    assert drawn == picture(graph)
    assert not any(
        word in drawn.replace('xmlns="http://www.w3.org/2000/svg"', "")
        for word in ("http", "url(", "href", "@import", "<script")
    )


def test_names_from_dvc_yaml_are_escaped() -> None:
    graph = parse("stages:\n  '<b>\"x': {cmd: a, meta: {zone: open}, desc: '<i>', outs: [data/a]}", "")
    ElementTree.fromstring(picture(graph))
    assert "<b>" not in picture(graph)
    assert "['\"" not in mermaid(graph)


def test_a_box_says_what_the_audit_found(graph: Graph) -> None:
    audit = [
        {
            "name": "release",
            "could_read_raw": False,
            "could_read_sealed": True,
            "did_read_records": "yes",
            "passes": 3,
        }
    ]
    assert describe(graph.stage("release"), audit) == ("could read: sealed", "did read: yes, 3 passes", True)
    assert "did read: yes, 3 passes" in picture(graph, audit)


def test_without_an_audit_a_box_says_only_what_its_zone_allows(graph: Graph) -> None:
    assert describe(graph.stage("train"), []) == ("may read: no records", "", False)
    assert describe(graph.stage("ingest"), []) == ("may read: raw records", "", True)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (None, "unknown"),
        ("unknown", "unknown"),
        ("no", "no"),
        (False, "no"),
        (True, "yes"),
        ("not run", "not run"),
    ],
)
def test_no_is_said_only_where_something_watched(found: object, words: str) -> None:
    assert answer(found) == words


def test_mermaid_uses_ids_that_no_stage_name_can_break() -> None:
    text = mermaid(pipeline(end="open: stages -> data/a", graph="open: data/a -> data/b"))
    assert 'stage0["end"]' in text
    assert 'stage0 -->|"open"| stage1' in text
