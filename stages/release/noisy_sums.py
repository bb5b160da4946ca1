"""Noisy sums, priced: which are asked in which pass, what share of the budget each has, how much noise it
gets.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from airlock.errors import ParamsError
from airlock.params import Params, ReleaseParams
from airlock.privacy import accounting, calibration, events, noise
from airlock.privacy.continual import Strategy
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

    def over_nights(self, strategy: Strategy | None) -> Query:
        """The same query on many nights, as one (docs/proofs/continual.md#guarantee); on one where there is no
        strategy.
        """
        if strategy is None:
            return self
        reach = strategy.of_sum(self.sensitivity)
        return replace(self, sensitivity=reach, draws=self.draws * strategy.nights)

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


def check_scale(largest: float) -> None:
    """No noise may pass what the grid holds: its size is public, so that it is refused before anything is charged.

    Raises:
        ParamsError: with what to change.
    """
    if largest > noise.MAX_SCALE:
        raise ParamsError(
            "params.yaml: the noise that is asked for passes the grid: raise epsilon or delta, or lower "
            "release.horizon, or user.per_user in the schema"
        )


def budget_of(queries: Sequence[Query], release: ReleaseParams) -> float:
    """The shift that a release allows, with as many draws as its queries need."""
    return _mu(queries, release.epsilon, release.delta, "release")


def price(queries: Sequence[Query], release: ReleaseParams) -> list[Priced]:
    """Divide one Gaussian budget among queries: share f of mu^2 gives noise sensitivity / (mu sqrt f)."""
    mu = _mu(queries, release.epsilon, release.delta, "release")
    return _priced(queries, calibration.split(mu, [query.share for query in queries]))


@dataclass(frozen=True)
class Divided:
    """The queries of two stages that share one budget: what `relevance` asks first, and what `release` asks
    then.

    Attributes:
        first: priced by their own shares, or by relevance.epsilon, alone: no later query moves them by a bit.
        later: priced with what is left; passes are counted from 1 again.
        passes: how often records are read for the first.
    """

    first: list[Priced]
    later: list[Priced]
    passes: int


def divide(
    queries: Sequence[Query],
    first: Collection[str],
    params: Params,
    *,
    parts: Mapping[str, float] | None = None,
) -> Divided:
    """Price queries of which those named in `first` belong to the stage `relevance`, if that does its work.

    Args:
        queries: all of them, with shares of one budget.
        first: purposes that are asked first.
        params: whose relevance.share and relevance.epsilon may set the price of the first.
        parts: how a price that is set is divided among them; by default as their shares are.
    """
    early = [query for query in queries if query.purpose in first]
    if params.relevance.mode != "auto" or not early:
        return Divided([], price(queries, params.release), 0)
    passes = max(query.release_pass for query in early)
    late = [
        replace(query, release_pass=query.release_pass - passes)
        for query in queries
        if query.purpose not in first
    ]
    release = params.release
    mu = _mu(queries, release.epsilon, release.delta, "release")
    early, own = _first_budget(early, mu, params, parts)
    spent = calibration.split(own, [query.share for query in early])
    if params.relevance.share != "auto" or params.relevance.epsilon != "auto":
        taken = sum((multiplier * mu) ** -2 for multiplier in spent)
        total = sum(query.share for query in late)
        late = [query.with_share(query.share / total * (1 - taken)) for query in late]
    rest = calibration.split_rest(mu, spent, [query.share for query in late])
    return Divided(_priced(early, spent), _priced(late, rest), passes)


def _first_budget(
    early: Sequence[Query], mu: float, params: Params, parts: Mapping[str, float] | None
) -> tuple[list[Query], float]:
    """The first queries with their shares, and the budget that these are shares of."""
    asked = params.relevance
    if asked.share == "auto" and asked.epsilon == "auto":
        return list(early), mu
    wanted = [parts[query.purpose] if parts else query.share for query in early]
    divided = [query.with_share(part / sum(wanted)) for query, part in zip(early, wanted, strict=True)]
    if asked.share != "auto":
        return [query.with_share(query.share * asked.share) for query in divided], mu
    own = _mu(early, float(asked.epsilon), params.release.delta, "relevance")
    if own >= mu:
        raise ParamsError(
            f"params.yaml: relevance.epsilon {asked.epsilon} leaves nothing of release.epsilon "
            f"{params.release.epsilon}, which is the total of both: set it lower"
        )
    return divided, own


def _mu(queries: Sequence[Query], epsilon: float, delta: float, section: str) -> float:
    try:
        return calibration.gaussian_mu(epsilon, delta, draws=sum(query.draws for query in queries))
    except ValueError as error:
        raise ParamsError(f"params.yaml: {section}: {error}") from None


def _priced(queries: Sequence[Query], multipliers: Sequence[float]) -> list[Priced]:
    priced = [
        Priced(query, multiplier, calibration.noise_scale(query.sensitivity, multiplier))
        for query, multiplier in zip(queries, multipliers, strict=True)
    ]
    check_scale(max((one.scale for one in priced), default=0.0))
    return priced


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

    def details(self, *, shares: bool = True) -> dict[str, Any]:
        """For release.json: every sum with its pass, share, sensitivity and noise.

        Without shares where the release does not know the whole that they are shares of: its noise alone
        says what it is.
        """
        return {
            purpose: {
                "pass": one.query.release_pass,
                **({"share": one.query.share} if shares else {}),
                "sensitivity": one.query.sensitivity,
                "multiplier": one.multiplier,
                "scale": one.scale,
            }
            for purpose, one in self.priced.items()
        }
