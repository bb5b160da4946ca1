"""Running totals over nights: noisy sums that earlier nights are part of, for one price
(docs/proofs/continual.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.errors import ParamsError, ReleaseError
from airlock.inside.nights import Nights
from airlock.params import Params
from airlock.privacy import continual
from airlock.privacy.continual import Memory, Strategy
from airlock.privacy.plan import Facts
from stages.mechanisms import Given
from stages.release.noisy_sums import NoisySums, Priced

ARGUMENT = "docs/proofs/continual.md#guarantee"


def strategy_of(params: Params, facts: Facts, passes: int) -> Strategy | None:
    """How noise is shared by the nights of a horizon; None for a release that stands alone.

    Raises:
        ParamsError: what comes first would be asked again every night, or the label is a number.
    """
    if params.release.horizon is None:
        return None
    if facts.number:
        raise ParamsError(
            "params.yaml: release.horizon is for labels that are classes: set it to null for a number"
        )
    if params.relevance.mode != "auto" and (passes > 1 or params.relevance.weighs):
        raise ParamsError(
            "params.yaml: release.horizon needs relevance.mode auto, so that the first night tells where records lie "
            "and later ones build on it; or release.passes 1 with relevance.mode off"
        )
    return continual.choose(params.release.horizon)


def parameters(strategy: Strategy | None) -> dict[str, Any]:
    """What the release id hashes of a horizon."""
    return {"horizon": {"nights": strategy.nights, "strategy": strategy.name}} if strategy else {}


def noisy_sums(priced: Sequence[Priced], strategy: Strategy | None, given: Given) -> NoisySums:
    """Of a release that stands alone, or of one night among many."""
    if strategy is None:
        return NoisySums(priced, key=given.key, release_id=given.release_id)
    nights = given.nights or alone(given, strategy.nights)
    check_night(nights, given.facts, strategy.nights)
    return RunningTotals(priced, strategy, nights, key=given.key, release_id=given.release_id)


def check_night(nights: Nights, facts: Facts, horizon: int) -> None:
    """Refuse a night that is not the one that was priced.

    Raises:
        ReleaseError: it is not.
    """
    if (nights.night, nights.nights) != (facts.night_number, horizon):
        raise ReleaseError("this night is not the one that was priced: run `dvc repro` again")


def alone(given: Given, nights: int) -> Nights:
    """A first night that nobody follows: an attack, or a check of what was released."""
    return Nights(given.release_id, 1, nights, None, given.release_id, bytes(32))


class RunningTotals(NoisySums):
    """Adds tonight's sum, with noise that takes some of the earlier nights' back, to what they released."""

    def __init__(
        self, priced: Sequence[Priced], strategy: Strategy, nights: Nights, *, key: bytes, release_id: str
    ) -> None:
        super().__init__(priced, key=key, release_id=release_id)
        self._strategy, self._nights = strategy, nights
        self._left: dict[str, tuple[Memory, NDArray[np.int64]]] = {}

    def add_noise(self, purpose: str, exact: NDArray[np.int64]) -> NDArray[np.int64]:
        """The noisy running total. The exact sum of tonight goes no further than here."""
        memory, before = self._nights.recall(purpose, self._strategy, exact.shape)
        drawn = super().add_noise(purpose, exact) - exact
        tonight, memory = continual.tonight(self._strategy, memory, drawn)
        total: NDArray[np.int64] = before + exact + tonight
        self.released[purpose], self._left[purpose] = total, (memory, total)
        if len(self._left) == len(self.priced):
            self._nights.keep(self._left)
        return total

    def details(self, *, shares: bool = True) -> dict[str, Any]:
        """For release.json: as of any release, but `scale` is of the running total; `fresh` is what was drawn
        tonight.
        """
        missing = [night - 1 for night in self._nights.missing]
        deviation = self._strategy.deviation(self._nights.night - 1, missing=missing)
        return {
            purpose: {**one, "scale": one["scale"] * deviation, "fresh": one["scale"]}
            for purpose, one in super().details(shares=shares).items()
        }
