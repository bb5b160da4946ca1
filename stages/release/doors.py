"""The two doors beside a release, both for public data only: a holdout to judge on, which passes as it is, and
a model without privacy to compare with.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from airlock.inside import manifest
from airlock.inside.room import Room
from airlock.models.features import features
from airlock.models.features.choice import settle
from airlock.models.features.rows import LIMIT
from airlock.models.model import Model
from airlock.models.numbers import of_grid
from airlock.params import Params
from airlock.privacy.guarantees import Guarantee
from airlock.privacy.plan import Facts, Plan
from airlock.storage import save_model

HOLDOUT_VERSION = REFERENCE_VERSION = 1
HOLDOUT_FILE = "holdout.parquet"
REFERENCE_RECORDS = 60_000
"""At most this many records are read into memory: the reference is a yardstick, not a product."""


def plan_holdout(params: Params, facts: Facts) -> Plan:
    """Open for public records only: of a data set that is public as a whole, or of a file that was declared
    public.
    """
    held = dict(facts.split.get("holdout", {}))
    if held.get("kind") != "public" or facts.n_holdout == 0:
        return manifest.none_plan(f"the holdout is {held.get('kind', 'none')}")
    parameters = {"holdout": held, "records": facts.n_holdout}
    if held["source"] == "file":
        proven = Guarantee(
            "proven",
            "record",
            "zero-out",
            0.0,
            0.0,
            argument="docs/proofs/evaluation.md#public-holdout",
        )
        return Plan("holdout", HOLDOUT_VERSION, parameters, passes=0, proven=proven)
    proven = Guarantee(
        "proven",
        "record",
        "zero-out",
        float("inf"),
        0.0,
        reason="the whole data set is public and passes as it is",
    )
    return Plan("holdout", HOLDOUT_VERSION, parameters, passes=1, proven=proven, public_only=True)


def make_holdout(room: Room, facts: Facts, folder: Path, release_id: str) -> dict[str, Any]:
    """The encoded records (x, y, valid) as Parquet."""
    import pyarrow.parquet as pq

    from stages.release.perturb import open_sealed

    with open_sealed(room, "holdout") as reader:
        first = reader.read(0)
        names = ["x", "y", "valid"]
        with pq.ParquetWriter(
            folder / HOLDOUT_FILE, first.select(names).schema, compression="zstd"
        ) as writer:
            for batch in reader:
                writer.write_batch(batch.select(names))
    return {"records": facts.n_holdout, "shape": list(facts.shape), "labels": list(facts.labels)}


def plan_reference(params: Params, facts: Facts) -> Plan:
    """Made for public data; for private data the door stays shut, whatever params.yaml says."""
    if not params.release.reference:
        return manifest.none_plan("release.reference is false")
    if not facts.public:
        return manifest.none_plan("the data are private: a non-private reference would itself be a leak")
    name = settle(params, facts).release.features
    proven = Guarantee(
        "proven", "record", "zero-out", float("inf"), 0.0, reason="no noise: a reference for public data"
    )
    return Plan("reference", REFERENCE_VERSION, {"features": name}, passes=1, proven=proven, public_only=True)


def make_reference(room: Room, facts: Facts, folder: Path, release_id: str) -> dict[str, Any]:
    """A logistic regression on the same features, without noise, written as a model."""
    from stages.release.perturb import open_sealed

    name = settle(room.params, facts).release.features
    with open_sealed(room, "train") as reader:
        model = fit_reference(reader, name, facts)
    save_model(model, folder)
    return {"features": name}


def fit_reference(reader: Any, name: str, facts: Facts) -> Model:
    """Logistic regression on standardised features, the standardising folded into the weights; of a number,
    ridge regression.
    """
    from sklearn.linear_model import LogisticRegression, Ridge

    from stages.release.passes import chunk_of

    feature_map = features.feature_map(name, facts.kind, facts.shape)
    chunks = []
    for index in range(reader.chunks):
        chunks.append(chunk_of(reader.read(index), feature_map, facts.shape))
        if sum(len(chunk.rows) for chunk in chunks) >= REFERENCE_RECORDS:
            break
    labels = np.concatenate([chunk.labels for chunk in chunks])
    rows = np.concatenate([(chunk.rows / LIMIT).astype(np.float32) for chunk in chunks])[labels >= 0]
    mean, spread = rows.mean(axis=0), rows.std(axis=0) + 1e-6
    if facts.number:
        line = Ridge(alpha=1.0).fit((rows - mean) / spread, of_grid(labels[labels >= 0], facts.number))
        slope = (line.coef_ / spread).astype(np.float64)[:, None]
        shift = np.array([line.intercept_ - mean @ slope[:, 0]], np.float64)
        return Model(name, facts.kind, facts.shape, facts.labels, [], [(slope, shift)], number=facts.number)
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
