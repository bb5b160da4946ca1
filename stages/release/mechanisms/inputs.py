"""`inputs`: the distribution of a table's inputs, once, for any target, model and tool (docs/inputs.md; the
proof is docs/proofs/inputs.md).

Every column, the label among them, is divided into bins. What is released is the Gram matrix of the one-hot
bins, which is every table of one and of two columns, in coordinates in which a record is short
(airlock/models/marginals.py). Two passes release histograms of the numbers first, at two levels
(airlock/models/histograms.py), and put the edges of bins where records are; one pass takes edges from public
bounds alone.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from airlock.errors import ParamsError, ReleaseError
from airlock.models import bins as binning
from airlock.models.bins import Binned, Bins, Column, Edges, even_edges, merged_edges
from airlock.models.histograms import ENERGY, Levels
from airlock.models.marginals import GRID, Layout, Weights, one_hot, vector_of
from airlock.params import Params, Section, check
from airlock.privacy import calibration, sensitivity, sums
from airlock.privacy.plan import Facts, Plan
from airlock.records.encoding import unpack
from stages.mechanisms import Given, Released, makes, makes_nothing, no_relevance
from stages.release import passes
from stages.release.noisy_sums import NoisySums, Query, check_size, guarantee, price
from stages.release.units import check_local, moved_records, records_per_unit

NAME, VERSION = "inputs", 2
ARGUMENT = "docs/proofs/inputs.md#guarantee"
MOST_COLUMNS = 128
MOST_CELLS = 2**22
LEAST_BINS, MOST_BINS, MOST_ASKED = 3, 32, 64
# docs/inputs.md says on which tables these were chosen.
HISTOGRAM_SHARE = 0.3
RECORDS_PER_BIN = 2.0
SINGLE_ENERGY, LABEL_ENERGY = 2.0, 2.0
"""Of all tables of one column, and of all those with the label, beside that of all other tables."""


class Options(Section):
    """release.options of `inputs`; None means from public facts.

    Attributes:
        bins: of a number.
        histogram_share: of mu squared, for the fine histograms of two passes.
        single_weight, label_weight: loudness of tables of one column, and of those with the label, beside
            that of other tables, which is 1.
    """

    bins: int | None = Field(None, ge=2, le=MOST_ASKED)
    histogram_share: float = Field(HISTOGRAM_SHARE, gt=0, lt=1)
    single_weight: float | None = Field(None, ge=2.0**-6, le=2.0**6)
    label_weight: float | None = Field(None, ge=2.0**-6, le=2.0**6)


@dataclass(frozen=True)
class Recipe:
    """Everything that shapes the released bytes, resolved from parameters and public facts.

    Attributes:
        columns: the label is the last.
        wide, fine: edges of the histograms at both levels; empty for a column that has none.
        even: edges of the bins where there is one pass only.
        bins: of a number at most.
    """

    columns: tuple[Column, ...]
    wide: tuple[Edges, ...]
    fine: tuple[Edges, ...]
    even: tuple[Edges, ...]
    bins: int
    passes: int
    shares: dict[str, float]
    weights: Weights
    per_unit: int
    moved: dict[str, Any] = field(default_factory=dict)

    @property
    def refined(self) -> list[int]:
        """The columns whose histogram comes first, where there are two passes."""
        if self.passes == 1:
            return []
        return [place for place, edges in enumerate(self.fine) if len(edges) >= self.bins]

    def levels(self, place: int) -> Levels:
        """Of a column whose histogram comes first."""
        return Levels(self.wide[place], self.fine[place], self.columns[place].missing)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Bins of each column at most."""
        return tuple(
            Binned(column, edges[: self.bins - 1]).bins if self.passes == 2 else Binned(column, even).bins
            for column, edges, even in zip(self.columns, self.fine, self.even, strict=True)
        )


def resolve(params: Params, facts: Facts) -> Recipe:
    """Settle bins, passes and shares.

    Raises:
        ParamsError: it is not offered for such records.
    """
    options = check(Options, params.release.options, "params.yaml: release.options")
    check_local(params, NAME)
    columns = _columns(params, facts)
    weights = _weights(options, len(columns))
    check_size(facts.n, math.ceil(max(1.0, weights.single, weights.label)) * GRID)
    per_unit = records_per_unit(params, facts)
    mu = _mu(params)
    reads = params.release.passes
    bins = options.bins or _bins(facts.n, len(columns), mu / per_unit)
    if reads == "auto":
        reads = 2
    if reads not in (1, 2):
        raise ParamsError(f"params.yaml: release.passes {reads} is not offered by '{NAME}': use auto, 1 or 2")
    while True:
        wide, fine, even = (
            tuple(even_edges(column, size) for column in columns)
            for size in (binning.WIDE_BINS, binning.FINE, bins)
        )
        recipe = Recipe(
            columns,
            wide,
            fine,
            even,
            bins,
            reads,
            {"tables": 1.0},
            weights,
            per_unit,
            moved_records(params, facts),
        )
        if Layout(recipe.sizes).cells <= MOST_CELLS or bins == LEAST_BINS or options.bins:
            break
        bins -= 1
    if (cells := Layout(recipe.sizes).cells) > MOST_CELLS:
        widest = max(columns, key=lambda column: column.width)
        raise ParamsError(
            f"params.yaml: '{NAME}' would release {cells:,} cells, more than {MOST_CELLS:,}: ask for fewer "
            f"bins, or give column '{widest.name}' fewer categories"
        )
    if reads == 2 and recipe.refined:
        share = options.histogram_share
        return replace(recipe, shares={"histograms": share, "tables": 1.0 - share})
    return replace(recipe, passes=1)


def _columns(params: Params, facts: Facts) -> tuple[Column, ...]:
    """The schema's columns and the label.

    Raises:
        ParamsError: the records are no table, have slots for friends, or too many columns.
    """
    if facts.kind != "tabular":
        raise ParamsError(
            f"params.yaml: '{NAME}' is for tables: use coefficients for {facts.kind} data, which is more "
            "accurate there (docs/inputs.md)"
        )
    if params.relevance.weighs:
        raise ParamsError(f"params.yaml: '{NAME}' takes every column as it is: set relevance.mode to auto")
    if params.release.features != "auto":
        raise ParamsError(
            f"params.yaml: '{NAME}' has bins instead of a feature map: set release.features to auto"
        )
    known = (
        tuple(Column.from_json(one) for one in facts.columns)
        if facts.columns is not None
        else binning.plain_columns(facts.shape[0])
    )
    if len(known) + 1 > MOST_COLUMNS:
        raise ParamsError(
            f"params.yaml: '{NAME}' takes tables of up to {MOST_COLUMNS - 1} columns and this one has "
            f"{len(known)}: use coefficients, or list columns under `ignored` in the schema"
        )
    if sum(column.places for column in known) != facts.shape[0]:
        raise ParamsError("data/sealed was made for another schema: run `dvc repro ingest`")
    return (*known, binning.label_column(facts.label, facts.labels))


def _mu(params: Params) -> float:
    try:
        return calibration.gaussian_mu(params.release.epsilon, params.release.delta)
    except ValueError as error:
        raise ParamsError(f"params.yaml: release: {error}") from None


def _bins(n: int, columns: int, mu: float) -> int:
    """As many bins as leave a cell of two numbers RECORDS_PER_BIN deviations of its noise."""
    deviation = columns / (math.sqrt(2) * mu)
    return max(LEAST_BINS, min(MOST_BINS, math.floor(math.sqrt(n / (RECORDS_PER_BIN * deviation)))))


def _weights(options: Options, columns: int) -> Weights:
    """Tables of one column, and those with the label, are few beside all others, and most is asked of them."""
    return Weights(
        options.single_weight or math.sqrt(max(1.0, SINGLE_ENERGY * (columns - 1) / 2)),
        options.label_weight or math.sqrt(max(1.0, LABEL_ENERGY * (columns - 1) / 2)),
        1.0,
    )


def queries(recipe: Recipe, params: Params) -> list[Query]:
    """The noisy sums of the passes, in order."""
    near = params.release.neighbours
    fine = sum(recipe.levels(place).size for place in recipe.refined)
    reach = sensitivity.histograms(len(recipe.refined), energy=ENERGY, neighbours=near)
    weights = asdict(recipe.weights)
    tables = sensitivity.marginals(recipe.sizes, grid=GRID, neighbours=near, **weights)
    asked = (
        Query("histograms", 1, reach, "gaussian", fine),
        Query("tables", recipe.passes, tables, "gaussian", Layout(recipe.sizes).cells),
    )
    return [
        query.of_unit(recipe.per_unit).with_share(recipe.shares[query.purpose])
        for query in asked
        if query.purpose in recipe.shares
    ]


def plan(params: Params, facts: Facts) -> Plan:
    """The price of a release, from parameters and public facts alone."""
    recipe = resolve(params, facts)
    priced = price(queries(recipe, params), params.release)
    proven = guarantee(priced, params.release, argument=ARGUMENT)
    parameters = {
        "epsilon": params.release.epsilon,
        "delta": params.release.delta,
        "bins": recipe.bins,
        "sizes": list(recipe.sizes),
        "passes": recipe.passes,
        "shares": recipe.shares,
        "weights": asdict(recipe.weights),
        **recipe.moved,
    }
    return Plan(NAME, VERSION, parameters, passes=recipe.passes, proven=proven)


relevance, make_relevance = no_relevance, makes_nothing


@makes
def make(given: Given) -> Released:
    """Read the records once or twice and release their tables: integers, and what a reader must know about
    them.
    """
    params, facts = given.params, given.facts
    recipe = resolve(params, facts)
    priced = price(queries(recipe, params), params.release)
    noisy_sums = NoisySums(priced, key=given.key, release_id=given.release_id)
    counter = Counter(given.reader, facts)
    edges = recipe.even
    if recipe.passes == 2:
        edges = _placed_edges(recipe, noisy_sums.add_noise("histograms", counter.histograms(recipe)))
    table = Bins(tuple(Binned(column, one) for column, one in zip(recipe.columns, edges, strict=True)))
    layout = Layout(table.sizes, recipe.weights)
    noisy_sums.add_noise("tables", vector_of(counter.gram(table), layout))
    if counter.passes != recipe.passes:
        raise ReleaseError(f"the records were read {counter.passes} times, but {recipe.passes} were priced")
    return dict(noisy_sums.released), {
        "columns": [asdict(column) for column in recipe.columns],
        "edges": [list(one) for one in edges],
        "wide": _first(recipe.wide, recipe),
        "fine": _first(recipe.fine, recipe),
        "weights": asdict(recipe.weights),
        "grid": GRID,
        "sums": noisy_sums.details(),
    }


def _first(edges: tuple[Edges, ...], recipe: Recipe) -> list[list[float]]:
    """Edges of the columns whose histogram comes first."""
    return [list(one) if place in recipe.refined else [] for place, one in enumerate(edges)]


def _placed_edges(recipe: Recipe, noisy: NDArray[np.int64]) -> tuple[Edges, ...]:
    """Edges of bins with about as many records each, by the released histograms."""
    edges, place = [one[: recipe.bins - 1] for one in recipe.fine], 0
    for column in recipe.refined:
        levels = recipe.levels(column)
        counts = levels.placed(noisy[place : place + levels.size])
        edges[column] = merged_edges(levels.narrow, counts, recipe.bins)
        place += levels.size
    return tuple(edges)


class Counter:
    """Counts in bins over the sealed records, pass by pass: exact integers, in any order."""

    def __init__(self, reader: Any, facts: Facts) -> None:
        self._reader, self._shape, self.passes = reader, facts.shape, 0

    def histograms(self, recipe: Recipe) -> NDArray[np.int64]:
        """One pass: both levels of the columns that have them, one after another."""
        columns = [
            Binned(column, recipe.fine[place] if place in recipe.refined else ())
            for place, column in enumerate(recipe.columns)
        ]
        table = Bins(tuple(columns))

        def count(batch: Any) -> NDArray[np.int64]:
            encoded = unpack(batch, self._shape)
            found = table.of(encoded.x, encoded.y)[encoded.valid > 0]
            return np.concatenate(
                [
                    recipe.levels(place).vector(np.bincount(found[:, place], minlength=columns[place].bins))
                    for place in recipe.refined
                ]
            )

        return self._sum(count)

    def gram(self, table: Bins) -> NDArray[np.int64]:
        """One pass: the Gram matrix of the one-hot bins."""

        def count(batch: Any) -> NDArray[np.int64]:
            encoded = unpack(batch, self._shape)
            rows = one_hot(table.of(encoded.x, encoded.y), encoded.valid, table.sizes)
            return sums.multiply(rows, rows, (1, 1))

        return self._sum(count)

    def _sum(self, count: Any) -> NDArray[np.int64]:
        self.passes += 1
        batches = (self._reader.read(index) for index in range(self._reader.chunks))
        parts = passes.bounded_map(count, batches)
        total: NDArray[np.int64] = next(parts)
        for part in parts:
            total = total + part
        return total
