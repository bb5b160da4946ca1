"""Where rows lie, which is asked before their coefficients: quantiles, mean, level and a first Gram matrix, as noisy
sums. The stage `relevance` releases them; the passes after it centre and whiten by them (docs/proofs/relevance.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.models.features import quantiles
from airlock.models.features.projection import centre, whiten
from airlock.models.features.rows import LIMIT
from airlock.models.numbers import level_of
from airlock.params import Params
from airlock.privacy.plan import Plan
from stages.mechanisms import Given, Released
from stages.release.mechanisms import recipes
from stages.release.mechanisms.recipes import Recipe
from stages.release.noisy_sums import (
    Divided,
    NoisySums,
    Priced,
    guarantee,
)
from stages.release.passes import Kind, Records, Wanted, check_passes

GEOMETRY, GEOMETRY_VERSION = "geometry", 1
GEOMETRY_ARGUMENT = "docs/proofs/relevance.md#geometry"


def plan(recipe: Recipe, params: Params, divided: Divided, **more: Any) -> Plan | None:
    """What is asked first, as a release of its own.

    Its id hashes its noise, not shares of a whole: the rest of the budget can be spent in any way.
    """
    if not divided.first:
        return None
    parameters = {
        "features": recipe.features,
        "multipliers": {one.query.purpose: one.multiplier for one in divided.first},
        "delta": params.release.delta,
        **more,
        **recipe.moved,
        **({"quantiles": list(recipe.columns)} if recipe.columns else {}),
    }
    proven = guarantee(divided.first, params.release, argument=GEOMETRY_ARGUMENT)
    return Plan(GEOMETRY, GEOMETRY_VERSION, parameters, passes=divided.passes, proven=proven)


def release(recipe: Recipe, divided: Divided, given: Given) -> Released:
    """The noisy sums of what is asked first."""
    noisy_sums = NoisySums(divided.first, key=given.key, release_id=given.release_id)
    records = recipes.open_records(recipe, given.facts, given.reader, given.connection, given.release_id)
    ask(recipe, given.facts.n, records, noisy_sums)
    return finish(recipe, records, noisy_sums, divided)


def finish(recipe: Recipe, records: Records, noisy_sums: NoisySums, divided: Divided) -> Released:
    """What was asked first, once the passes are as many as were priced."""
    check_passes(records, divided.passes)
    said = {"features": recipe.features, "bias": recipe.bias, "limit": LIMIT}
    return dict(noisy_sums.released), {**said, "sums": noisy_sums.details(shares=False)}


def prepare(recipe: Recipe, divided: Divided, records: Records, noisy_sums: NoisySums, given: Given) -> int:
    """The steps before the last pass: from what the stage `relevance` released, or (relevance.mode off) by
    asking here. Of a number, its level is told.
    """
    n = given.facts.first.n if recipe.strategy else given.facts.n
    if not divided.first:
        ask(recipe, n, records, noisy_sums, given.weights)
        return _level(noisy_sums.released, noisy_sums.priced.values(), n)
    told, _ = given.earlier()
    if recipe.columns:
        scale = next(one.scale for one in divided.first if one.query.purpose == "quantiles")
        records.before = quantiles.quantiles(told["quantiles"], _places(recipe), n, scale)
    total = told["mean"] if "mean" in recipe.shares else np.zeros(recipe.width, np.int64)
    records.steps.append(centre(total, n, bias=recipe.bias, noise=_noise(recipe, divided.first)))
    if "whitening" in recipe.shares:
        scale = next(one.scale for one in divided.first if one.query.purpose == "whitening")
        records.steps.append(whiten(told["whitening"], scale, recipe.ridge))
    return _level(told, divided.first, n)


def _places(recipe: Recipe) -> NDArray[np.int64]:
    return np.array(recipe.columns, np.int64)


def _noise(recipe: Recipe, priced: Iterable[Priced]) -> float:
    """Of the sum of rows, where the centre is shrunk by it."""
    found = (one.scale for one in priced if one.query.purpose == "mean")
    return next(found, 0.0) if recipe.shrunk else 0.0


def _level(released: Mapping[str, NDArray[Any]], priced: Iterable[Priced], n: int) -> int:
    noise = next((one.scale for one in priced if one.query.purpose == "level"), None)
    return 0 if noise is None else level_of(int(released["level"][0]), n, noise)


def ask(
    recipe: Recipe,
    n: int,
    records: Records,
    noisy_sums: NoisySums,
    weights: NDArray[np.float64] | None = None,
) -> None:
    """The passes before the last: each adds a step that depends on released sums only."""
    if recipe.columns:
        noisy = noisy_sums.add_noise("quantiles", records.count(_places(recipe)))
        scale = noisy_sums.priced["quantiles"].scale
        records.before = quantiles.quantiles(noisy, _places(recipe), n, scale)
    total = np.zeros(recipe.width, np.int64)
    if "mean" in recipe.shares:
        asked: dict[str, Kind] = {"mean": "sum", "level": "level"}
        exact = records.ask(Wanted({name: kind for name, kind in asked.items() if name in recipe.shares}))
        total = noisy_sums.add_noise("mean", exact["mean"])
        if "level" in exact:
            noisy_sums.add_noise("level", exact["level"])
    noise = _noise(recipe, noisy_sums.priced.values())
    records.steps.append(centre(total, n, bias=recipe.bias, weights=weights, noise=noise))
    if "whitening" in recipe.shares:
        gram = noisy_sums.add_noise("whitening", records.ask(Wanted({"whitening": "gram"}))["whitening"])
        records.steps.append(whiten(gram, noisy_sums.priced["whitening"].scale, recipe.ridge))
