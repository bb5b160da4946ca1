"""Continual releases against dense matrices: the strategy, what it costs, and how much noise is left."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airlock.privacy import accounting, events
from airlock.privacy.continual import (
    Block,
    Memory,
    Strategy,
    choose,
    expected,
    strategy_of,
    tonight,
    tree_error,
)


def dense(strategy: Strategy) -> np.ndarray:
    """C as a matrix of Python's integers, written without blocks of weights: each entry asks for its block."""
    matrix = np.zeros((strategy.nights, strategy.nights), dtype=object)
    for night, row in enumerate(strategy.rows()):
        matrix[night, night] = strategy.diagonal
        for block, weight in row:
            for earlier in range(block.start, block.start + block.length):
                assert matrix[night, earlier] == 0
                matrix[night, earlier] = weight
    return matrix


def exact_weight(night: int, block: Block) -> Fraction:
    """The mean of the square root's weights over a block, in fractions."""
    lags = range(night - block.last, night - block.start + 1)
    return sum((Fraction(math.comb(2 * lag, lag), 4**lag) for lag in lags), Fraction(0)) / block.length


@pytest.mark.parametrize("nights", [1, 2, 5, 33, 100])
def test_the_fast_strategy_is_the_dense_matrix(nights: int) -> None:
    strategy = strategy_of("square-root", nights)
    matrix = dense(strategy)
    assert strategy.longest_column == max(sum(int(entry) ** 2 for entry in column) for column in matrix.T)
    assert Fraction(strategy.reach) ** 2 >= strategy.longest_column
    for night, row in enumerate(strategy.rows()):
        covered = [each for block, _ in row for each in range(block.start, block.start + block.length)]
        assert covered == list(range(night))
        for block, weight in row:
            assert block.start % block.length == 0
            assert block.length == 1 or night - block.last >= 4 * block.length
            assert abs(weight - 256 * exact_weight(night, block)) <= Fraction(1, 2) + Fraction(1, 10**9)
    if nights > 1:
        totals = np.tril(np.ones((nights, nights))) @ np.linalg.inv(matrix.astype(float))
        found = [strategy.deviation(night) for night in range(nights)]
        assert found == pytest.approx(np.sqrt((totals**2).sum(axis=1)), rel=1e-9)
        last = np.r_[np.zeros(nights - 2), 1, 1] @ np.linalg.inv(matrix.astype(float))
        assert strategy.deviation(nights - 1, since=nights - 2) == pytest.approx(np.sqrt((last**2).sum()))


def test_a_partition_only_ever_becomes_coarser() -> None:
    strategy, blocks = strategy_of("square-root", 300), ()
    for night in range(300):
        merged = strategy.merged(blocks, night)
        edges = {block.start for block in blocks}
        assert {block.start for block in merged} <= edges
        assert len(merged) <= 4 * 2 * math.log2(night + 2) + 8
        blocks = strategy.grown(merged, night)


@pytest.mark.parametrize(
    ("nights", "last", "first"), [(64, 2.413, 1.557), (365, 3.014, 1.738), (1024, 3.386, 1.838)]
)
def test_expected_errors_are_those_of_the_design(nights: int, last: float, first: float) -> None:
    strategy = choose(nights)
    assert strategy.name == "square-root"
    assert strategy.error(nights - 1) == pytest.approx(last, abs=1e-3)
    assert strategy.error(0) == pytest.approx(first, abs=1e-3)


def test_the_choice_follows_from_the_horizon_and_errors_are_told_for_each() -> None:
    assert choose(1).name == "independent"
    assert choose(1).error(0) == 1
    assert all(choose(nights).name == "square-root" for nights in (2, 3, 10))
    rows = expected(100)
    assert [row.night for row in rows] == [1, 2, 4, 8, 16, 32, 64, 100]
    assert rows[-1].independent == 10
    assert rows[-1].weighted < rows[-1].square_root
    assert rows[-1].square_root < rows[-1].tree == tree_error(100, 100) == pytest.approx(math.sqrt(7 * 6))
    assert [tree_error(night, 8) ** 2 for night in (1, 2, 3, 7, 8)] == pytest.approx([4, 4, 8, 12, 12])
    for nights in (0, 4097):
        with pytest.raises(ValueError, match="1 to 4096 nights"):
            Strategy("square-root", nights)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 40), st.integers(0, 2**32 - 1), st.sampled_from([1.0, 300.0, 1e9]))
def test_released_nights_are_a_function_of_what_is_priced(nights: int, seed: int, scale: float) -> None:
    """The lemma: from y = C x + z alone, in Python's integers, come the very bytes that were released."""
    strategy, source = choose(nights), np.random.default_rng(seed)
    sums = source.integers(-(10**9), 10**9, (nights, 3))
    drawn = np.rint(source.normal(0, scale, (nights, 3))).astype(np.int64)
    memory, released = Memory(), []
    for night in range(nights):
        noise, memory = tonight(strategy, memory, drawn[night])
        released.append(sums[night] + noise)
    matrix = dense(strategy)
    priced = matrix @ sums.astype(object) + drawn.astype(object)
    known: list[np.ndarray] = []
    for night in range(nights):
        rest = priced[night] - sum(
            (matrix[night, s] * known[s] for s in range(night)), np.zeros(3, dtype=object)
        )
        known.append(np.array([(int(entry) + strategy.diagonal // 2) // strategy.diagonal for entry in rest]))
    assert np.array_equal(np.array(known, dtype=object), np.array(released, dtype=object))
    with pytest.raises(ValueError, match="is over"):
        tonight(strategy, memory, drawn[0])


@pytest.mark.parametrize("records", [1, 3])
def test_no_neighbour_moves_all_nights_by_more_than_the_sensitivity(records: int) -> None:
    """A unit of one or three records on any nights, all in the worst direction; and some unit comes close."""
    strategy, delta, farthest = strategy_of("square-root", 12), 7.0, 0.0
    matrix = dense(strategy).astype(float)
    source = np.random.default_rng(1)
    bound = records * strategy.of_sum(delta)
    for attempt in range(300):
        moved = np.zeros((12, 4))
        nights = source.integers(0, 3 if attempt % 2 else 12, records)
        direction = source.normal(size=4)
        for night in nights:
            other = direction if attempt % 3 else source.normal(size=4)
            moved[night] += delta * other / np.linalg.norm(other)
        farthest = max(farthest, float(np.linalg.norm(matrix @ moved)))
        assert np.linalg.norm(matrix @ moved) <= bound
    assert farthest >= 0.95 * bound


def test_the_price_is_that_of_one_gaussian_whatever_the_number_of_nights() -> None:
    """dp-accounting composes the nights that one record reaches, each with its own weight, to the same epsilon."""
    strategy, multiplier = strategy_of("square-root", 40), 4.0
    matrix = dense(strategy)
    column = max(range(40), key=lambda place: sum(int(entry) ** 2 for entry in matrix[:, place]))
    shifts = [float(entry) / (multiplier * strategy.reach) for entry in matrix[:, column] if entry]
    nights = {
        "kind": "composed",
        "events": [{"kind": "gaussian", "noise_multiplier": 1 / shift} for shift in shifts],
    }
    once = {"kind": "gaussian", "noise_multiplier": multiplier}
    from dp_accounting import pld

    accountant = pld.PLDAccountant()
    accountant.compose(events.from_json(nights))
    priced = accounting.epsilon(events.from_json(once), 1e-5, neighbours="zero-out")
    assert accounting.epsilon(events.from_json(nights), 1e-5, neighbours="zero-out") == pytest.approx(
        priced, rel=1e-6
    )
    assert accountant.get_epsilon(1e-5) == pytest.approx(priced, rel=1e-2)


def test_noise_of_the_totals_is_as_deep_as_expected() -> None:
    strategy, source, scale = strategy_of("square-root", 50), np.random.default_rng(3), 1e6
    memory, total = Memory(), np.zeros(4000, np.int64)
    for night in range(50):
        noise, memory = tonight(strategy, memory, np.rint(source.normal(0, scale, 4000)).astype(np.int64))
        total += noise
        if night in (0, 7, 49):
            assert total.std() == pytest.approx(scale * strategy.deviation(night), rel=0.05)
    independent = scale * strategy.reach / strategy.diagonal * math.sqrt(50)
    assert total.std() < 0.5 * independent


def test_noise_that_would_pass_64_bits_is_refused() -> None:
    strategy, memory = strategy_of("square-root", 5), Memory()
    _, memory = tonight(strategy, memory, np.full(2, 2**61))
    with pytest.raises(ValueError, match="64-bit"):
        for _ in range(4):
            _, memory = tonight(strategy, memory, np.full(2, -(2**61)))
