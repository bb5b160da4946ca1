"""Training from released tables: any column as the target, at no charge (docs/inputs.md).

Everything here is post-processing: no record, no budget.
"""

from __future__ import annotations

import difflib
from pathlib import Path

import numpy as np

from airlock.errors import ParamsError
from airlock.inside.manifest import Manifest
from airlock.models.binned import BinnedModel, Source, fit
from airlock.models.bins import Bins
from airlock.models.distribution import Distribution, bin_names, distribution_of, middles
from airlock.models.moments import Tensors
from airlock.params import TrainParams
from stages.mechanisms import Trained


def train(
    params: TrainParams, release: Manifest, tensors: Tensors, *, checkpoint: Path | None = None
) -> Trained:
    """Least squares of the target on all other columns, from their tables."""
    if params.method != "closed-form" or params.head != "linear":
        raise ParamsError(
            "params.yaml: from 'inputs' train in closed form with a linear head, or train any model on "
            "synthetic records: airlock synthesize"
        )
    known = distribution_of(release.details, tensors)
    target = _target(known, params.target)
    inputs = [place for place in range(len(known.names)) if place != target]
    found = fit(known.tables, inputs, target, params.ridge)
    bins = Bins(tuple(known.bins.columns[place] for place in (*inputs, target)))
    shape = tuple(release.details["data"]["shape"])
    last = len(known.names) - 1
    asked = known.bins.columns[target]
    source = None if target == last else Source(shape, known.bins.starts[target], asked.column.places)
    model = BinnedModel(
        "bins",
        "tabular",
        (sum(one.column.places for one in bins.columns[:-1]),),
        tuple(bin_names(asked)),
        [],
        [],
        bins=bins,
        weight=found.weight,
        offset=found.offset,
        values=middles(asked) if asked.column.divided else np.zeros(0),
        source=source,
    )
    metrics = {
        "loss": found.loss,
        "epochs": 0,
        "epsilon": release.proven.epsilon,
        "ridge": found.ridge,
        "target": asked.column.name,
        "bins": len(model.labels),
    }
    return Trained(model, [(0, found.loss)], metrics)


def _target(known: Distribution, wanted: str | None) -> int:
    """Where the target stands; the label by default.

    Raises:
        ParamsError: there is no such column.
    """
    if wanted is None:
        return len(known.names) - 1
    if wanted not in known.names:
        near = difflib.get_close_matches(wanted, known.names, n=1)
        hint = f", did you mean '{near[0]}'?" if near else f"; columns: {', '.join(known.names[:20])}"
        raise ParamsError(f"params.yaml: train.target '{wanted}' is no column of this release{hint}")
    return known.place(wanted)
