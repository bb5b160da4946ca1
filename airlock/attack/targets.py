"""Lower bounds on epsilon from attacks: the statistics, not the mechanisms.

An attack plays a mechanism many times on two neighbouring inputs and scores every run. An event {score >= t}
that is likely on one and rare on the other refutes every epsilon below log((P - delta) / Q) (Kairouz, Oh and
Viswanath 2015, arXiv 1311.0776; Jagielski et al. 2020, arXiv 2006.07709). P is bounded from below and Q from
above by Clopper-Pearson, half of the error probability each; the threshold and the direction are chosen on
other runs than those that are counted, so nothing has to be corrected for choosing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.attack.replay import Distance
from airlock.attack.samplers import Sampler
from airlock.privacy.guarantees import Guarantee, Neighbours

Scores = NDArray[np.float64]
Tick = Callable[[int, int], None]
Family = Callable[[float, float, float], float]
"""(least hits, most false alarms, delta) -> lower bound on epsilon at delta."""

KINDS = ("attack", "simulated attack", "accounting check", "canaries")
"""attack: the release itself is run on neighbouring records. simulated attack: a mechanism's noise is drawn
on inputs that it names.
accounting check: noise is drawn by the event that the ledger is charged, with shift 1; it tests accounting
and sampler, and would not notice
a wrong sensitivity. canaries: one release, many records that are in or out."""

CANDIDATES = 256
# Draws made at a time: what they need stays in the processor's cache.
CHUNK = 2**17
# Thresholds are chosen by what their bound would be at this confidence: a stricter one than is asked for, or
# else the choice would go to the luckiest count in the far tail.
CHOOSING_CONFIDENCE = 0.9999


@dataclass(frozen=True)
class Law:
    """What a mechanism does to two neighbouring inputs, as one number a run.

    Attributes:
        name: of the attacked object.
        pair: the two neighbours, in words.
        score: (sampler, runs, present) -> log likelihood ratio of each run, or any other score that is larger
            when present.
        draws: noise draws in one run.
        together: runs that are best scored at once.
        family: what counts say about epsilon if only the size of the noise is in doubt (attack/families.py);
            None where nobody knows.
        kind: what runs: see KINDS.
        threshold: above it, "present" is the likelier side, where that is known (0 for a likelihood ratio).
        distance: how far apart the exact sums of the two sides are, in units of their noise, where they are
            known.
    """

    name: str
    pair: str
    score: Callable[[Sampler, int, bool], Scores]
    draws: int = 1
    together: int = 1
    family: Family | None = None
    kind: str = "simulated attack"
    threshold: float | None = None
    distance: Distance | None = None


@dataclass(frozen=True)
class Target:
    """A law, and what is said about it: the paper's epsilon and the proven one at `delta` (infinity where
    nothing is proven).
    """

    law: Law
    claimed: float | None
    proven: float
    delta: float = 0.0


@dataclass(frozen=True)
class Finding:
    """What an attack measured, with everything needed to check it.

    Attributes:
        epsilon: lower bound at `delta`, free of assumptions about the law.
        by_law: lower bound at `delta` that takes the form of the law for granted, but not the size of its
            noise; None where it has none.
        reached: epsilon of the distance between the exact sums of the two sides: no statistics, but the noise
            is believed to be as priced.
        hits, false_alarms: of `trials` counted runs on each side.
        threshold: chosen on `trials` other runs a side.
    """

    law: str
    pair: str
    epsilon: float
    by_law: float | None
    delta: float
    confidence: float
    trials: int
    hits: int
    false_alarms: int
    threshold: float
    direction: str
    seed: int
    sampler: str
    kind: str = "simulated attack"
    reached: float | None = None

    @property
    def best(self) -> float:
        """The largest of the bounds; each holds at the stated confidence on its own."""
        return max(self.epsilon, self.by_law or 0.0, self.reached or 0.0)

    def to_json(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    def guarantee(self, neighbours: Neighbours) -> Guarantee:
        """As the third kind of guarantee, beside claimed and proven."""
        return Guarantee(
            "attacked",
            "record",
            neighbours,
            self.epsilon,
            self.delta,
            argument=self.law,
            confidence=self.confidence,
        )


def at_least(successes: Any, trials: int, error: float) -> Any:
    """Clopper-Pearson lower bound on a probability, wrong with probability at most `error`."""
    from scipy.special import betaincinv

    k = np.asarray(successes, dtype=np.float64)
    return np.where(k > 0, betaincinv(np.maximum(k, 1), trials - k + 1, error), 0.0)


def at_most(successes: Any, trials: int, error: float) -> Any:
    """Clopper-Pearson upper bound on a probability, wrong with probability at most `error`."""
    return 1.0 - at_least(trials - np.asarray(successes), trials, error)


def lower_bound(hits: Any, false_alarms: Any, trials: int, *, delta: float, confidence: float) -> Any:
    """The largest epsilon that the counts refute: log((P - delta) / Q), never below 0. Works on arrays."""
    error = (1 - confidence) / 2
    gain = at_least(hits, trials, error) - delta
    return np.maximum(0.0, np.log(np.maximum(gain, 1e-300) / at_most(false_alarms, trials, error)))


def shift_bound(hits: Any, false_alarms: Any, trials: int, *, confidence: float) -> Any:
    """The largest Gaussian shift mu that the counts refute, never below 0."""
    error = (1 - confidence) / 2
    return shift_between(at_least(hits, trials, error), at_most(false_alarms, trials, error))


def shift_between(present: Any, absent: Any) -> Any:
    """The Gaussian shift with these probabilities of a hit and of a false alarm: quantile(P) - quantile(Q),
    never below 0.
    """
    from scipy.special import ndtri

    return np.maximum(
        0.0, ndtri(np.clip(present, 1e-300, 1 - 1e-16)) - ndtri(np.clip(absent, 1e-300, 1 - 1e-16))
    )


def measure(
    law: Law,
    sampler: Sampler,
    *,
    trials: int,
    delta: float = 0.0,
    confidence: float = 0.95,
    tick: Tick = lambda done, total: None,
) -> Finding:
    """Attack one law: `trials` runs a side to choose the event, `trials` others a side to count it."""
    if trials < 2 or not 0 < confidence < 1:
        raise ValueError(
            f"an attack needs at least 2 trials and a confidence in (0, 1), got {trials} and {confidence}"
        )
    chosen = [_play(law, sampler, trials, present, tick, part) for part, present in enumerate((True, False))]
    counted = [
        _play(law, sampler, trials, present, tick, 2 + part) for part, present in enumerate((True, False))
    ]
    strict = max(CHOOSING_CONFIDENCE, confidence)
    sign, threshold = _choose(
        chosen, lambda hits, alarms: lower_bound(hits, alarms, trials, delta=delta, confidence=strict)
    )
    hits, alarms = _count(counted, sign, threshold)
    return Finding(
        law=law.name,
        pair=law.pair,
        epsilon=float(lower_bound(hits, alarms, trials, delta=delta, confidence=confidence)),
        by_law=_by_law(law.family, chosen, counted, trials, delta, confidence) if law.family else None,
        delta=delta,
        confidence=confidence,
        trials=trials,
        hits=hits,
        false_alarms=alarms,
        threshold=float(threshold),
        direction="present" if sign > 0 else "absent",
        seed=sampler.seed,
        sampler=sampler.name,
        kind=law.kind,
    )


def distinguish(
    law: Law,
    sampler: Sampler,
    *,
    trials: int,
    delta: float = 0.0,
    confidence: float = 0.95,
    tick: Tick = lambda done, total: None,
) -> Finding:
    """Attack one law by how often its side is guessed right: for releases that take milliseconds, of which
    there are thousands, not millions.

    A guess is right with probability a = (P + 1 - Q) / 2. DP says P <= e^eps Q + delta and 1 - Q <= e^eps (1
    - P) + delta; added up, eps >= log((a - delta) / (1 - a)). One bound from below on `a` serves for both
    sides: Clopper-Pearson holds for the number of right guesses although hits and correct rejections differ
    in probability (Hoeffding 1956: equal probabilities spread most). The threshold is chosen on a fifth as
    many other runs, where the law does not know it.
    """
    threshold, chosen = law.threshold, 0
    if threshold is None:
        chosen = max(20, trials // 5)
        threshold = _fairest([_play(law, sampler, chosen, present, _silent, 0) for present in (True, False)])
    counted = [_play(law, sampler, trials, present, tick, part) for part, present in enumerate((True, False))]
    hits, alarms = (int(np.count_nonzero(scores >= threshold)) for scores in counted)
    right = float(at_least(hits + trials - alarms, 2 * trials, 1 - confidence))
    free = math.log(max(right - delta, 1e-300) / (1 - right)) if right > 0.5 else 0.0
    by_law = None
    if law.family:
        by_law = law.family(right, 1 - right, delta) if right > 0.5 else 0.0
    return Finding(
        law.name,
        law.pair,
        max(0.0, free),
        by_law,
        delta,
        confidence,
        trials,
        hits,
        alarms,
        float(threshold),
        "present",
        sampler.seed,
        sampler.name,
        law.kind,
        None if law.distance is None else law.distance.epsilon(delta),
    )


def _fairest(chosen: list[Scores]) -> float:
    """The threshold with the most right guesses; between the means where many are as good."""
    candidates = np.sort(np.concatenate([*chosen, [(chosen[0].mean() + chosen[1].mean()) / 2]]))
    present, absent = (np.sort(scores) for scores in chosen)
    right = np.searchsorted(absent, candidates) - np.searchsorted(present, candidates)
    near = candidates[right >= right.max() - 2 * np.sqrt(len(present))]
    middle = (chosen[0].mean() + chosen[1].mean()) / 2
    return float(near[np.argmin(np.abs(near - middle))])


def _silent(done: int, total: int) -> None:
    """Where nobody watches."""


def _play(law: Law, sampler: Sampler, trials: int, present: bool, tick: Tick, part: int) -> Scores:
    """Scores of `trials` runs, a chunk at a time; the whole attack is four such parts."""
    scores, step = np.empty(trials), max(law.together, CHUNK // law.draws)
    for start in range(0, trials, step):
        tick(part * trials + start, 4 * trials)
        runs = min(step, trials - start)
        scores[start : start + runs] = law.score(sampler, runs, present)
    tick((part + 1) * trials, 4 * trials)
    return scores


def _choose(chosen: list[Scores], bound: Callable[[Any, Any], Any]) -> tuple[int, float]:
    """The direction and the threshold whose bound was best on the runs set aside for choosing."""
    best = (-1.0, 1, 0.0)
    for sign in (1, -1):
        high, low = sorted_pair(chosen, sign)
        candidates = _candidates(high, low)
        hits = len(high) - np.searchsorted(high, candidates, side="left")
        alarms = len(low) - np.searchsorted(low, candidates, side="left")
        bounds = bound(hits, alarms)
        place = int(np.argmax(bounds))
        best = max(best, (float(bounds[place]), sign, float(candidates[place])))
    return best[1], best[2]


def sorted_pair(scores: list[Scores], sign: int) -> tuple[Scores, Scores]:
    """Scores of the likely and of the unlikely side, sorted, for events {sign * score >= threshold}."""
    present, absent = np.sort(sign * scores[0]), np.sort(sign * scores[1])
    return (present, absent) if sign > 0 else (absent, present)


def _candidates(high: Scores, low: Scores) -> Scores:
    """Thresholds spread over the tails of both sides, evenly in the logarithm of the tail."""
    tails = np.unique(np.geomspace(1, len(high), CANDIDATES).astype(np.int64))
    beyond = np.nextafter(low[-1], math.inf)
    return np.concatenate([high[-tails], low[-tails], [min(beyond, high[-1])]])


def _count(counted: list[Scores], sign: int, threshold: float) -> tuple[int, int]:
    present, absent = (int(np.count_nonzero(sign * scores >= threshold)) for scores in counted)
    return (present, absent) if sign > 0 else (absent, present)


def _by_law(
    family: Family, chosen: list[Scores], counted: list[Scores], trials: int, delta: float, confidence: float
) -> float:
    """The family's bound at the point where a Gaussian of these scores would be told apart best."""
    strict = max(CHOOSING_CONFIDENCE, confidence)
    sign, threshold = _choose(
        chosen, lambda hits, alarms: shift_bound(hits, alarms, trials, confidence=strict)
    )
    hits, alarms = _count(counted, sign, threshold)
    error = (1 - confidence) / 2
    return family(float(at_least(hits, trials, error)), float(at_most(alarms, trials, error)), delta)
