"""What each input contributes to each class, from a model and its release alone: post-processing, no charge.

Layer-wise relevance propagation (the epsilon rule, airlock/models/lrp.py) through the released steps and the
head. Between the feature map and the last layer every step is linear but for the length that rows are scaled
to; a length belongs to the whole row, so relevance passes it unchanged. What propagation starts with is a
class's score above the mean of all scores, so that a sign says for or against the class.

Features become inputs where a map says which input each is of: the columns of a table, the cells of a
picture. A cosine of a table's columns is of all of them, by what each adds to its phase. Models of any other
form are asked what changes when an input is set to the middle of its range (airlock/models/taken_away.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.models.explained import Explanation
from airlock.models.features import hybrid
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
        from airlock.models.taken_away import taken_away

        return taken_away(model, records)
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


def owners(model: Model) -> NDArray[np.int64] | None:
    """Of each feature the input that it is of; -1 for what mixes inputs, like a cosine; None where it is not
    known.
    """
    inputs = inputs_of(model)
    if isinstance(inputs, int):
        return np.arange(inputs)
    if inputs is not None:
        return np.arange(model.map.width) % (inputs[0] * inputs[1])
    return hybrid.owners(model.features) if model.kind == "tabular" else None


def summed(values: Array, inputs: int | tuple[int, int]) -> Array:
    """Features added up to inputs; a constant column belongs to none."""
    if isinstance(inputs, int):
        return values[:inputs]
    cells = inputs[0] * inputs[1]
    total: Array = values.reshape(-1, cells, *values.shape[1:]).sum(axis=0)
    return total


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
    if linear_chain(model) is None or len(model.layers) != 1:
        return None
    names, grid = names_of(model, columns)
    head, moments, forth, back = model.layers[0][0], law.moments, whitening(model), back_of(model)
    parts, groups = shares_of(model, moments, back), owners(model)
    if parts is None or groups is None:
        return None
    if forth is not None:
        forth = forth / np.linalg.norm(forth)

    def slopes(weights: Array) -> Array:
        seen = weights - weights.mean(axis=1, keepdims=True)
        carried: Array = seen if forth is None else forth @ seen
        return carried[: parts.shape[1]]

    def relevance(weights: Array, cross: Array) -> Array:
        means = class_means(cross, moments.n)
        features = (means if back is None else means @ back)[:, : parts.shape[1]] * slopes(weights).T
        return parts @ features.T

    generator = np.random.Generator(np.random.PCG64(0))
    drawn = []
    for _ in range(DRAWS):
        error = generator.standard_normal(moments.cross.shape)
        moved = head + moments.solve(error * law.deviation, law.ridge)
        drawn.append(relevance(moved, moments.cross + error * law.cross_deviation))
    low, high = np.quantile(np.stack(drawn), QUANTILES, axis=0)
    found = relevance(head, moments.cross)
    return Explanation(
        names,
        grid,
        model.labels,
        found,
        np.minimum(low, found),
        np.maximum(high, found),
        _directions(slopes(head), groups) if grid is None else 0 * found,
        noise_of(moments, law.cross_deviation, back, groups),
    )


def _directions(slopes: Array, groups: NDArray[np.int64]) -> Array:
    """What a larger column does to each score, +1 or -1, by the one feature that is the column itself; 0 for a
    column that is spread over several.
    """
    counts = np.bincount(groups[groups >= 0])
    single = np.flatnonzero((groups >= 0) & (counts[groups] == 1))
    found = np.zeros((len(counts), slopes.shape[1]))
    found[groups[single]] = np.sign(slopes[single])
    return found


def shares_of(model: Model, moments: Moments, back: Array | None) -> Array | None:
    """How much of each feature belongs to each input, (inputs, features); None where it is not known."""
    groups = owners(model)
    if groups is None:
        return None
    if (groups >= 0).all():
        return np.asarray(groups == np.arange(groups.max() + 1)[:, None], np.float64)
    return hybrid.shares(model.features, spreads_of(moments, back))


def spreads_of(moments: Moments, back: Array | None) -> Array:
    """Of each feature of the centred rows, the sum of squares over the records."""
    gram = (moments.vectors * np.maximum(moments.values, 0.0)) @ moments.vectors.T
    spread = gram if back is None else back.T @ gram @ back
    sizes: Array = np.maximum(np.diag(spread), 0.0)
    return sizes


def back_of(model: Model) -> Array | None:
    """The way back from whitened rows, but for a factor; None where rows are not whitened."""
    forth = whitening(model)
    if forth is None:
        return None
    back: Array = np.linalg.inv(forth / np.linalg.norm(forth))
    return back


def class_means(cross: Array, n: int) -> Array:
    """Mean rows of each class, (classes, width), about the mean of all, from sums of a (e_y - 1/M)^T.

    Classes are taken to be of one size: how large they are was not released.
    """
    classes = cross.shape[1]
    means: Array = (cross - cross.mean(axis=1, keepdims=True)).T * (classes / n)
    return means


def noise_of(moments: Moments, deviation: float, back: Array | None, groups: NDArray[np.int64]) -> Array:
    """Of each input: the deviation of the noise on its moments with a class, over its own spread times the
    square root of n: how much noise stands before what could be seen of it.

    Noise of one size in whitened rows is noise of the shape of T^-1 in the features: more in absolute terms
    where records spread, less in units of that spread. `groups` says of which input each feature is.
    """
    spread = spreads_of(moments, back)
    carried = np.ones(len(spread)) if back is None else (back * back).sum(axis=0)
    own = np.flatnonzero(groups >= 0)
    noise, size = (np.bincount(groups[own], weights=one[own]) for one in (carried, spread))
    relative: Array = deviation * np.sqrt(noise / np.maximum(size, 1e-12 * max(float(size.max()), 1e-300)))
    return relative
