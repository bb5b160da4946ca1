"""What the counts of an attack say about epsilon if the mechanism is of a known form and only the size of its
noise is in doubt.

A bound without any assumption sees one (false alarm, hit) point and wastes the rest of what is known. Within
a family, the point refutes every member whose best test has less power there, and the least noisy refuted
member's epsilon is a lower bound.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from airlock.attack.targets import Family, shift_between
from airlock.privacy import accounting, events
from airlock.privacy.guarantees import Neighbours

if TYPE_CHECKING:
    from dp_accounting.dp_event import DpEvent

# Slopes at which the trade-off curve is bounded: any set of them is valid, more of them are tighter.
SLOPES = np.concatenate([[0.0], np.geomspace(0.01, 12.0, 48)])
TOLERANCE = 1.01
LARGEST_FACTOR = 2.0**7


def of_shift(present: float, absent: float, delta: float) -> float:
    """Gaussians that differ in their means only (Dong, Roth and Su
    2019, arXiv 1905.02383, Corollary 2.13).
    """
    return of_mu(float(shift_between(present, absent)), delta)


def of_mu(mu: float, delta: float) -> float:
    """Epsilon, from below, of a Gaussian shift mu."""
    if mu <= 0:
        return 0.0
    return accounting.least_epsilon(events.from_json({"kind": "gaussian", "noise_multiplier": 1 / mu}), delta)


def of_event(event: DpEvent, neighbours: Neighbours) -> Family:
    """The event with all of its noise larger or smaller by one factor."""
    return partial(_refuted, event, neighbours)


def _refuted(event: DpEvent, neighbours: Neighbours, present: float, absent: float, delta: float) -> float:
    """Epsilon of the least noise, to one part in a hundred, that does not explain the point.

    What the point refutes is judged by a power from above, what the refuted noise costs by an epsilon from
    below.
    """

    def explains(factor: float) -> bool:
        return power(events.scale(event, factor), absent, neighbours=neighbours) >= present

    if present <= absent:
        return 0.0
    low, high = 1.0, 1.0
    while explains(high) and high < LARGEST_FACTOR:
        low, high = high, 2 * high
    if explains(high):
        return 0.0
    while not explains(low) and low > 1 / LARGEST_FACTOR:
        low, high = low / 2, low
    while high > TOLERANCE * low:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if explains(middle) else (low, middle)
    return accounting.least_epsilon(events.scale(event, high), delta, neighbours=neighbours)


def power(event: DpEvent, false_alarms: float, *, neighbours: Neighbours = "zero-out") -> float:
    """The most hits that any test can have at this rate of false alarms: P <= e^s Q + delta(s) and 1 - Q <=
    e^s (1 - P) + delta(s).
    """
    deltas = np.array([accounting.delta_of(event, float(slope), neighbours=neighbours) for slope in SLOPES])
    odds = np.exp(SLOPES)
    return float(
        min((odds * false_alarms + deltas).min(), (1 - (1 - false_alarms - deltas) / odds).min(), 1.0)
    )
