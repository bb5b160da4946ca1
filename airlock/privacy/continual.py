"""Running totals over many nights at the price of one release: noise that later nights take back.

Night t has an integer vector x_t, the sum over the records of that night, and a record is in one night only.
With a lower-triangular matrix C of integers, `y = C x + z` with Gaussian z is one Gaussian mechanism whose
sensitivity is that of one night's sum times the longest column of C, whatever the number of nights. Totals are
functions of y. Nothing of an earlier night's records is needed for it: subtracting what earlier nights released
leaves

    released_t = x_t + w_t,    w_t = round((z_t - sum over s < t of C_ts w_s) / C_tt)

where w depends on noise alone (docs/proofs/continual.md). What is kept between nights is therefore noise, never
a sum of records; and as C is constant on dyadic blocks of nights, only sums of w over O(W log nights) blocks.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from airlock.privacy.rounding import float_above, root_above

Integers = NDArray[np.int64]
Name = Literal["square-root", "independent"]

MOST_NIGHTS = 4096
"""Eleven years."""
WIDTH = 4
"""Nights are put together to a block of 2^j once its last one lies WIDTH * 2^j nights back."""
DIAGONAL = 256
"""What C has on its diagonal: weights are rounded to integers in units of 1/256 of it."""
LARGEST = 2**62


class Block(NamedTuple):
    """Nights `start` to `start + length - 1`, counted from 0."""

    start: int
    length: int

    @property
    def last(self) -> int:
        """The newest night in it."""
        return self.start + self.length - 1


@dataclass(frozen=True)
class Strategy:
    """The matrix C of a horizon.

    Attributes:
        name: `square-root` has about the square root of the matrix of running totals; `independent` is the
            identity, every night for itself.
        nights: the horizon.
    """

    name: Name
    nights: int

    def __post_init__(self) -> None:
        if not 1 <= self.nights <= MOST_NIGHTS:
            raise ValueError(f"a horizon has 1 to {MOST_NIGHTS} nights, got {self.nights}")

    @property
    def diagonal(self) -> int:
        """The weight of tonight."""
        return DIAGONAL if self.name == "square-root" else 1

    def weight(self, block: Block, night: int) -> int:
        """What C has in the row of `night` for every night of an earlier block."""
        if self.name == "independent":
            return 0
        newest, oldest = night - block.last, night - block.start
        mean = (_first_weights(oldest + 1) - _first_weights(newest)) / block.length
        return round(DIAGONAL * mean)

    def rows(self) -> Iterator[list[tuple[Block, int]]]:
        """For each night, the blocks of earlier nights with their weights: a row of C without its diagonal."""
        blocks: tuple[Block, ...] = ()
        for night in range(self.nights):
            blocks = self.merged(blocks, night)
            yield [(block, self.weight(block, night)) for block in blocks]
            blocks = self.grown(blocks, night)

    def merged(self, blocks: Sequence[Block], night: int) -> tuple[Block, ...]:
        """The blocks of earlier nights, as they are seen from `night`."""
        found = list(blocks)
        place = 0
        while place + 1 < len(found):
            one, other = found[place], found[place + 1]
            if one.length == other.length and _is_block(both := Block(one.start, 2 * one.length), night):
                found[place : place + 2] = [both]
                place = max(0, place - 1)
            else:
                place += 1
        return tuple(found)

    def grown(self, blocks: Sequence[Block], night: int) -> tuple[Block, ...]:
        """The same with tonight; where nights are independent nothing is remembered."""
        return () if self.name == "independent" else (*blocks, Block(night, 1))

    @cached_property
    def longest_column(self) -> int:
        """The largest sum of squares of a column: an integer, and exact."""
        changes = [0] * (self.nights + 1)
        for night, row in enumerate(self._rows):
            for block, weight in (*row, (Block(night, 1), self.diagonal)):
                changes[block.start] += weight * weight
                changes[block.start + block.length] -= weight * weight
        largest = total = 0
        for change in changes:
            total += change
            largest = max(largest, total)
        return largest

    @property
    def reach(self) -> float:
        """How far one record moves `C x`, in units of how far it moves its own night's sum; rounded up."""
        return root_above(Fraction(self.longest_column))

    def of_sum(self, sensitivity: float) -> float:
        """L2 sensitivity of all nights together, from that of one night's sum."""
        return float_above(Fraction(sensitivity) * Fraction(self.reach))

    def deviation(self, night: int, *, since: int = 0, missing: Collection[int] = ()) -> float:
        """Deviation of the noise of the total of nights `since` to `night` (counted from 0), for z of deviation 1;
        `missing` nights released nothing.

        The noise is u.z with C^T u = 1 on these nights: solved from the last night back, in elementwise
        arithmetic, so that every machine finds the same float.
        """
        reached = np.zeros(night + 1)
        wanted = np.zeros(night + 1)
        wanted[since:] = 1.0
        solution: list[float] = []
        for place, row in reversed(list(enumerate(self._rows[: night + 1]))):
            if place in missing:
                continue
            value = (wanted[place] - reached[place]) / self.diagonal
            solution.append(float(value) ** 2)
            for block, weight in row:
                reached[block.start : block.start + block.length] += weight * value
        return math.sqrt(math.fsum(solution))

    @cached_property
    def _rows(self) -> list[list[tuple[Block, int]]]:
        return list(self.rows())

    def error(self, night: int) -> float:
        """Noise of the running total after `night` (from 0), against one release of the same price."""
        return self.reach * self.deviation(night)


class Errors(NamedTuple):
    """Expected noise of the running total after a night, by strategy, against one release of all records."""

    night: int
    weighted: float
    square_root: float
    tree: float
    independent: float


def expected(
    nights: int, *, turned: bool = True, prepared: bool = False, columns: bool = False
) -> list[Errors]:
    """After the first night, every power of two, and the last; of weighted totals whose rows are whitened anew, or not
    (airlock/privacy/weighing.py).
    """
    from airlock.privacy import weighing

    shown = sorted({*(2**power for power in range(nights.bit_length())), nights})
    strategy = strategy_of("square-root", nights)
    return [
        Errors(
            night,
            weighing.error(night, nights, turned=turned, prepared=prepared, columns=columns),
            strategy.error(night - 1),
            tree_error(night, nights),
            math.sqrt(night),
        )
        for night in shown
    ]


def tree_error(night: int, nights: int) -> float:
    """Of the binary tree, the largest up to a night: a record is in one node a level, a total is the sum of as
    many nodes as its night has ones.
    """
    return math.sqrt(nights.bit_length() * ((night + 1).bit_length() - 1))


@lru_cache(maxsize=64)
def strategy_of(name: Name, nights: int) -> Strategy:
    """A strategy; asking again costs nothing."""
    return Strategy(name, nights)


@lru_cache(maxsize=64)
def choose(nights: int) -> Strategy:
    """The strategy whose total after the last night has least noise: it follows from the horizon alone."""
    root, alone = strategy_of("square-root", nights), strategy_of("independent", nights)
    return root if root.error(nights - 1) < alone.error(nights - 1) else alone


@dataclass(frozen=True)
class Memory:
    """The noise that was given to earlier nights, summed over blocks.

    Attributes:
        night: how many nights there were.
        blocks: of those nights, in order.
        sums: the noise of each block.
    """

    night: int = 0
    blocks: tuple[Block, ...] = ()
    sums: tuple[Integers, ...] = ()


def tonight(strategy: Strategy, memory: Memory, drawn: Integers) -> tuple[Integers, Memory]:
    """The noise of tonight's sum, from fresh noise and what earlier nights were given; and what to remember.

    Raises:
        ValueError: the horizon is over, or noise would pass 64-bit integers (which depends on noise alone).
    """
    if memory.night >= strategy.nights:
        raise ValueError(f"the horizon of {strategy.nights} nights is over")
    blocks, sums = _merge(strategy, memory)
    rest = drawn.astype(np.int64)
    largest = int(np.abs(rest).max(initial=0))
    for block, total in zip(blocks, sums, strict=True):
        weight = strategy.weight(block, memory.night)
        largest += weight * int(np.abs(total).max(initial=0))
        if largest >= LARGEST:
            raise ValueError("the noise passes 64-bit integers: use a coarser grid")
        rest = rest - weight * total
    noise = (rest + strategy.diagonal // 2) // strategy.diagonal
    grown = strategy.grown(blocks, memory.night)
    kept = (*sums, noise) if grown else ()
    return noise, Memory(memory.night + 1, grown, kept)


def skipped(strategy: Strategy, memory: Memory, night: int) -> Memory:
    """The same after nights up to `night` that released nothing: their rows and columns of C are left out, so that
    they have no noise that later nights could take back.
    """
    while memory.night < night:
        blocks, sums = _merge(strategy, memory)
        grown = strategy.grown(blocks, memory.night)
        nothing = np.zeros_like(sums[0]) if sums else None
        kept = (*sums, nothing) if grown and nothing is not None else ()
        memory = Memory(memory.night + 1, grown if kept else (), kept)
    return memory


def _merge(strategy: Strategy, memory: Memory) -> tuple[tuple[Block, ...], tuple[Integers, ...]]:
    blocks = strategy.merged(memory.blocks, memory.night)
    sums: list[Integers] = []
    place = 0
    for block in blocks:
        total = memory.sums[place]
        place += 1
        while place < len(memory.blocks) and memory.blocks[place].start <= block.last:
            total = total + memory.sums[place]
            place += 1
        sums.append(total)
    return blocks, tuple(sums)


def _is_block(block: Block, night: int) -> bool:
    return block.start % block.length == 0 and night - block.last >= WIDTH * block.length


@lru_cache(maxsize=1)
def _sums_of_weights() -> list[float]:
    """Sums of the first m of c_k = binom(2k, k) / 4^k, the column of the square root of running totals."""
    weight, total, sums = 1.0, 0.0, [0.0]
    for lag in range(MOST_NIGHTS + 1):
        total += weight
        sums.append(total)
        weight *= (2 * lag + 1) / (2 * lag + 2)
    return sums


def _first_weights(count: int) -> float:
    return _sums_of_weights()[count]
