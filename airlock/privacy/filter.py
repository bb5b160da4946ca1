"""A cap as a privacy filter: three limits that are fixed before anything is released (docs/proofs/filter.md,
Box).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from airlock.privacy import gaussian
from airlock.privacy.charges import Charge
from airlock.privacy.rounding import float_above, float_below, root_above

# A release priced to fit must fit although its shares were rounded: this is far above float rounding and far
# below meaning.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Box:
    """Everything whose charges stay within the three limits is (epsilon, delta)-DP together, whatever was
    chosen after what.

    Attributes:
        epsilon, delta: the cap.
        pure: the part of epsilon for pure charges.
        slack: the part of delta for failures.
    """

    epsilon: float
    delta: float
    pure: float = 0.0
    slack: float = 0.0

    @property
    def mu(self) -> float:
        """The largest shift with G(epsilon - pure; mu) <= (1 - 2^-30) delta - slack."""
        rest = Fraction(self.epsilon * (1 + ROUNDING)) - Fraction(self.pure * (1 + ROUNDING))
        return gaussian.mu_at(float_below(rest), self.delta, self.slack)

    def over(self, total: Charge) -> list[str]:
        """Which limits a sum of charges passes, in words."""
        shift, found = root_above(total.square), []
        if total.pure > Fraction(self.pure * (1 + ROUNDING)):
            found.append(f"pure epsilon {float(total.pure):.4g} > {self.pure:.4g}")
        if total.square > Fraction(self.mu) ** 2:
            found.append(f"mu {shift:.4g} > {self.mu:.4g}")
        if total.delta > Fraction(self.slack):
            found.append(f"slack {float(total.delta):.3g} > {self.slack:.3g}")
        return found

    def gauge(self, total: Charge) -> float:
        """One number for what is used: the smallest epsilon' with G(epsilon' - pure; mu) <= (1 - 2^-30) delta
        - sum of deltas.

        It is the guarantee of a history that was planned in advance, and a gauge otherwise: what is promised
        is the cap.
        """
        rest = gaussian.epsilon_at(root_above(total.square), self.delta, float_above(total.delta))
        return rest if not total.pure else math.nextafter(float_above(total.pure) + rest, math.inf)

    def contains(self, other: Box) -> bool:
        """Whether everything that `other` lets through, this one does too."""
        return other.pure <= self.pure and other.mu <= self.mu and other.slack <= self.slack


def add_up(charges: Iterable[Charge]) -> Charge:
    """The sum. Denominators are powers of two: over a common one,
    thousands of charges are a sum of integers.
    """
    found = list(charges)
    return Charge(*(_sum([getattr(one, name) for one in found]) for name in ("pure", "square", "delta")))


def _sum(numbers: list[Fraction]) -> Fraction:
    common = math.lcm(*{number.denominator for number in numbers})
    return Fraction(sum(number.numerator * (common // number.denominator) for number in numbers), common)
