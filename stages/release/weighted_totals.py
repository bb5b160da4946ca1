"""Nights of a horizon by weighted running totals: what each adds up, and what it tells
(docs/proofs/continual.md#weighted-totals). What each asks is in stages/release/nightly_prices.py.

The first night is a release like any other, geometry and all. Later nights ask for the coefficients alone, with all of
the budget: a record is on one of them. Rows of a later chapter are whitened anew by what the chapters before it
released, which costs nothing. Told is the estimate of the newest chapter, once it is good enough, and of the
best one before it until then.

Where the map's name says how its rows lie (airlock/models/features/public.py), no night asks for geometry. All chapters
but the last have the same rows then, and their estimates are one. Of a table of numbers the nights before the last
chapter also tell the Gram matrix of its columns, which says how rows of the last one are whitened
(airlock/models/features/columns.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.inside.nights import Nights
from airlock.models.features import columns
from airlock.models.features.projection import Step, Whiten, spectral_radius, steps_of, tensors_of, turned
from airlock.models.features.rows import LIMIT
from airlock.privacy import weighing
from airlock.privacy.plan import Facts
from airlock.privacy.weighing import Weighing
from stages.release.nightly_prices import AVERAGES, COLUMNS, SUMS, Nightly, Place
from stages.release.noisy_sums import NoisySums

TURN_RIDGE = 0.1
"""Of the noise's radius, where rows are whitened by what was released of whitened rows."""
TURN_LEVEL = 64.0
"""Where rows were whitened by public facts: the noise's radius over the mean eigenvalue of the rows from which what was
released says less about them."""
COLUMNS_RIDGE = 0.2
"""Where columns say how rows lie: of the mean eigenvalue, times the level of noise that the last night will have."""


class WeightedTotals(NoisySums):
    """Adds tonight's sums to those before, and turns all that was told into one estimate."""

    def __init__(
        self, nightly: Nightly, nights: Nights, facts: Facts, *, key: bytes, release_id: str
    ) -> None:
        self._nightly, self._nights, self._tonight, self._shape = nightly, nights, facts.n, facts.shape
        self.state: dict[str, NDArray[Any]] = dict(nights.earlier()) if nights.former else {}
        self.records = facts.n + int(self.state.get("records", np.zeros(1))[0])
        ends = [int(end) for end in self.state.get("ends", ())]
        self.begins = not ends or nights.night > ends[-1]
        self._first = facts.first.n if nights.former else 0
        if self.begins:
            ends.append(self._last_of_chapter())
        # Where nights are missing, a chapter begins with the first one that is there.
        begun = nights.night - 1 if self.begins else int(self.state["begun"][0])
        ending = bool(nightly.columns) and len(ends) > 1 and ends[-1] == nightly.nights
        self.place = Place(len(ends) - 1, ends[-1] - begun, nights.night - begun, nights.night, ending)
        self._chapters = {"ends": np.array(ends, np.int64), "begun": np.array([begun], np.int64)}
        self.turns = self.begins and nights.former is not None and nightly.turned and self._may_turn()
        super().__init__(nightly.priced(nights.night, self.place), key=key, release_id=release_id)

    def _last_of_chapter(self) -> int:
        """Of the chapter that begins tonight."""
        night, nights = self._nights.night, self._nightly.nights
        if self._nightly.columns:
            return weighing.last_with_columns(
                night, nights, first=self._first, nightly=self._tonight or self._first
            )
        before = self.records - self._tonight
        return weighing.last_of_chapter(
            night, nights, turned=self._nightly.turned, before=before, first=self._first
        )

    def _may_turn(self) -> bool:
        """Whether what was told says more about the rows than what they were whitened by."""
        if self._nightly.columns:
            return self.place.ends
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
        return [self._turned(told, step) if isinstance(step, Whiten) else step for step in steps]

    def _turned(self, told: Mapping[str, NDArray[Any]], step: Whiten) -> Whiten:
        """The whitening step of a chapter that begins: by the rows of the chapters before, or by the columns."""
        if not self._nightly.columns:
            radius = spectral_radius(len(told["gram"]), float(told["precision"][0]) ** -0.5)
            return turned(step, told["gram"], TURN_RIDGE * radius)
        precision = float(self.state["columns/precision"][0])
        gram, noise = self.state["columns/sum"] / precision / LIMIT**2, precision**-0.5 / LIMIT**2
        ridge = COLUMNS_RIDGE * self._last_level(len(told["gram"]))
        return columns.whitening(self._nightly.columns, self._shape, gram, noise, ridge)

    def _last_level(self, size: int) -> float:
        """The noise's radius over the mean eigenvalue of the rows, as it will be after the last night if later ones
        bring as many records as tonight (as the first one, where tonight brings none).
        """
        weights, _ = self._weights("gram")
        records = max(1, (self._tonight or self._first) * self.place.length)
        asked = self.priced["gram"]
        alone = asked.multiplier * asked.query.sensitivity / weights.reach
        noise = alone * weights.error(self.place.length) / records
        return spectral_radius(size, noise) * size / LIMIT**2

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
        if purpose not in (*SUMS, AVERAGES, COLUMNS):
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
        for purpose in (*SUMS, *([COLUMNS] if COLUMNS in self.priced else [])):
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
