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
from airlock.models.features import tables
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
    """One step: `name` is one of affine, sqrt, trunc, shorten, normalise, append, product, rectify."""

    name: str
    tensors: dict[str, NDArray[np.float64]] = field(default_factory=dict)


def program_of(model: Model) -> list[Operation]:
    """The operations from encoded records, numbers in [0, 1], to logits.

    Raises:
        InputError: the model has a part that is no short list of operations.
    """
    if type(model) is not Model or model.kind != "tabular" or model.features != "tabular-2":
        raise InputError(NOT_OFFERED.format(why=f"its feature map '{model.features}' or its kind"))
    return [*_linear(model.shape[0]), *(each for step in model.steps for each in _step(step)), *_dense(model)]


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
