"""What changes when an input is taken away, that is set to the middle of its public range: for models that no
linear chain leads through, like random cosines of a table's columns.

Where the head is linear in rows and the law of its noise is known, what an input contributes is linear in the
head too, and the interval is that of the noise; else it is that of the mean over the drawn records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.models.explain import DRAWS, QUANTILES, Law, back_of, names_of, noise_of, owners
from airlock.models.explained import Array, Explanation
from airlock.models.features.images import cells_down_and_across
from airlock.models.features.rows import LIMIT
from airlock.models.model import Model

MIDDLE = 0.5
COUNT = 256
"""Records that are drawn evenly within the public bounds."""


def taken_away(model: Model, records: NDArray[Any]) -> Array:
    """What changes in each score, (n, inputs, classes): of tables by a column, of pictures by a cell."""
    whole = _centred(model.logits(records))
    parts = [whole - _centred(model.logits(without(records, place))) for place in places_of(model)]
    return np.stack(parts, axis=1)


def without(records: NDArray[Any], place: tuple[Any, ...]) -> NDArray[Any]:
    """The same records, with one input in the middle of its range."""
    changed = records.copy()
    changed[(slice(None), *place)] = 128 if records.dtype == np.uint8 else MIDDLE
    return changed


def places_of(model: Model) -> list[tuple[Any, ...]]:
    """Where each input stands in an encoded record."""
    if model.kind == "tabular":
        return [(index,) for index in range(model.shape[0])]
    down, across = cells_down_and_across(model.shape)
    height, width = (-(-side // count) for side, count in zip(model.shape, (down, across), strict=False))
    return [
        (slice(row * height, (row + 1) * height), slice(column * width, (column + 1) * width))
        for row in range(down)
        for column in range(across)
    ]


def _centred(scores: Array) -> Array:
    """Above the mean of all classes; a number is itself."""
    above: Array = scores if scores.shape[1] == 1 else scores - scores.mean(axis=1, keepdims=True)
    return above


def of_middle(
    model: Model, columns: Sequence[str] | None = None, law: Law | None = None
) -> Explanation | None:
    """For tables: what taking an input away changes, over records drawn evenly within the public bounds; None
    for pictures, which no even draw looks like.
    """
    if model.kind != "tabular" or getattr(model, "reconstructs", False):
        return None
    records = np.random.Generator(np.random.PCG64(0)).random((COUNT, *model.shape))
    answers = model.predict(records)
    found = taken_away(model, records)
    names, grid = names_of(model, columns)
    empty = np.zeros((len(names), len(model.labels)))
    result = Explanation(names, grid, model.labels, empty, empty.copy(), empty.copy(), empty.copy(), None)
    for place in range(len(model.labels)):
        part = found[_own(answers, place)][:, :, place]
        mean, error = part.mean(axis=0), part.std(axis=0) / np.sqrt(len(part))
        result.relevance[:, place] = mean
        result.low[:, place], result.high[:, place] = mean - 2 * error, mean + 2 * error
        slopes = ((records.reshape(COUNT, -1) - MIDDLE) * found[:, :, place]).mean(axis=0)
        result.direction[:, place] = np.sign(slopes)
    return result if law is None else _by_law(model, law, result, records, answers)


def _own(answers: NDArray[np.int64], place: int) -> NDArray[np.bool_]:
    """The records that the model says are of a class; all where it says that of none."""
    own: NDArray[np.bool_] = answers == place
    return own if own.any() else np.ones(len(answers), bool)


def _by_law(
    model: Model, law: Law, found: Explanation, records: NDArray[Any], answers: NDArray[np.int64]
) -> Explanation:
    """The same, with the interval that noise drawn again would give, and with the noise of every input."""
    whole, changes = _rows(model, records), list[Array]()
    for place in places_of(model):
        apart = whole - _rows(model, without(records, place))
        changes.append(np.stack([apart[_own(answers, one)].mean(axis=0) for one in range(len(found.labels))]))
    moved, drawn = np.stack(changes), []
    generator = np.random.Generator(np.random.PCG64(0))
    for _ in range(DRAWS):
        error = generator.standard_normal(law.moments.cross.shape) * law.deviation
        head = model.layers[0][0] + law.moments.solve(error, law.ridge)
        drawn.append(np.einsum("jkp,pk->jk", moved, head - head.mean(axis=1, keepdims=True)))
    low, high = np.quantile(np.stack(drawn), QUANTILES, axis=0)
    groups = owners(model)
    noise = None if groups is None else noise_of(law.moments, law.cross_deviation, back_of(model), groups)
    return Explanation(
        found.names,
        found.grid,
        found.labels,
        found.relevance,
        np.minimum(low, found.relevance),
        np.maximum(high, found.relevance),
        found.direction,
        noise,
    )


def _rows(model: Model, records: NDArray[Any]) -> Array:
    """What the head is given, in units where rows have norm 1."""
    valid = np.ones(len(records), np.uint8)
    rows = model.map(model.before(records) if model.before else records, valid)
    for step in model.steps:
        rows = step(rows, valid)
    return rows / LIMIT
