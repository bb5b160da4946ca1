"""`pcdbn` with noise on the data's own coefficients: one noisy matrix for each layer, one for the softmax
layer (docs/proofs/pcdbn.md#energy-coefficients).

With h = a0 + a1 (w.p + b) / Z and a constant Z = 25 C + 1 the energy of Eq. 14 is a polynomial, and the
records enter it through S = sum of p~ p~^T, p~ = (p, 1), and sum of v alone. The functional mechanism's
coefficients are a1 / Z S_ii, 2 a1 / Z S_ij and the sums of v; each gets Laplace noise of the same scale,
once, whatever the number of groups. The filters of a layer are trained here, from the noisy matrix, because
the next layer's matrix depends on them; the softmax layer is trained in the open room. Everything is an
integer on a public grid; pooled units are floats before they are rounded to 1/255, hence arithmetic is called
idealised.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from airlock.models.classifier import PREFIX
from airlock.models.papers import filters
from airlock.models.papers.belief import SIDE, Belief, brackets
from airlock.models.papers.boltzmann import Machine
from airlock.models.papers.networks import build
from airlock.privacy.plan import Facts
from airlock.privacy.sums import label_rows
from airlock.records.encoding import unpack
from stages.release.keyed_noise import ROUNDING_FACTOR, KeyedNoise
from stages.release.papers.pcdbn.pcdbn import GRID, PerturbedPart, Recipe

GAIN, CONTRAST = 30.0, 5.0
ROWS = 64
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def perturb(
    recipe: Recipe, facts: Facts, reader: Any, *, key: bytes, release_id: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Layer by layer, then the softmax layer: released tensors and details."""
    network = fresh(recipe, facts)
    keyed, tensors, scales = KeyedNoise(key, release_id), dict[str, Any](), dict[str, float]()
    for depth, part in enumerate(recipe.parts[:-1]):
        scales[part.purpose] = scale = _scale(recipe, part, network, depth, facts, reader)
        noisy, total = _noisy_energy(recipe, network, depth, facts, reader, keyed, scale)
        tensors |= {part.purpose: noisy, f"{part.purpose}.visible": total}
        network.set_machine(depth, learn(noisy, total, facts.n, recipe, depth))
    softmax = recipe.parts[-1]
    scales[softmax.purpose] = recipe.scale(softmax)
    tensors |= _noisy_softmax(recipe, network, facts, reader, keyed)
    tensors |= {PREFIX + name: value.detach().numpy() for name, value in network.state_dict().items()}
    return tensors, {
        "network": recipe.network,
        "trained": False,
        "grid": GRID,
        "scales": scales,
        "n": facts.n,
    }


def fresh(recipe: Recipe, facts: Facts) -> Belief:
    """The network before any record: public and random. Nothing is learned in the fully connected layer,
    whose coefficients would move.

    Pooled units of a map have a common level, which says little: weights of a unit sum to zero over every map
    of several places, and are large enough to use the grid.
    """
    network = build(recipe.network, facts.shape, len(facts.labels), seed=filters.SEED).eval()
    assert isinstance(network, Belief)
    network.maximal.fill_(float(recipe.options.pooling == "maximum"))
    linear = network.hidden[0]
    assert isinstance(linear, torch.nn.Linear)
    with torch.no_grad():
        maps = linear.weight.reshape(linear.out_features, recipe.options.maps[-1], -1)
        if maps.shape[2] > 1:
            linear.weight.copy_(GAIN * (maps - maps.mean(2, keepdim=True)).flatten(1))
        linear.bias.zero_()
    return network


def _scale(
    recipe: Recipe, part: PerturbedPart, network: Belief, depth: int, facts: Facts, reader: Any
) -> float:
    """Of the noise on a coefficient; Lemma 2 as printed takes it from the records."""
    if recipe.options.sensitivity != "data":
        return recipe.scale(part)
    largest = max(float(_largest(recipe, units)) for units, _ in _units(network, depth, facts, reader))
    return 2 * largest / part.epsilon * ROUNDING_FACTOR


def _largest(recipe: Recipe, units: Tensor) -> Tensor:
    return brackets(units.float() / GRID, recipe.sigmoid, scale=float(units.shape[1] * SIDE * SIDE + 1)).max()


def _units(
    network: Belief, depth: int, facts: Facts, reader: Any
) -> Iterator[tuple[Tensor, NDArray[np.int32]]]:
    """What a layer sees, as integers of at most GRID in float64, zeros for null records; and labels, -1 for
    those.
    """
    for batch in reader:
        encoded = unpack(batch, facts.shape)
        labels = np.where(encoded.valid > 0, encoded.y, -1).astype(np.int32)
        for start in range(0, len(labels), ROWS):
            few = slice(start, start + ROWS)
            units = network.units(
                torch.from_numpy(encoded.x[few].astype(np.float32) / np.float32(GRID)), depth
            )
            present = torch.from_numpy(encoded.valid[few].astype(np.float64))[:, None, None, None]
            yield (units.double() * GRID).round().clamp(0, GRID) * present, labels[few]


def _noisy_energy(
    recipe: Recipe, network: Belief, depth: int, facts: Facts, reader: Any, keyed: KeyedNoise, scale: float
) -> tuple[Integers, Integers]:
    """S in units of 1 / GRID^2 and the sums of v in units of 1 / GRID, both with noise."""
    size = network.filters[depth].shape[1] * SIDE * SIDE
    exact, total = (
        np.zeros((size + 1, size + 1), np.int64),
        np.zeros(network.filters[depth].shape[1], np.int64),
    )
    for units, labels in _units(network, depth, facts, reader):
        patches = functional.unfold(units, SIDE)
        constant = torch.from_numpy((labels >= 0) * float(GRID))[:, None, None].expand(
            -1, 1, patches.shape[2]
        )
        rows = torch.cat([patches, constant], 1).transpose(1, 2).reshape(-1, size + 1).numpy()
        exact += (rows.T @ rows).astype(np.int64)
        total += units.sum((0, 2, 3)).numpy().astype(np.int64)
    purpose = recipe.parts[depth].purpose
    unit = GRID**2 * (size + 1) / abs(recipe.sigmoid.alphas[1]) * scale
    noisy = _noisy_matrix(keyed, exact, unit, release_pass=depth + 1, purpose=purpose)
    return noisy, keyed.add_laplace(total, GRID * scale, release_pass=depth + 1, purpose=f"{purpose} visible")


def _noisy_matrix(
    keyed: KeyedNoise, exact: Integers, diagonal: float, *, release_pass: int, purpose: str
) -> Integers:
    """A symmetric matrix whose off-diagonal entries count twice among the coefficients, and so get half the
    noise each.
    """
    size = len(exact)
    upper = np.triu_indices(size, 1)
    noisy = np.zeros_like(exact)
    noisy[upper] = keyed.add_laplace(
        exact[upper], diagonal / 2, release_pass=release_pass, purpose=f"{purpose} pairs"
    )
    noisy += noisy.T
    noisy[np.diag_indices(size)] = keyed.add_laplace(
        np.diag(exact).copy(), diagonal, release_pass=release_pass, purpose=f"{purpose} squares"
    )
    return noisy


def learn(noisy: Integers, total: Integers, n: int, recipe: Recipe, depth: int) -> Machine:
    """A layer's machine from its released sums: post-processing. The number of patches is public.

    It is learned where the series holds, with drives in [-1, 1], and used at CONTRAST times that, or its
    units would hardly differ.
    """
    alphas = recipe.sigmoid.alphas
    # The corner is (patches of all records) * GRID^2; where noise has drowned it, the public n tells it as
    # well.
    patches = max(float(noisy[-1, -1]) / GRID**2, float(n))
    visible = float(total.sum()) / GRID / max(len(total) * patches, 1.0)
    mean = min(max(visible, 0.0), 1.0)
    made = filters.diverge_freely(
        noisy / (GRID**2 * patches), mean, recipe.options.maps[depth], SIDE, alphas=alphas
    )
    return Machine(CONTRAST * made.filters, CONTRAST * made.hidden, made.visible)


def _noisy_softmax(
    recipe: Recipe, network: Belief, facts: Facts, reader: Any, keyed: KeyedNoise
) -> dict[str, Integers]:
    """Coefficients of the Taylor loss (Eq.

    18): sum of (1 - 2 y) p in units of 1 / (2 GRID), sum of p p^T in units of 1 / GRID^2.
    """
    width, classes, part = recipe.options.hidden, len(facts.labels), recipe.parts[-1]
    first, second = np.zeros((classes, width), np.int64), np.zeros((width, width), np.int64)
    for units, labels in _units(network, 0, facts, reader):
        with torch.no_grad():
            top = network.top((units / GRID).float().permute(0, 2, 3, 1)).double().numpy()
        rows = np.rint(top * GRID) * (labels >= 0)[:, None]
        first += ((1 - 2 * label_rows(labels, classes)).T @ rows).astype(np.int64)
        second += (rows.T @ rows).astype(np.int64)
    last, scale = len(recipe.parts), recipe.scale(part)
    return {
        "softmax1": keyed.add_laplace(first, 2 * GRID * scale, release_pass=last, purpose="softmax labels"),
        "softmax2": _noisy_matrix(keyed, second, 8 * GRID**2 * scale, release_pass=last, purpose="softmax"),
    }
