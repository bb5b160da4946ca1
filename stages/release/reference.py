"""A non-private logistic regression on the same features, to compare with.

For public data only: of private data it would be a leak.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from airlock.inside import manifest
from airlock.inside.room import Room
from airlock.models.features import features
from airlock.models.features.rows import LIMIT
from airlock.models.model import Model
from airlock.params import Params
from airlock.privacy.guarantees import Guarantee
from airlock.privacy.plan import Facts, Plan
from airlock.storage import save_model

VERSION = 1
RECORDS = 60_000
"""At most this many records are read into memory: it is a yardstick, not a product."""


def plan(params: Params, facts: Facts) -> Plan:
    """Made for public data; for private data the door stays shut, whatever params.yaml says."""
    if not params.release.reference:
        return manifest.none_plan("release.reference is false")
    if not facts.public:
        return manifest.none_plan("the data are private: a non-private reference would itself be a leak")
    name = features.choose(params.release.features, facts.kind, facts.features)
    proven = Guarantee(
        "proven", "record", "zero-out", float("inf"), 0.0, reason="no noise: a reference for public data"
    )
    return Plan("reference", VERSION, {"features": name}, passes=1, proven=proven, public_only=True)


def make(room: Room, facts: Facts, folder: Path, release_id: str) -> dict[str, Any]:
    """Fit it and write it as a model."""
    from stages.release.perturb import open_sealed

    name = features.choose(room.params.release.features, facts.kind, facts.features)
    with open_sealed(room, "train") as reader:
        model = fit(reader, name, facts)
    save_model(model, folder)
    return {"features": name}


def fit(reader: Any, name: str, facts: Facts) -> Model:
    """Logistic regression on standardised features, the standardising folded into the weights."""
    from sklearn.linear_model import LogisticRegression

    from stages.release.passes import chunk_of

    feature_map = features.feature_map(name, facts.kind, facts.shape)
    chunks = []
    for index in range(reader.chunks):
        chunks.append(chunk_of(reader.read(index), feature_map, facts.shape))
        if sum(len(chunk.rows) for chunk in chunks) >= RECORDS:
            break
    labels = np.concatenate([chunk.labels for chunk in chunks])
    rows = np.concatenate([(chunk.rows / LIMIT).astype(np.float32) for chunk in chunks])[labels >= 0]
    mean, spread = rows.mean(axis=0), rows.std(axis=0) + 1e-6
    fitted = LogisticRegression(C=1.0, max_iter=200).fit((rows - mean) / spread, labels[labels >= 0])
    weights, offset = np.zeros((rows.shape[1], len(facts.labels))), np.full(len(facts.labels), -1e6)
    found = np.asarray(fitted.classes_)
    # Two classes have one column of coefficients; as logits it is (0, w).
    columns = (
        fitted.coef_.T if len(found) > 2 else np.column_stack([np.zeros(rows.shape[1]), fitted.coef_[0]])
    )
    shifts = fitted.intercept_ if len(found) > 2 else np.array([0.0, fitted.intercept_[0]])
    weights[:, found] = columns / spread[:, None]
    offset[found] = shifts - mean @ weights[:, found]
    return Model(name, facts.kind, facts.shape, facts.labels, [], [(weights, offset)])
