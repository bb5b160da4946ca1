"""Attacks stay below what is proven, come near it where the law is known, and notice half the noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting import dp_event
from scipy import stats

from airlock.attack import canaries, families, laws, targets
from airlock.attack.samplers import NumpySampler, OwnSampler
from airlock.privacy import accounting, calibration, events

TRIALS = 200_000
CODE_DELTA, BATCH, PIXELS = 9800, 1800, 784


def gaussian_release(epsilon: float, delta: float, factor: float = 1.0) -> targets.Law:
    """The queries of a release of coefficients in three passes."""
    multipliers = calibration.split(calibration.gaussian_mu(epsilon, delta), [0.03, 0.30, 0.32, 0.35])
    return laws.gaussian_sums(multipliers, factor=factor)


def inputs(claimed: float) -> targets.Law:
    """AdLM's per-record inputs with the sensitivity of its authors' code and even shares (ILM)."""
    return laws.laplace_box(np.ones(PIXELS), np.full(PIXELS, CODE_DELTA / (BATCH * claimed)), name="inputs")


@pytest.mark.parametrize(
    ("successes", "trials", "error"), [(0, 50, 0.025), (1, 50, 0.025), (30, 50, 0.01), (50, 50, 0.05)]
)
def test_clopper_pearson_inverts_the_binomial(successes: int, trials: int, error: float) -> None:
    low, high = (
        float(targets.at_least(successes, trials, error)),
        float(targets.at_most(successes, trials, error)),
    )
    assert stats.binom.sf(successes - 1, trials, low) == pytest.approx(error if successes else 1.0)
    assert stats.binom.cdf(successes, trials, high) == pytest.approx(error if successes < trials else 1.0)


def test_bounds_are_right_more_often_than_their_confidence() -> None:
    """One event, known probabilities: log(P/Q) = log 2 is passed in at most 10 % of repetitions."""
    generator = np.random.default_rng(1)
    hits, alarms = generator.binomial(500, 0.2, 4000), generator.binomial(500, 0.1, 4000)
    bounds = targets.lower_bound(hits, alarms, 500, delta=0.0, confidence=0.9)
    assert np.mean(bounds > math.log(2)) < 0.1


def test_delta_is_taken_off_the_hits() -> None:
    plain = targets.lower_bound(100, 0, 10_000, delta=0.0, confidence=0.95)
    assert targets.lower_bound(100, 0, 10_000, delta=1e-3, confidence=0.95) < plain
    assert targets.lower_bound(100, 0, 10_000, delta=0.5, confidence=0.95) == 0


def test_no_difference_is_never_found() -> None:
    law = targets.Law(
        "constant", "the same twice", lambda sampler, runs, present: sampler.gaussian(1.0, (runs,))
    )
    assert targets.measure(law, NumpySampler(0), trials=20_000).epsilon < 0.05


def test_a_perfect_distinguisher_is_limited_by_the_number_of_trials() -> None:
    law = targets.Law("copy", "0 or 1", lambda sampler, runs, present: np.full(runs, float(present)))
    found = targets.measure(law, NumpySampler(0), trials=1000)
    assert (found.hits, found.false_alarms) == (1000, 0)
    assert found.epsilon == pytest.approx(math.log(0.025 ** (1 / 1000) / (1 - 0.025 ** (1 / 1000))))


def test_same_seed_gives_the_same_finding() -> None:
    findings = [
        targets.measure(gaussian_release(1, 1e-5), OwnSampler(seed), trials=2000) for seed in (3, 3, 4)
    ]
    assert findings[0] == findings[1] != findings[2]


@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_gaussian_release_is_reached_to_seven_tenths_but_not_passed(epsilon: float) -> None:
    found = targets.measure(gaussian_release(epsilon, 1e-5), OwnSampler(0), trials=TRIALS, delta=1e-5)
    assert found.by_law is not None
    assert 0.7 * epsilon <= found.by_law <= epsilon
    assert 0.5 * epsilon <= found.epsilon <= epsilon


@pytest.mark.stress
def test_gaussian_release_is_reached_without_any_assumption() -> None:
    found = targets.measure(gaussian_release(1.0, 1e-5), NumpySampler(0), trials=10_000_000, delta=1e-5)
    assert 0.7 <= found.epsilon <= 1


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_half_the_noise_is_noticed(epsilon: float) -> None:
    found = targets.measure(
        gaussian_release(epsilon, 1e-5, factor=0.5), OwnSampler(0), trials=TRIALS, delta=1e-5
    )
    assert found.epsilon > epsilon


def test_laplace_is_reached_and_half_its_noise_noticed() -> None:
    event = dp_event.LaplaceDpEvent(1.0)
    sound = targets.measure(laws.of_event(event, name="laplace"), OwnSampler(0), trials=TRIALS)
    faulty = targets.measure(laws.of_event(event, name="laplace", factor=0.5), OwnSampler(0), trials=TRIALS)
    assert 0.9 <= sound.epsilon <= 1.0 < faulty.epsilon


def test_sampled_gaussian_stays_below_its_proof_and_half_its_noise_does_not() -> None:
    event = dp_event.SelfComposedDpEvent(
        dp_event.PoissonSampledDpEvent(0.1, dp_event.GaussianDpEvent(2.0)), 20
    )
    proven = accounting.epsilon(event, 1e-5)
    sound = targets.measure(laws.of_event(event, name="steps"), NumpySampler(0), trials=100_000, delta=1e-5)
    faulty = targets.measure(
        laws.of_event(event, name="steps", factor=0.5), NumpySampler(0), trials=100_000, delta=1e-5
    )
    assert 0.4 * proven < sound.epsilon <= proven < faulty.epsilon
    assert sound.by_law is not None
    assert 0.7 * proven < sound.by_law <= proven


def test_power_is_the_trade_off_of_a_gaussian_where_that_is_known() -> None:
    """Neyman-Pearson: the best test of a shift mu at level a has power Phi(Phi^-1(a) + mu)."""
    event = dp_event.PoissonSampledDpEvent(0.999999, dp_event.GaussianDpEvent(1.0))
    for level in (1e-4, 0.01, 0.3, 0.8):
        exact = stats.norm.cdf(stats.norm.ppf(level) + 1.0)
        assert exact - 1e-5 <= families.power(event, level) <= exact * 1.05


def test_a_family_never_says_more_than_the_noise_that_was_drawn() -> None:
    """At the exact point of the law itself the bound is its epsilon, rounded to the safe side."""
    event = dp_event.SelfComposedDpEvent(
        dp_event.PoissonSampledDpEvent(0.1, dp_event.GaussianDpEvent(2.0)), 20
    )
    bound = families.of_event(event, "zero-out")
    for factor in (0.5, 1.0, 3.0):
        member = events.scale(event, factor)
        true = accounting.epsilon(member, 1e-5)
        assert 0.95 * true <= bound(families.power(member, 0.05), 0.05, 1e-5) <= true
    assert bound(0.05, 0.05, 1e-5) == 0


def test_a_lower_bound_is_never_a_price_from_above() -> None:
    """The least epsilon lies below the proven one, near it, and below the exact one where that is known."""
    steps = dp_event.SelfComposedDpEvent(
        dp_event.PoissonSampledDpEvent(0.0167, dp_event.GaussianDpEvent(1.5)), 180
    )
    for event in (steps, dp_event.LaplaceDpEvent(0.5), dp_event.GaussianDpEvent(2.0)):
        least, proven = (ask(event, 1e-5) for ask in (accounting.least_epsilon, accounting.epsilon))
        assert 0.97 * proven < least < proven
    # A Gaussian of mu 1/2 has exactly this delta at epsilon 1 (Balle and Wang 2018).
    exact = stats.norm.cdf(0.25 - 2.0) - math.e * stats.norm.cdf(-0.25 - 2.0)
    assert accounting.least_epsilon(dp_event.GaussianDpEvent(2.0), float(exact)) < 1.0


def test_a_point_that_much_noise_explains_refutes_nothing() -> None:
    """Hits barely above false alarms are explained by any size of noise: the bound is 0, not that of the
    largest size tried.
    """
    event = dp_event.PoissonSampledDpEvent(0.5, dp_event.GaussianDpEvent(1.0))
    assert families.of_event(event, "zero-out")(0.500001, 0.5, 1e-5) == 0.0


def test_adlm_inputs_leak_more_than_claimed() -> None:
    found = targets.measure(inputs(0.5), NumpySampler(0), trials=30_000)
    assert 5 < found.epsilon <= 72
    assert targets.measure(inputs(0.075), NumpySampler(0), trials=100_000).epsilon > 0.3


@pytest.mark.stress
def test_adlm_inputs_reproduce_the_published_demonstration() -> None:
    assert targets.measure(inputs(0.5), NumpySampler(0), trials=2_500_000).epsilon > 8


def test_adlm_labels_are_reached() -> None:
    law = laws.laplace_box(np.ones(2), np.full(2, 1812.5 / BATCH), name="labels")
    found = targets.measure(law, OwnSampler(0), trials=TRIALS)
    assert 1.9 < found.epsilon <= 2 * BATCH / 1812.5


def test_noise_shared_by_a_batch_protects_no_row() -> None:
    rows = np.zeros((3, PIXELS))
    rows[2, :100] = 0.7
    law = laws.shared_noise(*rows, scale=72.6, clip=10.0)
    assert targets.measure(law, NumpySampler(0), trials=100_000).epsilon > 10


def test_a_box_law_is_the_sum_of_its_laplace_losses() -> None:
    """Against the densities themselves, one draw at a time."""
    ranges, scales = np.array([1.0, 0.5]), np.array([0.7, 2.0])
    law = laws.laplace_box(ranges, scales, name="box")
    for present in (True, False):
        ratios = OwnSampler(5).laplace(2.0, (50, 2))
        released = ratios / 2 * scales + present * ranges
        slow = [(np.abs(row) / scales - np.abs(row - ranges) / scales).sum() for row in released]
        assert law.score(OwnSampler(5), 50, present) == pytest.approx(slow)


@pytest.mark.parametrize("present", [True, False])
@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_drawing_only_what_is_inside_the_box_is_the_same_law(present: bool, factor: float) -> None:
    law = laws.laplace_box(
        np.ones(40), np.concatenate([np.full(30, 2.0), np.full(10, 0.5)]), name="box", factor=factor
    )
    quick, slow = (law.score(sampler, 20_000, present) for sampler in (NumpySampler(0), OwnSampler(0)))
    assert stats.ks_2samp(quick, slow).pvalue > 0.001
    assert quick.mean() == pytest.approx(slow.mean(), abs=4 * slow.std() / 100)


def test_one_run_audit_agrees_with_the_binomial_where_delta_is_zero() -> None:
    bound = canaries.lower_bound(1000, 100, 95, delta=0.0, confidence=0.95)
    assert stats.binom.sf(94, 100, 1 / (1 + math.exp(-bound))) == pytest.approx(0.05, abs=1e-4)
    assert canaries.lower_bound(1000, 100, 50, delta=0.0) == 0
    assert canaries.lower_bound(1000, 100, 95, delta=1e-5) < bound


def test_one_run_audit_holds_for_randomised_response_and_sees_a_leak() -> None:
    """Coins released by randomised response are exactly epsilon-DP each, and reach the bound."""
    generator, epsilon, passed = np.random.default_rng(0), 1.0, 0
    for _ in range(200):
        present = generator.random(500) < 0.5
        truthful = generator.random(500) < 1 / (1 + math.exp(-epsilon))
        scores = np.where(truthful == present, 1.0, 0.0) + 1e-9 * generator.random(500)
        passed += canaries.audit(scores, present, guesses=400, delta=0.0).epsilon > epsilon
    assert passed <= 0.05 * 200 + 10
    assert canaries.audit(present.astype(float), present, guesses=400, delta=1e-5).epsilon > 3


def test_a_curve_is_refuted_as_seldom_as_the_confidence_allows() -> None:
    """One-run audits of independent Gaussian mechanisms of shift 1: the bound on the shift stays below 1 and
    is not far away.
    """
    generator = np.random.default_rng(0)
    shifts = []
    for _ in range(40):
        present = generator.random(400) < 0.5
        scores = present + generator.normal(size=400)
        shifts.append(canaries.audit(scores, present, guesses=100, delta=1e-5).shift)
    assert sum(shift > 1 for shift in shifts) <= 4
    assert np.mean(shifts) > 0.4


def test_right_guesses_bound_epsilon_by_both_sides_at_once() -> None:
    """log((a - delta) / (1 - a)) of randomised response is its epsilon; Clopper-Pearson comes near it from
    below.
    """
    right = math.exp(1.0) / (1 + math.exp(1.0))
    law = targets.Law(
        "response",
        "0 or 1",
        lambda sampler, runs, present: np.where(sampler.sample(right, (runs,)), present, not present).astype(
            float
        ),
        threshold=0.5,
        family=families.of_shift,
    )
    found = targets.distinguish(law, NumpySampler(0), trials=20_000)
    assert 0.95 < found.epsilon <= 1.0
    assert targets.distinguish(law, NumpySampler(1), trials=100, delta=0.5).epsilon == 0.0
