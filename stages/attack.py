"""Attacks on the mechanisms, run behind the wall: `airlock attack` asks, and prints what comes back."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from airlock.attack import attack, canary_audit
from airlock.attack.targets import Target
from airlock.inside import manifest
from airlock.inside.room import Room
from airlock.privacy.plan import Facts
from airlock.records.schema import load_schema
from airlock.storage import load_tensors
from stages.mechanisms import mechanism


def answer(room: Room) -> list[dict[str, Any]]:
    """The findings, one row for each target."""
    asked = room.facts
    half = mechanism(room.params.release.mechanism)
    if asked["canaries"]:
        training = mechanism(room.params.release.mechanism, "open")
        how = {name: asked[name] for name in ("canaries", "seed", "confidence", "factor")}
        return [canary_audit.run(half, training, room.params, **how)]
    targets = _targets(room, half)
    # A pair at the very edge of the proof is passed by chance as often as the bound allows: divide that by all bounds.
    bounds = sum(1 if target.law.family is None else 2 for target in targets)
    confidence = 1 - (1 - asked["confidence"]) / bounds
    how = {"trials": asked["trials"], "seed": asked["seed"], "sampler": asked["sampler"]}
    return [
        attack.attack(
            target, confidence=confidence, tick=partial(_tell, room, target.law.name), **how
        ).to_json()
        for target in targets
    ]


def _targets(room: Room, half: Any) -> list[Target]:
    asked, params = room.facts, room.params
    if asked["records"]:
        schema = load_schema(Path(asked["schema"]))
        given = attack.given(
            half, params, schema, Path(asked["records"]), seed=asked["seed"], runs=asked["trials"]
        )
        return [given]
    facts, release = Facts.from_json(asked["facts"]), None
    if asked["release"]:
        manifest.load(Path(asked["release"]))
        release = load_tensors(Path(asked["release"]) / "release.safetensors")
    return attack.targets_of(half, params, facts, factor=asked["factor"], release=release)


def _tell(room: Room, label: str, done: int, total: int) -> None:
    room.send({"kind": "progress", "label": label, "done": done, "total": total})
