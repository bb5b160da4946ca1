"""The release stage: the mechanism's release, and the two doors for public data (a holdout to judge on, a
reference to compare with).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.errors import ReleaseError
from airlock.inside import manifest
from airlock.inside.nights import Nights
from airlock.inside.room import Room
from airlock.inside.sealed import FILES, SealedReader
from airlock.models.features import encoder
from airlock.models.features.choice import is_colour, settle_mechanism
from airlock.params import Params
from airlock.privacy.plan import Facts, Plan
from airlock.storage import load_tensors, save_tensors
from stages import mechanisms
from stages.mechanisms import Released
from stages.release import doors

RELEASE, HOLDOUT, REFERENCE = "data/released/release", "data/released/holdout", "data/released/reference"
TENSORS, RELEVANCE_TENSORS = "release.safetensors", "relevance.safetensors"
WEIGHTS = "relevance"
"""The mechanism that releases weights of features (stages/release/relevance.py)."""
OTHER_PARAMETERS = "data/released/relevance is of other parameters: run `dvc repro relevance`"
Maker = Callable[[Room, Facts, Path, str], dict[str, Any]]


def plans(params: Params, facts: Facts) -> dict[str, Plan]:
    """What would be released, priced."""
    params = settle_mechanism(params, facts.kind, colour=is_colour(facts))
    mechanisms.check_offered(params, facts)
    return {
        RELEASE: mechanisms.mechanism(params.release.mechanism).plan(params, facts),
        HOLDOUT: doors.plan_holdout(params, facts),
        REFERENCE: doors.plan_reference(params, facts),
    }


def main(room: Room) -> None:
    """Make the releases that were ordered."""
    encoder.look_in(room.paths)
    facts = facts_of(room)
    room = settled(room, facts)
    priced = plans(room.params, facts)
    makers: dict[str, Maker] = {RELEASE: make, HOLDOUT: doors.make_holdout, REFERENCE: doors.make_reference}
    for out, order in room.facts["releases"].items():
        folder = room.path(out)
        folder.mkdir(parents=True, exist_ok=True)
        details = makers[out](room, facts, folder, order["id"])
        manifest.write(folder, plan=priced[out], facts=facts, release_id=order["id"], details=details)


def make(room: Room, facts: Facts, folder: Path, release_id: str) -> dict[str, Any]:
    """The mechanism's own release, with the public facts that training needs."""

    def tick(done: int, total: int) -> None:
        room.send({"kind": "progress", "label": "step", "done": done, "total": total})

    half = mechanisms.mechanism(room.params.release.mechanism)
    with open_sealed(room, "train") as reader:
        tensors, details = half.make(
            room.params,
            facts,
            reader,
            key=room.keys[f"noise:{RELEASE}"],
            release_id=release_id,
            weights=released_weights(room),
            relevance=released_relevance(room, half, facts),
            connection=room.connection,
            tick=tick,
            checkpoint=room.paths.get("checkpoint"),
            nights=nights_of(room, release_id),
        )
    save_released(folder / TENSORS, tensors)
    horizon = {"horizon": room.facts["horizon"]} if "horizon" in room.facts else {}
    data = {
        "kind": facts.kind,
        "n": room.facts["horizon"]["records"] if horizon else facts.n,
        "shape": list(facts.shape),
        "labels": list(facts.labels),
        "schema": facts.schema,
    }
    return {"data": data, **horizon, **details}


def nights_of(room: Room, release_id: str) -> Nights | None:
    """What earlier nights have left, with `release.horizon`."""
    if "horizon" not in room.facts:
        return None
    told = room.facts["horizon"]
    return Nights(
        horizon=told["id"],
        night=told["night"],
        nights=told["nights"],
        former=told["former"],
        release_id=release_id,
        key=room.keys["nights"],
        folder=room.paths.get("horizon"),
        missing=tuple(told["missing"]),
    )


def save_released(path: Path, tensors: Mapping[str, NDArray[Any]]) -> None:
    """Write tensors that are about to leave.

    What is looked at here has its noise already, so that refusing tells nothing more about a record.

    Raises:
        ReleaseError: a number is not finite.
    """
    if not all(bool(np.isfinite(value).all()) for value in tensors.values()):
        raise ReleaseError(manifest.NOT_FINITE)
    save_tensors(path, tensors)


def settled(room: Room, facts: Facts) -> Room:
    """The same room, with the mechanism by name in its parameters."""
    return replace(room, params=settle_mechanism(room.params, facts.kind, colour=is_colour(facts)))


def facts_of(room: Room) -> Facts:
    """The public facts that the broker sent."""
    return Facts.from_json(room.facts["facts"])


def open_sealed(room: Room, role: str) -> SealedReader:
    """The sealed records of a role ("train" or "holdout")."""
    return SealedReader(room.path("data/sealed") / FILES[role], room.keys[f"seal:{role}"])


def released_weights(room: Room) -> NDArray[np.float64] | None:
    """Feature weights of the relevance release, or None where there are none.

    Raises:
        ReleaseError: it is not a release of weights.
    """
    if not room.params.relevance.weighs:
        return None
    tensors, made = _load_relevance(room)
    if made.mechanism != WEIGHTS:
        raise ReleaseError(OTHER_PARAMETERS)
    weights: NDArray[np.float64] = tensors["weights"]
    return weights


def released_relevance(room: Room, half: mechanisms.Mechanism, facts: Facts) -> Released | None:
    """What the mechanism's relevance stage released, or None where it releases nothing.

    Raises:
        ReleaseError: it was made with other parameters than this release builds on.
    """
    if (plan := half.relevance(room.params, facts)) is None:
        return None
    tensors, made = _load_relevance(room)
    if (made.mechanism, dict(made.parameters)) != (plan.mechanism, manifest.plan_json(plan)["parameters"]):
        raise ReleaseError(OTHER_PARAMETERS)
    return tensors, dict(made.details)


def _load_relevance(room: Room) -> tuple[dict[str, NDArray[Any]], manifest.Manifest]:
    folder = room.path("data/released/relevance")
    made = manifest.load(folder)
    return load_tensors(folder / RELEVANCE_TENSORS), made
