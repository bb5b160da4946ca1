"""Records, perturbed one by one and once for all: what AdLM and ILM release
(stages/release/papers/adlm/adlm.py says what it proves).

Everything is an integer on a public grid: inputs in 1/255 (images) or 2^-16 (tables), coefficients and
relevances in 2^-16. Laplace noise is added on the same grid, so the proofs hold for exactly the released
bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.errors import ReleaseError
from airlock.models.papers import taylor
from airlock.params import Params
from airlock.privacy.plan import Facts
from airlock.records.encoding import unpack
from stages.release.keyed_noise import ROUNDING_FACTOR, KeyedNoise
from stages.release.papers.adlm import colour
from stages.release.papers.adlm.recipe import Recipe, geometry
from stages.release.perturb import OTHER_PARAMETERS

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

FINE_GRID = 2**16
GRIDS = {"image": 255, "tabular": FINE_GRID}
SMALLEST_SHARE = 1e-4
FLOOR = 1e-5
"""The least relevance and share of the program for grey images."""
LARGEST_RELEVANCE = 2.0**20
UNIT_PROGRAM, PROGRAM, COLOUR_PROGRAM = "adlm-program", "adlm-grey", "adlm-colour"
"""The networks of the authors' programs (airlock/models/papers/adlm_program.py, adlm_colour.py); the first one looks at
pixels in [0, 1].
"""


def perturb(
    recipe: Recipe,
    params: Params,
    facts: Facts,
    reader: Any,
    *,
    key: bytes,
    release_id: str,
    network: Any = None,
    relevance: Integers | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Relevance (one pass and what its network needs), then inputs, bias and coefficients (one pass).

    `relevance` is what was released before, and `network` one that it goes through; without them they are
    made here.
    """
    keyed, grid = KeyedNoise(key, release_id), GRIDS[facts.kind]
    tensors: dict[str, Any] = {}
    shares = np.ones(recipe.features)
    if recipe.adaptive:
        tensors["relevance"] = (
            average(recipe, params, facts, reader, key=key, release_id=release_id, network=network)
            if relevance is None
            else relevance
        )
        if tensors["relevance"].shape != (recipe.features,):
            raise ReleaseError(OTHER_PARAMETERS)
        shares = _shares(recipe, tensors["relevance"])
    scales = recipe.input_scale / shares
    tensors["scales"] = scales
    tensors |= _fixed(recipe, facts, keyed)
    chunks = _chunks(reader, facts)
    if recipe.colour_program:
        chunks = colour.distorted(chunks, facts.shape, keyed.named_stream(2, "distortions"))
    parts = [_perturb_chunk(recipe, facts, keyed, chunk, scales * grid / recipe.span) for chunk in chunks]
    tensors["inputs"] = np.concatenate([inputs for inputs, _ in parts])
    tensors["coefficients"] = np.concatenate([coefficients for _, coefficients in parts])
    return tensors, {
        "grid": grid,
        "fine": FINE_GRID,
        # The program for colour images cuts nothing off.
        **({} if recipe.colour_program else {"clip": recipe.options.clip}),
        "n": facts.n,
        "epsilons": epsilons(recipe),
        **_program(recipe),
    }


def largest_noise(recipe: Recipe, facts: Facts) -> float:
    """The largest scale that anything of a reading with a proof can be drawn with, in steps of its grid."""
    least = SMALLEST_SHARE / (1 + SMALLEST_SHARE) if recipe.adaptive else 1.0
    scales = (
        recipe.input_scale / least * GRIDS[facts.kind] / recipe.span,
        recipe.input_scale * FINE_GRID,
        recipe.label_scale * FINE_GRID,
        recipe.relevance_scale * recipe.counted * FINE_GRID if recipe.adaptive else 0.0,
    )
    return max(scales) * ROUNDING_FACTOR


def _program(recipe: Recipe) -> dict[str, Any]:
    """What a trainer has to know of the authors' program, where it is one."""
    if not recipe.program:
        return {}
    grey = PROGRAM if recipe.signed else UNIT_PROGRAM
    return {"network": COLOUR_PROGRAM if recipe.colour else grey, "batch": recipe.batch}


def _shares(recipe: Recipe, relevance: Integers) -> Floats:
    """Beta of each input."""
    if recipe.options.allocation == "raised":
        return colour.shares(relevance, recipe.counted * FINE_GRID)
    if recipe.options.allocation == "floored":
        return floored(relevance / (recipe.counted * FINE_GRID))
    return allocate(relevance.astype(np.float64))


def _fixed(recipe: Recipe, facts: Facts, keyed: KeyedNoise) -> dict[str, Integers]:
    """Noise for the whole training: on the bias of the first layer (line 14), or, in the authors' program, on
    the output weights.
    """
    _, maps, _, _, hidden = geometry(facts.shape)
    size: tuple[int, ...] = (hidden, len(facts.labels)) if recipe.program else (maps,)
    purpose = "label_noise" if recipe.program else "bias"
    scale = recipe.label_scale if recipe.program else recipe.input_scale
    zeros = np.zeros(size, np.int64)
    return {purpose: keyed.add_laplace(zeros, scale * FINE_GRID, release_pass=0, purpose=purpose)}


def average(
    recipe: Recipe,
    params: Params,
    facts: Facts,
    reader: Any,
    *,
    key: bytes,
    release_id: str,
    network: Any = None,
) -> Integers:
    """The noisy sum of relevances, through a network that is made here where there is none."""
    from stages.release.papers.adlm import pretraining

    network = network or pretraining.network(recipe, params, facts, reader, key=key, release_id=release_id)
    return _relevance(recipe, facts, reader, KeyedNoise(key, release_id), network)


def epsilons(recipe: Recipe) -> dict[str, float]:
    """The pure epsilon of each part, for the manifest; no part of it depends on a record. Labels that are
    released as they are have none.
    """
    labels = {} if recipe.program else {"labels": recipe.label_epsilon}
    return {"inputs": recipe.input_epsilon, **labels, "relevance": recipe.relevance_epsilon}


def allocate(relevance: Floats) -> Floats:
    """Eq. 16: beta_j = d |R_j| / sum |R|, kept above a tiny share so that every scale is finite; the shares
    sum to d.
    """
    size = np.abs(relevance)
    share = np.maximum(size / max(float(size.mean()), 1e-300), SMALLEST_SHARE)
    shares: Floats = share * (len(share) / share.sum())
    return shares


def floored(relevance: Floats) -> Floats:
    """Beta in the program for grey images: d R_j / sum R, neither of them below 1e-5. Noise makes about half of the
    relevances negative, and a pixel of such a share has noise that drowns it.
    """
    size = np.maximum(relevance, FLOOR)
    share: Floats = np.maximum(len(size) * size / size.sum(), FLOOR)
    return share


def _chunks(reader: Any, facts: Facts) -> Iterator[tuple[int, Integers, NDArray[np.int32]]]:
    """First row, integer inputs and labels of each chunk; a null record is a row of zeros without a label."""
    first, grid = 0, GRIDS[facts.kind]
    for batch in reader:
        encoded = unpack(batch, facts.shape)
        flat = encoded.x.reshape(len(encoded.x), prod(facts.shape))
        inputs = (
            flat.astype(np.int64)
            if facts.kind == "image"
            else np.floor(np.clip(flat, 0, 1) * grid).astype(np.int64)
        )
        yield (
            first,
            inputs * encoded.valid[:, None],
            np.where(encoded.valid > 0, encoded.y, -1).astype(np.int32),
        )
        first += len(inputs)


def _perturb_chunk(
    recipe: Recipe,
    facts: Facts,
    keyed: KeyedNoise,
    chunk: tuple[int, Integers, NDArray[np.int32]],
    scales: Floats,
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Lines 12-13 and 18-19 of Algorithm 1 for one chunk."""
    first, inputs, labels = chunk
    table = np.trunc(taylor.coefficients(labels, len(facts.labels)) * FINE_GRID).astype(np.int64)
    noisy = table if recipe.options.coefficients == "all" else table[:, 1:2]
    flat, label_scale = noisy.reshape(len(noisy), -1), recipe.label_scale * FINE_GRID
    if recipe.options.noise == "batch":
        rows = np.arange(first, first + len(inputs)) // recipe.batch
        inputs = inputs + _shared_inputs(recipe, facts, keyed, rows, scales)
        if recipe.program:
            return narrow(inputs), narrow(table)
        flat = flat + _shared(keyed, rows, np.full(flat.shape[1], label_scale), "coefficients")
    else:
        inputs = keyed.add_laplace(inputs, scales, release_pass=2, purpose=f"inputs {first}")
        flat = keyed.add_laplace(flat, float(label_scale), release_pass=2, purpose=f"coefficients {first}")
    if recipe.options.coefficients == "all":
        table = flat.reshape(table.shape)
    else:
        table[:, 1:2] = flat.reshape(noisy.shape)
    return narrow(inputs), narrow(table)


def _shared_inputs(
    recipe: Recipe, facts: Facts, keyed: KeyedNoise, batches: Integers, scales: Floats
) -> Integers:
    """One noise vector for each batch; in the program for colour images one for all, and where it is shared by
    relevance, the same on each channel of a pixel.
    """
    if not recipe.colour_program:
        return _shared(keyed, batches, scales, "inputs")
    channels = facts.shape[2] if recipe.adaptive else 1
    found = _shared(keyed, np.zeros_like(batches), scales[::channels], "inputs")
    return np.repeat(found, channels, axis=1)


def _shared(keyed: KeyedNoise, batches: Integers, scales: Floats, purpose: str) -> Integers:
    """One noise vector for each batch (by row position), the same whatever chunk asks for it."""
    rows = {
        int(batch): keyed.add_laplace(
            np.zeros((1, len(scales)), np.int64),
            scales,
            release_pass=2,
            purpose=f"{purpose} of batch {batch}",
        )[0]
        for batch in np.unique(batches)
    }
    return np.stack([rows[int(batch)] for batch in batches])


def narrow(values: Integers) -> NDArray[np.int32]:
    """To 32 bits; what does not fit is cut off, which is post-processing."""
    limits = np.iinfo(np.int32)
    return np.clip(values, limits.min, limits.max).astype(np.int32)


def _relevance(recipe: Recipe, facts: Facts, reader: Any, keyed: KeyedNoise, network: Any) -> Integers:
    """Eq. 12: the noisy sum over `counted` records of relevances in [0, 1], in units of 2^-16."""
    total, left = np.zeros(recipe.features, np.int64), recipe.counted
    for _, inputs, labels in _chunks(reader, facts):
        rows = (inputs[:left] / GRIDS[facts.kind]).astype(np.float32).reshape(-1, *facts.shape)
        found = of_each(recipe, network, rows)
        # A null record has no relevance.
        total += np.trunc(found * FINE_GRID * (labels[:left] >= 0)[:, None]).astype(np.int64).sum(0)
        left -= len(rows)
        if left <= 0:
            break
    together, unit = recipe.options.allocation == "raised", recipe.counted * FINE_GRID
    if recipe.options.allocation in ("clamped", "floored"):
        total = _powered(total, recipe.counted, FLOOR if recipe.options.allocation == "clamped" else 0.0)
    elif together:
        total = colour.raised(total, facts.shape, unit)
    noisy = keyed.add_laplace(total, recipe.relevance_scale * unit, release_pass=1, purpose="relevance")
    return colour.lifted(noisy, facts.shape, unit) if together else noisy


def of_each(recipe: Recipe, network: Any, rows: NDArray[np.float32]) -> Floats:
    """Relevance of the features of each record, from its least to its greatest in [0, 1]; in the program for grey
    images as it is, for all outputs together, of pixels in [-1, 1].
    """
    import torch

    from airlock.models import lrp

    whole = recipe.options.allocation == "floored"
    seen = torch.from_numpy(2 * rows - 1 if looks_signed(recipe) else rows)
    found = lrp.relevances(network, seen, stabiliser=recipe.options.stabiliser, whole=whole).double().numpy()
    if not whole:
        return lrp.normalise(found)
    flat = np.nan_to_num(found.reshape(len(found), -1), nan=0.0, posinf=0.0, neginf=0.0)
    raw: Floats = np.clip(flat, -LARGEST_RELEVANCE, LARGEST_RELEVANCE)
    return raw


def looks_signed(recipe: Recipe) -> bool:
    """Whether the network of relevance looks at pixels in [-1, 1]; the one that is trained with privacy does not."""
    return recipe.signed and recipe.options.network != "released"


def _powered(total: Integers, counted: int, least: float) -> Integers:
    """The authors' code: the mean, rescaled by its own least and greatest value, to the fourth power, at
    least so much.
    """
    mean = (total - total.min()) / max(float(total.max() - total.min()), 1.0)
    powered: Integers = np.trunc(np.maximum(mean**4, least) * counted * FINE_GRID).astype(np.int64)
    return powered
