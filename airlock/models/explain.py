"""What each input contributes to each class, from a model and its release alone: post-processing, no charge.

Layer-wise relevance propagation (the epsilon rule, airlock/models/lrp.py) through the released steps and the
head. Between the feature map and the last layer every step is linear but for the length that rows are scaled
to; a length belongs to the whole row, so relevance passes it unchanged. What propagation starts with is a
class's score above the mean of all scores, so that a sign says for or against the class.

Features become inputs where a map says which input each is of: the columns of a table, the cells of a
picture. Models of any other form are asked what changes when an input is set to the middle of its range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.errors import InputError
from airlock.models.features.images import cells_down_and_across
from airlock.models.features.projection import Centre, Whiten
from airlock.models.features.rows import LIMIT
from airlock.models.model import Layers, Model
from airlock.models.moments import Moments

Array = NDArray[np.float64]
STABILISER = 1e-9
"""Of the epsilon rule, against 0 / 0."""
DRAWS = 50
"""Of the noise's law, for an interval."""
QUANTILES = (0.05, 0.95)
MIDDLE = 0.5
"""What an input is set to where it is taken away: the middle of its public range."""


@dataclass(frozen=True)
class Explanation:
    """What a release says about its inputs.

    Attributes:
        names: of the inputs: columns of the encoded table, or "down x across" of a cell.
        grid: cells down and across, of pictures.
        labels: of the classes.
        relevance: (inputs, classes): mean contribution to a class's score over its own records.
        low, high: of the same, where noise is drawn again by its law (QUANTILES).
        direction: (inputs, classes): what a larger input does to a class's score, +1 or -1; 0 for cells.
        noise: of each input, after all steps: standard deviation of the noise on its moments, in units of the
            input's own spread over all records; None where it cannot be told.
    """

    names: tuple[str, ...]
    grid: tuple[int, int] | None
    labels: tuple[str, ...]
    relevance: Array
    low: Array
    high: Array
    direction: Array
    noise: Array | None

    @property
    def overall(self) -> Array:
        """Of each input for all classes: the mean size of what it contributes."""
        size: Array = np.abs(self.relevance).mean(axis=1)
        return size


def propagate(rows: Array, layers: Layers, start: Array | None = None) -> Array:
    """Relevance of every entry of `rows` for every class, (n, width, classes), through dense layers with
    rectifiers between them.

    `start` is the matrix that turns scores into what is propagated, (classes, classes); by default a score
    above the mean of all.
    """
    classes = layers[-1][0].shape[1]
    start = np.eye(classes) - 1.0 / classes if start is None else start
    inputs = [rows]
    for weight, offset in layers[:-1]:
        inputs.append(np.maximum(inputs[-1] @ weight + offset, 0.0))
    # The last layer with the start put behind it is a layer again.
    last = (layers[-1][0] @ start, layers[-1][1] @ start)
    relevance = inputs[-1][:, :, None] * last[0][None]
    for active, (weight, offset) in zip(inputs[-2::-1], reversed(list(layers[:-1])), strict=True):
        sums = active @ weight + offset
        part = relevance / (sums + np.where(sums >= 0, STABILISER, -STABILISER))[:, :, None]
        relevance = active[:, :, None] * np.einsum("pm,nmk->npk", weight, part)
    return relevance


def linear_chain(model: Model) -> Layers | None:
    """The layers behind a model's centred rows, whitening among them; None for another form, for numbers,
    which have no classes to compare, and behind quantiles.
    """
    steps = list(model.steps)
    if (
        type(model) is not Model
        or model.number
        or model.before
        or not steps
        or not isinstance(steps[0], Centre)
    ):
        return None
    if len(steps) > 2 or (len(steps) == 2 and whitening(model) is None):
        return None
    layers, matrix = list(model.layers), whitening(model)
    if matrix is not None:
        layers[0] = (matrix @ layers[0][0], layers[0][1])
    return layers


def whitening(model: Model) -> Array | None:
    """The matrix that rows are whitened by, where they are."""
    step = model.steps[1] if len(model.steps) > 1 else None
    return step.matrix.astype(np.float64) if isinstance(step, Whiten) else None


def of_records(model: Model, records: NDArray[Any]) -> Array:
    """What each input of each record contributes to each class, (n, inputs, classes)."""
    layers = linear_chain(model)
    inputs = inputs_of(model) if layers else None
    if layers is None or inputs is None:
        return _taken_away(model, records)
    valid, matrix = np.ones(len(records), np.uint8), whitening(model)
    rows = model.steps[0](model.map(records, valid), valid)
    lengths = np.full(len(rows), float(LIMIT)) if matrix is None else np.linalg.norm(rows @ matrix, axis=1)
    found = propagate(rows / np.maximum(lengths, 1e-300)[:, None], layers)
    return np.stack([summed(one, inputs) for one in found])


def inputs_of(model: Model) -> int | tuple[int, int] | None:
    """How features belong to inputs: so many columns, each with one feature; cells down and across, each with
    its channels; None where it is not known.
    """
    width = model.map.width
    if model.kind == "tabular":
        return width if width == model.shape[0] else None
    grid = cells_down_and_across(model.shape)
    return grid if width % (grid[0] * grid[1]) == 0 else None


def summed(values: Array, inputs: int | tuple[int, int]) -> Array:
    """Features added up to inputs; a constant column belongs to none."""
    if isinstance(inputs, int):
        return values[:inputs]
    cells = inputs[0] * inputs[1]
    total: Array = values.reshape(-1, cells, *values.shape[1:]).sum(axis=0)
    return total


def _taken_away(model: Model, records: NDArray[Any]) -> Array:
    """What changes in each score when an input is set to the middle: of tables a column, of pictures a cell."""
    whole = _centred(model.logits(records))
    parts = []
    for place in places_of(model):
        changed = records.copy()
        changed[(slice(None), *place)] = 128 if records.dtype == np.uint8 else MIDDLE
        parts.append(whole - _centred(model.logits(changed)))
    return np.stack(parts, axis=1)


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


def names_of(
    model: Model, columns: Sequence[str] | None = None
) -> tuple[tuple[str, ...], tuple[int, int] | None]:
    """Names of a model's inputs, and their grid where they are cells of a picture."""
    if model.kind == "tabular":
        count = model.shape[0]
        known = list(columns or [])
        return tuple(
            known if len(known) == count else (f"column {index + 1}" for index in range(count))
        ), None
    grid = cells_down_and_across(model.shape)
    return tuple(f"{row + 1} x {column + 1}" for row in range(grid[0]) for column in range(grid[1])), grid


@dataclass(frozen=True)
class Law:
    """The noise on a head: it moves the head by (G + ridge r)^-1 E, E of independent entries of this deviation
    for rows of norm 1.
    """

    moments: Moments
    ridge: float | None
    deviation: float
    cross_deviation: float


def of_release(model: Model, law: Law, columns: Sequence[str] | None = None) -> Explanation | None:
    """What the released moments say about every input, with an interval from the noise's law; None for a
    model that is not a linear head on released steps.
    """
    inputs = inputs_of(model) if linear_chain(model) else None
    if inputs is None or len(model.layers) != 1:
        return None
    names, grid = names_of(model, columns)
    head, moments, forth = model.layers[0][0], law.moments, whitening(model)
    if forth is not None:
        forth = forth / np.linalg.norm(forth)
    back: Array | None = None if forth is None else np.linalg.inv(forth).astype(np.float64)

    def relevance(weights: Array, cross: Array) -> Array:
        means = class_means(cross, moments.n)
        seen = weights - weights.mean(axis=1, keepdims=True)
        features = (means if back is None else means @ back) * (seen if forth is None else forth @ seen).T
        return summed(features.T, inputs)

    generator = np.random.Generator(np.random.PCG64(0))
    drawn = []
    for _ in range(DRAWS):
        error = generator.standard_normal(moments.cross.shape)
        moved = head + moments.solve(error * law.deviation, law.ridge)
        drawn.append(relevance(moved, moments.cross + error * law.cross_deviation))
    low, high = np.quantile(np.stack(drawn), QUANTILES, axis=0)
    found = relevance(head, moments.cross)
    seen = head - head.mean(axis=1, keepdims=True)
    direction = (
        np.sign(summed(seen if forth is None else forth @ seen, inputs)) if grid is None else 0 * found
    )
    return Explanation(
        names,
        grid,
        model.labels,
        found,
        np.minimum(low, found),
        np.maximum(high, found),
        direction,
        noise_of(moments, law.cross_deviation, back, inputs),
    )


def class_means(cross: Array, n: int) -> Array:
    """Mean rows of each class, (classes, width), about the mean of all, from sums of a (e_y - 1/M)^T.

    Classes are taken to be of one size: how large they are was not released.
    """
    classes = cross.shape[1]
    means: Array = (cross - cross.mean(axis=1, keepdims=True)).T * (classes / n)
    return means


def noise_of(moments: Moments, deviation: float, back: Array | None, inputs: int | tuple[int, int]) -> Array:
    """Of each input: the deviation of the noise on its moments with a class, over its own spread times the
    square root of n: how much noise stands before what could be seen of it.

    Noise of one size in whitened rows is noise of the shape of T^-1 in the features: more in absolute terms
    where records spread, less in units of that spread.
    """
    gram = (moments.vectors * np.maximum(moments.values, 0.0)) @ moments.vectors.T
    spread = gram if back is None else back.T @ gram @ back
    carried = np.ones(len(gram)) if back is None else (back * back).sum(axis=0)
    parts = [summed(one[:, None], inputs)[:, 0] for one in (carried, np.diag(spread))]
    relative: Array = deviation * np.sqrt(
        parts[0] / np.maximum(parts[1], 1e-12 * max(float(parts[1].max()), 1e-300))
    )
    return relative


def table_of(found: Explanation) -> dict[str, list[Any]]:
    """As columns of a Parquet file: a row for each input and class."""
    inputs, classes = found.relevance.shape
    noise = [None] * inputs if found.noise is None else [float(one) for one in found.noise]
    return {
        "input": [found.names[place] for place in range(inputs) for _ in range(classes)],
        "class": [label for _ in range(inputs) for label in found.labels],
        "relevance": found.relevance.ravel().tolist(),
        "low": found.low.ravel().tolist(),
        "high": found.high.ravel().tolist(),
        "direction": found.direction.ravel().tolist(),
        "noise": [noise[place] for place in range(inputs) for _ in range(classes)],
    }


def explanation_of(table: Mapping[str, Sequence[Any]], grid: tuple[int, int] | None) -> Explanation:
    """The inverse of `table_of`."""
    labels = tuple(dict.fromkeys(str(one) for one in table["class"]))
    shape = (-1, len(labels))
    arrays = {
        name: np.array(table[name], float).reshape(shape)
        for name in ("relevance", "low", "high", "direction")
    }
    noise = [table["noise"][place] for place in range(0, len(table["noise"]), len(labels))]
    return Explanation(
        tuple(str(one) for one in table["input"][:: len(labels)]),
        grid,
        labels,
        **arrays,
        noise=None if any(one is None for one in noise) else np.array(noise, float),
    )


def of_middle(model: Model, columns: Sequence[str] | None = None, *, count: int = 256) -> Explanation | None:
    """For tables and models of any other form: what taking an input away changes, over records drawn evenly
    within the public bounds; None for pictures, which no even draw looks like.

    The interval is that of the mean over the drawn records; the noise is not known here.
    """
    if model.kind != "tabular" or getattr(model, "reconstructs", False):
        return None
    records = np.random.Generator(np.random.PCG64(0)).random((count, *model.shape))
    answers = model.predict(records)
    found = _taken_away(model, records)
    names, grid = names_of(model, columns)
    classes, empty = len(model.labels), np.zeros((len(names), len(model.labels)))
    result = Explanation(names, grid, model.labels, empty, empty.copy(), empty.copy(), empty.copy(), None)
    for place in range(classes):
        own = answers == place if (answers == place).any() else np.ones(count, bool)
        part = found[own][:, :, place]
        mean, error = part.mean(axis=0), part.std(axis=0) / np.sqrt(len(part))
        result.relevance[:, place] = mean
        result.low[:, place], result.high[:, place] = mean - 2 * error, mean + 2 * error
        slopes = ((records.reshape(count, -1) - MIDDLE) * found[:, :, place]).mean(axis=0)
        result.direction[:, place] = np.sign(slopes)
    return result


def read(path: Path) -> Explanation:
    """What a train stage wrote beside its model.

    Raises:
        InputError: there is nothing, or it is damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
        grid = (table.schema.metadata or {}).get(b"grid", b"").decode()
        down, _, across = grid.partition(",")
        found = explanation_of(table.to_pydict(), (int(down), int(across)) if grid else None)
    except FileNotFoundError:
        raise InputError(
            f"{path.parent} says nothing about its inputs: give a FILE of records, or run `dvc repro train` again"
        ) from None
    except (pa.ArrowException, OSError, KeyError, ValueError, TypeError, IndexError):
        raise InputError(f"{path} is damaged: run `dvc repro train` or `dvc pull` again") from None
    return found
