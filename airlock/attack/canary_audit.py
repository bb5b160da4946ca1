"""Auditing a trained model in one run: canaries that are in or out by a coin, guessed from their losses (privacy/canaries.py).

On made-up records: an audit of a mechanism's two halves, release and training, not of anybody's data.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.attack import canaries as statistics
from airlock.params import Params
from airlock.privacy.plan import Facts

SIZE, CLASSES = 256, 2
# Fixed before any score is seen: this part of the canaries is guessed, half of it in and half out.
GUESSED = 0.5


@dataclass(frozen=True)
class Canaries:
    """Random records with random labels, in many dimensions: nothing but itself makes a canary's loss fall.

    One that is out is a null record, so that what is audited is the zero-out relation.
    """

    records: NDArray[np.float32]
    labels: NDArray[np.int64]
    present: NDArray[np.bool_]
    seed: int

    @property
    def facts(self) -> Facts:
        return Facts(
            "canaries", True, "tabular", len(self.labels), 0, (SIZE,), ("0", "1"), schema="", fingerprint=""
        )

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
) -> dict[str, Any]:
    """Release and train once on the canaries that were chosen, and guess all of them.

    Args:
        release: the mechanism's half that releases.
        training: its half that trains.
        params: mechanism, epsilon and how to train.
        canaries: how many.
        seed: of the canaries, their coins and the noise.
        confidence: that the bound holds.
        factor: of the noise. DP-SGD's is scaled exactly; others are released at epsilon / factor, which is about the same.
    """
    generator = np.random.default_rng(seed)
    bits, labels = generator.integers(0, 2, (canaries, SIZE)), generator.integers(0, CLASSES, canaries)
    planted = Canaries(bits.astype(np.float32), labels, generator.random(canaries) < 0.5, seed)
    if params.release.mechanism == "dp-sgd":
        scores = _descended(release, params, planted, factor)
    else:
        scores = _released(release, training, params, planted, factor)
    delta = params.release.delta
    found = statistics.audit(
        scores, planted.present, guesses=int(GUESSED * canaries), delta=delta, confidence=confidence
    )
    plan = release.plan(params, planted.facts)
    proven, claimed = plan.proven.epsilon, plan.claimed.epsilon if plan.claimed else None
    verdict = (
        "refutes the proof"
        if found.epsilon > proven
        else "nothing is proven"
        if np.isinf(proven)
        else "within the proof"
    )
    if claimed is not None and found.epsilon > claimed:
        verdict = "refutes the claim"
    said = {
        "claimed": claimed,
        "proven": "infinity" if np.isinf(proven) else proven,
        "verdict": verdict,
        "seed": seed,
    }
    return {"law": "canaries in one training run", **found.to_json(), **said}


def _descended(dp_sgd: Any, params: Params, planted: Canaries, factor: float) -> Any:
    """How much DP-SGD lowered the loss of each canary. Records are signs of norm 1 here: a gradient is as long for all of them."""
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


def _released(half: Any, training: Any, params: Params, planted: Canaries, factor: float) -> Any:
    """How small the loss of each canary is in the model that the mechanism's open half trains from its release."""
    from airlock.attack.attack import InMemory
    from airlock.inside.manifest import Manifest
    from airlock.records.encoding import Encoded, pack

    name, facts = params.release.mechanism, planted.facts
    drawn = params.model_copy(
        update={"release": params.release.model_copy(update={"epsilon": params.release.epsilon / factor})}
    )
    records = (planted.records * planted.present[:, None]).astype(np.float64)
    reader = InMemory(
        [pack(Encoded(records, planted.known.astype(np.int32), planted.present.astype(np.uint8)))]
    )
    plan = half.plan(drawn, facts)
    tensors, details = half.make(drawn, facts, reader, key=planted.key, release_id="attack")
    data = {
        "kind": facts.kind,
        "n": facts.n,
        "shape": list(facts.shape),
        "labels": list(facts.labels),
        "schema": "",
    }
    release = Manifest(
        "attack", name, plan.version, plan.parameters, "record", plan.proven.neighbours, plan.claimed, plan.proven, plan.passes,
        plan.interactive, "", {}, {"data": data, **details},
    )  # fmt: skip
    trained = training.train(params.train, release, tensors)
    return -_losses(trained.model.logits(planted.records.astype(np.float64)), planted.labels)


def _losses(scores: Any, labels: NDArray[np.int64]) -> Any:
    """Cross-entropy of each record."""
    from scipy.special import logsumexp

    return logsumexp(scores, axis=1) - scores[np.arange(len(labels)), labels]
