"""Attacks on the mechanisms, run behind the wall: `airlock attack` asks, and prints what comes back."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from airlock.attack import attack, canary_audit, end_to_end, laws, neighbours
from airlock.attack.neighbours import EncodedRecords, Pair
from airlock.attack.targets import Target
from airlock.errors import ParamsError
from airlock.inside import manifest
from airlock.inside.room import Room
from airlock.params import Params
from airlock.privacy import accounting, events
from airlock.privacy.plan import Facts, Plan
from airlock.records.schema_file import load_schema
from airlock.storage import load_tensors
from stages import attack_data, attack_synthetic
from stages.attack_runs import Rehearsal
from stages.mechanisms import Whole, mechanism

Tick = Callable[[int, int], None]


def answer(room: Room) -> list[dict[str, Any]]:
    """The findings, one row for each target."""
    asked = room.facts
    if asked["canaries"]:
        name = room.params.release.mechanism
        half, training = Whole(mechanism(name)), mechanism(name, "open")
        how = {name: asked[name] for name in ("canaries", "seed", "confidence", "factor")}
        return canary_audit.run(half, training, room.params, **how)
    targets = _checked(room) if asked["accounting"] else _attacked(room)
    # A pair at the very edge of the proof is passed by chance as often as the bound allows: divide that by
    # all bounds.
    bounds = sum(1 if target.law.family is None else 2 for target in targets)
    confidence = 1 - (1 - asked["confidence"]) / bounds
    how = {"trials": asked["trials"], "seed": asked["seed"], "sampler": asked["sampler"]}
    return [
        attack.attack(
            target, confidence=confidence, tick=partial(_tell, room, target.law.name), **how
        ).to_json()
        for target in targets
    ]


def _checked(room: Room) -> list[Target]:
    """Accounting check: the noise that was priced, without the release."""
    asked, params = room.facts, room.params
    facts, release = Facts.from_json(asked["facts"]), None
    if asked["release"]:
        manifest.load(Path(asked["release"]))
        release = load_tensors(Path(asked["release"]) / "release.safetensors")
    half = Whole(mechanism(params.release.mechanism))
    return attack.targets_of(half, params, facts, factor=asked["factor"], release=release)


def _attacked(room: Room) -> list[Target]:
    asked, params = room.facts, room.params
    if asked["what"] == "synthetic":
        folder = Path(tempfile.mkdtemp(prefix="attack-"))
        return attack_synthetic.targets(params, seed=asked["seed"], folder=folder)
    tick = partial(_tell, room, "search for neighbours")
    if not asked["records"]:
        return [target_of(asked["what"], params, seed=asked["seed"], tick=tick)]
    facts, pair = _given(params, Path(asked["schema"]), Path(asked["records"]))
    return [target_of(asked["what"], params, seed=asked["seed"], facts=facts, pairs=[pair])]


def target_of(
    what: str,
    params: Params,
    *,
    seed: int,
    facts: Facts | None = None,
    pairs: Sequence[Pair] = (),
    effort: end_to_end.Effort = end_to_end.Effort(),
    tick: Tick = lambda done, total: None,
) -> Target:
    """The stages that make `what` on made-up records of their own kind, on the neighbours that they tell
    apart best.

    Args:
        what: "relevance", "evaluation" or "release" (with the relevance that it builds on, where that is on).
        params: as the pipeline has them.
        seed: of the records and the noise.
        facts: of given records; by default a stand-in for each mechanism (stages/attack_data.py).
        pairs: neighbours to attack; by default they are searched for.
        effort: how many runs are spent on learning.
        tick: told how far the search is.
    """
    params, about = attack_data.of(what, params) if facts is None else (params, facts)
    rehearsal = rehearse(what, params, about, Path(tempfile.mkdtemp(prefix="attack-")))
    plans = rehearsal.plans()
    half = mechanism(params.release.mechanism)
    hints: list[Any] = getattr(half, "neighbours", lambda facts: [])(about)
    near = params.release.neighbours
    candidates = list(pairs) or list(neighbours.pairs(about, near, hints=hints, seed=seed))
    delta = params.evaluate.delta if what == "evaluation" else params.release.delta
    proven, family = proven_together(plans, delta, near)
    name = "the release itself" if what == "release" else f"the {what} release itself"
    law = end_to_end.law(rehearsal, candidates, seed=seed, name=name, family=family, effort=effort, tick=tick)
    claimed = plans[-1].claimed
    return Target(law, claimed.epsilon if claimed else None, proven, delta)


def rehearse(what: str, params: Params, facts: Facts, folder: Path) -> Rehearsal:
    """The stages that make `what`, one after another: a release with the relevance that it builds on.

    Raises:
        ParamsError: there is no relevance release to run.
    """
    half = mechanism(params.release.mechanism)
    first = params.relevance.weighs or half.relevance(params, facts) is not None
    if what == "relevance" and not first:
        raise ParamsError(f"'{half.NAME}' asks nothing first: there is no relevance release to attack")
    outs = ("relevance", what) if what == "release" and first else (what,)
    model = attack_data.model(facts) if what == "evaluation" else None
    return Rehearsal(tuple(f"data/released/{out}" for out in outs), params, facts, folder, model)


def proven_together(plans: Sequence[Plan], delta: float, near: Any) -> tuple[float, Any]:
    """What is proven of all outs together, and the family of laws that it belongs to."""
    documents = [plan.proven.event for plan in plans]
    if any(document is None for document in documents):
        return float("inf"), None
    event = events.compose([events.from_json(document) for document in documents if document])
    family = laws.of_event(event, name="", neighbours=near).family
    return accounting.epsilon(event, delta, neighbours=near), family


def _given(params: Params, schema_path: Path, file: Path) -> tuple[Facts, Pair]:
    """Records of a file that follows the data set's schema; the last one is the one in question."""
    from airlock.records.encoding import described_columns, encode, encoded_layout, encoded_shape
    from airlock.records.tables import open_table

    schema = load_schema(schema_path)
    columns = [*schema.sources, schema.label.column]
    parts = [encode(batch, schema) for batch in open_table(file).batches(columns)]
    x, y = np.concatenate([part.x for part in parts]), np.concatenate([part.y for part in parts])
    labels = tuple(str(name) for name in schema.label.names)
    facts = Facts(
        "attack",
        True,
        schema.kind,
        len(y),
        len(y),
        tuple(encoded_shape(schema)),
        labels,
        "",
        "",
        features=schema.map,
        columns=described_columns(schema) if schema.columns else None,
        label=schema.label.column,
        layout=encoded_layout(schema),
        number=schema.label.number,
    )
    present = EncodedRecords(x, y.astype(np.int32))
    absent = present.with_record(len(y) - 1, x[-1], -1)
    return facts, Pair("given records, the last one present or null", present, absent)


def _tell(room: Room, label: str, done: int, total: int) -> None:
    room.send({"kind": "progress", "label": label, "done": done, "total": total})
