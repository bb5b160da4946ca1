"""`bounds`: private bounds of numbers, for owners who do not know theirs: noisy counts on a public grid of
powers of two (the proof is docs/proofs/inputs.md#bounds).

The schema names bounds that are wide enough for anything; each record falls into one bin of each column in
question. Bounds are the outermost bins whose noisy counts no empty bin reaches, but for a chance of 5 %.
"""

from __future__ import annotations

import difflib
import math
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.errors import ParamsError
from airlock.models.bins import Binned, Bins, Column, Edges, label_column, plain_columns
from airlock.params import Params, Section, check
from airlock.privacy import sensitivity
from airlock.privacy.plan import Facts, Plan
from airlock.records.encoding import unpack
from stages.mechanisms import Given, Released, makes, makes_nothing, no_relevance
from stages.release import passes
from stages.release.noisy_sums import NoisySums, Query, check_size, guarantee, price
from stages.release.units import check_local, moved_records, records_per_unit

NAME, VERSION = "bounds", 1
ARGUMENT = "docs/proofs/inputs.md#bounds"
SMALLEST, LARGEST = -20, 60
"""Exponents of two of the grid."""
FINEST = 2.0**-44
"""Of the schema's range: smaller steps are lost when a value is encoded."""
CHANCE = 0.05
MOST_COLUMNS = 128


class Options(Section):
    """release.options of `bounds`: the columns in question; all numbers where none is named."""

    columns: tuple[str, ...] = ()


def power_edges(low: float, high: float) -> Edges:
    """Zero, and powers of two on both sides of it, within the schema's bounds; in the encoded range."""
    powers = [2.0**exponent for exponent in range(SMALLEST, LARGEST + 1)]
    values = sorted({0.0, *powers, *(-power for power in powers)})
    inside = [value for value in values if low < value < high]
    found: list[float] = []
    for value in inside:
        place = (value - low) / (high - low)
        if place - (found[-1] if found else 0.0) >= FINEST and 1.0 - place >= FINEST:
            found.append(place)
    return tuple(found)


def resolve(params: Params, facts: Facts) -> tuple[Bins, list[int]]:
    """All columns with their bins, and which of them are asked for.

    Raises:
        ParamsError: it is not offered for such records, or a column is no number.
    """
    options = check(Options, params.release.options, "params.yaml: release.options")
    check_local(params, NAME)
    check_size(facts.n, 1)
    if facts.kind != "tabular":
        raise ParamsError(f"params.yaml: '{NAME}' is for tables, and these records are {facts.kind} data")
    if (
        params.relevance.weighs
        or params.release.features != "auto"
        or params.release.passes not in ("auto", 1)
    ):
        raise ParamsError(
            f"params.yaml: '{NAME}' reads once, without features or relevance: set release.passes, "
            "release.features and relevance.mode to auto"
        )
    known = (
        tuple(Column.from_json(one) for one in facts.columns)
        if facts.columns is not None
        else plain_columns(facts.shape[0])
    )
    if sum(column.places for column in known) != facts.shape[0]:
        raise ParamsError("data/sealed was made for another schema: run `dvc repro ingest`")
    numbers = {column.name: place for place, column in enumerate(known) if column.type == "number"}
    for name in options.columns:
        if name not in numbers:
            near = difflib.get_close_matches(name, numbers, n=1)
            hint = f", did you mean '{near[0]}'?" if near else ""
            raise ParamsError(f"params.yaml: '{name}' is no column of numbers{hint}")
    asked = sorted({numbers[name] for name in options.columns or numbers})
    if not 0 < len(asked) <= MOST_COLUMNS:
        raise ParamsError(
            f"params.yaml: '{NAME}' takes 1 to {MOST_COLUMNS} columns of numbers at once: name them in "
            "release.options.columns"
        )
    columns = [
        Binned(column, power_edges(*column.bounds) if place in asked and column.bounds else ())
        for place, column in enumerate(known)
    ]
    return Bins((*columns, Binned(label_column(facts.label, facts.labels)))), asked


def queries(bins: Bins, asked: list[int], params: Params, facts: Facts) -> list[Query]:
    """One query: the counts of all columns in question."""
    reach = sensitivity.histograms(len(asked), neighbours=params.release.neighbours)
    cells = sum(bins.sizes[place] for place in asked)
    query = Query("histograms", 1, reach, "gaussian", cells, share=1.0)
    return [query.of_unit(records_per_unit(params, facts))]


def plan(params: Params, facts: Facts) -> Plan:
    """The price of a release, from parameters and public facts alone."""
    bins, asked = resolve(params, facts)
    priced = price(queries(bins, asked, params, facts), params.release)
    parameters = {
        "epsilon": params.release.epsilon,
        "delta": params.release.delta,
        "columns": [bins.columns[place].column.name for place in asked],
        **moved_records(params, facts),
    }
    proven = guarantee(priced, params.release, argument=ARGUMENT)
    return Plan(NAME, VERSION, parameters, passes=1, proven=proven)


@makes
def make(given: Given) -> Released:
    """Read the records once and release counts; bounds follow from them."""
    params, facts = given.params, given.facts
    bins, asked = resolve(params, facts)
    priced = price(queries(bins, asked, params, facts), params.release)
    noisy_sums = NoisySums(priced, key=given.key, release_id=given.release_id)
    noisy = noisy_sums.add_noise("histograms", _counts(given.reader, bins, asked, facts))
    found = bounds_of(noisy, bins, asked, noisy_sums.priced["histograms"].scale)
    return dict(noisy_sums.released), {
        "columns": [asdict(bins.columns[place].column) for place in asked],
        "edges": [list(bins.columns[place].edges) for place in asked],
        "low": [low for low, _ in found],
        "high": [high for _, high in found],
        "sums": noisy_sums.details(),
    }


relevance, make_relevance = no_relevance, makes_nothing


def _counts(reader: Any, bins: Bins, asked: list[int], facts: Facts) -> NDArray[np.int64]:
    """One pass: the bins of the columns in question, one after another."""

    def count(batch: Any) -> NDArray[np.int64]:
        encoded = unpack(batch, facts.shape)
        found = bins.of(encoded.x, encoded.y)[encoded.valid > 0]
        return np.concatenate([np.bincount(found[:, place], minlength=bins.sizes[place]) for place in asked])

    batches = (reader.read(index) for index in range(reader.chunks))
    none = np.zeros(sum(bins.sizes[place] for place in asked), np.int64)
    return np.asarray(sum(passes.bounded_map(count, batches), none), np.int64)


def bounds_of(
    noisy: NDArray[np.int64], bins: Bins, asked: list[int], scale: float
) -> list[tuple[float, float]]:
    """Bounds of each column in its own units, from noisy counts alone; the schema's where nothing is seen."""
    least = scale * math.sqrt(2 * math.log(len(noisy) / CHANCE))
    found, start = list[tuple[float, float]](), 0
    for place in asked:
        one = bins.columns[place]
        counts = noisy[start : start + one.values]
        start += one.bins
        low, high = one.column.bounds or (0.0, 1.0)
        ends = low + (high - low) * np.array([0.0, *one.edges, 1.0])
        seen = np.flatnonzero(counts > least)
        outer = (float(ends[seen[0]]), float(ends[seen[-1] + 1])) if len(seen) else (low, high)
        found.append((_plain(outer[0]), _plain(outer[1])))
    return found


def _plain(value: float) -> float:
    """The power of two that a place in the encoded range stands for, without what encoding adds to it."""
    return float(f"{value:.9g}")
