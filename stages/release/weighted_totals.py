"""Nights of a horizon by weighted running totals: what each asks, what it adds up, what it tells
(docs/proofs/continual.md#weighted-totals).

The first night is a release like any other, geometry and all. Later nights ask for the coefficients alone, with all of
the budget: a record is on one of them. Rows of a later chapter are whitened anew by what the chapters before it
released, which costs nothing. Told is the estimate of the newest chapter, once it is good enough, and of the
best one before it until then.

Where the map's name says how its rows lie (airlock/models/features/public.py), no night asks for geometry. All chapters
but the last have the same rows then, and their estimates are one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.errors import ParamsError
from airlock.inside.nights import Nights
from airlock.models.features.projection import (
    COLUMN,
    Step,
    Whiten,
    eigen,
    spectral_radius,
    steps_of,
    tensors_of,
)
from airlock.models.features.rows import LIMIT, quantise
from airlock.params import Params
from airlock.privacy import calibration, weighing
from airlock.privacy.plan import Facts
from airlock.privacy.weighing import Weighing
from stages.release.noisy_sums import NoisySums, Priced, Query

SUMS = ("gram", "cross")
AVERAGES = "averages"
AVERAGES_SHARE = 0.02
"""Of mu squared, for what tells whether records change from night to night."""
TURN_RIDGE = 0.1
"""Of the noise's radius, where rows are whitened by what was released of whitened rows."""
TURN_LEVEL = 64.0
"""Where rows were whitened by public facts: the noise's radius over the mean eigenvalue of the rows from which what was
released says less about them."""
ARGUMENT = "docs/proofs/continual.md#weighted-totals"


def check(params: Params) -> None:
    """Refuse a price for what is asked first: over many nights the first one asks it itself.

    Raises:
        ParamsError: relevance.share or relevance.epsilon is set.
    """
    if params.relevance.share != "auto" or params.relevance.epsilon != "auto":
        raise ParamsError(
            "params.yaml: release.horizon divides the budget of its first night by itself: set relevance.share and "
            "relevance.epsilon to auto"
        )


@dataclass(frozen=True)
class Place:
    """Where a night is.

    Attributes:
        chapter: from 0.
        length: of the chapter.
        number: in it, from 1.
        night: in the horizon, from 1.
    """

    chapter: int
    length: int
    number: int
    night: int

    def of(self, purpose: str, nights: int) -> tuple[Weighing, int] | None:
        """By which weights a sum is added up, and the number of this night among them; None for what is asked once."""
        if purpose == AVERAGES:
            return weighing.weighing(nights), self.night
        return (weighing.weighing(self.length), self.number) if purpose in SUMS else None


def _at(query: Query, multiplier: float, place: tuple[Weighing, int] | None) -> Priced:
    if place is None:
        return Priced(query, multiplier, calibration.noise_scale(query.sensitivity, multiplier))
    weights, number = place
    query = replace(query, sensitivity=weights.of_sum(query.sensitivity))
    first = calibration.noise_scale(query.sensitivity, multiplier)
    return Priced(query, multiplier, weights.scale(first, number))


@dataclass(frozen=True)
class Nightly:
    """The prices of all nights.

    Attributes:
        queries: of the first night, with its shares; sensitivities are those of one night's sum.
        mu: the budget of all.
        nights: the horizon.
        turned: rows are whitened, and whitened anew where a chapter begins.
        prepared: at first by public facts; anew where the last chapter begins, if noise allows.
    """

    queries: tuple[Query, ...]
    mu: float
    nights: int
    turned: bool
    prepared: bool = False

    def priced(self, night: int, place: Place | None = None) -> list[Priced]:
        """What a night asks, with the noise of its place in a chapter (without one, with the most that there can be).
        On later nights the shares of what is asked once go to the coefficients.
        """
        asked = list(self.queries)
        if night > 1:
            kept = [query for query in asked if query.purpose in (*SUMS, AVERAGES)]
            sums = [query for query in kept if query.purpose in SUMS]
            rest = (1 - AVERAGES_SHARE) / math.fsum(query.share for query in sums)
            asked = [
                replace(query, share=query.share * rest if query in sums else query.share, release_pass=1)
                for query in kept
            ]
        multipliers = calibration.split(self.mu, [query.share for query in asked])
        place = place or Place(0, self.nights, self.nights, night)
        return [
            _at(query, multiplier, place.of(query.purpose, self.nights))
            for query, multiplier in zip(asked, multipliers, strict=True)
        ]

    def dearest(self) -> list[Priced]:
        """What the first night asks, or a later one, whichever costs a record more: a record is on one of them."""
        offered = [self.priced(1), *([self.priced(2)] if self.nights > 1 else [])]
        return max(offered, key=lambda priced: math.fsum(one.multiplier**-2 for one in priced))


class WeightedTotals(NoisySums):
    """Adds tonight's sums to those before, and turns all that was told into one estimate."""

    def __init__(
        self, nightly: Nightly, nights: Nights, facts: Facts, *, key: bytes, release_id: str
    ) -> None:
        self._nightly, self._nights, self._tonight = nightly, nights, facts.n
        self.state: dict[str, NDArray[Any]] = dict(nights.earlier()) if nights.former else {}
        self.records = facts.n + int(self.state.get("records", np.zeros(1))[0])
        ends = [int(end) for end in self.state.get("ends", ())]
        self.begins = not ends or nights.night > ends[-1]
        if self.begins:
            before = self.records - facts.n
            first = facts.first.n if before else 0
            turned = nightly.turned
            ends.append(
                weighing.last_of_chapter(
                    nights.night, nightly.nights, turned=turned, before=before, first=first
                )
            )
        # Where nights are missing, a chapter begins with the first one that is there.
        begun = nights.night - 1 if self.begins else int(self.state["begun"][0])
        self.place = Place(len(ends) - 1, ends[-1] - begun, nights.night - begun, nights.night)
        self._chapters = {"ends": np.array(ends, np.int64), "begun": np.array([begun], np.int64)}
        self.turns = self.begins and nights.former is not None and nightly.turned and self._may_turn()
        super().__init__(nightly.priced(nights.night, self.place), key=key, release_id=release_id)

    def _may_turn(self) -> bool:
        """Whether what was told says more about the rows than what they were whitened by."""
        if not self._nightly.prepared:
            return True
        size, deviation = len(self.state["told/gram"]), float(self.state["told/precision"][0]) ** -0.5
        level = spectral_radius(size, deviation) * size / LIMIT**2
        last = self.place.night + self.place.length - self.place.number == self._nightly.nights
        return self.place.chapter > 1 and last and level <= TURN_LEVEL

    def steps(self, bias: int) -> list[Step]:
        """Of tonight's rows, after the first night: those of the chapter; where one begins, those of what was told,
        whitened by it.
        """
        if not self.begins:
            return steps_of(self._of("steps"), bias)
        told = self._of("told")
        steps = steps_of(told, bias)
        if not self.turns:
            return steps
        turned = turned_by(told["whitening"], told["gram"], float(told["precision"][0]) ** -0.5)
        return [Whiten(turned) if isinstance(step, Whiten) else step for step in steps]

    def _weights(self, purpose: str) -> tuple[Weighing, int]:
        found = self.place.of(purpose, self._nightly.nights)
        assert found is not None
        return found

    def _of(self, part: str) -> dict[str, NDArray[Any]]:
        """A part of what is kept."""
        return {
            name.removeprefix(f"{part}/"): value
            for name, value in self.state.items()
            if name.startswith(f"{part}/")
        }

    def add_noise(self, purpose: str, exact: NDArray[np.int64]) -> NDArray[np.int64]:
        """The noisy weighted total of a sum over nights, or the noisy sum of what is asked once. The exact sum of
        tonight goes no further than here.
        """
        noisy = super().add_noise(purpose, exact)
        if purpose not in (*SUMS, AVERAGES):
            return noisy
        drawn = noisy - exact
        weights, number = self._weights(purpose)
        total: NDArray[np.int64] = weights.weights[number - 1] * exact + drawn
        if purpose == AVERAGES or not self.begins:
            known = self.state.get(f"{purpose}/total")
            if known is not None:
                total = total + known - self.state[f"{purpose}/noise"]
        self.state |= {f"{purpose}/total": total, f"{purpose}/noise": drawn}
        self.released[purpose] = total
        return total

    def tell(self, steps: Sequence[Step]) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Tensors and details of the release: the best estimate, scaled to all records so far. What later nights
        need is kept.
        """
        self._estimate()
        self._choose(steps)
        told = self._of("told")
        sums = {purpose: np.rint(told[purpose] * self.records).astype(np.int64) for purpose in SUMS}
        scales = {
            purpose: self.records * float(told["precision"][place]) ** -0.5
            for place, purpose in enumerate(SUMS)
        }
        details = super().details()
        for purpose in SUMS:
            details[purpose] |= {"fresh": details[purpose]["scale"], "scale": scales[purpose]}
        self.state |= {f"steps/{name}": value for name, value in tensors_of(steps).items()}
        self.state |= {"records": np.array([self.records]), **self._chapters}
        self._nights.store(self.state)
        kept = {name: value for name, value in told.items() if name not in (*SUMS, "precision", "chapter")}
        said = {"sums": details, "chapter": int(told["chapter"][0]) + 1, AVERAGES: self._averages()}
        return {**kept, **sums, AVERAGES: self.released[AVERAGES]}, said

    def _estimate(self) -> None:
        """The mean of a record's contribution, from all nights of the chapter (of all chapters, where rows are the
        same in all): each total by what it tells.
        """
        fresh = self.turns or not self._nights.former
        weights, number = self._weights("gram")
        before = 0 if self.begins else int(self.state["counted"][0])
        counted = before + weights.weights[number - 1] * self._tonight
        self.state["counted"] = np.array([counted], np.int64)
        for purpose in SUMS:
            scale = self.priced[purpose].scale
            known = (
                (0.0, 0.0) if fresh else (self.state[f"{purpose}/sum"], self.state[f"{purpose}/precision"])
            )
            self.state[f"{purpose}/sum"] = known[0] + self.state[f"{purpose}/total"] * (counted / scale**2)
            self.state[f"{purpose}/precision"] = np.atleast_1d(known[1] + (counted / scale) ** 2)

    def _choose(self, steps: Sequence[Step]) -> None:
        """Tell this chapter's estimate once its signal is that of what was told before: its rows fit better."""
        own = float(self.state["gram/precision"][0])
        former = float(self.state["told/precision"][0]) if "told/precision" in self.state else 0.0
        newest = "told/chapter" in self.state and int(self.state["told/chapter"][0]) == self.place.chapter
        if former and not newest and own < former:
            return
        precision = [float(self.state[f"{purpose}/precision"][0]) for purpose in SUMS]
        estimate = {
            f"told/{purpose}": self.state[f"{purpose}/sum"] / precision[place]
            for place, purpose in enumerate(SUMS)
        }
        shape = {f"told/{name}": value for name, value in tensors_of(steps).items()}
        self.state |= {**estimate, **shape, "told/precision": np.array(precision)}
        self.state["told/chapter"] = np.array([self.place.chapter])

    def _averages(self) -> dict[str, Any]:
        """What a reader must know about the averages: their noise, and how tonight entered them."""
        weights, number = self._weights(AVERAGES)
        return {
            "scale": self.priced[AVERAGES].scale,
            "weight": weights.weights[number - 1],
            "records": self._tonight,
            "night": self._nights.night,
        }


def turned_by(matrix: NDArray[np.int64], mean: NDArray[np.float64], noise: float) -> NDArray[np.int64]:
    """A whitening matrix, followed by whitening by the estimated mean of a a^T of the whitened rows."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    values, vectors = eigen(mean)
    radius = spectral_radius(len(mean), noise)
    with threadpool_limits(1):
        turned = matrix.astype(np.float64) @ (
            vectors * (np.maximum(values, 0.0) + TURN_RIDGE * radius) ** -0.5
        )
    return quantise(turned, COLUMN).astype(np.int64)
