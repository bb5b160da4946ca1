"""Everything that a horizon releases, attacked together: one record of one night, by the best test there is."""

from __future__ import annotations

import numpy as np
import pytest

from airlock.attack.families import of_shift
from airlock.attack.samplers import NumpySampler, Sampler
from airlock.attack.targets import Law, Scores, measure
from airlock.privacy import accounting, events
from airlock.privacy.continual import Memory, Strategy, strategy_of, tonight
from airlock.privacy.weighing import UNIT, weighing
from tests.privacy.test_continual import dense

DELTA = 1e-3
RECORD = 1 << 20
"""What the record adds to its night's sum, in grid units: as far as a record may."""


def law(strategy: Strategy, multiplier: float, night: int, factor: float = 1.0) -> Law:
    """The record is on `night` or nowhere; the released nights are turned back into y = C v, whose likelihood ratio
    is the best test of all (docs/proofs/continual.md#guarantee).
    """
    matrix = dense(strategy).astype(np.float64)
    scale = multiplier * strategy.of_sum(RECORD) * factor

    def score(sampler: Sampler, runs: int, present: bool) -> Scores:
        memory, released = Memory(), []
        for place in range(strategy.nights):
            drawn = np.rint(sampler.gaussian(scale, (runs,))).astype(np.int64)
            noise, memory = tonight(strategy, memory, drawn)
            released.append(noise + RECORD * (present and place == night))
        seen = matrix @ np.array(released, dtype=np.float64)
        return np.asarray(matrix[:, night] @ seen)

    return Law(
        "all nights",
        "a record on one night, or not",
        score,
        draws=strategy.nights,
        together=2000,
        family=of_shift,
    )


@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_an_attack_on_all_nights_stays_within_the_proof_and_comes_near_it(factor: float) -> None:
    """With half of the noise that was accounted for, the same attack refutes the proof: it could."""
    strategy, multiplier = strategy_of("square-root", 12), 1.2
    matrix = dense(strategy)
    longest = max(range(12), key=lambda place: sum(int(entry) ** 2 for entry in matrix[:, place]))
    proven = accounting.epsilon(
        events.from_json({"kind": "gaussian", "noise_multiplier": multiplier}), DELTA, neighbours="zero-out"
    )
    found = measure(law(strategy, multiplier, longest, factor), NumpySampler(5), trials=20_000, delta=DELTA)
    assert (found.best > proven) == (factor < 1)
    assert found.best > 0.8 * proven


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_an_attack_on_weighted_totals_stays_within_the_proof_and_comes_near_it(
    factor: float, ends: bool
) -> None:
    """All totals of a chapter, each over its noise, along what the record adds to them: the best test there is."""
    weights, multiplier, night = weighing(12, ends), 1.2, 4
    first = multiplier * weights.of_sum(RECORD) * factor

    def score(sampler: Sampler, runs: int, present: bool) -> Scores:
        found = np.zeros(runs)
        for place in range(12):
            scale = weights.scale(first, place + 1)
            total = np.rint(sampler.gaussian(scale, (runs,)))
            reached = weights.weights[night] if place >= night else 0
            found += (total + reached * RECORD * present) * reached / (weights.widths[place] / UNIT) ** 2
        return found

    attacked = Law("all nights", "a record on one night", score, draws=12, together=2000, family=of_shift)
    proven = accounting.epsilon(
        events.from_json({"kind": "gaussian", "noise_multiplier": multiplier}), DELTA, neighbours="zero-out"
    )
    found = measure(attacked, NumpySampler(7), trials=20_000, delta=DELTA)
    assert (found.best > proven) == (factor < 1)
    assert found.best > 0.8 * proven
