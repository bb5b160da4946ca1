"""A model as a short list of plain operations on rows of float64, from which every exported form is written.

An operation is a name and its tensors. `trunc` stands wherever the model truncates, so that an exported model
gives the model's own figures and not nearly them. What is in here is public: weights, released steps, bounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.errors import InputError
from airlock.models.features import hybrid, tables
from airlock.models.features.features import COSINE
from airlock.models.features.projection import Centre, Step, Whiten
from airlock.models.features.rows import LIMIT, shift_for
from airlock.models.model import Model
from airlock.records.schema import Schema

SHORTENED_LIMIT = LIMIT * (1 - 2.0**-36)  # as privacy.sums.clip_to_norm shortens
NOT_OFFERED = (
    "this model cannot be exported as ONNX or PyTorch ({why}): use --sklearn, or `airlock "
    "predict`, which take every model"
)


@dataclass(frozen=True)
class Operation:
    """One step: `name` is one of affine, sqrt, trunc, shorten, normalise, append, product, rectify, spread, waves.

    `spread` makes 2 sqrt(x) - 1 of numbers and max(1 - |scale x - point|, 0) of others, column by column of
    `source`; `waves` looks up cosines of whole phases, and keeps its columns beside them if they have weights.
    """

    name: str
    tensors: dict[str, NDArray[np.float64]] = field(default_factory=dict)


def program_of(model: Model) -> list[Operation]:
    """The operations from encoded records, numbers in [0, 1], to logits.

    Raises:
        InputError: the model has a part that is no short list of operations.
    """
    found = _map(model) if type(model) is Model and model.kind == "tabular" else None
    if found is None:
        raise InputError(NOT_OFFERED.format(why=f"its feature map '{model.features}' or its kind"))
    if model.before:
        raise InputError(NOT_OFFERED.format(why="its columns, which go through released quantiles,"))
    if model.number:
        raise InputError(NOT_OFFERED.format(why="its label, which is a number,"))
    return [*found, *(each for step in model.steps for each in _step(step)), *_dense(model)]


def schema_of(model: Model) -> Schema:
    """The schema inside a model, if its columns can be encoded by ONNX.

    Raises:
        InputError: a column is hashed.
    """
    schema = Schema.model_validate(model.document["schema"])
    hashed = [column.name for column in schema.columns if column.buckets is not None]
    if hashed:
        raise InputError(NOT_OFFERED.format(why=f"column '{hashed[0]}' is hashed by SHA-256"))
    return schema


def _map(model: Model) -> list[Operation] | None:
    """The feature map of a table, if it is one of those that can be written down."""
    (columns,) = model.shape
    if model.features == "tabular-2":
        return [*_linear(columns)]
    if found := hybrid.NAME.fullmatch(model.features):
        return [*_hybrid(int(found[1]), found[2] or f"nx{columns}")]
    if found := COSINE.fullmatch(model.features):
        return [*_cosine(columns, int(found[1]))]
    return None


def _hybrid(width: int, layout: str) -> Iterator[Operation]:
    """As models/features/hybrid.py computes it; phases are whole numbers, so not a bit differs."""
    spread = [column for run in hybrid.runs_of(layout) for column in _spread_of(run)]
    places = np.cumsum([0, *(first for first, *_ in spread)])[1:] - 1
    frequencies, offsets = hybrid.directions(layout, width)
    halved = np.array([1.0 if number else 0.5 for _, number, _, _ in spread])
    beside = np.rint(hybrid.UNIT * hybrid.LINEAR[width > hybrid.NARROW] / np.sqrt(hybrid.columns_of(layout)))
    yield Operation(
        "spread",
        {
            "source": places.astype(np.float64),
            "number": np.array([float(number) for _, number, _, _ in spread]),
            "scale": np.array([scale for *_, scale, _ in spread]),
            "point": np.array([point for *_, point in spread]),
        },
    )
    yield _affine(tables.STEPS, 0.0)
    yield Operation("trunc")
    yield _waves(
        frequencies * halved[:, None], offsets, np.rint(hybrid.UNIT * np.sqrt(2 / width)), beside=beside
    )
    yield Operation("normalise")


def _spread_of(run: hybrid.Run) -> Iterator[tuple[bool, bool, float, float]]:
    """Of each column inside the map: whether it begins a column of the record, is a number, its scale and point."""
    for _ in range(run.count):
        if run.kind == "n":
            yield True, True, 1.0, 0.0
        elif run.kind == "g":
            yield from ((point == 0, False, float(run.size), float(point)) for point in range(run.size + 1))
        else:
            yield from ((True, False, 1.0, 1.0) for _ in range(run.size))


def _cosine(columns: int, width: int) -> Iterator[Operation]:
    yield Operation("sqrt")
    yield _affine(2.0, -1.0)
    yield _affine(tables.STEPS, 0.0)
    yield Operation("trunc")
    yield _waves(*tables.directions(columns, width, tables.BANDWIDTH), 1.0)
    yield Operation("normalise")


def _waves(frequencies: Any, offsets: Any, weight: float, *, beside: float | None = None) -> Operation:
    """One turn is PHASES steps; a phase is rounded down before it is looked up."""
    tensors = {
        "frequencies": np.asarray(frequencies, np.float64) / tables.STEPS,
        "offsets": np.asarray(offsets, np.float64),
        "table": tables.cosines() * weight,
    }
    return Operation("waves", tensors | ({} if beside is None else {"beside": np.array([float(beside)])}))


def _linear(columns: int) -> Iterator[Operation]:
    scale = tables.REACH * LIMIT / np.sqrt(columns)
    yield Operation("sqrt")
    yield _affine(2.0, -1.0)
    yield _affine(scale, 0.0)
    yield Operation("trunc")
    yield Operation("shorten")


def _step(step: Step) -> Iterator[Operation]:
    if isinstance(step, Centre):
        yield _affine(1.0, -step.centre.astype(np.float64))
        if step.bias:
            yield Operation("append", {"value": np.array([float(step.bias)])})
        if step.weights is not None:
            yield _affine(step.weights.astype(np.float64), 0.0)
    elif isinstance(step, Whiten):
        matrix = step.matrix.astype(np.float64)
        yield Operation("product", {"matrix": matrix})
        yield _affine(shift_for(matrix), 0.0)
        yield Operation("trunc")
    else:
        raise InputError(NOT_OFFERED.format(why="it has a released hidden layer"))
    yield Operation("normalise")


def _dense(model: Model) -> Iterator[Operation]:
    yield _affine(1.0 / LIMIT, 0.0)
    for index, (weight, offset) in enumerate(model.layers):
        if index:
            yield Operation("rectify")
        yield Operation("product", {"matrix": np.asarray(weight, np.float64)})
        yield _affine(1.0, np.asarray(offset, np.float64))


def _affine(scale: Any, offset: Any) -> Operation:
    return Operation(
        "affine",
        {
            "scale": np.atleast_1d(np.asarray(scale, np.float64)),
            "offset": np.atleast_1d(np.asarray(offset, np.float64)),
        },
    )
