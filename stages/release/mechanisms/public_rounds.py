"""Residual rounds after a public preparation: `coefficients-iterated` for wide maps, without a matrix of rows.

A map that was learned from generated pictures comes with its own spectrum there, which is public. Rows are centred by
a noisy mean, weighed by that spectrum, and all other budget goes to the rounds: S = sum a r^T, where r = y -
softmax(a W) is clipped to norm C, moves W by a step with momentum, from W = 0. Rows have norm at most 1, so S has L2
sensitivity C under zero-out (docs/proofs/coefficients.md#public-preparation). No sum has more than rows times classes
entries, so that maps may have thousands of features.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from airlock.errors import ParamsError
from airlock.models.features import features
from airlock.models.features.choice import settle, signal
from airlock.models.features.projection import centre, tensors_of
from airlock.models.features.rows import LIMIT
from airlock.models.features.softmax import BOUND
from airlock.params import Params, Section, check
from airlock.privacy.plan import Facts
from stages.mechanisms import Given, Released
from stages.release.mechanisms import recipes
from stages.release.mechanisms.heads import Head
from stages.release.mechanisms.recipes import Recipe
from stages.release.mechanisms.residuals import Residuals
from stages.release.noisy_sums import Divided, NoisySums, check_size
from stages.release.passes import Records, Wanted, check_passes
from stages.release.units import moved_records, records_per_unit

FACTOR, DAMPING, STEP, ENOUGH = 0.09, 1.3, 0.36, 13_400.0
"""Rounds are FACTOR times the root of the signal, damping is DAMPING over it; docs/mechanism.md says how they were
chosen.
"""
ARGUMENT = "docs/proofs/coefficients.md#public-preparation"


class Options(Section):
    """release.options of `coefficients-iterated` after a public preparation; None means: from public facts.

    `mean_share` is of mu squared, what it leaves goes to the rounds in equal parts. `damping` is added to the
    eigenvalues of the map's rows on generated pictures, whose sum is 1.
    """

    preparation: Literal["public"] = "public"
    mean_share: float = Field(0.03, gt=0, lt=1)
    damping: float | None = Field(None, ge=1e-9, le=1e3)
    clip: float = Field(0.5, ge=1e-6, le=2)
    momentum: float = Field(0.7, ge=0, lt=1)
    step: float | None = Field(None, gt=0, le=1e3)


class Settled(Options):
    """The same options, with damping and step."""

    damping: float = Field(ge=1e-9, le=1e3)
    step: float = Field(gt=0, le=1e3)

    def named(self) -> dict[str, Any]:
        """What shapes the rounds beside the shares."""
        return self.model_dump(include={"preparation", "damping", "clip", "momentum", "step"})


def rounds_for(found: float) -> int:
    """The more signal, the more rounds: 10 at 13,000 (50,000 records at epsilon 1), 17 at 35,000 (at 3)."""
    return min(30, max(4, round(FACTOR * math.sqrt(found))))


def damping_for(found: float) -> float:
    """The less signal, the fewer directions count."""
    return DAMPING / found


def step_for(found: float) -> float:
    """In units of columns over records: 0.36, and more where there is more signal than 13,400."""
    return float(STEP * max(1.0, found / ENOUGH) ** 0.3)


def is_wanted(params: Params, facts: Facts) -> bool:
    """Where the options ask for it, or the map comes with a spectrum of its own and they do not say otherwise."""
    said = params.release.options.get("preparation")
    if facts.number or said == "private":
        return False
    return said == "public" or _map(settle(params, facts), facts).spectrum is not None


def _map(params: Params, facts: Facts) -> features.FeatureMap:
    return features.feature_map(params.release.features, facts.kind, facts.shape)


def resolve(params: Params, facts: Facts) -> tuple[Recipe, Settled, int]:
    """One pass for the mean, the options, and the number of rounds."""
    options = check(Options, params.release.options, "params.yaml: release.options")
    params = settle(params, facts)
    recipes.check_engine(params)
    check_size(facts.total, LIMIT * max(LIMIT, len(facts.labels)))
    if params.relevance.weighs or params.relevance.quantiles:
        raise ParamsError(
            "params.yaml: after a public preparation columns have weights of their own: set relevance.mode to auto "
            "or off and relevance.quantiles to false, or release.options.preparation to private"
        )
    found = signal(params.release, facts)
    rounds = rounds_for(found) if params.release.passes == "auto" else params.release.passes - 1
    if not 1 <= rounds <= 100:
        raise ParamsError(
            f"params.yaml: release.passes {rounds + 1} is not offered after a public preparation: use auto or 2 to 101"
        )
    told = {"damping": damping_for(found), "step": step_for(found), **options.model_dump(exclude_none=True)}
    shares = {"mean": options.mean_share}
    shares |= {f"residuals-{index + 1}": (1 - options.mean_share) / rounds for index in range(rounds)}
    made = _map(params, facts)
    recipe = Recipe(
        made.name,
        made.width,
        made.bias,
        len(facts.labels),
        1,
        shares,
        0.0,
        records_per_unit(params, facts),
        moved_records(params, facts),
    )
    return recipe, Settled.model_validate(told), rounds


def weights_of(made: features.FeatureMap, damping: float) -> NDArray[np.float64] | None:
    """sqrt(w / (w + damping)) for every column, w its eigenvalue on generated pictures; None for a map without any."""
    if made.spectrum is None:
        return None
    weights: NDArray[np.float64] = np.sqrt(made.spectrum / (made.spectrum + damping))
    return weights


def run(
    recipe: Recipe,
    divided: Divided,
    records: Records,
    noisy_sums: NoisySums,
    options: Settled,
    rounds: int,
    given: Given,
) -> Released:
    """Centre, weigh, and walk; what leaves is the centre, the weights and the last head."""
    told = given.earlier()[0] if divided.first else _ask_mean(records, noisy_sums)
    made = features.feature_map(recipe.features, given.facts.kind, given.facts.shape)
    weights = weights_of(made, options.damping)
    records.steps.append(centre(told["mean"], given.facts.n, bias=recipe.bias, weights=weights))
    head, sizes = _walk(recipe, records, noisy_sums, options, rounds, given)
    check_passes(records, recipe.passes + rounds - divided.passes)
    said = {"features": recipe.features, "bias": recipe.bias, "limit": LIMIT, "sums": noisy_sums.details()}
    return {**tensors_of(records.steps), "head": head.integers}, {
        **said,
        "head_unit": head.unit,
        "residuals": sizes,
    }


def _ask_mean(records: Records, noisy_sums: NoisySums) -> dict[str, NDArray[np.int64]]:
    return {"mean": noisy_sums.add_noise("mean", records.ask(Wanted({"mean": "sum"}))["mean"])}


def _walk(
    recipe: Recipe, records: Records, noisy_sums: NoisySums, options: Settled, rounds: int, given: Given
) -> tuple[Head, list[float]]:
    """The last head, and what was left unexplained before each round."""
    head, sizes = Head.of(np.zeros((recipe.size, recipe.classes))), list[float]()
    moving, stride = np.zeros((recipe.size, recipe.classes)), options.step * recipe.size / given.facts.n
    for index in range(rounds):
        given.tick(index, rounds)
        exact = records.ask(Residuals(head, options.clip))["residuals"]
        noisy = noisy_sums.add_noise(f"residuals-{index + 1}", exact) * (options.clip / (LIMIT * BOUND))
        sizes.append(float(np.linalg.norm(noisy)) / given.facts.n)
        moving = options.momentum * moving + noisy
        head = Head.of(head.weights + stride * moving)
    return head, sizes
