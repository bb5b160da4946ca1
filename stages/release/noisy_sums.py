"""Noisy sums, priced: which are asked in which pass, what share of the budget each has, how much noise it
gets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from airlock.errors import ParamsError
from airlock.params import ReleaseParams
from airlock.privacy import accounting, calibration, events, noise
from airlock.privacy.guarantees import Guarantee
from airlock.privacy.sensitivity import of_user

LARGEST_SUM = 2**62
"""airlock/privacy/noise.py adds noise to smaller sums only; a grid of S = 2^15 - 1 leaves 4.29 * 10^9
records.
"""
Form = Literal["gaussian", "symmetric-gaussian"]


@dataclass(frozen=True)
class Query:
    """One sum over records.

    Attributes:
        purpose: its name, also in the noise stream's key.
        release_pass: the pass in which it is read, from 1.
        sensitivity: L2, in grid units.
        form: of the noise.
        draws: how many noise draws it needs.
        share: of mu squared; the shares of a release sum to at most 1.
    """

    purpose: str
    release_pass: int
    sensitivity: float
    form: Form
    draws: int
    share: float = 0.0

    def of_unit(self, records: int) -> Query:
        """The same query, protecting units of up to `records` records."""
        return self if records == 1 else replace(self, sensitivity=of_user(self.sensitivity, records))

    def with_share(self, share: float) -> Query:
        """The same query, at a price."""
        return replace(self, share=share)


@dataclass(frozen=True)
class Priced:
    """A query and its noise: standard deviation `scale` in grid units, `multiplier` times the sensitivity."""

    query: Query
    multiplier: float
    scale: float


def check_size(records: int, entry: int, largest: int = LARGEST_SUM) -> None:
    """No sum of so many contributions, each of entries up to `entry`, may pass what noise is added to.

    Checked from public numbers before anything is read: an error that depends on a sum would tell something
    about it.

    Raises:
        ParamsError: there are too many records for this grid.
    """
    if records * entry >= largest:
        raise ParamsError(
            f"params.yaml: sums of {records:,} records would pass 64-bit integers: release parts of them as "
            "populations of their own"
        )


def price(queries: Sequence[Query], release: ReleaseParams) -> list[Priced]:
    """Divide one Gaussian budget among queries: share f of mu^2 gives noise sensitivity / (mu sqrt f)."""
    try:
        mu = calibration.gaussian_mu(
            release.epsilon, release.delta, draws=sum(query.draws for query in queries)
        )
    except ValueError as error:
        raise ParamsError(f"params.yaml: release: {error}") from None
    multipliers = calibration.split(mu, [query.share for query in queries])
    return [
        Priced(query, multiplier, calibration.noise_scale(query.sensitivity, multiplier))
        for query, multiplier in zip(queries, multipliers, strict=True)
    ]


def guarantee(priced: Sequence[Priced], release: ReleaseParams, *, argument: str) -> Guarantee:
    """What adaptive composition of Gaussians proves for these queries, by the same accounting as the
    ledger's.
    """
    event = {
        "kind": "composed",
        "events": [{"kind": "gaussian", "noise_multiplier": one.multiplier} for one in priced],
    }
    return Guarantee(
        kind="proven",
        unit=release.unit,
        neighbours=release.neighbours,
        epsilon=accounting.epsilon(events.from_json(event), release.delta, neighbours=release.neighbours),
        delta=release.delta,
        event=event,
        sensitivity="; ".join(
            f"{one.query.purpose}: L2 {one.query.sensitivity:.6g} grid units" for one in priced
        ),
        argument=argument,
    )


class NoisySums:
    """Hands out noisy sums, each once, and remembers them."""

    def __init__(self, priced: Sequence[Priced], *, key: bytes, release_id: str) -> None:
        self.priced = {one.query.purpose: one for one in priced}
        self._key, self._release_id = key, release_id
        self.released: dict[str, NDArray[np.int64]] = {}

    def add_noise(self, purpose: str, exact: NDArray[np.int64]) -> NDArray[np.int64]:
        """The noisy sum. The exact one goes no further than here."""
        one = self.priced[purpose]
        if purpose in self.released:
            raise ValueError(f"the sum '{purpose}' was already released")
        self.released[purpose] = noise.add_noise(
            exact,
            key=self._key,
            release_id=self._release_id,
            release_pass=one.query.release_pass,
            purpose=purpose,
            scale=one.scale,
            form=one.query.form,
        )
        return self.released[purpose]

    def details(self) -> dict[str, Any]:
        """For release.json: every sum with its pass, share, sensitivity and noise."""
        return {
            purpose: {
                "pass": one.query.release_pass,
                "share": one.query.share,
                "sensitivity": one.query.sensitivity,
                "multiplier": one.multiplier,
                "scale": one.scale,
            }
            for purpose, one in self.priced.items()
        }
