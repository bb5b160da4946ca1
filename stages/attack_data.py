"""Made-up data sets that attacks are run on: the smallest on which each mechanism works as it does on real
ones.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np

from airlock.errors import ParamsError
from airlock.models.bins import Column
from airlock.models.features import features
from airlock.models.model import Model
from airlock.params import Params
from airlock.privacy.plan import Facts

N = 6
"""Records: a target, others on both sides of it, and two sealed chunks."""

TABLE = Facts("attack", True, "tabular", N, N, (2,), ("no", "yes"), schema="attack", fingerprint="attack")
PICTURES = Facts(
    "attack", True, "image", N, N, (8, 8, 1), ("no", "yes"), schema="attack", fingerprint="attack"
)
WINDOWS = Facts(
    "attack", True, "tabular", N, N, (8,), ("less", "more"), "attack", "attack", users=N, per_user=1,
    friends={"slots": 2, "appearances": 2},
)  # fmt: skip
# A number that may be missing, a code of whole numbers, and a category: all kinds of columns that there are.
MIXED = replace(
    TABLE,
    shape=(6,),
    columns=[
        asdict(Column("age", "number", missing=True, bounds=(0.0, 100.0))),
        asdict(Column("visits", "number", bounds=(0.0, 4.0), whole=True)),
        asdict(Column("site", "category", width=3, categories=("north", "south", "west"))),
    ],
    layout="n.c1.g4.c3",
)
# Rows of later passes depend on the noise of those before: among more records that noise is small.
CROWD = replace(TABLE, n=10 * N, n_holdout=10 * N)
MIXED_CROWD = replace(MIXED, n=10 * N, n_holdout=10 * N)
ONE_EPOCH = {"epochs": 1, "batch": N}
SMALL_SETTINGS: dict[str, tuple[Facts, dict[str, Any]]] = {
    "coefficients-iterated": (CROWD, {}),
    "dp-sgd": (TABLE, {**ONE_EPOCH, "model": "linear"}),
    "optimized-noise": (TABLE, {**ONE_EPOCH, "model": "linear"}),
    "ellipsoid-noise": (TABLE, {**ONE_EPOCH, "model": "linear"}),
    "neuron-allocation": (TABLE, {"hidden": 3, "epochs": 1}),
    "dp-mac": (TABLE, {**ONE_EPOCH, "hidden": [2], "pretraining_epochs": 1}),
    # Filters are post-processing of released moments: in closed form they take a hundredth of the time.
    "patch-moments": (PICTURES, {"layers": [1], "learner": "eigenvectors"}),
    "pcdbn": (
        replace(PICTURES, shape=(16, 16, 1)),
        {"maps": [1, 1], "hidden": 2, "pretraining_epochs": 1, "epochs": 1},
    ),
    "behaviour": (WINDOWS, {"days": 2, "height": 2, "groups": 2}),
    "behaviour-published": (WINDOWS, {"days": 2, "height": 2, "groups": 2}),
}
FEW_PASSES = {"coefficients-iterated": 5}
"""Where each further pass is one more like the last."""


def of(what: str, params: Params) -> tuple[Params, Facts]:
    """Parameters and public facts of the rehearsal; options that were asked for stay."""
    facts, options = SMALL_SETTINGS.get(params.release.mechanism, (TABLE, {}))
    passes = params.release.passes
    if passes == "auto":
        passes = FEW_PASSES.get(params.release.mechanism, passes)
    release = params.release.model_copy(
        update={
            "options": {**options, **params.release.options},
            "engine": "local",
            "features": "auto",
            "passes": passes,
        }
    )
    update: dict[str, Any] = {"release": release}
    if what == "relevance" and params.relevance.mode == "off":
        update["relevance"] = params.relevance.model_copy(update={"mode": "auto"})
    if what == "evaluation":
        update["evaluate"] = params.evaluate.model_copy(update={"holdout": "private"})
    if params.release.unit != "record":
        raise ParamsError("airlock attack runs the release for unit record: use --accounting for unit user")
    return params.model_copy(update=update), facts


def model(facts: Facts) -> Model:
    """A model that says the last label of every record, so that a record of that label is right and a null
    record is not.
    """
    named = features.choose("auto", facts.kind, facts.features)
    width = features.feature_map(named, facts.kind, facts.shape).width
    last = np.array([facts.number[1]]) if facts.number else np.arange(len(facts.labels), dtype=np.float64)
    layers = [(np.zeros((width, len(facts.labels))), last)]
    return Model(named, facts.kind, facts.shape, facts.labels, [], layers, number=facts.number)
