"""Laws of mechanisms on worst-case neighbours, for attacks (airlock/attack/targets.py).

A run's score is the log likelihood ratio of "the record is there" against "it is null", the best score there
is (Neyman-Pearson). Coordinates on which the neighbours agree carry no information and are not drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from airlock.attack import families
from airlock.attack.samplers import NumpySampler, Sampler
from airlock.attack.targets import Law, Scores
from airlock.privacy import events
from airlock.privacy.guarantees import Neighbours

if TYPE_CHECKING:
    from dp_accounting.dp_event import DpEvent

Array = NDArray[np.float64]
# So many different scales are still drawn group by group.
MOST_GROUPS = 4


def gaussian_sums(multipliers: Sequence[float], *, name: str = "noisy sums", factor: float = 1.0) -> Law:
    """Sums whose sensitivity is reached: query q moves by 1 and gets noise of standard deviation z_q.

    The score is a Gaussian with shift mu = sqrt(sum of 1/z_q^2) in units of its deviation.

    Args:
        multipliers: the z_q that accounting was told.
        name: of the attacked object.
        factor: the noise really drawn is this many times smaller or larger (0.5: a faulty copy with half the
            noise).
    """
    scales = np.asarray(multipliers, dtype=np.float64)

    def score(sampler: Sampler, runs: int, present: bool) -> Scores:
        total = np.zeros(runs)
        for scale in scales:
            total += (sampler.gaussian(scale * factor, (runs,)) + present - 0.5) / scale**2
        return total

    return Law(
        name,
        "a record at its sensitivity bound, or a null record",
        score,
        draws=len(scales),
        family=families.of_shift,
        kind="accounting check",
    )


def laplace_box(
    ranges: Array,
    scales: Array,
    *,
    name: str,
    pair: str = "all features lowest, or all highest",
    factor: float = 1.0,
) -> Law:
    """One record released feature by feature: x_j + Lap(b_j), x_j = 0 or r_j (docs/proofs/adlm.md,
    Inputs).

    The log ratio of a coordinate is clip(2 z - r, -r, r) / b: at its ends for every z outside [0, r].
    """
    reach = ranges / scales
    sizes, counts = np.unique(reach, return_counts=True)
    alike = len(sizes) <= MOST_GROUPS

    def score(sampler: Sampler, runs: int, present: bool) -> Scores:
        if alike and isinstance(sampler, NumpySampler):
            # Both sides are mirror images: presence turns the sign of every coordinate's ratio.
            sums = sum(
                sampler.clipped_sum(size, int(count), factor, runs)
                for size, count in zip(sizes, counts, strict=True)
            )
            return np.asarray(-sums if present else sums, dtype=np.float64)
        # z / b is drawn with scale 1; 2 z - r is then 2 b (z / b) plus or minus r.
        ratios = sampler.laplace(2 * factor, (runs, len(ranges)))
        ratios += reach if present else -reach
        np.clip(ratios, -reach, reach, out=ratios)
        total: Scores = ratios.sum(axis=1)
        return total

    return Law(name, pair, score, draws=len(ranges), together=4096 if alike else 1)


def shared_noise(
    known: Array, first: Array, second: Array, *, scale: float, clip: float, factor: float = 1.0
) -> Law:
    """One noise vector added to every record of a batch, clipped, in float32 (AdLM as its authors' code draws
    it).

    The difference of two perturbed rows is the difference of the rows wherever neither was clipped; the score
    counts on how many features it fits the second candidate for the target, less on how many it fits the
    first.
    """
    differ = first != second
    base, candidates = (
        known[differ].astype(np.float32),
        [row[differ].astype(np.float32) for row in (first, second)],
    )

    def score(sampler: Sampler, runs: int, present: bool) -> Scores:
        drawn = sampler.laplace(scale * factor, (runs, int(differ.sum()))).astype(np.float32)
        seen = np.clip(base + drawn, -clip, clip)
        target = np.clip(candidates[int(present)] + drawn, -clip, clip)
        inside = (np.abs(seen) < clip) & (np.abs(target) < clip)
        misfit = [np.abs((target - seen) - (row - base)) for row in candidates]
        fits: Scores = (
            (((misfit[1] < misfit[0]).astype(np.int8) - (misfit[0] < misfit[1])) * inside)
            .sum(axis=1)
            .astype(np.float64)
        )
        return fits

    return Law(
        "perturbed batch, noise shared",
        "a target that is one record or another, beside a known record",
        score,
        int(differ.sum()),
    )


def of_event(event: DpEvent, *, name: str, neighbours: Neighbours = "zero-out", factor: float = 1.0) -> Law:
    """The law behind an event at its worst case: every query moved by exactly its sensitivity.

    Args:
        event: Gaussian, Laplace and Poisson-sampled Gaussian events, composed in any way.
        name: of the attacked object.
        neighbours: matters for samples only: there the record is absent, or it is replaced by one with the
            opposite contribution. Every step is seen, as accounting assumes; an attack on the last iterate
            alone would see less.
        factor: see `gaussian_sums`.
    """
    parts = sorted(events.leaves(event).items(), key=repr)
    if all(type(part).__name__ == "GaussianDpEvent" for part, _ in parts):
        return gaussian_sums(
            [part.noise_multiplier for part, count in parts for _ in range(count)], name=name, factor=factor
        )

    def score(sampler: Sampler, runs: int, present: bool) -> Scores:
        total = np.zeros(runs)
        for part, count in parts:
            for _ in range(count):
                total += _loss(part, sampler, runs, present, neighbours, factor)
        return total

    other = "a null record" if neighbours == "zero-out" else "its opposite"
    pair = f"a record at its sensitivity bound in every query, or {other}"
    draws = sum(count for _, count in parts)
    return Law(
        name,
        pair,
        score,
        draws=draws,
        together=4096,
        family=families.of_event(event, neighbours),
        kind="accounting check",
    )


def _loss(
    part: Any, sampler: Sampler, runs: int, present: bool, neighbours: Neighbours, factor: float
) -> Scores:
    """Log likelihood ratios of one query that the record moves by 1."""
    kind = type(part).__name__
    losses: Scores
    if kind == "GaussianDpEvent":
        z = part.noise_multiplier
        losses = (sampler.gaussian(z * factor, (runs,)) + present - 0.5) / z**2
    elif kind == "LaplaceDpEvent":
        b = part.noise_multiplier
        losses = np.clip(2 * (sampler.laplace(b * factor, (runs,)) + present) - 1, -1, 1) / b
    elif kind == "PoissonSampledDpEvent" and type(part.event).__name__ == "GaussianDpEvent":
        rate, z = part.sampling_probability, part.event.noise_multiplier
        # In units of the sensitivity: from 0 to 1 under zero-out, from -1/2 to 1/2 under replace-one
        # (docs/privacy.md).
        low, high = (0.0, 1.0) if neighbours == "zero-out" else (-0.5, 0.5)
        drawn = sampler.gaussian(z * factor, (runs,))
        drawn += sampler.sample(rate, (runs,)) * (high if present else low)
        losses = _sampled(drawn, high, rate, z) - _sampled(drawn, low, rate, z)
    else:
        raise ValueError(f"the law of {kind} is not known: attack it through a trained distinguisher")
    return losses


def _sampled(drawn: Scores, shift: float, rate: float, z: float) -> Scores:
    """log((1 - q) N(0) + q N(shift)) less log N(0), at the draws."""
    ratio: Scores = np.log1p(rate * np.expm1((drawn * shift - shift**2 / 2) / z**2))
    return ratio
