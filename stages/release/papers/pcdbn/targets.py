"""What an attack on pCDBN goes for: the coefficients of one record, or a batch whose activations share the
noise on the constants.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from airlock.attack import laws
from airlock.attack.samplers import Sampler
from airlock.attack.targets import Law, Scores, Target
from airlock.privacy.plan import Facts
from stages.release.papers.pcdbn.pcdbn import PerturbedPart, Recipe

Floats = NDArray[np.float64]
# Normalised drives of a known record (as many as there are constants, and a few more) and of the two
# candidates for the target.
KNOWN_VALUES = np.linspace(-1, 1, 40)
CANDIDATES = np.linspace(-0.9, 0.9, 24), np.linspace(-0.8, 0.95, 24)
BATCH = 3600
MOST_COEFFICIENTS = 400
PAIR = "a null record, or one whose units are all 1"


def targets_of(recipe: Recipe, facts: Facts, *, factor: float) -> list[Target]:
    """One target for each thing that the paper says is private."""
    if recipe.options.noise == "constants":
        return [Target(shared_constants(recipe, facts, factor), recipe.parts[0].epsilon, np.inf)]
    found = [_part(recipe, part, factor) for part in recipe.parts]
    return [*found, _all(recipe, factor)] if not recipe.flaw else found


def _ranges(part: PerturbedPart) -> Floats:
    """How far a record whose units are all 1 moves each coefficient; of many, only those that it moves
    furthest are looked at.
    """
    farthest = sorted(part.moves, key=lambda move: -move[1])
    return np.concatenate([np.full(min(count, MOST_COEFFICIENTS), size) for count, size in farthest])[
        :MOST_COEFFICIENTS
    ]


def _part(recipe: Recipe, part: PerturbedPart, factor: float) -> Target:
    ranges = _ranges(part)
    law = laws.laplace_box(
        ranges, np.full(len(ranges), recipe.scale(part)), name="coefficients: "
                                                               f"{part.purpose}", pair=PAIR, factor=factor
    )  # fmt: skip
    claimed = None if recipe.options.preset == "repaired" else part.epsilon
    return Target(law, claimed, np.inf if recipe.flaw else part.l1 * recipe.reach / recipe.scale(part))


def _all(recipe: Recipe, factor: float) -> Target:
    each = [_ranges(part) for part in recipe.parts]
    # In units of the noise; every part has a scale of its own.
    ranges = np.concatenate([one / recipe.scale(part) for one, part in zip(each, recipe.parts, strict=True)])
    law = laws.laplace_box(
        ranges, np.ones(len(ranges)), name="coefficients of all parts", pair=PAIR, factor=factor
    )
    claimed = None if recipe.options.preset == "repaired" else sum(part.epsilon for part in recipe.parts)
    return Target(law, claimed, recipe.pure)


def shared_constants(recipe: Recipe, facts: Facts, factor: float) -> Law:
    """Perturbed activations of a batch: sum of (alpha_l + eta_l) x^l, the same eta for every unit of every
    record.

    Who knows one record of the batch has more activations than there are constants, solves for eta, and knows
    every other activation's argument. The score is how much better the second candidate for the target fits
    than the first.
    """
    alphas = np.array(recipe.sigmoid.alphas)
    orders = np.flatnonzero(alphas)
    powers = [points[:, None] ** orders[None] for points in (KNOWN_VALUES, *CANDIDATES)]
    solve = np.linalg.pinv(powers[0])
    # The largest Delta that the code can compute, on a constant before the factor 2^-5.
    height, width = facts.shape[:2]
    strides = recipe.options.architecture == "strides"
    hidden = -(-height // 2) * -(-width // 2) if strides else (height - 4) * (width - 4)
    largest = 2 * (hidden + height * width)
    scale = largest / (recipe.parts[0].epsilon * BATCH * 2**5)

    def score(sampler: Sampler, runs: int, present: bool) -> Scores:
        constants = alphas[orders] + sampler.laplace(scale * factor, (runs, len(orders)))
        known, target = (constants @ powers[index].T for index in (0, 2 if present else 1))
        # Activations as float32, as they are in the code.
        known, target = (values.astype(np.float32).astype(np.float64) for values in (known, target))
        solved = known @ solve.T
        misfits = [np.square(target - solved @ candidate.T).sum(axis=1) for candidate in powers[1:]]
        fits: Scores = np.log(misfits[0] + 1e-30) - np.log(misfits[1] + 1e-30)
        return fits

    return Law(
        "perturbed activations of a batch",
        "a target that is one record or another, beside a known record",
        score,
        len(orders),
    )
