"""`neuron-allocation`: what is sound in neuron noise injection (docs/proofs/neuron-noise.md#allocation);
one-shot, with noise divided by contribution ratio.

    passes 1..p  a first release, as `coefficients` makes it; a hidden layer is trained from it without data
    (airlock/models/papers/hidden_layer.py)
    pass p + 1   contribution ratios: of every record a point of the simplex over the neurons, by layer-wise relevance
                 propagation
    pass p + 2   Gram matrix and cross moments of the neurons, clipped in an ellipsoid whose axes follow the released
                 ratios

A head is then trained without data, for as long as one likes: the number of passes is fixed. Rows have norm
at most 1 in every pass, whatever the network and the axes are, and ratios have L1 norm at most 1:
sensitivities are those of `coefficients`, and 1 (zero-out) or sqrt 2 (replace-one) for the ratios; all sums
are Gaussian and share one budget (docs/proofs/neuron-noise.md#allocation). `direction` says who gets
less noise: important neurons, the others, or nobody; the price is the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from airlock.errors import ParamsError
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
from stages.release.mechanisms import coefficients
from stages.release.mechanisms.coefficients import Recipe
from stages.release.noisy_sums import NoisySums, Query, guarantee, price
from stages.release.passes import Chunk, Sums, Wanted
from stages.release.units import check_local

NAME, VERSION = "neuron-allocation", 1
ARGUMENT = "docs/proofs/neuron-noise.md#allocation"
HIDDEN_SIZES = {"tabular": 16, "image": 100}
FIRST_PREFIX = "first-"
RATE = 0.03


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
    recipe = coefficients.resolve(params, facts, coefficients.Options())
    left = coefficients.left_by_relevance(params)
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
        for query in coefficients.queries(recipe, params)
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
    proven = guarantee(price(queries(shape, params), params.release), params.release, argument=ARGUMENT)
    own = {
        "hidden": shape.hidden,
        "direction": shape.options.direction,
        "epochs": shape.options.epochs,
        "later_shares": shape.shares,
    }
    parameters = {**coefficients.parameters(shape.first, params), **own}
    # The last two passes go through a network that was trained, if only from earlier passes.
    return Plan(NAME, VERSION, parameters, passes=shape.passes, proven=proven, interactive=True)


@makes
def make(given: Given) -> Released:
    """Read the records, pass by pass, and release the moments of the neurons."""
    params, facts = given.params, given.facts
    shape = resolve(params, facts)
    priced = price(queries(shape, params), params.release)
    noisy_sums = NoisySums(priced, key=given.key, release_id=given.release_id)
    records = coefficients.open_records(shape.first, facts, given.reader)
    coefficients.prepare(shape.first, facts.n, records, noisy_sums, given.weights)
    exact = records.ask(
        Wanted({FIRST_PREFIX + "gram": "gram", FIRST_PREFIX + "cross": "cross"}, shape.first.classes)
    )
    first = {
        purpose: noisy_sums.add_noise(FIRST_PREFIX + purpose, exact[FIRST_PREFIX + purpose])
        for purpose in ("gram", "cross")
    }
    lower = train_lower(shape, first, noisy_sums, facts.n)
    records.steps.append(lower.step)
    ratios = noisy_sums.add_noise("ratios", records.ask(Ratios(lower))["ratios"])
    allocation = allocate(lower, ratios, shape.options.direction)
    records.steps.append(allocation)
    coefficients.release_moments(shape.first.classes, records, noisy_sums)
    tensors, details = coefficients.finish(replace(shape.first, passes=shape.passes), records, noisy_sums)
    gram, cross = expectation(lower, allocation, shape.first.classes)
    return {**tensors, "ratios": ratios, "expected.gram": gram, "expected.cross": cross}, {
        **details,
        "samples": len(lower.samples),
    }


def train_lower(shape: Shape, first: dict[str, NDArray[np.int64]], noisy_sums: NoisySums, n: int) -> Lower:
    """The hidden layer, from the first release alone, by the training that the open room uses: it has no
    other argument.
    """
    from airlock.models.descent import descend

    scales = {purpose: noisy_sums.details()[FIRST_PREFIX + purpose] for purpose in ("gram", "cross")}
    space = discriminant(
        moments_of(first, {"sums": scales}, n), scales["cross"]["scale"] / (LIMIT * shape.first.classes)
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
