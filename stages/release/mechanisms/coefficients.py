"""`coefficients`: noisy degree-2 loss coefficients on fixed features (the proof is
docs/proofs/coefficients.md).

One pass releases the coefficients themselves: the Gram matrix G = sum a a^T and the cross moments B = sum a
(M e_y - 1)^T of the rows. Two passes release the sum of rows first, and centre by it; three also a first Gram
matrix, and whiten by it. What comes first is the geometry that the noise of the coefficients then follows: it
is released by the stage `relevance`, as noisy sums. No pass depends on a trained model. Rows have norm at most
1: under zero-out the sum of rows and G have L2 sensitivity 1, and B has sqrt(M (M - 1)). Of a label that is a
number B is sum a t, with t from -1 to 1 between its bounds: sensitivity 1.
"""

from __future__ import annotations

from typing import Any

from airlock.models.features import quantiles
from airlock.models.features.projection import tensors_of
from airlock.models.features.rows import LIMIT
from airlock.params import Params
from airlock.privacy.plan import Facts, Plan
from stages.mechanisms import Given, Released, makes
from stages.release import running_totals
from stages.release.mechanisms import geometry, nightly, recipes
from stages.release.mechanisms.recipes import FIRST, NAME, VERSION, Recipe, queries, resolve
from stages.release.noisy_sums import (
    Divided,
    NoisySums,
    divide,
    guarantee,
)
from stages.release.passes import Kind, Records, Wanted, check_passes

ARGUMENT = "docs/proofs/coefficients.md#guarantee"


def plan(params: Params, facts: Facts) -> Plan:
    """The price of a release, from parameters and public facts alone."""
    recipe = resolve(params, facts)
    if recipe.nights:
        return nightly.plan(recipe, params, facts)
    divided = divide(queries(recipe, params), FIRST, params, parts=FIRST)
    argument = running_totals.ARGUMENT if recipe.strategy else ARGUMENT
    proven = guarantee(divided.later, params.release, argument=argument)
    passes = recipe.passes - divided.passes
    return Plan(NAME, VERSION, parameters(recipe, params, divided), passes=passes, proven=proven)


def relevance(params: Params, facts: Facts) -> Plan | None:
    """The price of the geometry: of the mean, and of the first Gram matrix where rows are whitened."""
    recipe = resolve(params, facts)
    if recipe.nights:
        return None  # the first night asks it itself
    return geometry.plan(recipe, params, divide(queries(recipe, params), FIRST, params, parts=FIRST))


def parameters(recipe: Recipe, params: Params, divided: Divided) -> dict[str, Any]:
    """What the release id hashes. What was asked first has an id of its own, which is hashed beside this."""
    first = {one.query.purpose for one in divided.first}
    return {
        "epsilon": params.release.epsilon,
        "delta": params.release.delta,
        "features": recipe.features,
        "shares": {purpose: share for purpose, share in recipe.shares.items() if purpose not in first},
        "whitening_ridge": recipe.ridge,
        "relevance": params.relevance.mode,
        **recipe.moved,
        **running_totals.parameters(recipe.strategy),
        **({"quantiles": list(recipe.columns), "levels": "likely"} if recipe.columns else {}),
        **({"centre": "shrunk"} if recipe.shrunk else {}),
    }


@makes
def make(given: Given) -> Released:
    """Read the records and release their coefficients: integer tensors, and what a reader must know about
    them.
    """
    params, facts = given.params, given.facts
    recipe = resolve(params, facts)
    if recipe.nights:
        return nightly.make(recipe, given)
    divided = divide(queries(recipe, params), FIRST, params, parts=FIRST)
    noisy_sums = running_totals.noisy_sums(divided.later, recipe.strategy, given)
    records = recipes.open_records(recipe, facts, given.reader, given.connection, given.release_id)
    level = geometry.prepare(recipe, divided, records, noisy_sums, given)
    release_moments(recipe, records, noisy_sums, level)
    return finish(recipe, records, noisy_sums, recipe.passes - divided.passes, level)


@makes
def make_relevance(given: Given) -> Released:
    """Read the records and release their geometry, as noisy sums: whoever builds on it centres and whitens
    by them.
    """
    recipe = resolve(given.params, given.facts)
    divided = divide(queries(recipe, given.params), FIRST, given.params, parts=FIRST)
    return geometry.release(recipe, divided, given)


def finish(recipe: Recipe, records: Records, noisy_sums: NoisySums, passes: int, level: int = 0) -> Released:
    """The released tensors and details, once the passes are as many as were priced."""
    check_passes(records, passes)
    # Centre and whitening matrix follow from the noisy sums of the first passes, which nobody needs besides.
    tensors = {
        **tensors_of(records.steps),
        **quantiles.tensors_of(records.before),
        "gram": noisy_sums.released["gram"],
        "cross": noisy_sums.released["cross"],
    }
    return tensors, {
        "features": recipe.features,
        "bias": recipe.bias,
        "limit": LIMIT,
        "sums": noisy_sums.details(),
        **said_of_number(recipe, level),
    }


def said_of_number(recipe: Recipe, level: int) -> dict[str, Any]:
    """What a reader must know about a label that is a number: its bounds, and what was taken off it."""
    return {"number": list(recipe.number), "level": level} if recipe.number else {}


def release_moments(recipe: Recipe, records: Records, noisy_sums: NoisySums, level: int = 0) -> None:
    """One pass: Gram matrix and cross moments of the final rows."""
    cross: Kind = "number" if recipe.number else "cross"
    sums = records.ask(Wanted({"gram": "gram", "cross": cross}, recipe.classes, level))
    for purpose in ("gram", "cross"):
        noisy_sums.add_noise(purpose, sums[purpose])
