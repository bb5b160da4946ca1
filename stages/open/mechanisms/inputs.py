"""Training from released tables, at no charge (docs/inputs.md): any column as the target in closed form, or a
network of any kind on synthetic records of which none comes twice.

Everything here is post-processing: no record, no budget.
"""

from __future__ import annotations

import difflib
import itertools
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from airlock.errors import ParamsError, ReleaseError
from airlock.inside.digests import sha256_json
from airlock.inside.manifest import Manifest
from airlock.models.binned import BinnedModel, Source, fit
from airlock.models.bins import Bins
from airlock.models.descent import STEPS_AN_EPOCH, descend_on
from airlock.models.devices import choose_device
from airlock.models.distribution import Distribution, bin_names, distribution_of, middles
from airlock.models.features.features import DEFAULTS, feature_map
from airlock.models.features.rows import LIMIT
from airlock.models.model import Model
from airlock.models.moments import Tensors
from airlock.models.shares import shares_of
from airlock.models.synthesis import LEAST_DRAWN, stream
from airlock.params import TrainParams
from airlock.records.schema import Schema
from stages.mechanisms import Trained
from stages.open.mechanisms.coefficients import network_named
from stages.open.training_state import TrainingState

if TYPE_CHECKING:
    import torch

NAMED = DEFAULTS["tabular"]
"""The feature map of rows that networks are trained on."""


NETWORKS_TELL_LABELS = (
    "params.yaml: a network on synthetic records of 'inputs' tells the label: set train.target to null, or "
    "train.method to closed-form with no train.network"
)


def train(
    params: TrainParams,
    release: Manifest,
    tensors: Tensors,
    *,
    checkpoint: Path | None = None,
    schema: Schema | None = None,
) -> Trained:
    """Least squares of the target on all other columns, from their tables; by gradient descent where that or
    a network is asked for, on records that follow the tables.
    """
    if params.network is not None or params.method == "sgd":
        if schema is None:
            raise ReleaseError("synthetic records need the data set's schema: run `dvc repro train`")
        return train_network(params, release, tensors, schema, checkpoint)
    if params.head != "linear":
        raise ParamsError("params.yaml: train.head mlp has no closed form: set train.method to sgd")
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
    return Trained(model, found.path, metrics)


def train_network(
    params: TrainParams, release: Manifest, tensors: Tensors, schema: Schema, checkpoint: Path | None
) -> Trained:
    """A head, or a network of one's own, on streamed synthetic records; it takes the rows that any linear
    model of such a table takes, and is kept as tensors.

    Raises:
        ParamsError: it is asked for another column than the label.
    """
    if params.target not in (None, release.details["columns"][-1]["name"]):
        raise ParamsError(NETWORKS_TELL_LABELS)
    data, start = release.details["data"], time.perf_counter()
    device, shape = choose_device(params.device, "train.device"), tuple(data["shape"])
    source = SyntheticRows(distribution_of(release.details, tensors), schema, shape, device)
    layers, curve = descend_on(
        params,
        source,
        source.map.width,
        len(data["labels"]),
        device=device,
        build=network_named(params.network),
        keeper=TrainingState(checkpoint, _identity(params, release)),
    )
    first, *rest = [(np.asarray(weight, np.float64), np.asarray(offset)) for weight, offset in layers]
    layers = [(first[0] * source.scale, first[1]), *rest]
    model = Model(NAMED, "tabular", shape, tuple(data["labels"]), [], layers)
    drawn = len(curve) * STEPS_AN_EPOCH * params.batch
    metrics = {
        "loss": curve[-1][1],
        "epochs": curve[-1][0],
        "epsilon": release.proven.epsilon,
        "synthetic_records": drawn,
        "rows_per_second": round(drawn / (time.perf_counter() - start)),
    }
    return Trained(model, curve, metrics)


class SyntheticRows:
    """Synthetic records as rows of numbers. Those of an epoch follow from its generator's seed; epochs that
    come one after another share what is drawn at once, a part each.
    """

    def __init__(self, known: Distribution, schema: Schema, shape: tuple[int, ...], device: str) -> None:
        self._known, self._schema, self._device = known, schema, device
        self._shares, self._pool = shares_of(known), -1
        self._batches: list[tuple[Any, Any]] = []
        self._waiting: list[tuple[Any, Any]] = []
        self._epoch = -1
        self.map = feature_map(NAMED, "tabular", shape)
        # A row has norm 1: so that each of its numbers is about 1, and the learning rate that of any table.
        self.scale = math.sqrt(self.map.width)

    def draw(self, batch: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """The next batch of the epoch."""
        import torch

        if generator.initial_seed() != self._epoch:
            self._epoch = generator.initial_seed()
            self._waiting = self._of_epoch(batch, self._epoch)
        records, labels = self._waiting.pop(0)
        rows = self.map(records, np.ones(len(records), np.uint8)) * (self.scale / LIMIT)
        return (
            torch.as_tensor(rows, device=self._device),
            torch.as_tensor(labels.astype(np.int64), device=self._device),
        )

    def _of_epoch(self, batch: int, epoch: int) -> list[tuple[Any, Any]]:
        sharing = max(1, LEAST_DRAWN // (batch * STEPS_AN_EPOCH))
        pool, part = divmod(epoch, sharing)
        if pool != self._pool:
            drawn = stream(self._known, self._schema, batch=batch, seed=pool, shares=self._shares)
            self._pool, self._batches = pool, list(itertools.islice(drawn, sharing * STEPS_AN_EPOCH))
        return self._batches[part * STEPS_AN_EPOCH : (part + 1) * STEPS_AN_EPOCH]


def _identity(params: TrainParams, release: Manifest) -> str:
    """A checkpoint belongs to one training of one release; the number of epochs may grow."""
    return sha256_json([params.model_dump(exclude={"epochs", "device"}), release.release_id])


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
