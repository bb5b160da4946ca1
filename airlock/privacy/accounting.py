"""From events to (epsilon, delta): the exact formula for Gaussians, privacy loss distributions (PLD) for the
rest.

Totals are always recomputed from events, never from sums of epsilon. Calibration (privacy/calibration.py)
inverts the functions used here, so what was priced to fit, fits to the last bit. Every bound is from above.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from airlock.privacy import events as vocabulary
from airlock.privacy import gaussian
from airlock.privacy.guarantees import Neighbours
from airlock.privacy.rounding import float_above, root_above

if TYPE_CHECKING:
    from dp_accounting.dp_event import DpEvent

# The FFTs inside a PLD round, and powers of a transform multiply that. On Gaussians, where the truth is
# known, delta comes out low by less than 1e-13 (1 + steps / 1000) (tests/privacy/test_accounting.py); ten
# times that is set aside.
PLD_ROUNDING = 1e-12
# Where 0.05 <= epsilon <= 20 and 1e-10 <= delta <= 1e-4, RDP is above PLD and below this many times PLD.
CROSS_CHECK_FACTOR = 2.0
# Beyond this a pure epsilon is only added to what the rest costs: e^710 is no float, and nobody asks for its
# last digit.
LARGEST_PURE = 600.0
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
    if non_private(parts):
        return math.inf if delta < 1 else 0.0
    mu, others = _split(parts)
    if not others:
        return gaussian.epsilon_at(mu, delta)
    pure, rest = set_apart(parts)
    if pure > LARGEST_PURE:
        return math.nextafter(pure + epsilon(vocabulary.repeat(rest), delta, neighbours=neighbours), math.inf)
    found, rounding = _pure_epsilon(mu, others), rounding_of(others.total())
    if delta >= 2 * rounding:
        found = min(
            found,
            float(
                loss_distribution(mu, others, neighbours).get_epsilon_for_delta(delta * _USABLE - rounding)
            ),
        )
    # Too small a delta, or losses in the hundreds: RDP has no such limits.
    return found if math.isfinite(found) else rdp_epsilon(event, delta, neighbours=neighbours)


def delta_of(event: DpEvent, epsilon: float, *, neighbours: Neighbours = "zero-out") -> float:
    """The smallest delta proven for `event` at `epsilon`."""
    if not epsilon >= 0:
        raise ValueError(f"epsilon must be at least 0, got {epsilon}")
    parts = vocabulary.leaves(event)
    if non_private(parts):
        return 1.0
    mu, others = _split(parts)
    if not others:
        return gaussian.delta_at(mu, epsilon)
    if _pure_epsilon(mu, others) <= epsilon:
        return 0.0
    pure, rest = set_apart(parts)
    if pure > LARGEST_PURE:
        left = math.nextafter(epsilon - pure, -math.inf)
        return 1.0 if left < 0 else delta_of(vocabulary.repeat(rest), left, neighbours=neighbours)
    computed = float(loss_distribution(mu, others, neighbours).get_delta_for_epsilon(epsilon))
    return min(1.0, (max(0.0, computed) + rounding_of(others.total())) / _USABLE)


def least_epsilon(event: DpEvent, delta: float, *, neighbours: Neighbours = "zero-out") -> float:
    """An epsilon that `event` has at least at `delta`: for attacks, where `epsilon`, a bound from above,
    would prove too much.

    Losses are rounded down here. That costs a grid step for each step of the history, so the grid is finer
    the longer it is.
    """
    parts = vocabulary.leaves(event)
    if non_private(parts):
        return math.inf if delta < 1 else 0.0
    mu, others = _split(parts)
    if not others:
        # The formula and the root are rounded up, by far less than this.
        return gaussian.epsilon_at(mu, min(1.0, delta * (1 + 2.0**-20))) * (1 - 2.0**-20)
    pure, rest = set_apart(parts)
    if pure > LARGEST_PURE:
        return least_epsilon(vocabulary.repeat(rest), delta, neighbours=neighbours)
    if delta + rounding_of(others.total()) >= 1:
        return 0.0
    optimistic = _optimistic_loss(mu, tuple(sorted(others.items(), key=repr)), neighbours)
    return max(0.0, float(optimistic.get_epsilon_for_delta(delta + rounding_of(others.total()))))


def total_epsilon(events: Iterable[DpEvent], delta: float, *, neighbours: Neighbours = "zero-out") -> float:
    """Epsilon of a whole history, composed (adaptively) from its events."""
    return epsilon(vocabulary.compose(events), delta, neighbours=neighbours)


def rdp_epsilon(event: DpEvent, delta: float, *, neighbours: Neighbours = "zero-out") -> float:
    """Epsilon by Renyi DP: an independent, looser road to check the other by (see CROSS_CHECK_FACTOR);
    infinity where it has none.
    """
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant(neighboring_relation=_relation(neighbours))
    for part, count in vocabulary.leaves(event).items():
        if not accountant.supports(part):
            return math.inf
        accountant.compose(part, count)
    return float(accountant.get_epsilon(delta * _USABLE)) if delta > 0 else math.inf


def rounding_of(steps: int) -> float:
    """What is set aside of delta for the rounding of a loss distribution of so many steps."""
    return PLD_ROUNDING * (1 + steps / 1000)


def _relation(neighbours: Neighbours) -> Any:
    from dp_accounting import NeighboringRelation

    return {"zero-out": NeighboringRelation.REPLACE_SPECIAL, "replace-one": NeighboringRelation.REPLACE_ONE}[
        neighbours
    ]


def non_private(parts: Counter[DpEvent]) -> bool:
    """Whether nothing is proven for a part."""
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


def set_apart(parts: Counter[DpEvent]) -> tuple[float, Counter[DpEvent]]:
    """The pure epsilon of all Laplace noise together, and everything else."""
    pure = Counter[Any](
        {
            part: count
            for part, count in parts.items()
            if type(part).__name__ in ("LaplaceDpEvent", "DiscreteLaplaceDpEvent")
        }
    )
    return _pure_epsilon(0.0, pure), parts - pure


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


def loss_distribution(mu: float, others: Counter[DpEvent], neighbours: Neighbours) -> Any:
    """Of a Gaussian of shift `mu` and everything else, composed; losses are rounded up."""
    return _cached_loss(mu, tuple(sorted(others.items(), key=repr)), neighbours)


def orders(distribution: Any) -> tuple[Any, ...]:
    """The masses of a loss distribution in both orders of the
    neighbours, or the one where they are the same.
    """
    first, second = distribution._pmf_remove, distribution._pmf_add
    return (first,) if first is second else (first, second)


def losses_of(mass: Any) -> tuple[Any, Any, float]:
    """The losses of one order in rising order, their probabilities,
    and the probability of an infinite loss.
    """
    import numpy as np

    dense = mass.to_dense_pmf()
    losses = (dense._lower_loss + np.arange(len(dense._probs))) * dense._discretization
    return losses, np.maximum(dense._probs, 0.0), float(dense._infinity_mass)


@lru_cache(maxsize=16)
def _cached_loss(mu: float, others: tuple[tuple[DpEvent, int], ...], neighbours: Neighbours) -> Any:
    """The privacy loss distribution of a history, discretised to the pessimistic side (connect-the-dots,
    Doroshenko et al. 2022).
    """
    return _composed_loss(mu, others, neighbours, {"value_discretization_interval": _interval_of(mu, others)})


@lru_cache(maxsize=4)
def _optimistic_loss(mu: float, others: tuple[tuple[DpEvent, int], ...], neighbours: Neighbours) -> Any:
    """The same, discretised to the optimistic side."""
    usual, steps = _interval_of(mu, others), sum(count for _, count in others)
    grid = {"value_discretization_interval": max(min(usual, 0.005 / steps), usual / 50, 1e-5)}
    # Connecting the dots is pessimistic by its nature.
    return _composed_loss(
        mu, others, neighbours, grid | {"pessimistic_estimate": False}, use_connect_dots=False
    )


def _interval_of(mu: float, others: tuple[tuple[DpEvent, int], ...]) -> float:
    return _interval([_losses(part) for part, _ in others] + [(mu, mu**2 / 2 + 10 * mu)] * (mu > 0))


def _composed_loss(
    mu: float,
    others: tuple[tuple[DpEvent, int], ...],
    neighbours: Neighbours,
    grid: dict[str, float],
    **how: Any,
) -> Any:
    from dp_accounting.pld import privacy_loss_distribution as distributions

    total, grid = distributions.identity(**grid), grid | how
    if mu > 0:
        total = total.compose(distributions.from_gaussian_mechanism(math.nextafter(1 / mu, 0.0), **grid))
    for part, count in others:
        total = total.compose(_one_loss(part, neighbours, grid, distributions).self_compose(count))
    return total


def _interval(losses: list[tuple[float, float]]) -> float:
    """The grid: fine beside the smallest spread, but never so fine that the largest loss takes more than 2^17
    points.
    """
    finest, widest = min(spread for spread, _ in losses), max(reach for _, reach in losses)
    return max(min(max(finest / 64, 1e-5), 1e-3), widest * 2.0**-17)


def _losses(part: DpEvent) -> tuple[float, float]:
    """About the standard deviation and the largest value of one privacy loss; they set the grid, not the
    answer.
    """
    name = type(part).__name__
    if name == "DiscreteLaplaceDpEvent":
        return (part.noise_parameter * part.sensitivity,) * 2
    if name == "LaplaceDpEvent":
        return (1 / part.noise_multiplier,) * 2
    shift = 1 / part.event.noise_multiplier
    return part.sampling_probability * math.sqrt(
        math.expm1(min(30.0, shift * shift))
    ), shift * shift / 2 + 10 * shift


def _one_loss(part: DpEvent, neighbours: Neighbours, grid: dict[str, float], distributions: Any) -> Any:
    name, rate = type(part).__name__, getattr(part, "sampling_probability", 1.0)
    if name == "DiscreteLaplaceDpEvent":
        return distributions.from_discrete_laplace_mechanism(part.noise_parameter, part.sensitivity, **grid)
    multiplier = part.noise_multiplier if name == "LaplaceDpEvent" else part.event.noise_multiplier
    if name == "LaplaceDpEvent" or type(part.event).__name__ == "LaplaceDpEvent":
        if neighbours == "replace-one" and rate < 1:
            raise ValueError(
                "a Poisson-sampled Laplace event cannot be accounted for under replace-one: use zero-out, "
                "or Gaussian noise"
            )
        return distributions.from_laplace_mechanism(multiplier, sampling_prob=rate, **grid)
    # Zero-out: (1-q)N(0)+qN(C) against N(0), as for add/remove. Replace-one: against (1-q)N(0)+qN(-C), the
    # worst pair (docs/privacy.md); dp-accounting wants the noise in units of C there, and events have it in
    # units of the sensitivity 2C.
    deviation = multiplier if neighbours == "zero-out" else 2 * multiplier
    return distributions.from_gaussian_mechanism(
        deviation, sampling_prob=rate, neighboring_relation=_relation(neighbours), **grid
    )
