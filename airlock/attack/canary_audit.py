"""Auditing one release: canaries that are in or out by a coin, guessed from its sums and from a model
(attack/canaries.py).

On made-up records: an audit of a mechanism's two halves, release and training, not of anybody's data.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.attack import canaries as statistics
from airlock.attack import families
from airlock.attack.attack import verdict
from airlock.params import Params
from airlock.privacy import events, sums
from airlock.privacy.plan import Facts, Plan

SIZE, CLASSES = 256, 2
# How many canaries are guessed, half of them in and half out; fixed before any score is seen. The surest tenth says
# most where canaries are many, and half of them where they are few (docs/attacks.md, Canaries).
FEW, PART = 250, 10
PICTURE = (16, 16, 1)
PICTURED = {"pcdbn": None, "patch-moments": None, "adlm": "authors-code", "ilm": "authors-code"}
"""Mechanisms whose canaries are pictures, black and white: always, or where this preset, a program for images, is asked
for.
"""


@dataclass(frozen=True)
class Canaries:
    """Random records with random labels, in many dimensions: nothing but itself makes a canary's loss fall.

    One that is out is a null record, so that what is audited is the zero-out relation.
    """

    records: NDArray[np.float32]
    labels: NDArray[np.int64]
    present: NDArray[np.bool_]
    seed: int
    pictured: bool = False

    @property
    def facts(self) -> Facts:
        kind, shape = ("image", PICTURE) if self.pictured else ("tabular", (SIZE,))
        return Facts(
            "canaries", True, kind, len(self.labels), 0, shape, ("0", "1"), schema="", fingerprint=""
        )

    @property
    def encoded(self) -> NDArray[Any]:
        """As a mechanism reads them, and a model answers them."""
        if self.pictured:
            return (255 * self.records).astype(np.uint8).reshape(-1, *PICTURE)
        return self.records.astype(np.float64)

    @property
    def key(self) -> bytes:
        return hashlib.sha256(f"airlock canaries {self.seed}".encode()).digest()

    @property
    def known(self) -> NDArray[np.int64]:
        """Labels, -1 for those that are out."""
        return np.where(self.present, self.labels, -1)


def run(
    release: Any,
    training: Any,
    params: Params,
    *,
    canaries: int,
    seed: int,
    confidence: float,
    factor: float = 1.0,
) -> list[dict[str, Any]]:
    """Release and train once on the canaries that were chosen, and guess all of them.

    Args:
        release: the mechanism's half that releases.
        training: its half that trains.
        params: mechanism, epsilon and how to train.
        canaries: how many.
        seed: of the canaries, their coins and the noise.
        confidence: that the bound holds.
        factor: of the noise. DP-SGD's is scaled exactly; others are released at epsilon / factor, which is
            about the same.
    """
    # One release holds everything: what a mechanism asks first is asked by the release itself, at the same price.
    params = params.model_copy(update={"relevance": params.relevance.model_copy(update={"mode": "off"})})
    generator = np.random.default_rng(seed)
    bits, labels = generator.integers(0, 2, (canaries, SIZE)), generator.integers(0, CLASSES, canaries)
    present = generator.random(canaries) < 0.5
    planted = Canaries(bits.astype(np.float32), labels, present, seed, _pictured(params))
    if params.release.mechanism == "dp-sgd":
        scores = {"canaries by their losses in one model": _descended(release, params, planted, factor)}
    else:
        scores = _released(release, training, params, planted, factor)
    plan = release.plan(params, planted.facts)
    # Two bounds for each way to score: all of them hold together at the confidence that was asked for.
    each = 1 - (1 - confidence) / (2 * len(scores))
    return [_row(name, plan, planted, found, each) for name, found in scores.items()]


def _pictured(params: Params) -> bool:
    name, preset = params.release.mechanism, params.release.options.get("preset")
    return name in PICTURED and PICTURED[name] in (None, preset)


def _row(name: str, plan: Plan, planted: Canaries, scores: Any, confidence: float) -> dict[str, Any]:
    """What one way to score the canaries says, beside what is claimed and proven."""
    count, delta = len(planted.labels), plan.proven.delta
    guesses = min(count // 2, max(FEW, count // PART))
    found = statistics.audit(scores, planted.present, guesses=guesses, delta=delta, confidence=confidence)
    proven, claimed = plan.proven.epsilon, plan.claimed.epsilon if plan.claimed else None
    by_law = families.of_mu(found.shift, delta) if _is_gaussian(plan) else None
    return {
        "kind": "canaries",
        "law": name,
        **found.to_json(),
        "by_law": by_law,
        "claimed": claimed,
        "proven": "infinity" if np.isinf(proven) else proven,
        "verdict": verdict(found.epsilon, max(found.epsilon, by_law or 0.0), claimed, proven),
        "seed": planted.seed,
    }


def _is_gaussian(plan: Plan) -> bool:
    """Whether what is proven is the trade-off curve of a Gaussian shift."""
    if plan.proven.event is None:
        return False
    parts = events.leaves(events.from_json(plan.proven.event))
    return all(type(part).__name__ == "GaussianDpEvent" for part in parts)


def _descended(dp_sgd: Any, params: Params, planted: Canaries, factor: float) -> Any:
    """How much DP-SGD lowered the loss of each canary.

    Records are signs of norm 1 here: a gradient is as long for all of them.
    """
    import torch

    from airlock.models.papers.networks import build

    model, settings = dp_sgd.resolve(params, planted.facts)
    records = torch.from_numpy((2 * planted.records - 1) / np.float32(SIZE**0.5))
    network = build(model, (SIZE,), CLASSES, seed=dp_sgd.SEED)

    def losses() -> Any:
        with torch.no_grad():
            return _losses(network(records).double().numpy(), planted.labels)

    before = losses()
    faulty = dp_sgd.Settings(**{**vars(settings), "multiplier": settings.multiplier * factor})
    dp_sgd.descend(
        network,
        dp_sgd.Data(records, torch.from_numpy(planted.known)),
        faulty,
        key=planted.key,
        release_id="attack",
    )
    return before - losses()


def _released(
    half: Any, training: Any, params: Params, planted: Canaries, factor: float
) -> dict[str, NDArray[np.float64]]:
    """How small each canary's loss is in the model trained from the release, and what the released sums say
    of it themselves.
    """
    from airlock.attack.attack import InMemory, make
    from airlock.inside.manifest import Manifest
    from airlock.records.encoding import Encoded, pack

    name, facts = params.release.mechanism, planted.facts
    drawn = params.model_copy(
        update={"release": params.release.model_copy(update={"epsilon": params.release.epsilon / factor})}
    )
    records = planted.encoded.copy()
    records[~planted.present] = 0
    reader = InMemory(
        [pack(Encoded(records, planted.known.astype(np.int32), planted.present.astype(np.uint8)))]
    )
    plan = half.plan(drawn, facts)
    tensors, details = make(half, drawn, facts, reader, planted.key)
    data = {
        "kind": facts.kind,
        "n": facts.n,
        "shape": list(facts.shape),
        "labels": list(facts.labels),
        "schema": "",
    }
    release = Manifest(
        "attack",
        name,
        plan.version,
        plan.parameters,
        "record",
        plan.proven.neighbours,
        plan.claimed,
        plan.proven,
        plan.passes,
        plan.interactive,
        "",
        {},
        {"data": data, **details},
    )
    trained = training.train(params.train, release, tensors)
    losses = _losses(trained.model.logits(planted.encoded), planted.labels)
    scores = {"canaries by their losses in one model": -losses}
    if {"gram", "cross"} <= tensors.keys() and "features" in details and not planted.pictured:
        scores["canaries by a matched filter on released sums"] = _matched(planted, tensors, details)
    return scores


def _matched(planted: Canaries, tensors: Any, details: Mapping[str, Any]) -> NDArray[np.float64]:
    """The expected presence of every canary, given the released Gram matrix and cross moments.

    With rows a_i and label rows t_i, the sums are sum_i b_i a_i a_i^T and sum_i b_i a_i t_i^T plus Gaussian
    noise. For b_i with mean 1/2 and variance 1/4 the best linear guess solves (K + 4) b = r + 2, K_ij = (a_i
    a_j)^2 / s^2 + (a_i a_j)(t_i t_j) / c^2.
    """
    from airlock.models.features.features import feature_map
    from airlock.models.features.projection import steps_of

    facts, everyone = planted.facts, np.ones(len(planted.labels), np.uint8)
    transform = feature_map(details["features"], facts.kind, facts.shape)
    rows = transform(planted.records.astype(np.float64), everyone)
    for step in steps_of(tensors, transform.bias):
        rows = step(rows, everyone)
    labels = sums.label_rows(planted.labels.astype(np.int32), CLASSES, centred=True).astype(np.float64)
    gram, cross = (float(details["sums"][name]["scale"]) ** 2 for name in ("gram", "cross"))
    alike = rows @ rows.T
    kernel = alike**2 / gram + alike * (labels @ labels.T) / cross
    seen = np.einsum("ij,jk,ik->i", rows, tensors["gram"].astype(np.float64), rows) / gram
    seen += np.einsum("ij,jk,ik->i", rows, tensors["cross"].astype(np.float64), labels) / cross
    guessed: NDArray[np.float64] = np.linalg.solve(kernel + 4 * np.eye(len(rows)), seen + 2)
    return guessed


def _losses(scores: Any, labels: NDArray[np.int64]) -> Any:
    """Cross-entropy of each record."""
    from scipy.special import logsumexp

    return logsumexp(scores, axis=1) - scores[np.arange(len(labels)), labels]
