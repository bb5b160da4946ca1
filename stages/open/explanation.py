"""Relevance for nothing: what a release says about its inputs, beside the model that was trained from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.inside.manifest import Manifest
from airlock.models import explain
from airlock.models.explain import Law
from airlock.models.explained import Explanation, table_of
from airlock.models.features.rows import LIMIT
from airlock.models.features.softmax import BOUND
from airlock.models.model import Model
from airlock.models.moments import choose_damping, closed_form, damping, moments_of
from airlock.models.taken_away import of_middle
from airlock.params import TrainParams

FILE = "relevance.parquet"
Tensors = Mapping[str, NDArray[Any]]


def explanation(
    model: Model,
    params: TrainParams,
    release: Manifest,
    tensors: Tensors,
    columns: Sequence[str] | None = None,
) -> Explanation | None:
    """By relevance propagation through released steps and head; of other tables by taking inputs away; None
    where neither says anything (networks on pictures).
    """
    law = None
    plain = type(model) is Model and not model.number and len(model.steps) <= 2
    if plain and {"gram", "cross"} <= tensors.keys():
        law = law_of(model, params, release, tensors)
    if law is not None and explain.linear_chain(model) is not None:
        found = explain.of_release(model, law, columns)
        if found is not None:
            return found
    return of_middle(model, columns, law if len(model.layers) == 1 else None)


def law_of(model: Model, params: TrainParams, release: Manifest, tensors: Tensors) -> Law:
    """How the noise of this release moves a head.

    That of a closed form is the noise of the cross moments. A head of residual rounds has the noise of its
    last round, and what the rounds have not yet made good of the others, which is left out.
    """
    moments = moments_of(tensors, release.details, release.details["data"]["n"])
    sums, classes = release.details["sums"], moments.cross.shape[1]
    cross = float(sums["cross"]["scale"]) / (LIMIT * classes)
    if "head" not in tensors or params.method == "sgd":
        ridge = choose_damping(moments, params.ridge)
        # The head may have been scaled since it was solved for (airlock/models/temperature.py), and its noise
        # with it.
        solved = float(np.linalg.norm(closed_form(moments, ridge)))
        scaled = (
            float(np.linalg.norm(model.layers[0][0])) / max(solved, 1e-300) if len(model.layers) == 1 else 1.0
        )
        return Law(moments, ridge, cross * scaled, cross)
    asked = release.parameters
    last = max((name for name in sums if name.startswith("residuals-")), key=lambda name: int(name[10:]))
    moved = float(sums[last]["scale"]) * asked["clip"] / (LIMIT * BOUND) * asked["step"] * classes
    ridge = damping(moments, float(asked["ridge"]), float(asked.get("even_ridge", 0.0)))
    if len(model.layers) == 1:
        # Scores may have been scaled since (airlock/models/sureness.py).
        told = float(np.linalg.norm(tensors["head"].astype(np.float64))) * float(release.details["head_unit"])
        moved *= (
            float(np.linalg.norm(model.layers[0][0])) / max(told, 1e-300) if "sureness" in tensors else 1.0
        )
    return Law(moments, ridge, moved, cross)


def write(found: Explanation, path: Path) -> None:
    """A row for each input and class; the same values give the same bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    grid = "" if found.grid is None else f"{found.grid[0]},{found.grid[1]}"
    table = pa.table(table_of(found)).replace_schema_metadata({"grid": grid})
    pq.write_table(table, path, compression="zstd")
