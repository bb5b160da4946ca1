"""The relevance stage: what noise will follow, released first and with a price of its own.

By default (relevance.mode auto) it is what the mechanism asks first (`relevance` and `make_relevance` of
stages/mechanisms.py): of `coefficients` the geometry of the records. It has its own id, archive and passes;
whatever changes in the later release or in training, it is replayed. Two other modes weigh features:
`statistics` releases, in one pass, class sums, class counts and sums of squares of the feature rows; `lrp` a
Gram matrix and cross moments, from which a linear model is trained without data and looked through by
layer-wise relevance propagation. Either way the weights are post-processing, and later rows u = R h / |R h|
have norm 1 whatever the weights are (docs/proofs/relevance.md#weights).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.errors import ParamsError
from airlock.inside import manifest
from airlock.inside.room import Room
from airlock.models.features import encoder, features
from airlock.models.features.choice import is_colour, settle, settle_mechanism
from airlock.models.features.rows import LIMIT
from airlock.models.relevance import from_class_statistics, from_propagation, picture_of, weights_of
from airlock.params import Params
from airlock.privacy import sensitivity, sums
from airlock.privacy.plan import Facts, Plan
from stages.mechanisms import Released, check_offered, mechanism
from stages.release.noisy_sums import NoisySums, Query, check_size, guarantee, price
from stages.release.passes import Chunk, Records, Sums, Wanted, cross_of
from stages.release.perturb import (
    RELEVANCE_TENSORS,
    WEIGHTS,
    facts_of,
    open_sealed,
    save_released,
    settled,
)
from stages.release.units import moved_records, records_per_unit

RELEVANCE = "data/released/relevance"
NAME, VERSION = WEIGHTS, 1
WEIGHED = ("coefficients", "coefficients-iterated", "neuron-allocation")
"""Mechanisms that use weights."""
ARGUMENT = "docs/proofs/relevance.md#guarantee"
# Of the relevance release's own share of mu squared.
SHARES = {"statistics": {"classes": 0.75, "squares": 0.2, "counts": 0.05}, "lrp": {"gram": 0.3, "cross": 0.7}}


def plans(params: Params, facts: Facts) -> dict[str, Plan]:
    """What would be released, priced."""
    params = settle_mechanism(params, facts.kind, colour=is_colour(facts))
    mode, name = params.relevance.mode, params.release.mechanism
    half = mechanism(name)
    check_offered(params, facts)
    if mode == "off":
        return {RELEVANCE: manifest.none_plan("relevance.mode is off")}
    if params.relevance.share != "auto" and params.relevance.epsilon != "auto":
        raise ParamsError("params.yaml: relevance: set share or epsilon, not both")
    if mode == "auto":
        asked = half.relevance(params, facts)
        return {RELEVANCE: asked or manifest.none_plan(f"'{name}' asks nothing first")}
    _check_weighs(params, name)
    proven = guarantee(price(queries(params, facts), params.release), params.release, argument=ARGUMENT)
    parameters = {
        "mode": mode,
        "share": params.relevance.weighing_share,
        "epsilon": params.release.epsilon,
        "delta": params.release.delta,
        "features": settle(params, facts).release.features,
        **moved_records(params, facts),
    }
    return {RELEVANCE: Plan(NAME, VERSION, parameters, passes=1, proven=proven)}


def _check_weighs(params: Params, name: str) -> None:
    """Refuse weights that nobody would use, and a price that they do not have.

    Raises:
        ParamsError: with what to set instead.
    """
    if name not in WEIGHED:
        raise ParamsError(
            f"params.yaml: relevance.mode {params.relevance.mode} weighs the features of "
            f"{', '.join(WEIGHED)}, and '{name}' would not use it: set relevance.mode to auto"
        )
    if params.relevance.epsilon != "auto":
        raise ParamsError(
            f"params.yaml: relevance.epsilon is for relevance.mode auto: with {params.relevance.mode} set "
            "relevance.share"
        )


def queries(params: Params, facts: Facts) -> list[Query]:
    """The noisy sums of the one pass.

    A record's squares h o h have norm at most |h|^2, its count and its label have norm 1.
    """
    near, classes = params.release.neighbours, len(facts.labels)
    check_size(facts.n, LIMIT * max(LIMIT, classes))
    width = _map(params, facts).width
    gram = sensitivity.gram(LIMIT, neighbours=near)
    asked = {
        "classes": Query(
            "classes",
            1,
            sensitivity.cross(LIMIT, labels="one-hot", classes=classes, neighbours=near),
            "gaussian",
            width * classes,
        ),
        # For non-negative vectors of norm at most S^2 the largest distance is sqrt 2 S^2, which is also the
        # Gram matrix's.
        "squares": Query("squares", 1, gram, "gaussian", width),
        "counts": Query(
            "counts", 1, sensitivity.mean(1, neighbours=near, non_negative=True), "gaussian", classes
        ),
        "gram": Query("gram", 1, gram, "symmetric-gaussian", width * (width + 1) // 2),
        "cross": Query(
            "cross",
            1,
            sensitivity.cross(LIMIT, labels="centred", classes=classes, neighbours=near),
            "gaussian",
            width * classes,
        ),
    }
    unit, shares = records_per_unit(params, facts), SHARES[params.relevance.mode]
    return [
        asked[purpose].of_unit(unit).with_share(share * params.relevance.weighing_share)
        for purpose, share in shares.items()
    ]


def main(room: Room) -> None:
    """Make the release that was ordered."""
    encoder.look_in(room.paths)
    if RELEVANCE not in room.facts.get("releases", {}):
        return
    facts = facts_of(room)
    room = settled(room, facts)
    params = room.params
    release_id = room.facts["releases"][RELEVANCE]["id"]
    folder = room.path(RELEVANCE)
    folder.mkdir(parents=True, exist_ok=True)
    if params.relevance.mode == "auto":
        tensors, details = _asked_first(room, facts, release_id)
    else:
        tensors, details = _weighed(room, facts, release_id)
    save_released(folder / RELEVANCE_TENSORS, tensors)
    manifest.write(
        folder, plan=plans(params, facts)[RELEVANCE], facts=facts, release_id=release_id, details=details
    )


def _asked_first(room: Room, facts: Facts, release_id: str) -> Released:
    """What the mechanism asks first."""

    def tick(done: int, total: int) -> None:
        room.send({"kind": "progress", "label": "step", "done": done, "total": total})

    with open_sealed(room, "train") as reader:
        return mechanism(room.params.release.mechanism).make_relevance(
            room.params,
            facts,
            reader,
            key=room.keys[f"noise:{RELEVANCE}"],
            release_id=release_id,
            connection=room.connection,
            tick=tick,
            checkpoint=room.paths.get("checkpoint"),
        )


def _weighed(room: Room, facts: Facts, release_id: str) -> Released:
    """Sums, and the weights that follow from them."""
    params = room.params
    noisy_sums = NoisySums(
        price(queries(params, facts), params.release),
        key=room.keys[f"noise:{RELEVANCE}"],
        release_id=release_id,
    )
    with open_sealed(room, "train") as reader:
        scores = make(params, facts, Records(reader, _map(params, facts), facts.shape), noisy_sums)
    tensors: dict[str, NDArray[Any]] = {
        **noisy_sums.released,
        "relevance": picture_of(scores, facts.kind, facts.shape),
        "weights": weights_of(scores),
    }
    return tensors, {"mode": params.relevance.mode, "sums": noisy_sums.details()}


def make(params: Params, facts: Facts, records: Records, noisy_sums: NoisySums) -> NDArray[np.float64]:
    """One pass, and a score for every feature."""
    if params.relevance.mode == "lrp":
        exact = records.ask(Wanted({"gram": "gram", "cross": "cross"}, len(facts.labels)))
    else:
        exact = records.ask(lambda chunk: statistics(chunk, len(facts.labels)))
    for purpose in SHARES[params.relevance.mode]:
        noisy_sums.add_noise(purpose, exact[purpose])
    if params.relevance.mode == "lrp":
        return from_propagation(noisy_sums.released, {"sums": noisy_sums.details()}, facts.n)
    return from_class_statistics(
        noisy_sums.released, {purpose: one.scale for purpose, one in noisy_sums.priced.items()}
    )


def statistics(chunk: Chunk, classes: int) -> Sums:
    """Class sums, sums of squares and class counts of a chunk."""
    labels = sums.label_rows(chunk.labels, classes)
    squares = sums.Sum(chunk.rows.shape[1], LIMIT**2).add(chunk.rows * chunk.rows).result()
    return {
        "classes": cross_of(chunk, labels, 1),
        "squares": squares,
        "counts": sums.Sum(classes, 1).add(labels).result(),
    }


def _map(params: Params, facts: Facts) -> features.FeatureMap:
    return features.feature_map(settle(params, facts).release.features, facts.kind, facts.shape)
