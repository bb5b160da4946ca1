"""`patch-moments`: private convolutional deep belief networks, sound (docs/proofs/patch-moments.md; the
published one is `pcdbn`).

Every layer of filters is learned from one release of patch moments, S = sum over records of sum over patches
of p p^T, which is all that the degree-1 energy of a convolutional Boltzmann machine takes from the data.
Filters are trained between two passes inside this stage, but from released moments alone
(airlock/models/papers/filters.py): they are post-processing, cost nothing, and anyone can train them again
from the released tensors. On the features of the learned filters the head is `coefficients`, three more
passes. The stage `relevance` releases the moments of the layers and the geometry behind them, `release` the
head's coefficients.

Sensitivity of a layer's moments (Frobenius, in grid units): every record's matrix is scaled to norm C =
LIMIT, so C under zero-out; the matrices are truncated positive semidefinite ones of size d, so sqrt 2 (C +
d), not 2 C, under replace-one (airlock/privacy/sensitivity.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from airlock.errors import ParamsError
from airlock.inside.sealed import SealedReader
from airlock.models.features.rows import LIMIT
from airlock.models.papers import filters, patches
from airlock.params import Params, check
from airlock.privacy import sensitivity
from airlock.privacy.plan import Facts, Plan
from stages.mechanisms import Given, Released, makes
from stages.release.mechanisms import coefficients, geometry, recipes
from stages.release.noisy_sums import Divided, NoisySums, Query, divide, guarantee
from stages.release.passes import Records, Wanted
from stages.release.units import check_local

NAME, VERSION = "patch-moments", 1
ARGUMENT = "docs/proofs/patch-moments.md#guarantee"
HEAD_PASSES = 3
GEOMETRY = "patch-geometry"
FILTERS = {"divergence": filters.diverge, "eigenvectors": filters.eigenvectors}


class Options(recipes.Options):
    """release.options of `patch-moments`; the shares of the head are those of `coefficients`, of what the
    layers leave.

    Attributes:
        layers: filters of each layer, from the bottom; one or two layers.
        layer_share: of mu squared, for the moments of each layer.
        learner: contrastive divergence with persistent chains, or its fixed points in closed form.
    """

    layers: tuple[int, ...] = (6, 4)
    layer_share: float = Field(0.01, gt=0, lt=0.5)
    learner: Literal["divergence", "eigenvectors"] = "divergence"


@dataclass(frozen=True)
class Recipe:
    """Everything that shapes the released bytes."""

    options: Options
    sizes: tuple[int, ...]
    head: recipes.Recipe

    @property
    def depth(self) -> int:
        return len(self.sizes)


def resolve(params: Params, facts: Facts) -> Recipe:
    """Settle layers, sizes of patches and shares."""
    options = check(Options, params.release.options, "params.yaml: release.options")
    _refuse(params, facts, options)
    sizes = tuple(
        patches.patch_size(facts.shape, options.layers[:depth]) for depth in range(len(options.layers))
    )
    for count, size, side in zip(options.layers, sizes, patches.SIDES, strict=False):
        if not 1 <= count <= size - size // side**2:
            raise ParamsError(
                f"params.yaml: release.options.layers: a layer can have 1 to {size - size // side**2} "
                f"filters here, not {count}"
            )
    # The head is that of `coefficients` on images: the same three passes and shares, of what the layers
    # leave.
    fixed = params.release.model_copy(update={"features": "hog-1", "passes": HEAD_PASSES})
    head = recipes.resolve(params.model_copy(update={"release": fixed}), facts, options)
    # Less what rounding could add to the sum of the shares.
    left = 1.0 - len(sizes) * options.layer_share - 2.0**-50
    shares = {purpose: share * left for purpose, share in head.shares.items()}
    return Recipe(
        options,
        sizes,
        replace(head, features=patches.NAME, width=patches.width(facts.shape, options.layers), shares=shares),
    )


def _refuse(params: Params, facts: Facts, options: Options) -> None:
    check_local(params, NAME)
    if facts.kind != "image":
        raise ParamsError(f"params.yaml: '{NAME}' learns filters for images: use coefficients for tables")
    if not 1 <= len(options.layers) <= len(patches.SIDES):
        raise ParamsError(
            f"params.yaml: release.options.layers: 1 or {len(patches.SIDES)} layers, not "
            f"{len(options.layers)}"
        )
    if params.release.features != "auto" or params.relevance.weighs:
        raise ParamsError(
            f"params.yaml: '{NAME}' learns its features: set release.features and relevance.mode to auto"
        )
    if params.release.passes not in ("auto", len(options.layers) + HEAD_PASSES):
        raise ParamsError(
            f"params.yaml: release.passes: '{NAME}' with {len(options.layers)} layers needs "
            f"{len(options.layers) + HEAD_PASSES}, or auto"
        )


def queries(recipe: Recipe, params: Params) -> list[Query]:
    """One matrix for each layer, then the sums of the head."""
    asked = []
    for depth, size in enumerate(recipe.sizes):
        bound = sensitivity.moment(LIMIT, size, neighbours=params.release.neighbours)
        query = Query(_purpose(depth), depth + 1, bound, "symmetric-gaussian", size * (size + 1) // 2)
        asked.append(query.of_unit(recipe.head.per_unit).with_share(recipe.options.layer_share))
    return asked + [
        replace(one, release_pass=one.release_pass + recipe.depth)
        for one in recipes.queries(recipe.head, params)
    ]


def plan(params: Params, facts: Facts) -> Plan:
    """The price of a release, from parameters and public facts alone."""
    recipe = resolve(params, facts)
    divided = divided_of(recipe, params)
    proven = guarantee(divided.later, params.release, argument=ARGUMENT)
    share = {} if divided.first else {"layer_share": recipe.options.layer_share}
    return Plan(
        NAME,
        VERSION,
        {**coefficients.parameters(recipe.head, params, divided), **_learned(recipe), **share},
        recipe.depth + HEAD_PASSES - divided.passes,
        proven,
    )


def _learned(recipe: Recipe) -> dict[str, Any]:
    return {"layers": list(recipe.options.layers), "learner": recipe.options.learner}


def relevance(params: Params, facts: Facts) -> Plan | None:
    """The price of the layers' moments and of the geometry behind them."""
    recipe = resolve(params, facts)
    found = geometry.plan(recipe.head, params, divided_of(recipe, params), **_learned(recipe))
    return replace(found, mechanism=GEOMETRY) if found else None


def divided_of(recipe: Recipe, params: Params) -> Divided:
    """All sums but the head's own belong to the stage `relevance`."""
    asked = queries(recipe, params)
    return divide(asked, [one.purpose for one in asked if one.purpose not in ("gram", "cross")], params)


@makes
def make(given: Given) -> Released:
    """Read the records for the head: integer tensors, and what a reader must know about them.

    With relevance.mode off also once for each layer, and for the geometry.
    """
    params, facts, reader = given.params, given.facts, given.reader
    recipe = resolve(params, facts)
    divided = divided_of(recipe, params)
    noisy_sums = NoisySums(divided.later, key=given.key, release_id=given.release_id)
    layers = (
        patches.layers_of(given.earlier()[0]) if divided.first else learn(recipe, facts, reader, noisy_sums)
    )
    told = given.earlier()[0] if divided.first else noisy_sums.released
    records = Records(reader, patches.learned_map(facts.shape, layers), facts.shape)
    geometry.prepare(recipe.head, divided, records, noisy_sums, given)
    coefficients.release_moments(recipe.head, records, noisy_sums)
    # Passes over the layers' own maps are counted by `learn`.
    head = HEAD_PASSES - (divided.passes - recipe.depth if divided.first else 0)
    tensors, details = coefficients.finish(recipe.head, records, noisy_sums, head)
    moments = {_purpose(depth): told[_purpose(depth)] for depth in range(recipe.depth)}
    return {**tensors, **moments, **patches.tensors_of(layers)}, {**details, "filters": _provenance(recipe)}


@makes
def make_relevance(given: Given) -> Released:
    """Read the records once for each layer, and for the geometry of what its filters see."""
    facts, reader = given.facts, given.reader
    recipe = resolve(given.params, facts)
    divided = divided_of(recipe, given.params)
    noisy_sums = NoisySums(divided.first, key=given.key, release_id=given.release_id)
    layers = learn(recipe, facts, reader, noisy_sums)
    records = Records(reader, patches.learned_map(facts.shape, layers), facts.shape)
    geometry.ask(recipe.head, facts.n, records, noisy_sums)
    head = replace(divided, passes=divided.passes - recipe.depth)
    tensors, details = geometry.finish(recipe.head, records, noisy_sums, head)
    return {**tensors, **patches.tensors_of(layers)}, details


def learn(
    recipe: Recipe, facts: Facts, reader: SealedReader, noisy_sums: NoisySums
) -> list[patches.FilterLayer]:
    """One pass for each layer: its moments are released, and its filters follow from them."""
    layers: list[patches.FilterLayer] = []
    for depth, size in enumerate(recipe.sizes):
        records, purpose = (
            Records(reader, patches.moment_map(facts.shape, layers), facts.shape),
            _purpose(depth),
        )
        exact = records.ask(Wanted({purpose: "sum"}))[purpose].reshape(size, size)
        layers.append(
            train_layer(
                noisy_sums.add_noise(purpose, exact),
                depth,
                recipe.options.layers[depth],
                recipe.options.learner,
            )
        )
    return layers


def train_layer(moments: NDArray[np.int64], depth: int, count: int, learner: str) -> patches.FilterLayer:
    """A layer's filters from its released moments: no record, no budget."""
    return patches.layer(FILTERS[learner](moments, count, patches.SIDES[depth]), depth)


def _purpose(depth: int) -> str:
    return f"patches{depth + 1}"


def _provenance(recipe: Recipe) -> dict[str, Any]:
    """For release.json: what the filters are made from."""
    return {
        "learner": recipe.options.learner,
        "trained": "inside the release stage, from the released moments patches1, patches2 only; "
        "post-processing",
        "layers": list(recipe.options.layers),
    }
