"""Residual rounds for a label that is a number: `coefficients-iterated` as regression.

A round releases S = sum a r and Q = sum r^2, where r = t - a W, cut to [-C, C], is what the head leaves of a label
t, and moves W by (G + ridge)^-1 S: a Newton step of the squared loss. Q tells how large gaps
still are, and the next round cuts there: where a label fills a small part of generous bounds, noise shrinks with
it. Rows have norm at most 1: S has L2 sensitivity C (zero-out) or 2 C (replace-one), Q has C^2 under both
(docs/proofs/coefficients.md#numbers). Everything a round uses was released before it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import Field

from airlock.models.features.rows import LIMIT, Rows
from airlock.models.features.softmax import BOUND
from airlock.models.moments import Moments
from airlock.models.numbers import HALF, centred
from airlock.params import Section
from airlock.privacy import sensitivity
from airlock.privacy.guarantees import Neighbours
from stages.mechanisms import Given
from stages.release.mechanisms.heads import Head
from stages.release.mechanisms.recipes import Recipe
from stages.release.noisy_sums import NoisySums, Query
from stages.release.passes import Chunk, Records, Sendable, Sums, cross_of

ARGUMENT = "docs/proofs/coefficients.md#numbers"


class Options(Section):
    """release.options of `coefficients-iterated` for a number.

    Shares are of mu squared; what the first four leave goes to the rounds, in equal parts, and of each part
    `spread_share` tells how large gaps are. bench/results/tables/numbers.md says how the rest was chosen.
    """

    mean_share: float = Field(0.03, gt=0, lt=1)
    whitening_share: float = Field(0.15, gt=0, lt=1)
    gram_share: float = Field(0.10, gt=0, lt=1)
    cross_share: float = Field(0.02, gt=0, lt=1)
    spread_share: float = Field(0.05, gt=0, lt=1)
    whitening_ridge: float = Field(0.3, ge=1e-6, le=1e6)
    ridge: float = Field(0.7, ge=1e-6, le=1e6)
    clip: float = Field(0.3, ge=1e-6, le=2)
    reach: float = Field(1.5, gt=0, le=1e3)
    step: float = Field(1.0, gt=0, le=1e3)

    def named(self) -> dict[str, float]:
        """What shapes the rounds beside the shares."""
        return self.model_dump(include={"clip", "ridge", "step", "reach"})


@dataclass(frozen=True)
class Gaps(Sendable):
    """The question of a round: sum a r and sum r^2 over a chunk, for the gaps r of a head that depends on earlier
    releases only, cut to `clip` and on a grid of BOUND steps.
    """

    head: Head
    clip: float
    level: int = 0
    kind: ClassVar[str] = "gaps"

    def __call__(self, chunk: Chunk) -> Sums:
        found = gaps(self.head.scores(chunk.rows), centred(chunk.labels, self.level), self.clip)
        found *= (chunk.labels >= 0)[:, None]
        return {
            "residuals": cross_of(chunk, found, BOUND),
            "spread": np.array([(found * found).sum()]).astype(np.int64),
        }

    def packed(self) -> tuple[dict[str, Any], Sums]:
        """Clip, unit, level and head: all made from earlier releases."""
        return {"clip": self.clip, "unit": self.head.unit, "level": self.level}, {"head": self.head.integers}

    @classmethod
    def unpacked(cls, plain: Mapping[str, Any], tensors: Sums) -> Self:
        """The inverse of `packed`."""
        return cls(Head(tensors["head"], plain["unit"]), plain["clip"], plain["level"])


def gaps(scores: Rows, targets: Rows, clip: float) -> Rows:
    """t - score, cut to [-clip, clip], as integers from -BOUND to BOUND."""
    cut = np.clip(targets / HALF - scores, -clip, clip)
    steps: Rows = np.clip(np.trunc(cut * (BOUND / clip)), -BOUND, BOUND)
    return steps


def queries(recipe: Recipe, neighbours: Neighbours, rounds: int, spread_share: float) -> list[Query]:
    """The noisy sums of the rounds, with their shares of one round's part."""
    reach = sensitivity.bounded_cross(LIMIT, BOUND, neighbours=neighbours)
    asked = []
    for index in range(rounds):
        place, part = recipe.passes + index + 1, recipe.shares[f"residuals-{index + 1}"]
        asked += [
            Query(f"residuals-{index + 1}", place, reach, "gaussian", recipe.size, part * (1 - spread_share)),
            # Squares are from 0 to BOUND^2: so far apart are two of them, and one and none.
            Query(f"spread-{index + 1}", place, float(BOUND**2), "gaussian", 1, part * spread_share),
        ]
    return asked


def run(
    records: Records,
    noisy_sums: NoisySums,
    moments: Moments,
    options: Options,
    rounds: int,
    given: Given,
    level: int,
) -> tuple[Head, list[float]]:
    """The last head, and how large gaps were before each round, as far as the noise lets one see."""
    n, clip, sizes = given.facts.n, options.clip, list[float]()
    # From nothing: where bounds are generous, cross moments are noise, and a round makes good for them anyhow.
    head = Head.of_number(np.zeros((moments.size, 1)))
    for index in range(rounds):
        given.tick(index, rounds)
        exact = records.ask(Gaps(head, clip, level))
        moved = noisy_sums.add_noise(f"residuals-{index + 1}", exact["residuals"]).astype(np.float64)
        squares = float(noisy_sums.add_noise(f"spread-{index + 1}", exact["spread"])[0])
        step = moments.solve(moved * (clip / (LIMIT * BOUND)), options.ridge)
        head = Head.of_number(head.weights + options.step * step)
        noise = noisy_sums.priced[f"spread-{index + 1}"].scale
        # What the noise could hide is added, so that nothing is cut on its word alone.
        seen = clip / BOUND * math.sqrt((max(squares, 0.0) + noise) / n)
        sizes.append(seen)
        clip = min(clip, options.reach * seen)
    return head, sizes
