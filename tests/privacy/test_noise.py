"""Noise follows its law to the last bit, and never meets two statistics."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import mpmath
import numpy as np
import opendp.prelude as dp
import pytest
from scipy import stats
from scipy.special import ndtri

from airlock.privacy import noise

Draw = Callable[[noise.Stream, float, noise.Shape], noise.Integers]
PRECISION = 700
TAILS = {
    noise.gaussian: lambda x: mpmath.erfc(x / mpmath.sqrt(2)),
    noise.laplace: lambda x: mpmath.exp(-x),
}
LAWS = {noise.gaussian: stats.norm, noise.laplace: stats.laplace}
both = pytest.mark.parametrize("draw", [noise.gaussian, noise.laplace])


def stream(
    purpose: str = "test", *, key: bytes = bytes(32), release_id: str = "id", release_pass: int = 0
) -> noise.Stream:
    return noise.Stream(
        key, release_id=release_id, release_pass=release_pass, purpose=purpose, statistic=bytes(32)
    )


class Chosen(noise.Stream):
    """A stream whose words a test chooses; their further bits stay the keyed ones."""

    def __init__(self, words: list[int]) -> None:
        super().__init__(bytes(32), release_id="id", release_pass=0, purpose="chosen", statistic=bytes(32))
        self.chosen = words

    def words(self, count: int) -> noise.Words:
        start, self.position = self.position, self.position + count
        return np.array(self.chosen[start : self.position], dtype=np.uint64)


def is_exact(draw: Draw, scale: float, word: int, extra: int, drawn: int) -> bool:
    """The definition: the point whose tail probability is the 575-bit number in the word lies within 1/2 of
    |drawn|.
    """
    if drawn and (drawn > 0) != bool(word & 1):
        return False
    with mpmath.workprec(PRECISION):
        tail = mpmath.mpf(((word >> 1) << 512) + extra) / mpmath.mpf(2) ** 575
        near, far = (TAILS[draw]((mpmath.mpf(abs(drawn)) + step) / mpmath.mpf(scale)) for step in (-0.5, 0.5))
        return bool(far < tail and (drawn == 0 or tail < near))


def boundary_words(draw: Draw, scale: float) -> list[int]:
    """Words on both sides of rounding boundaries, the hardest to decide."""
    words = []
    with mpmath.workprec(PRECISION):
        for k in [0, 1, 2, 3, int(scale * 0.7), int(scale * 2), int(scale * 4), int(scale * 8)]:
            tail = int(mpmath.floor(TAILS[draw]((mpmath.mpf(k) + 0.5) / mpmath.mpf(scale)) * 2**63))
            words += [
                2 * min(max(tail + step, 0), 2**63 - 1) + sign for step in (-1, 0, 1) for sign in (0, 1)
            ]
    return words


@both
@pytest.mark.parametrize("scale", [0.05, 0.3, 1.0, 5.0, 1000.5, 2.0**30, 2.0**40 + 0.125, 2.0**47])
def test_every_draw_is_the_exact_one(draw: Draw, scale: float) -> None:
    rng = np.random.default_rng(1)
    words = [0, 1, 2, 3, 2**64 - 1, 2**64 - 2, 2**63, 2**63 - 1, *boundary_words(draw, scale)]
    words += rng.integers(0, 2**64, 60, dtype=np.uint64).tolist()
    words += (
        rng.integers(0, 2**64, 60, dtype=np.uint64) >> rng.integers(0, 64, 60, dtype=np.uint64)
    ).tolist()
    source = Chosen(words)
    drawn = draw(source, scale, len(words))
    assert all(
        is_exact(draw, scale, word, source.extra_bits(index), int(drawn[index]))
        for index, word in enumerate(words)
    )


@both
def test_thousands_of_draws_are_the_exact_ones(draw: Draw) -> None:
    source = stream()
    words = source.words(2000).tolist()
    for scale in (0.8, 3e4):
        drawn = draw(stream(), scale, 2000)
        assert all(
            is_exact(draw, scale, word, source.extra_bits(index), int(drawn[index]))
            for index, word in enumerate(words)
        )


@pytest.mark.stress
@both
@pytest.mark.parametrize("scale", [0.3, 7.0, 1e6, 2.0**34, 2.0**41])
def test_a_hundred_thousand_draws_are_the_exact_ones(draw: Draw, scale: float) -> None:
    source = stream("stress")
    words = source.words(20_000).tolist()
    drawn = draw(stream("stress"), scale, 20_000).tolist()
    wrong = [
        index
        for index, word in enumerate(words)
        if not is_exact(draw, scale, word, source.extra_bits(index), drawn[index])
    ]
    assert wrong == []


@both
def test_the_oracle_tells_neighbours_apart(draw: Draw) -> None:
    word, scale = int(stream().words(1)[0]), 50.0
    drawn = int(draw(stream(), scale, 1)[0])
    verdicts = [is_exact(draw, scale, word, stream().extra_bits(0), drawn + step) for step in (-1, 0, 1)]
    assert verdicts == [False, True, False]


def test_floating_point_errs_far_less_than_is_allowed_for() -> None:
    """|error of -ndtri| < FLOAT_ERROR / 4 * (1 + x), on random words, tails, the middle, and the seams
    between ndtri's branches.
    """
    rng = np.random.default_rng(2)
    random = rng.integers(1, 2**63, 1500, dtype=np.uint64)
    small = rng.integers(1, 2**63, 1500, dtype=np.uint64) >> rng.integers(0, 62, 1500, dtype=np.uint64)
    around = [step << shift for step in range(-9, 10) for shift in range(0, 50, 5)]
    seams = [int(np.exp(-exponent) * 2**64) + step for exponent in (2, 32) for step in around]
    tails = np.concatenate(
        [
            random,
            small,
            np.uint64(2**63) - small,
            np.array([seam for seam in seams if seam > 0], dtype=np.uint64),
        ]
    )
    sizes = -ndtri(noise._unit(tails) / 2)
    with mpmath.workprec(160):
        for tail, size in zip(tails.tolist(), sizes.tolist(), strict=True):
            x = mpmath.mpf(size)
            exact_tail = (mpmath.mpf(tail) + 0.5) / mpmath.mpf(2) ** 64
            error = (mpmath.erfc(x / mpmath.sqrt(2)) / 2 - exact_tail) / mpmath.npdf(x)
            assert abs(error) < noise.FLOAT_ERROR / 4 * (1 + size)


@both
@pytest.mark.parametrize("scale", [0.3, 1.0, 5.0])
def test_counts_follow_the_rounded_law(draw: Draw, scale: float) -> None:
    drawn = draw(stream(), scale, 300_000)
    reach = int(5 * scale) + 1
    edges = np.arange(-reach, reach + 2) - 0.5
    probabilities = np.diff(LAWS[draw].cdf(edges / scale))
    expected = np.concatenate([probabilities, [1 - probabilities.sum()]]) * len(drawn)
    inside, _ = np.histogram(drawn, edges)
    observed = np.concatenate([inside, [len(drawn) - inside.sum()]])
    rare = expected < 10
    if rare.any():
        observed, expected = (np.append(counts[~rare], counts[rare].sum()) for counts in (observed, expected))
    assert stats.chisquare(observed, expected).pvalue > 1e-3


@both
@pytest.mark.parametrize("scale", [1e3, 2.0**36])
def test_large_draws_follow_the_continuous_law(draw: Draw, scale: float) -> None:
    drawn = draw(stream(), scale, 200_000)
    assert stats.kstest(drawn / scale, LAWS[draw].cdf).pvalue > 1e-3
    # Low bits are uniform: nothing of the float estimate's coarseness shows.
    assert stats.chisquare(np.bincount(drawn % 16, minlength=16)).pvalue > 1e-3


def test_draws_and_opendps_discrete_samplers_agree_at_large_scale() -> None:
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    ours = noise.gaussian(stream(), 500.0, 20_000)
    theirs = dp.m.make_gaussian(*space, scale=500.0)([0] * 20_000)
    assert stats.ks_2samp(ours, theirs).pvalue > 1e-9  # opendp cannot be seeded: wrong once in 10^9 runs
    ours = noise.laplace(stream(), 500.0, 20_000)
    theirs = dp.m.make_laplace(space[0], dp.l1_distance(T=int), scale=500.0)([0] * 20_000)
    assert stats.ks_2samp(ours, theirs).pvalue > 1e-9


# Keys
# --------------------------------------------------------------------------------------------------


def test_the_bits_of_a_release_do_not_change_between_versions() -> None:
    assert noise.gaussian(stream("pinned"), 1000.0, 6).tolist() == PINNED_GAUSSIAN
    assert noise.laplace(stream("pinned"), 1000.0, 6).tolist() == PINNED_LAPLACE


def release(total: noise.Integers, **changes: object) -> noise.Integers:
    settings: dict[str, object] = {
        "key": bytes(32),
        "release_id": "id",
        "release_pass": 1,
        "purpose": "mean",
        "scale": 100.0,
        **changes,
    }
    return noise.add_noise(total, **settings) - total  # type: ignore[arg-type]


def test_the_same_id_forced_on_two_data_sets_gives_independent_noise() -> None:
    total = np.arange(20_000)
    changed = total.copy()
    changed[7] += 1
    first, second = release(total), release(changed)
    assert (release(total) == first).all()
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.03
    assert stats.kstest((first - second) / (100 * np.sqrt(2)), "norm").pvalue > 1e-3


@pytest.mark.parametrize(
    "changes",
    [
        {"key": b"k" * 32},
        {"release_id": "other"},
        {"release_pass": 2},
        {"purpose": "gram"},
        {"scale": 101.0},
        {"form": "laplace"},
    ],
)
def test_whatever_changes_the_noise_is_new(changes: dict[str, object]) -> None:
    total = np.zeros(1000, dtype=np.int64)
    assert abs(np.corrcoef(release(total), release(total, **changes))[0, 1]) < 0.15


def test_a_sum_of_another_shape_is_another_sum() -> None:
    total = np.zeros(1000, dtype=np.int64)
    assert (release(total) != release(total.reshape(10, 100)).reshape(-1)).any()


def test_names_cannot_run_into_each_other() -> None:
    assert stream("b", release_id="a").words(1) != stream("", release_id="ab").words(1)


@both
def test_draws_do_not_depend_on_how_they_are_asked_for(draw: Draw) -> None:
    whole = draw(stream(), 2.0**35, noise.CHUNK + 999)
    source = stream()
    parts = np.concatenate([draw(source, 2.0**35, count) for count in (1, 100, noise.CHUNK, 898)])
    assert (whole == parts).all()


# Shapes, samples, refusals
# --------------------------------------------------------------------------------------------------


def test_symmetric_noise_is_drawn_once_a_pair_and_isotropic() -> None:
    matrix = noise.symmetric_gaussian(stream(), 1000.0, 400)
    assert (matrix == matrix.T).all()
    assert np.diag(matrix).std() == pytest.approx(1000, rel=0.15)
    assert matrix[np.triu_indices(400, 1)].std() == pytest.approx(1000 / np.sqrt(2), rel=0.02)
    total = np.arange(9).reshape(3, 3)
    assert (
        noise.add_noise(total + total.T, **SYMMETRIC) == noise.add_noise(total + total.T, **SYMMETRIC).T
    ).all()
    with pytest.raises(ValueError, match="symmetric"):
        noise.add_noise(total, **SYMMETRIC)


def test_a_poisson_sample_has_exactly_its_rate() -> None:
    rate = 0.3
    threshold = Fraction(rate) * 2**64
    whole = int(threshold)
    assert threshold == whole  # so the last chosen word is the one below
    assert noise.poisson_sample(Chosen([0, whole - 1, whole, 2**64 - 1]), rate, 4).tolist() == [
        True,
        True,
        False,
        False,
    ]
    assert (
        stats.binomtest(int(noise.poisson_sample(stream(), rate, 100_000).sum()), 100_000, rate).pvalue > 1e-3
    )
    assert noise.poisson_sample(stream(), 1.0, 100).all()
    assert not noise.poisson_sample(stream(), 0.0, 100).any()


def test_a_rate_finer_than_a_word_is_decided_by_further_bits() -> None:
    source = Chosen([0] * 4000)
    rate = 0.25 * 2.0**-64
    chosen = noise.poisson_sample(source, rate, 4000)
    assert stats.binomtest(int(chosen.sum()), 4000, 0.25).pvalue > 1e-3
    assert [bool(source.extra_bits(index) < 2**510) for index in range(4000)] == chosen.tolist()


def test_permutations_are_permutations_and_even() -> None:
    source = stream()
    orders = [tuple(noise.permutation(source, 3)) for _ in range(3000)]
    assert {tuple(sorted(order)) for order in orders} == {(0, 1, 2)}
    assert stats.chisquare([orders.count(order) for order in set(orders)]).pvalue > 1e-3


def test_float_noise_is_standard_normal() -> None:
    assert stats.kstest(noise.float_gaussian(stream(), (1000, 50)).reshape(-1), "norm").pvalue > 1e-3


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf"), 2.0**49])
def test_impossible_scales_are_refused(scale: float) -> None:
    with pytest.raises(ValueError, match="coarser grid"):
        noise.gaussian(stream(), scale, 3)


def test_sums_that_are_not_integers_or_too_large_are_refused() -> None:
    with pytest.raises(ValueError, match="int64"):
        release(np.zeros(3))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="coarser grid"):
        release(np.array([2**63 - 1]))
    with pytest.raises(ValueError, match="32 bytes"):
        stream(key=b"short")


SYMMETRIC = {
    "key": bytes(32),
    "release_id": "i",
    "release_pass": 0,
    "purpose": "g",
    "scale": 9.0,
    "form": "symmetric-gaussian",
}
PINNED_GAUSSIAN = [380, 396, 1167, 1953, -937, 801]
PINNED_LAPLACE = [351, 368, 1414, 2979, -1053, 861]


class Dictated:
    """A stream whose words and further bits a test chooses."""

    def __init__(self, words: list[int], extra: int) -> None:
        self._words, self._extra, self.position = words, extra, 0

    def words(self, count: int) -> noise.Words:
        self.position += count
        return np.array(self._words[:count], np.uint64)

    def extra_bits(self, index: int) -> int:
        return self._extra


def test_the_tail_of_float_noise_does_not_stop_at_53_bits() -> None:
    """8.65 deviations were the end; where the further bits are the middle of their range nothing changes."""
    angle = 0
    (_, first), (_, middle) = (
        noise.float_gaussian(Dictated([0, angle], extra), 2)[::-1]  # type: ignore[arg-type]
        for extra in (0, 2**511)
    )
    assert first == pytest.approx(math.sqrt(2 * 566 * math.log(2)), rel=1e-12)
    assert middle == pytest.approx(math.sqrt(2 * 54 * math.log(2)), rel=1e-12)
    for place in (2**20 - 1, 2**20):
        found = noise.float_gaussian(Dictated([place << 11, angle], 2**511), 2)[0]  # type: ignore[arg-type]
        assert found == pytest.approx(math.sqrt(-2 * math.log((place + 0.5) * 2.0**-53)), rel=1e-9)
