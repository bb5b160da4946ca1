"""What an attack on AdLM and ILM goes for: the inputs of one record, its label, both together, and a batch
that shares its noise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.attack import laws
from airlock.attack.targets import Target
from airlock.privacy import accounting, events
from stages.release.papers.adlm.perturbation import allocate
from stages.release.papers.adlm.recipe import Recipe, laplaces

TARGET_PIXELS, TARGET_VALUE = 100, 0.7
Scales = NDArray[np.float64]


def targets_of(
    recipe: Recipe, *, delta: float, factor: float, release: dict[str, Any] | None
) -> list[Target]:
    """One target for each thing that the paper says is private.

    Args:
        recipe: the reading under attack.
        delta: for the whole record, where even shares have a better proof than the pure one.
        factor: noise drawn, as a part of the noise that is accounted for.
        release: tensors of a release, whose scales tell how AdLM shared its budget; without them the shares
            are even. A price that covers all shares is then also held against the most uneven ones, however
            unlikely it is that relevance comes out so.
    """
    if recipe.options.noise == "batch":
        return [_shared_batch(recipe, factor)]
    scales = np.full(recipe.features, recipe.input_scale)
    if release is not None and "scales" in release:
        scales = np.asarray(release["scales"], dtype=np.float64)
    found = [_inputs(recipe, factor, scales), _labels(recipe, factor), _record(recipe, factor, scales, delta)]
    if recipe.adaptive and release is None and recipe.options.sensitivity == "tight":
        found.append(
            _record(
                recipe,
                factor,
                recipe.input_scale / _uneven(recipe.features),
                delta,
                shares="all shares on one feature",
            )
        )
    return found


def _uneven(features: int) -> Scales:
    """The shares of features of which a single one is relevant."""
    return allocate(np.eye(1, features)[0])


def _inputs(recipe: Recipe, factor: float, scales: Scales) -> Target:
    ranges = np.full(recipe.features, recipe.span)
    law = laws.laplace_box(ranges, scales, name="perturbed inputs of one record", factor=factor)
    return Target(law, _claim(recipe, 1), float((ranges / scales).sum()))


def _labels(recipe: Recipe, factor: float) -> Target:
    moved = recipe.moved_labels
    pair = "no label, or one" if moved == 1 else "one label, or another"
    law = laws.laplace_box(
        np.ones(moved),
        np.full(moved, recipe.label_scale),
        name="perturbed label of one record",
        pair=pair,
        factor=factor,
    )
    return Target(law, _claim(recipe, 2), recipe.label_epsilon)


def _record(recipe: Recipe, factor: float, scales: Scales, delta: float, *, shares: str = "") -> Target:
    """Inputs and label together: the whole of what is released about a record, relevance left out."""
    ranges = np.concatenate([np.full(recipe.features, recipe.span), np.ones(recipe.moved_labels)])
    both = np.concatenate([scales, np.full(recipe.moved_labels, recipe.label_scale)])
    claims = _claim(recipe, 1), _claim(recipe, 2)
    claimed = None if claims[0] is None or claims[1] is None else claims[0] + claims[1]
    name = "inputs and label of one record" + (f", {shares}" if shares else "")
    law = laws.laplace_box(ranges, both, name=name, pair="a null record, or the brightest", factor=factor)
    if recipe.adaptive:
        return Target(law, claimed, recipe.input_epsilon + recipe.label_epsilon)
    return Target(law, claimed, even_epsilon(recipe, delta), delta)


def _shared_batch(recipe: Recipe, factor: float) -> Target:
    known, first, second = np.zeros((3, recipe.features))
    # Of a grey image as many pixels as are looked at: mirrored or with another contrast it is what it was, so that
    # the distortions of the program for colour images change neither candidate. That program cuts nothing off.
    second[: min(TARGET_PIXELS, recipe.features)] = TARGET_VALUE * recipe.span
    # Pixels in [-1, 1] are cut there: on [0, 1] at no less than this on either side.
    clip = (recipe.options.clip - 1) / 2 if recipe.signed else recipe.options.clip
    clip = np.inf if recipe.colour_program else max(clip, 0.0)
    law = laws.shared_noise(known, first, second, scale=recipe.input_scale, clip=clip, factor=factor)
    return Target(law, _claim(recipe, 1), np.inf)


def _claim(recipe: Recipe, part: int) -> float | None:
    return None if recipe.options.sensitivity == "tight" else recipe.epsilons[part]


def even_epsilon(recipe: Recipe, delta: float) -> float:
    """Theorem A3 for even shares: inputs and labels together at `delta`, relevance left out."""
    event = laplaces(
        (recipe.features, recipe.input_scale / recipe.span), (recipe.moved_labels, recipe.label_scale)
    )
    return accounting.epsilon(events.from_json(event), delta)
