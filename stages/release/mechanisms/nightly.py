"""`coefficients` over many nights: one price for all, each night's records read once."""

from __future__ import annotations

from dataclasses import replace

from airlock.models.features import public
from airlock.models.features.rows import LIMIT
from airlock.params import Params
from airlock.privacy import sensitivity, weighing
from airlock.privacy.plan import Facts, Plan
from stages.mechanisms import Given, Released
from stages.release import nightly_prices, running_totals
from stages.release.mechanisms import geometry, recipes
from stages.release.mechanisms.recipes import FIRST, NAME, VERSION, Recipe, queries
from stages.release.nightly_prices import Nightly
from stages.release.noisy_sums import (
    Query,
    budget_of,
    check_scale,
    guarantee,
)
from stages.release.passes import HALF_AVERAGE, Kind, Wanted, check_passes
from stages.release.weighted_totals import WeightedTotals


def prices(recipe: Recipe, params: Params) -> Nightly:
    """What the nights of a horizon ask: the first one as any release does, and averages beside it."""
    averages = Query(
        nightly_prices.AVERAGES,
        recipe.passes,
        sensitivity.averages(recipe.averaged, HALF_AVERAGE, neighbours=params.release.neighbours),
        "gaussian",
        recipe.averaged + recipe.classes,
    ).of_unit(recipe.per_unit)
    asked = [
        replace(
            query.with_share(query.share * (1 - nightly_prices.AVERAGES_SHARE)),
            draws=query.draws * (1 if query.purpose in FIRST else recipe.nights),
        )
        for query in queries(recipe, params)
    ]
    averages = replace(averages, draws=averages.draws * recipe.nights).with_share(
        nightly_prices.AVERAGES_SHARE
    )
    mu = budget_of([*asked, averages], params.release)
    turned = recipe.prepared or "whitening" in recipe.shares
    told = recipe.features if recipe.tells_columns else ""
    return Nightly((*asked, averages), mu, recipe.nights, turned, prepared=recipe.prepared, columns=told)


def plan(recipe: Recipe, params: Params, facts: Facts) -> Plan:
    """The price of all nights; how often records are read is of this one."""
    asked = prices(recipe, params)
    dearest = asked.dearest()
    check_scale(max(one.scale for one in asked.priced(asked.nights)))
    first = facts.night_number == 1
    horizon = {
        "nights": recipe.nights,
        "strategy": weighing.NAME,
        "averages": recipe.averaged + recipe.classes,
    }
    known = "columns" if recipe.tells_columns else "public"
    said = {
        "epsilon": params.release.epsilon,
        "delta": params.release.delta,
        "features": recipe.features,
        "shares": {query.purpose: query.share for query in asked.queries},
        **({"geometry": known} if recipe.prepared else {"whitening_ridge": recipe.ridge}),
        **recipe.moved,
        "horizon": horizon,
    }
    proven = guarantee(dearest, params.release, argument=nightly_prices.ARGUMENT)
    return Plan(NAME, VERSION, said, passes=recipe.passes if first else 1, proven=proven)


def make(recipe: Recipe, given: Given) -> Released:
    """One night of many: its own records, once (the first one as often as any release), and what was told before."""
    nights = given.nights or running_totals.alone(given, recipe.nights)
    running_totals.check_night(nights, given.facts, recipe.nights)
    totals = WeightedTotals(
        prices(recipe, given.params), nights, given.facts, key=given.key, release_id=given.release_id
    )
    records = recipes.open_records(recipe, given.facts, given.reader, given.connection, given.release_id)
    if nights.former is None and recipe.prepared:
        records.steps.extend(public.preparation(recipe.features, given.facts.shape))
    elif nights.former is None:
        geometry.ask(recipe, given.facts.n, records, totals)
    else:
        records.steps.extend(totals.steps(recipe.bias))
    kinds: tuple[Kind, ...] = ("columns", "gram", "cross", "averages")
    asked: dict[str, Kind] = {kind: kind for kind in kinds if kind in totals.priced}
    sums = records.ask(Wanted(asked, recipe.classes, columns=recipe.averaged))
    for purpose in asked:
        totals.add_noise(purpose, sums[purpose])
    check_passes(records, recipe.passes if nights.former is None else 1)
    tensors, said = totals.tell(records.steps)
    return tensors, {"features": recipe.features, "bias": recipe.bias, "limit": LIMIT, **said}
