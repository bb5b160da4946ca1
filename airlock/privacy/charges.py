"""What a release is charged where the next one may depend on its outcome: (pure, mu, delta),
docs/proofs/filter.md.

A mechanism M may be charged (p, mu, d) if H_x(M(D) | M(D')) <= d + g_mu(x e^-p) for both orders of all
neighbours and all x > 0. Such charges add up (p, mu^2 and d each by itself) whatever the analyst chooses
after what was seen, as long as the limits of the three sums were fixed before (`privacy.box`). Loss
distributions, which compose more tightly, do not have that property.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from airlock.privacy import accounting
from airlock.privacy import events as vocabulary
from airlock.privacy.guarantees import Neighbours
from airlock.privacy.rounding import float_above, fraction_above

if TYPE_CHECKING:
    from dp_accounting.dp_event import DpEvent

Kind = Literal["gaussian", "pure", "mixed", "none"]
LAPLACE = ("LaplaceDpEvent", "DiscreteLaplaceDpEvent")
# The quantiles below are floats of SciPy, good to about 1e-14: a shift is raised by far more than that.
MARGIN = 1e-9
# Steps of the search for the share of delta; each halves the distance in logarithms.
SEARCH_STEPS = 40


@dataclass(frozen=True)
class Charge:
    """One charge, or the sum of many: exact numbers, so that the order of arrival cannot matter."""

    pure: Fraction = Fraction(0)
    square: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)

    def __add__(self, other: Charge) -> Charge:
        return Charge(self.pure + other.pure, self.square + other.square, self.delta + other.delta)

    def to_json(self) -> dict[str, float]:
        """As floats, rounded up."""
        return {name: float_above(getattr(self, name)) for name in ("pure", "square", "delta")}

    @classmethod
    def from_json(cls, document: Mapping[str, float]) -> Charge:
        """The inverse of `to_json`.

        Raises:
            ValueError, KeyError, TypeError, OverflowError: it is not a charge.
        """
        numbers = [Fraction(document[name]) for name in ("pure", "square", "delta")]
        if min(numbers) < 0:
            raise ValueError("a charge is never below 0")
        return cls(*numbers)


def kind_of(event: DpEvent) -> Kind:
    """What an event is made of: Gaussians only, pure epsilons only, nothing, or something else."""
    return _kind(vocabulary.leaves(event))


def _kind(parts: Counter[DpEvent]) -> Kind:
    names = {type(part).__name__ for part in parts}
    if not names:
        return "none"
    if names == {"GaussianDpEvent"}:
        return "gaussian"
    return "pure" if names <= {*LAPLACE} else "mixed"


@lru_cache(maxsize=65536)
def of_gaussian(multiplier: float) -> Charge:
    """One Gaussian query: mu^2 = 1/z^2, and nothing else."""
    return Charge(square=fraction_above(1 / Fraction(multiplier) ** 2))


def charge(event: DpEvent, *, neighbours: Neighbours, purse: bool, slack: float, mu: float) -> Charge | None:
    """What `event` is charged in a box with these limits, or None if no finite charge is known.

    Gaussians are charged exactly. Pure epsilons come from the purse, where there is one; from delta 0 on they
    are also a Gaussian pair. What is left is charged the pair of its loss distribution, at the share of
    `slack` that equals the share of mu^2 it takes: then both limits are used up together, by however many
    releases.

    Args:
        neighbours: the relation of the population.
        purse: whether pure epsilons have a limit of their own.
        slack: the box's limit for the sum of deltas.
        mu: the root of the box's limit for the sum of mu^2.
    """
    parts = vocabulary.leaves(event)
    if accounting.non_private(parts):
        return None
    gaussians = Counter[Any](
        {part: count for part, count in parts.items() if _kind(Counter({part: 1})) == "gaussian"}
    )
    square = sum(
        (count * of_gaussian(part.noise_multiplier).square for part, count in gaussians.items()),
        Fraction(0),
    )
    found = Charge(square=square)
    epsilon, others = accounting.set_apart(parts - gaussians)
    if purse:
        found += Charge(pure=Fraction(epsilon))
    elif epsilon and (slack == 0 or epsilon > accounting.LARGEST_PURE):
        shift = pure_shift(epsilon)
        if math.isinf(shift):
            return None
        found += Charge(square=Fraction(shift) ** 2)
    elif epsilon:
        others = parts - gaussians
    if not others:
        return found
    rest = _sampled(tuple(sorted(others.items(), key=repr)), neighbours, slack, mu)
    return found + rest if rest else None


def pure_shift(epsilon: float) -> float:
    """The shift of a Gaussian that dominates every mechanism of pure epsilon: 2 Phi^-1(e^epsilon / (1 +
    e^epsilon)), rounded up.
    """
    from scipy.special import expit, ndtri

    return float(-2 * ndtri(expit(-epsilon))) * (1 + MARGIN)


@lru_cache(maxsize=4096)
def _sampled(
    others: tuple[tuple[DpEvent, int], ...], neighbours: Neighbours, slack: float, mu: float
) -> Charge | None:
    """The pair at the delta whose share of `slack` is the share of `mu`^2 that it takes."""
    curve = _curve(others, neighbours)
    low, high = math.log(2 * curve.rounding), math.log(slack) if slack > 0 else -math.inf
    if high <= low or mu == 0:
        return None
    for _ in range(SEARCH_STEPS):
        middle = (low + high) / 2
        if (curve.shift(math.exp(middle)) / mu) ** 2 > math.exp(middle) / slack:
            low = middle
        else:
            high = middle
    delta = min(math.exp(high), slack)
    shift = curve.shift(delta)
    return None if math.isinf(shift) else Charge(square=Fraction(shift) ** 2, delta=Fraction(delta))


@dataclass(frozen=True)
class Curve:
    """The corners of a discrete pair's trade-off curve, for both orders: what is seen with one data set and
    with the other.
    """

    corners: tuple[tuple[Any, Any], ...]
    rounding: float

    def shift(self, delta: float) -> float:
        """The smallest known mu for which (0, mu, delta) is a valid charge (filter.md, Computing a pair);
        infinity if there is none.
        """
        import numpy as np
        from scipy.special import ndtri

        usable, largest = delta - self.rounding, 0.0
        for likely, unlikely in self.corners:
            above = likely > usable
            if above.any():
                largest = max(largest, float(np.max(ndtri(likely[above] - usable) - ndtri(unlikely[above]))))
        return largest * (1 + MARGIN)


def _curve(others: tuple[tuple[DpEvent, int], ...], neighbours: Neighbours) -> Curve:
    """The curve of a loss distribution, which is rounded to the pessimistic side."""
    rounding = accounting.rounding_of(sum(count for _, count in others))
    distribution = accounting.loss_distribution(0.0, Counter(dict(others)), neighbours)
    return Curve(tuple(_corners(mass, rounding) for mass in accounting.orders(distribution)), rounding)


def _corners(mass: Any, rounding: float) -> tuple[Any, Any]:
    """(w, a) of filter.md for every loss of at least 0.

    The transforms' rounding is taken off a, where it would help.
    """
    import numpy as np

    losses, chances, infinite = accounting.losses_of(mass)
    losses, chances = losses[losses >= 0], chances[losses >= 0]
    likely = np.cumsum(chances[::-1])[::-1] + infinite
    unlikely = np.cumsum((chances * np.exp(-losses))[::-1])[::-1] - rounding * np.exp(-losses)
    # At the far end nothing finite is left: there the mass at infinity stands against 0.
    return np.append(likely, infinite), np.append(np.maximum(unlikely, 0.0), 0.0)
