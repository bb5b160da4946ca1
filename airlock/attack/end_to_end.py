"""An attack on the release itself: run again and again on two neighbouring data sets, and told apart by the
bytes that come out.

The score is a matched filter, which for Gaussian noise is the log likelihood ratio: how far the released
numbers moved along Sigma^-1 Delta. One of the numbers is the exact likelihood ratio of the noisy sums that
the release was made from (attack/replay.py). Delta, what the record does to the released numbers, is seen
without noise's help: for learning alone, both data sets are released with one noise (`common_noise`), and
what differs then is the record. Sigma is estimated from other runs. Nothing of this has to
be right for the bound to hold: the runs that are counted are fresh, with the noise as it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.attack import neighbours, replay
from airlock.attack.neighbours import EncodedRecords, Pair
from airlock.attack.replay import Distance
from airlock.attack.samplers import Sampler
from airlock.attack.targets import Family, Law, Scores
from airlock.privacy import noise

Numbers = NDArray[np.float64]
Release = Callable[[EncodedRecords, bytes], dict[str, Any] | None]
"""(records, noise key) -> everything that is released, by name; None where the release failed, which is seen
from outside too.
"""

# Of the covariance, relative to the variance of each number: the smallest finds sums that share their noise,
# the largest distrusts what few runs say about many numbers. Which one serves best is measured on runs of its
# own.
RIDGES = (1e-9, 1e-4, 1e-2, 0.3, 1e6)
FLOOR = 1e-9
# A later sum may depend on earlier noise: so many histories are looked at.
HISTORIES = 3
FINALISTS = 3
# So many standard errors of a separation are put down to luck.
CHANCE_MARGIN = 3.0


@dataclass(frozen=True)
class Effort:
    """How many runs are spent on learning, before any run is counted.

    Attributes:
        pairs: on ranking one pair of neighbours: releases with common noise.
        spread: on the covariance, each side.
        direction: on Delta for the chosen pair.
        choice: on choosing the ridge, each side.
    """

    pairs: int = 1
    spread: int = 80
    direction: int = 8
    choice: int = 60


class Laboratory:
    """Runs a release under keys that no two runs share, and writes what comes out as one row of numbers."""

    def __init__(self, release: Release, seed: int) -> None:
        self._release, self._seed, self._runs = release, seed, 0
        self._layout: dict[str, int] | None = None
        self.idealised = False
        """Whether a run had float noise: then the ratio knows digits that are not in the released numbers."""

    def observe(self, pair: Pair, present: bool, count: int) -> Numbers:
        """One row of released numbers for each of `count` runs."""
        return np.stack([self._row(pair, present, self._key("run")) for _ in range(count)])

    def difference(self, pair: Pair, count: int) -> Numbers:
        """What the record does to the released numbers, under noise that both sides share; the mean of
        `count` draws.
        """
        with common_noise():
            keys = [self._key("common") for _ in range(count)]
            rows = [
                self._row(pair, True, key, ratio=False) - self._row(pair, False, key, ratio=False)
                for key in keys
            ]
        return np.asarray(np.mean(rows, axis=0), np.float64)

    def ratios(self, pair: Pair, present: bool, count: int) -> Numbers:
        """The likelihood ratio of the noisy sums alone, for each of `count` runs."""
        return np.array([self._run(pair, present, self._key("run"), brief=True)[1] for _ in range(count)])

    def plain(self, pair: Pair, present: bool, count: int) -> Numbers:
        """As `observe`, without the likelihood ratio, which takes half of the time."""
        return np.stack([self._row(pair, present, self._key("run"), ratio=False) for _ in range(count)])

    def reach(self, pair: Pair) -> Distance:
        """How far the record moves all noisy sums of one run together, in units of their noise; 0 where none
        is known.
        """
        key = self._key("reach")
        with replay.writing(replay.Transcript()) as own:
            self._release(pair.present, key)
        if own.sampled:
            return Distance(0.0)
        with replay.writing(replay.Transcript(script=own.answers)) as other:
            self._release(pair.absent, key)
        return replay.distance(own.answers, other.answers)

    def distance(self, pair: Pair) -> Distance | None:
        """The least reach of a few runs; None where no noisy sum is known."""
        least = min((self.reach(pair) for _ in range(HISTORIES)), key=lambda one: one.size)
        return least if least.size > 0 else None

    def _key(self, purpose: str) -> bytes:
        self._runs += 1
        return hashlib.sha256(f"airlock attack {self._seed} {purpose} {self._runs}".encode()).digest()

    def _row(self, pair: Pair, present: bool, key: bytes, *, ratio: bool = True) -> Numbers:
        """The released numbers, for each tensor whether it had one that is no number, whether the release
        failed, the likelihood ratio.
        """
        released, likelier = self._run(pair, present, key, ratio=ratio)
        if released is None:
            if self._layout is None:
                raise ValueError("the first run of the release failed: there is nothing to compare with")
            return np.concatenate([np.zeros(sum(self._layout.values()) + len(self._layout)), [1.0, 0.0]])
        flat = {name: np.asarray(released[name], np.float64).ravel() for name in sorted(released)}
        self._layout = self._layout or {name: part.size for name, part in flat.items()}
        if self._layout != {name: part.size for name, part in flat.items()}:
            raise ValueError("the shape of what is released depends on the records")
        broken = [float(not np.isfinite(part).all()) for part in flat.values()]
        finite = [np.nan_to_num(part, nan=0.0, posinf=0.0, neginf=0.0) for part in flat.values()]
        return np.concatenate([*finite, broken, [0.0, likelier]])

    def _run(
        self, pair: Pair, present: bool, key: bytes, *, ratio: bool = True, brief: bool = False
    ) -> tuple[dict[str, Any] | None, float]:
        """What is released, and how much likelier its noisy sums are with the record than without it."""
        with replay.writing(replay.Transcript()) as own:
            released = self._release(pair.side(present), key)
        self.idealised |= own.idealised
        if released is None or not ratio or not own.answers or own.sampled:
            return released, 0.0
        with (
            replay.writing(replay.Transcript(script=own.answers, brief=brief)) as other,
            suppress(replay.Enough),
        ):
            self._release(pair.side(not present), key)
        both = (own.answers, other.answers) if present else (other.answers, own.answers)
        return released, replay.log_ratio(*both) if len(own.answers) == len(other.answers) else 0.0


@contextmanager
def common_noise() -> Iterator[None]:
    """Noise that does not depend on the sums it is added to, as long as this lasts: two data sets then get
    the same draws.

    For learning from made-up records only. A release under it would be worth nothing: its noise cancels out.
    """
    original = noise.Stream.__init__

    def forgetful(self: noise.Stream, key: bytes, **labels: Any) -> None:
        original(self, key, **{**labels, "statistic": bytes(32)})

    noise.Stream.__init__ = forgetful  # type: ignore[method-assign]
    try:
        yield
    finally:
        noise.Stream.__init__ = original  # type: ignore[method-assign]


def law(
    release: Release,
    candidates: Sequence[Pair],
    *,
    seed: int,
    name: str,
    family: Family | None = None,
    effort: Effort = Effort(),
    tick: Callable[[int, int], None] = lambda done, total: None,
) -> Law:
    """The release on the pair of neighbours that it tells apart best, with the score learned for it."""
    laboratory = Laboratory(release, seed)
    pair = _worst_pair(laboratory, candidates, effort, tick)
    direction = _direction(laboratory, pair, effort)
    exact = not direction[:-1].any()

    def score(sampler: Sampler, runs: int, present: bool) -> Scores:
        if exact:
            return np.asarray(direction[-1] * laboratory.ratios(pair, present, runs))
        rows = (laboratory.observe if direction[-1] else laboratory.plain)(pair, present, runs)
        return np.asarray(rows @ direction, np.float64)

    return Law(
        name,
        pair.name,
        score,
        draws=2**12,
        kind="attack",
        family=family,
        threshold=0.0 if exact else None,
        distance=laboratory.distance(pair),
    )


def _worst_pair(
    laboratory: Laboratory, candidates: Sequence[Pair], effort: Effort, tick: Callable[[int, int], None]
) -> Pair:
    """By the noisy sums where the release has some, otherwise by separation in units of the noise, number by
    number.
    """
    spread, silent = laboratory.observe(candidates[0], True, 24).std(axis=0), list[Pair]()

    def separation(pair: Pair) -> float:
        tick(candidates.index(pair), len(candidates))
        moved = laboratory.difference(pair, effort.pairs)
        if ((spread[:-1] == 0) & (np.abs(moved[:-1]) > 0)).any():
            silent.append(pair)  # a number that has no noise and moves counts for everything
            return float("inf")
        reached = laboratory.reach(pair)
        parts = moved[:-1] / np.maximum(spread[:-1], FLOOR * (1 + np.abs(moved[:-1])))
        return reached.size or float(np.linalg.norm(parts))

    if len(candidates) == 1:
        return candidates[0]
    finalists = neighbours.ranked(candidates, separation)[:FINALISTS]
    if silent:
        return finalists[0]
    # One history may have been a lucky one: the best are looked at again.
    least = [laboratory.distance(pair) or Distance(0.0) for pair in finalists]
    return finalists[int(np.argmax([one.size for one in least]))]


def _direction(laboratory: Laboratory, pair: Pair, effort: Effort) -> Numbers:
    """Sigma^-1 Delta with the ridge that told fresh runs apart best."""
    sides = [laboratory.observe(pair, present, effort.spread) for present in (True, False)]
    moved = laboratory.difference(pair, effort.direction)
    around = np.concatenate([side - side.mean(axis=0) for side in sides])
    scale = np.maximum(around.std(axis=0), FLOOR * (1 + np.abs(moved)))
    # A number that is not noisy and does not move says nothing; with millions of numbers only their own
    # variances are looked at.
    telling = np.flatnonzero((around.std(axis=0) > 0) | (moved != 0))
    if laboratory.idealised:
        # Released floats less a ratio of unrounded ones are the rounding itself, which nobody sees: one or the other.
        telling = telling[telling < len(moved) - 1]
    fresh = [laboratory.observe(pair, present, effort.choice) for present in (True, False)]
    exact = np.zeros(len(moved))
    exact[-1] = 1.0
    found = []
    for ridge in RIDGES:
        direction = np.zeros(len(moved))
        direction[telling] = _filter(
            around[:, telling] / scale[telling], moved[telling] / scale[telling], ridge
        )
        direction /= scale
        found.append((_separation(fresh, direction), direction))
    # What is learned without common noise: the plain difference of means, for releases whose common noise
    # goes astray.
    apart = np.zeros(len(moved))
    means = (sides[0].mean(axis=0) - sides[1].mean(axis=0)) / scale
    apart[telling] = _filter(around[:, telling] / scale[telling], means[telling], 0.3)
    found.append((_separation(fresh, apart / scale), apart / scale))
    best = max(found, key=lambda one: one[0])
    # The exact likelihood ratio is the best score there is if the code does what it should: another has to be
    # clearly better.
    margin = CHANCE_MARGIN * np.sqrt(1 / effort.choice)
    return best[1] if best[0] > _separation(fresh, exact) + margin else exact


def _filter(around: Numbers, moved: Numbers, ridge: float) -> Numbers:
    """(Sigma + ridge)^-1 moved, from centred rows, whichever of rows and columns are fewer."""
    runs, width = around.shape
    if width <= runs:
        solved: Numbers = np.linalg.solve(around.T @ around / runs + ridge * np.eye(width), moved)
        return solved
    # Woodbury: with fewer runs than numbers Sigma has their rank.
    inner = np.linalg.solve(around @ around.T / runs + ridge * np.eye(runs), around @ moved / runs)
    outer: Numbers = (moved - around.T @ inner) / ridge
    return outer


def _separation(sides: Sequence[Numbers], direction: Numbers) -> float:
    """How many deviations the mean scores of the two sides are apart; infinite where no score varies."""
    present, absent = (side @ direction for side in sides)
    apart = float(present.mean() - absent.mean())
    spread = float(np.sqrt((present.var() + absent.var()) / 2))
    return apart / spread if spread > 0 else np.inf * np.sign(apart) if apart else 0.0
