"""From events to (epsilon, delta): the exact formula for Gaussians, privacy loss distributions (PLD) for the rest.

Totals are always recomputed from events, never from sums of epsilon. Calibration (privacy/calibration.py) inverts the functions
used here, so what was priced to fit, fits to the last bit. Every bound is from above.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from stages.privacy import events as vocabulary
from stages.privacy import gaussian
from stages.privacy.guarantees import Neighbours
from stages.privacy.rounding import float_above, root_above

if TYPE_CHECKING:
    from dp_accounting.dp_event import DpEvent

# Below this delta the rounding of the FFT inside a PLD is no longer small; RDP takes over.
PLD_LEAST_DELTA = 1e-12
PLD_INTERVAL = 1e-4
# Where 0.05 <= epsilon <= 20 and 1e-10 <= delta <= 1e-4, RDP is between PLD (less one interval) and this many times PLD.
CROSS_CHECK_FACTOR = 2.0
_USABLE = float(1 - gaussian.SAMPLING_SHARE)


def epsilon(event: DpEvent, delta: float, *, neighbours: Neighbours = "zero-out") -> float:
    """The smallest epsilon proven for `event` at `delta`; infinity where nothing is.

    Args:
        event: what happened; multipliers are noise over sensitivity under `neighbours`.
        delta: in [0, 1].
        neighbours: the relation of the population.
    """
    if not 0 <= delta <= 1:
        raise ValueError(f"delta must be in [0, 1], got {delta}")
    parts = vocabulary.leaves(event)
    if _non_private(parts):
        return math.inf if delta < 1 else 0.0
    mu, others = _split(parts)
    if not others:
        return gaussian.epsilon_at(mu, delta)
    by_loss = _loss_distribution(mu, others).get_epsilon_for_delta(delta * _USABLE) if delta >= PLD_LEAST_DELTA else math.inf
    by_renyi = rdp_epsilon(event, delta) if 0 < delta < PLD_LEAST_DELTA else math.inf
    return min(float(by_loss), by_renyi, _pure_epsilon(mu, others))


def delta_of(event: DpEvent, epsilon: float, *, neighbours: Neighbours = "zero-out") -> float:
    """The smallest delta proven for `event` at `epsilon`."""
    if not epsilon >= 0:
        raise ValueError(f"epsilon must be at least 0, got {epsilon}")
    parts = vocabulary.leaves(event)
    if _non_private(parts):
        return 1.0
    mu, others = _split(parts)
    if not others:
        return gaussian.delta_at(mu, epsilon)
    if _pure_epsilon(mu, others) <= epsilon:
        return 0.0
    loss = _loss_distribution(mu, others)
    return min(1.0, max(PLD_LEAST_DELTA, float(loss.get_delta_for_epsilon(epsilon)) / _USABLE))


def total_epsilon(events: Iterable[DpEvent], delta: float, *, neighbours: Neighbours = "zero-out") -> float:
    """Epsilon of a whole history, composed (adaptively) from its events."""
    return epsilon(vocabulary.compose(events), delta, neighbours=neighbours)


def rdp_epsilon(event: DpEvent, delta: float) -> float:
    """Epsilon by Renyi DP: an independent, looser road to check the other by (see CROSS_CHECK_FACTOR)."""
    from dp_accounting import NeighboringRelation
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_SPECIAL)
    for part, count in vocabulary.leaves(event).items():
        accountant.compose(part, count)
    return float(accountant.get_epsilon(delta * _USABLE))


def _non_private(parts: Counter[DpEvent]) -> bool:
    return any(type(part).__name__ == "NonPrivateDpEvent" for part in parts)


def _split(parts: Counter[DpEvent]) -> tuple[float, Counter[DpEvent]]:
    """All Gaussians together as one shift (exact sum of 1/z^2, root rounded up), and everything else."""
    square, others = Fraction(0), Counter[Any]()
    for part, count in parts.items():
        if type(part).__name__ == "GaussianDpEvent":
            square += count / Fraction(part.noise_multiplier) ** 2
        else:
            others[part] = count
    return root_above(square), others


def _pure_epsilon(mu: float, others: Counter[DpEvent]) -> float:
    """Epsilon at delta 0 by simple addition, rounded up; infinity if a Gaussian is involved."""
    total = Fraction(0)
    for part, count in others.items():
        name = type(part).__name__
        if name == "LaplaceDpEvent":
            total += count / Fraction(part.noise_multiplier)
        elif name == "DiscreteLaplaceDpEvent":
            total += count * part.sensitivity * Fraction(part.noise_parameter)
        else:
            return math.inf
    return math.inf if mu > 0 else float_above(total)


def _loss_distribution(mu: float, others: Counter[DpEvent]) -> Any:
    """The privacy loss distribution of a history, always rounded to the pessimistic side."""
    from dp_accounting.pld import privacy_loss_distribution as distributions

    total = distributions.identity(value_discretization_interval=PLD_INTERVAL)
    if mu > 0:
        total = total.compose(distributions.from_gaussian_mechanism(1 / mu, value_discretization_interval=PLD_INTERVAL))
    for part, count in sorted(others.items(), key=repr):
        total = total.compose(_one_loss(part, distributions).self_compose(count))
    return total


def _one_loss(part: DpEvent, distributions: Any) -> Any:
    grid = {"value_discretization_interval": PLD_INTERVAL}
    name = type(part).__name__
    if name == "LaplaceDpEvent":
        return distributions.from_laplace_mechanism(part.noise_multiplier, **grid)
    if name == "DiscreteLaplaceDpEvent":
        return distributions.from_discrete_laplace_mechanism(part.noise_parameter, part.sensitivity, **grid)
    inner = type(part.event).__name__
    if inner == "LaplaceDpEvent":
        return distributions.from_laplace_mechanism(part.event.noise_multiplier, sampling_prob=part.sampling_probability, **grid)
    if inner == "GaussianDpEvent":
        return distributions.from_gaussian_mechanism(part.event.noise_multiplier, sampling_prob=part.sampling_probability, **grid)
    raise ValueError(f"a Poisson sample of {inner} cannot be accounted for: sample a single Gaussian or Laplace event")
