"""What the report page is made from: whatever the other stages left, read once.

Anything missing is an empty value.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airlock.compare.published import PublishedTables
from airlock.compare.published import read as read_published
from airlock.inside import manifest
from airlock.inside.digests import sha256_path, walk
from airlock.inside.manifest import Manifest
from airlock.inside.room import Room
from airlock.models import explained
from airlock.models.explained import Explanation
from airlock.params import Params
from airlock.privacy.guarantees import Guarantee

RELEASED, CODE = "data/released/", "stages/open/report/"
ORDER_OF_RELEASES = ("relevance", "release", "evaluation", "holdout", "reference")
# Doors that public records pass unchanged: no privacy is claimed for them, so they are not part of any total.
WEIGHTS = "relevance"
"""The mechanism of a release that weighs features."""
DOORS = ("holdout", "reference")


@dataclass(frozen=True)
class PageInput:
    """One input of the page."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Findings:
    """Everything that the page may speak about."""

    params: Params
    model: Mapping[str, Any]
    neurons: int | None
    train: Mapping[str, Any]
    evaluate: Mapping[str, Any]
    attacked: Mapping[str, Guarantee]
    releases: Mapping[str, Manifest]
    curve: Sequence[tuple[float, float]]
    relevance: Sequence[tuple[str, float]]
    relevance_grid: Sequence[Sequence[float]]
    explanation: Explanation | None
    picture: str | None
    audit: Sequence[Mapping[str, Any]]
    budget: Mapping[str, Any] | None
    nights: Mapping[str, Any] | None
    published: PublishedTables
    files: Sequence[PageInput]

    @property
    def priced(self) -> dict[str, Manifest]:
        """The releases that a guarantee was priced for, by name."""
        return {name: found for name, found in self.releases.items() if found.applies and name not in DOORS}


def gather(room: Room) -> Findings:
    """Read every input that this stage was given.

    Raises:
        ReleaseError: a release is not what its manifest says. A page must not show such a thing as if it were
            fine.
    """
    releases = {
        name: manifest.load(folder) for name, folder in _released(room) if (folder / manifest.NAME).exists()
    }
    evidence = _read_json(find(room, "data/metrics/attack.json")).get("attacked") or {}
    relevance = find(room, RELEASED + "relevance")
    scores, grid = (
        read_relevance(relevance, releases["relevance"])
        if relevance and "relevance" in releases
        else ([], [])
    )
    return Findings(
        params=room.params,
        model=_read_json(find(room, "data/model/model.json")),
        neurons=read_neurons(find(room, "data/model/model.safetensors")),
        train=_read_json(find(room, "data/metrics/train.json")),
        # A private evaluation is made after the pipeline, by the owner alone; the runner tells of it.
        evaluate={
            **_read_json(find(room, "data/metrics/evaluate.json")),
            **(room.facts.get("evaluation") or {}),
        },
        attacked={name: Guarantee.from_json(document) for name, document in sorted(evidence.items())},
        releases=releases,
        curve=read_curve(find(room, "data/plots/learning_curve.csv")),
        relevance=scores,
        relevance_grid=grid,
        explanation=read_explanation(find(room, "data/model/relevance.parquet")),
        picture=room.facts.get("picture"),
        audit=room.facts.get("audit") or [],
        budget=room.facts.get("budget"),
        nights=room.facts.get("nights"),
        published=read_published(find(room, CODE + "published.csv"), find(room, CODE + "attacks.csv")),
        files=list_files(room),
    )


def find(room: Room, path: str) -> Path | None:
    """Where `path` is, if it lies at or below a path that the stage declares and if it is there."""
    for declared, place in room.paths.items():
        if path == declared or path.startswith(declared.rstrip("/") + "/"):
            found = place / path[len(declared) :].lstrip("/") if path != declared else place
            if found.exists():
                return found
    return None


def _released(room: Room) -> list[tuple[str, Path]]:
    found = {
        path.removeprefix(RELEASED): place for path, place in room.paths.items() if path.startswith(RELEASED)
    }
    return [
        (name, found[name])
        for name in (*ORDER_OF_RELEASES, *sorted(found.keys() - set(ORDER_OF_RELEASES)))
        if name in found
    ]


def _read_json(path: Path | None) -> Mapping[str, Any]:
    if path is None:
        return {}
    document = json.loads(path.read_text())
    return document if isinstance(document, dict) else {}


def read_curve(path: Path | None) -> list[tuple[float, float]]:
    """The (epoch, loss) pairs of a learning curve; rows that hold no figures are left out."""
    if path is None:
        return []
    with path.open(newline="") as file:
        points = [(_figure(row.get("epoch")), _figure(row.get("loss"))) for row in csv.DictReader(file)]
    return [point for point in points if all(map(math.isfinite, point))]


def _figure(text: str | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return math.nan


def read_neurons(path: Path | None) -> int | None:
    """How many released neurons lie between a model's features and its layers; None where there are none."""
    if path is None:
        return None
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as tensors:
        known = "neurons" in set(tensors.keys())
        return int(tensors.get_slice("neurons").get_shape()[1]) if known else None


def read_explanation(path: Path | None) -> Explanation | None:
    """What the train stage wrote beside its model about the inputs."""
    return None if path is None else explained.read(path)


def read_relevance(folder: Path, made: Manifest) -> tuple[list[tuple[str, float]], list[list[float]]]:
    """Relevance of each column, largest first, and as a picture where the records are images.

    The release holds relevance.safetensors with one tensor `relevance`: one value a column, whose names are
    in `details.columns`, or (height, width) or (height, width, channels) values for images; channels are
    added up.
    """
    path = folder / "relevance.safetensors"
    if not path.exists() or made.mechanism != WEIGHTS:
        return [], []
    from safetensors.numpy import load_file

    values = load_file(path)["relevance"]
    if values.ndim > 1:
        return [], [
            [float(value) for value in row] for row in values.reshape(*values.shape[:2], -1).sum(axis=2)
        ]
    names = [
        str(name)
        for name in made.details.get("columns") or (f"column {index}" for index in range(len(values)))
    ]
    scores = [(name, float(value)) for name, value in zip(names, values, strict=True)]
    return sorted(scores, key=lambda score: (-abs(score[1]), score[0])), []


def list_files(room: Room) -> list[PageInput]:
    """Every file that the stage could read, code excepted, with its hash."""
    outs = {path for path in room.paths if path.startswith("data/report")}
    listed = []
    for declared, place in sorted(room.paths.items()):
        if declared in outs or declared.startswith(("airlock", "stages")) or not place.exists():
            continue
        inside = walk(place) if place.is_dir() else [("", place)]
        listed += [
            PageInput(f"{declared}/{name}".rstrip("/"), path.stat().st_size, sha256_path(path))
            for name, path in inside
        ]
    return listed
