"""Auditing DP-SGD's trained network in one run: canaries that are in or out by a coin, guessed from their losses (privacy/canaries.py).

On made-up records: an audit of the training code, not of anybody's data.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from stages.errors import InputError
from stages.params import Params
from stages.privacy import canaries as statistics
from stages.privacy.plan import Facts
from stages.release import dp_sgd

SIZE, CLASSES = 256, 2
# Fixed before any score is seen: this part of the canaries is guessed, half of it in and half out.
GUESSED = 0.5


def run(params: Params, *, canaries: int, seed: int, confidence: float, factor: float = 1.0) -> dict[str, Any]:
    """Train once on the canaries that were chosen, and guess all of them.

    A canary is a random sign vector with a random label: in many dimensions nothing but itself makes its loss fall. A canary that is out
    is a null record, so that what is audited is the zero-out relation.
    """
    import torch

    from stages.models.networks import build

    if params.release.mechanism != "dp-sgd":
        raise InputError(f"canaries audit mechanisms that release a trained model: use dp-sgd, not '{params.release.mechanism}'")
    generator = np.random.default_rng(seed)
    records = generator.choice([-1.0, 1.0], (canaries, SIZE)).astype(np.float32) / np.float32(SIZE**0.5)
    labels, present = generator.integers(0, CLASSES, canaries), generator.random(canaries) < 0.5
    facts = Facts("canaries", True, "tabular", canaries, 0, (SIZE,), ("0", "1"), schema="", fingerprint="")
    model, settings = dp_sgd.resolve(params, facts)
    data = dp_sgd.Data(torch.from_numpy(records), torch.from_numpy(np.where(present, labels, -1).astype(np.int64)))
    network = build(model, facts.shape, CLASSES, seed=dp_sgd.SEED)
    before = _losses(network, records, labels)
    key = hashlib.sha256(f"airlock canaries {seed}".encode()).digest()
    faulty = dp_sgd.Settings(**{**vars(settings), "multiplier": settings.multiplier * factor})
    dp_sgd.descend(network, data, faulty, key=key, release_id="attack")
    scores = before - _losses(network, records, labels)
    found = statistics.audit(scores, present, guesses=int(GUESSED * canaries), delta=params.release.delta, confidence=confidence)
    proven = dp_sgd.plan(params, facts).proven.epsilon
    verdict = "refutes the proof" if found.epsilon > proven else "within the proof"
    return {"law": "canaries in one training run", **found.to_json(), "proven": proven, "claimed": None, "verdict": verdict, "seed": seed}


def _losses(network: Any, records: Any, labels: Any) -> Any:
    import torch

    with torch.no_grad():
        scores = network(torch.from_numpy(records))
        return torch.nn.functional.cross_entropy(scores, torch.from_numpy(labels), reduction="none").double().numpy()
