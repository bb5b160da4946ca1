"""`neuron-allocation`: what is sound in neuron noise injection (docs/proofs/neuron-noise.md#allocation);
one-shot, with noise divided by contribution ratio.

    passes 1..p  a first release, as `coefficients` makes it; a hidden layer is trained from it without data
    (airlock/models/papers/hidden_layer.py)
    pass p + 1   contribution ratios: of every record a point of the simplex over the neurons, by layer-wise relevance
                 propagation
    pass p + 2   Gram matrix and cross moments of the neurons, clipped in an ellipsoid whose axes follow the released
                 ratios

All but the last pass belong to the stage `relevance`: the axes follow from what it releases. A head is then
trained without data, for as long as one likes: the number of passes is fixed. Rows have norm
at most 1 in every pass, whatever the network and the axes are, and ratios have L1 norm at most 1:
sensitivities are those of `coefficients`, and 1 (zero-out) or sqrt 2 (replace-one) for the ratios; all sums
are Gaussian and share one budget (docs/proofs/neuron-noise.md#allocation). `direction` says who gets
less noise: important neurons, the others, or nobody; the price is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from airlock.errors import ParamsError
from airlock.models.features.projection import Neurons
from airlock.models.features.rows import LIMIT
from airlock.models.moments import moments_of
from airlock.models.papers.hidden_layer import (
    Direction,
    Lower,
    allocate,
    discriminant,
    expectation,
    lower_of,
    sum_of_ratios,
)
from airlock.params import Params, Section, TrainParams, check
from airlock.privacy import sensitivity
from airlock.privacy.plan import Facts, Plan
from stages.mechanisms import Given, Released, makes
from stages.release.mechanisms import coefficients, geometry, recipes
from stages.release.mechanisms.recipes import Recipe
from stages.release.noisy_sums import Divided, NoisySums, Query, divide, guarantee
from stages.release.passes import Chunk, Records, Sums, Wanted
from stages.release.units import check_local

NAME, VERSION = "neuron-allocation", 1
ARGUMENT = "docs/proofs/neuron-noise.md#allocation"
HIDDEN_SIZES = {"tabular": 16, "image": 100}
FIRST_PREFIX = "first-"
RATE = 0.03
RATIOS = "contribution-ratios"
LOWER = "lower."


class Options(Section):
    """release.options of `neuron-allocation`. Shares are of mu squared; what they leave goes to the neurons'
    cross moments.

    Attributes:
        hidden: how many neurons; null is 16 for tables and 100 for images.
        direction: which neurons get less noise.
        first_share: of the first release. ratio_share: of the contribution ratios. gram_share: of the
            neurons' Gram matrix.
        epochs: of the data-free training of the hidden layer.
    """

    hidden: int | None = Field(None, ge=1, le=4096)
    direction: Direction = "important"
    first_share: float = Field(0.75, gt=0, lt=1)
    ratio_share: float = Field(0.02, gt=0, lt=1)
    gram_share: float = Field(0.07, gt=0, lt=1)
    epochs: int = Field(30, ge=1, le=100_000)


@dataclass(frozen=True)
class Shape:
    """What the options come to: the first release's recipe, the number of neurons, and the shares of the
    later sums.
    """

    first: Recipe
    hidden: int
    shares: dict[str, float]
    options: Options

    @property
    def passes(self) -> int:
        return self.first.passes + 2


def resolve(params: Params, facts: Facts) -> Shape:
    """Settle what null means."""
    options = check(Options, params.release.options, "params.yaml: release.options")
    check_local(params, NAME)
    if params.release.passes != "auto":
        raise ParamsError(f"params.yaml: release.passes of '{NAME}' is auto")
    recipe = recipes.resolve(params, facts, recipes.Options())
    left = recipes.left_by_relevance(params)
    rest = 1.0 - options.first_share - options.ratio_share - options.gram_share
    if rest <= 0:
        raise ParamsError(
            "params.yaml: release.options: the shares must sum to less "
            "than 1, for the cross moments need one too"
        )
    first = replace(
        recipe, shares={purpose: share * options.first_share for purpose, share in recipe.shares.items()}
    )
    later = {"ratios": options.ratio_share, "gram": options.gram_share, "cross": rest}
    return Shape(
        first,
        options.hidden or HIDDEN_SIZES[facts.kind],
        {name: share * left for name, share in later.items()},
        options,
    )


def queries(shape: Shape, params: Params) -> list[Query]:
    """The noisy sums of all passes, in order."""
    near, recipe, size = params.release.neighbours, shape.first, shape.hidden + 1
    earlier = [
        replace(query, purpose=FIRST_PREFIX + query.purpose) if query.purpose in ("gram", "cross") else query
        for query in recipes.queries(recipe, params)
    ]
    # Ratios are non-negative integers whose sum, and so whose norm, is at most LIMIT: two records are at most
    # sqrt 2 LIMIT apart.
    simplex = sensitivity.mean(LIMIT, neighbours=near, non_negative=True)
    gram = sensitivity.gram(LIMIT, neighbours=near)
    cross = sensitivity.cross(LIMIT, labels="centred", classes=recipe.classes, neighbours=near)
    asked = (
        Query("ratios", recipe.passes + 1, simplex, "gaussian", shape.hidden),
        Query("gram", recipe.passes + 2, gram, "symmetric-gaussian", size * (size + 1) // 2),
        Query("cross", recipe.passes + 2, cross, "gaussian", size * recipe.classes),
    )
    return [
        *earlier,
        *(query.of_unit(recipe.per_unit).with_share(shape.shares[query.purpose]) for query in asked),
    ]


def plan(params: Params, facts: Facts) -> Plan:
    """The price of a release, from parameters and public facts alone."""
    shape = resolve(params, facts)
    divided = divided_of(shape, params)
    proven = guarantee(divided.later, params.release, argument=ARGUMENT)
    first = {one.query.purpose for one in divided.first}
    own = {
        "hidden": shape.hidden,
        "direction": shape.options.direction,
        "epochs": shape.options.epochs,
        "later_shares": {purpose: share for purpose, share in shape.shares.items() if purpose not in first},
    }
    parameters = {**coefficients.parameters(shape.first, params, divided), **own}
    if first:  # the shares of the first release are in the id of what was asked first
        del parameters["shares"]
    # The last two passes go through a network that was trained, if only from earlier passes.
    passes = shape.passes - divided.passes
    return Plan(NAME, VERSION, parameters, passes=passes, proven=proven, interactive=True)


def relevance(params: Params, facts: Facts) -> Plan | None:
    """The price of the first release and of the contribution ratios."""
    shape = resolve(params, facts)
    own = {"hidden": shape.hidden, "epochs": shape.options.epochs, "whitening_ridge": shape.first.ridge}
    found = geometry.plan(shape.first, params, divided_of(shape, params), **own)
    return replace(found, mechanism=RATIOS, interactive=True) if found else None


def divided_of(shape: Shape, params: Params) -> Divided:
    """All sums but those of the last pass belong to the stage `relevance`."""
    asked = queries(shape, params)
    return divide(asked, [one.purpose for one in asked if one.purpose not in ("gram", "cross")], params)


@makes
def make(given: Given) -> Released:
    """Read the records and release the moments of the neurons; with relevance.mode off all that comes before
    it as well.
    """
    params, facts = given.params, given.facts
    shape = resolve(params, facts)
    divided = divided_of(shape, params)
    noisy_sums = NoisySums(divided.later, key=given.key, release_id=given.release_id)
    records = recipes.open_records(shape.first, facts, given.reader)
    if divided.first:
        told, _ = given.earlier()
        geometry.prepare(shape.first, divided, records, noisy_sums, given)
        lower, ratios = lower_from(told), told["ratios"]
        records.steps.append(lower.step)
    else:
        lower, ratios = ask_ratios(shape, facts.n, records, noisy_sums, given.weights)
    allocation = allocate(lower, ratios, shape.options.direction)
    records.steps.append(allocation)
    coefficients.release_moments(shape.first, records, noisy_sums)
    tensors, details = coefficients.finish(shape.first, records, noisy_sums, shape.passes - divided.passes)
    gram, cross = expectation(lower, allocation, shape.first.classes)
    return {**tensors, "ratios": ratios, "expected.gram": gram, "expected.cross": cross}, {
        **details,
        "samples": len(lower.samples),
    }


@makes
def make_relevance(given: Given) -> Released:
    """Read the records and release how much each neuron contributes, with the network that it is told of."""
    shape = resolve(given.params, given.facts)
    divided = divided_of(shape, given.params)
    noisy_sums = NoisySums(divided.first, key=given.key, release_id=given.release_id)
    records = recipes.open_records(shape.first, given.facts, given.reader)
    lower, _ = ask_ratios(shape, given.facts.n, records, noisy_sums)
    tensors, details = geometry.finish(shape.first, records, noisy_sums, divided)
    return {**tensors, **lower_tensors(lower)}, details


def ask_ratios(
    shape: Shape,
    n: int,
    records: Records,
    noisy_sums: NoisySums,
    weights: NDArray[np.float64] | None = None,
) -> tuple[Lower, NDArray[np.int64]]:
    """The passes before the last: a first release, the hidden layer that follows from it, and the
    contribution ratios.
    """
    geometry.ask(shape.first, n, records, noisy_sums, weights)
    exact = records.ask(
        Wanted({FIRST_PREFIX + "gram": "gram", FIRST_PREFIX + "cross": "cross"}, shape.first.classes)
    )
    told = {
        purpose: noisy_sums.add_noise(FIRST_PREFIX + purpose, exact[FIRST_PREFIX + purpose])
        for purpose in ("gram", "cross")
    }
    lower = train_lower(shape, told, noisy_sums, n)
    records.steps.append(lower.step)
    return lower, noisy_sums.add_noise("ratios", records.ask(Ratios(lower))["ratios"])


def lower_tensors(lower: Lower) -> dict[str, NDArray[Any]]:
    """The lower network as it is released: made from released sums, by anyone."""
    step = {"matrix": lower.step.matrix, "step_offset": lower.step.offset}
    rest = {name: getattr(lower, name) for name in ("output", "offset", "samples", "labels")}
    return {LOWER + name: value for name, value in {**step, **rest}.items()}


def lower_from(tensors: Mapping[str, NDArray[Any]]) -> Lower:
    """The inverse of `lower_tensors`."""
    found = {name.removeprefix(LOWER): value for name, value in tensors.items() if name.startswith(LOWER)}
    return Lower(Neurons(found.pop("matrix"), found.pop("step_offset")), **found)


def train_lower(shape: Shape, told: dict[str, NDArray[np.int64]], noisy_sums: NoisySums, n: int) -> Lower:
    """The hidden layer, from the first release alone, by the training that the open room uses: it has no
    other argument.
    """
    from airlock.models.descent import descend

    scales = {purpose: noisy_sums.details()[FIRST_PREFIX + purpose] for purpose in ("gram", "cross")}
    space = discriminant(
        moments_of(told, {"sums": scales}, n), scales["cross"]["scale"] / (LIMIT * shape.first.classes)
    )
    training = TrainParams(
        head="mlp", hidden=shape.hidden, epochs=shape.options.epochs, learning_rate=RATE, device="cpu"
    )
    return lower_of(space, descend(training, space.moments(), 0.0)[0])


@dataclass(frozen=True)
class Ratios:
    """The question of the pass between: the sum of contribution ratios over a chunk of neurons."""

    lower: Lower

    def __call__(self, chunk: Chunk) -> Sums:
        return {"ratios": sum_of_ratios(chunk.rows, self.lower)}
