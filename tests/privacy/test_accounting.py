"""Epsilon and delta against published numbers, closed forms,
dp-accounting's own accountants and each other.
"""

from __future__ import annotations

import math

import pytest
from dp_accounting import NeighboringRelation, dp_event, gaussian_mechanism
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld import privacy_loss_distribution as distributions
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from airlock.privacy import accounting, gaussian

Gaussian, Laplace = dp_event.GaussianDpEvent, dp_event.LaplaceDpEvent
Composed, Times = dp_event.ComposedDpEvent, dp_event.SelfComposedDpEvent


def sampled(rate: float, multiplier: float, steps: int) -> dp_event.DpEvent:
    return Times(dp_event.PoissonSampledDpEvent(rate, Gaussian(multiplier)), steps)


# Gaussian histories
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    # By hand from a table of Phi: Phi(1/2) - Phi(-1/2); Phi(-1/2) - e Phi(-3/2); Phi(-5/2) - e^3 Phi(-7/2).
    [
        (0.0, 0.6914625 - 0.3085375),
        (1.0, 0.3085375 - math.e * 0.0668072),
        (3.0, 0.00620967 - math.exp(3) * 0.000232629),
    ],
)
def test_delta_of_shift_one_is_what_a_table_of_phi_gives(epsilon: float, delta: float) -> None:
    assert accounting.delta_of(Gaussian(1.0), epsilon) == pytest.approx(delta, abs=3e-7)


@pytest.mark.parametrize(
    ("epsilon", "delta", "sigma"),
    # The analytic Gaussian mechanism (Balle and Wang 2018), as printed by dp-accounting and by the authors'
    # script.
    [
        (1.0, 1e-5, 3.730632),
        (0.5, 1e-5, 7.031827),
        (3.0, 1e-5, 1.390593),
        (0.1, 1e-5, 30.74957),
        (1.0, 1e-6, 4.224679),
    ],
)
def test_published_noise_of_the_analytic_gaussian_mechanism(
    epsilon: float, delta: float, sigma: float
) -> None:
    assert gaussian_mechanism.get_sigma_gaussian(epsilon, delta) == pytest.approx(sigma, rel=1e-6)
    assert accounting.epsilon(Gaussian(sigma), delta) == pytest.approx(epsilon, rel=1e-6)


@settings(max_examples=30, deadline=None)
@given(st.floats(0.01, 100), st.floats(1e-12, 0.4))
def test_the_exact_formula_agrees_with_dp_accounting(multiplier: float, delta: float) -> None:
    theirs = gaussian_mechanism.get_epsilon_gaussian(multiplier, delta)
    assert accounting.epsilon(Gaussian(multiplier), delta) == pytest.approx(theirs, rel=1e-6, abs=1e-9)


@settings(max_examples=30, deadline=None)
@given(st.floats(-12, 6), st.floats(-300, -0.001))
def test_epsilon_is_the_least_float_that_fits_even_at_the_extremes(log_mu: float, log_delta: float) -> None:
    mu, delta = 10.0**log_mu, 10.0**log_delta
    epsilon = gaussian.epsilon_at(mu, delta)
    assert gaussian.fits(mu, epsilon, delta)
    assert epsilon == 0 or not gaussian.fits(mu, math.nextafter(epsilon, 0), delta)
    assert gaussian.delta_at(mu, epsilon) <= delta


def test_gaussians_compose_as_the_sum_of_squared_shifts() -> None:
    history = Composed([Gaussian(3.0), Times(Gaussian(4.0), 5), Gaussian(10.0)])
    together = Gaussian(1 / math.sqrt(1 / 9 + 5 / 16 + 1 / 100))
    assert accounting.epsilon(history, 1e-6) == pytest.approx(accounting.epsilon(together, 1e-6), rel=1e-12)


def test_a_history_costs_the_same_in_any_order_and_grouping() -> None:
    parts = [Gaussian(1.0 + index / 7) for index in range(20)]
    total = accounting.total_epsilon(parts, 1e-5)
    assert accounting.total_epsilon(parts[::-1], 1e-5) == total
    assert accounting.epsilon(Composed([Composed(parts[:7]), Composed(parts[7:])]), 1e-5) == total


# Everything else
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [1e-6, 1e-3, 0.1, 0.3])
def test_one_laplace_follows_its_closed_form(delta: float) -> None:
    # delta = 1 - exp((epsilon - 1/b) / 2), by integrating the two densities.
    assert accounting.epsilon(Laplace(0.5), delta) == pytest.approx(2 + 2 * math.log1p(-delta), rel=1e-5)


def test_laplaces_add_up_exactly_at_delta_zero() -> None:
    assert accounting.epsilon(Composed([Times(Laplace(8.0), 24), Laplace(2.0)]), 0.0) == 3.5
    assert accounting.epsilon(dp_event.DiscreteLaplaceDpEvent(0.25, 2), 0.0) == 0.5


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 1.7])
def test_two_laplaces_follow_an_integral_done_by_hand(epsilon: float) -> None:
    one = 1.0  # loss of one: 1 with mass 1/2, -1 with mass e^-1 / 2, density exp((l - 1) / 2) / 4 between

    def delta_of_one(level: float) -> float:
        return (
            0.0 if level >= one else 1 - math.exp((level - one) / 2) if level >= -one else 1 - math.exp(level)
        )

    def weighted(loss: float) -> float:
        return math.exp((loss - one) / 2) / 4 * delta_of_one(epsilon - loss)

    between = (
        quad(weighted, -one, epsilon - one, epsabs=1e-13)[0]
        + quad(weighted, epsilon - one, one, epsabs=1e-13)[0]
    )
    expected = delta_of_one(epsilon - one) / 2 + math.exp(-one) / 2 * delta_of_one(epsilon + one) + between
    assert accounting.delta_of(Times(Laplace(1.0), 2), epsilon) == pytest.approx(
        expected, rel=1e-5, abs=1e-10
    )


@pytest.mark.parametrize(
    ("event", "epsilon"),
    [
        # docs/proofs/optimized-noise.md#isotropic-noise: Poisson-sampled Gaussians, PLD column.
        (sampled(0.01818, 19.7, 1650), 0.117),
        (sampled(0.01818, 3.98, 1650), 0.689),
        (sampled(0.01818, 2.24, 1650), 1.36),
        (sampled(0.00909, 1.88, 3300), 1.15),
        # docs/proofs/dp-mac.md#guarantee: training alone, and training + pre-training + histograms of three
        # layers with deviation 20.
        (sampled(1 / 1200, 5.8, 24000), 0.067),
        (sampled(0.01, 2.2, 2000), 0.799),
        (Composed([sampled(1 / 1200, 5.8, 25200), Gaussian(20 / math.sqrt(3))]), 0.302),
        # docs/proofs/adlm.md#record-release: 784 + 2 Laplace mechanisms of pure epsilon 144 e2 and 1.986 e3.
        (
            Composed([Times(Laplace(784 / (144 * 0.0625)), 784), Times(Laplace(2 / (1.9862 * 0.125)), 2)]),
            1.36,
        ),
        (Composed([Times(Laplace(784 / (144 * 0.25)), 784), Times(Laplace(2 / (1.9862 * 0.5)), 2)]), 6.46),
        (Composed([Times(Laplace(784 / (144 * 2)), 784), Times(Laplace(2 / (1.9862 * 4)), 2)]), 93.5),
    ],
)
def test_numbers_of_the_mechanisms_page(event: dp_event.DpEvent, epsilon: float) -> None:
    assert accounting.epsilon(event, 1e-5) == pytest.approx(epsilon, rel=6e-3)


@pytest.mark.parametrize(
    ("multiplier", "epochs", "published"),
    # TensorFlow Privacy's MNIST tutorial: batches of 256 out of 60000, delta 1e-5, by the looser RDP
    # conversion of its time.
    [(1.3, 15, 1.19), (1.1, 60, 3.01), (0.7, 45, 7.10)],
)
def test_the_tutorial_of_dp_sgd_costs_no_more_than_it_says(
    multiplier: float, epochs: int, published: float
) -> None:
    epsilon = accounting.epsilon(sampled(256 / 60000, multiplier, epochs * 60000 // 256), 1e-5)
    assert 0.7 * published < epsilon < published


@pytest.mark.parametrize("neighbours", ["zero-out", "replace-one"])
def test_a_mixed_history_agrees_with_dp_accountings_own_accountant(neighbours: accounting.Neighbours) -> None:
    # dp-accounting takes the noise over C under replace-one, the events here over the sensitivity 2C.
    scale = 1.0 if neighbours == "zero-out" else 2.0
    relation = (
        NeighboringRelation.REPLACE_SPECIAL if neighbours == "zero-out" else NeighboringRelation.REPLACE_ONE
    )
    accountant = PLDAccountant(relation)
    accountant.compose(Gaussian(5.0 * scale), 3).compose(
        dp_event.PoissonSampledDpEvent(0.02, Gaussian(1.5 * scale)), 200
    )
    event = Composed([Times(Gaussian(5.0), 3), sampled(0.02, 1.5, 200)])
    assert accounting.epsilon(event, 1e-6, neighbours=neighbours) == pytest.approx(
        accountant.get_epsilon(1e-6), rel=2e-4
    )


def test_everything_together_costs_more_than_each_and_less_than_the_sum() -> None:
    parts = [
        Times(Gaussian(10.0), 5),
        Laplace(5.0),
        sampled(0.01, 1.0, 100),
        dp_event.DiscreteLaplaceDpEvent(0.1, 1),
    ]
    single = [accounting.epsilon(part, 1e-5) for part in parts]
    assert max(single) < accounting.total_epsilon(parts, 1e-5) < sum(single)


def test_delta_and_epsilon_of_a_mixed_history_are_inverse() -> None:
    event = Composed([Laplace(4.0), Gaussian(6.0)])
    epsilon = accounting.epsilon(event, 1e-5)
    assert accounting.delta_of(event, epsilon) == pytest.approx(1e-5, rel=1e-6)


@pytest.mark.parametrize("rate", [0.01, 0.3, 0.9])
@pytest.mark.parametrize("multiplier", [0.7, 2.0])
@pytest.mark.parametrize("ends", [(1.0, 0.0), (1.0, 0.5), (0.6, -1.0), (-1.0, 1.0)])
def test_no_pair_of_records_beats_the_pair_that_replace_one_is_accounted_by(
    rate: float, multiplier: float, ends: tuple[float, float]
) -> None:
    """(1-q)N(0)+qN(x) against (1-q)N(0)+qN(x') for |x|, |x'| <= C, by quadrature, never exceeds the accounted
    delta (C = 1 here).
    """
    deviation = 2 * multiplier

    def density(at: float, end: float) -> float:
        return (1 - rate) * math.exp(-((at / deviation) ** 2) / 2) + rate * math.exp(
            -(((at - end) / deviation) ** 2) / 2
        )

    for epsilon in (0.0, 0.02, 0.2, 0.7, 1.5):
        grid = [-12 * deviation + 24 * deviation * index / 20000 for index in range(20001)]
        gaps = [max(0.0, density(at, ends[0]) - math.exp(epsilon) * density(at, ends[1])) for at in grid]
        true = sum(gaps) * (24 / 20000) / math.sqrt(2 * math.pi)
        event = dp_event.PoissonSampledDpEvent(rate, Gaussian(multiplier))
        assert true <= accounting.delta_of(event, epsilon, neighbours="replace-one") + 1e-6


# Cross-checks and edges
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [1e-10, 1e-7, 1e-4])
@pytest.mark.parametrize(
    "event",
    [
        Gaussian(20.0),
        Gaussian(1.0),
        Times(Gaussian(30.0), 50),
        Times(Laplace(20.0), 40),
        sampled(0.01, 1.0, 1000),
        sampled(0.2, 4.0, 50),
    ],
)
def test_rdp_is_above_and_within_the_stated_factor(event: dp_event.DpEvent, delta: float) -> None:
    epsilon, renyi = accounting.epsilon(event, delta), accounting.rdp_epsilon(event, delta)
    assert 0.05 <= epsilon <= 20
    assert epsilon <= renyi <= accounting.CROSS_CHECK_FACTOR * epsilon


@pytest.mark.parametrize(
    ("steps", "multiplier"), [(1, 3.73), (1650, 151.5), (10**4, 100.0), (10**5, 300.0), (10**6, 300.0)]
)
def test_rounding_inside_loss_distributions_is_below_what_is_set_aside(steps: int, multiplier: float) -> None:
    mu = math.sqrt(steps) / multiplier
    loss = distributions.from_gaussian_mechanism(multiplier, value_discretization_interval=1e-4).self_compose(
        steps
    )
    for delta in (1e-8, 1e-10, 1e-12):
        computed = loss.get_delta_for_epsilon(gaussian.epsilon_at(mu, delta))
        assert delta <= computed + accounting.rounding_of(steps) / 10


def test_what_is_not_private_costs_infinity() -> None:
    history = Composed([Gaussian(100.0), dp_event.NonPrivateDpEvent()])
    assert math.isinf(accounting.epsilon(history, 1e-5))
    assert accounting.delta_of(history, 10.0) == 1.0
    assert math.isinf(
        accounting.epsilon(dp_event.PoissonSampledDpEvent(0.1, dp_event.NonPrivateDpEvent()), 1e-5)
    )


def test_a_history_with_hardly_any_noise_is_priced_and_does_not_fill_the_memory() -> None:
    assert accounting.epsilon(Composed([Laplace(1e-6), Gaussian(5.0)]), 1e-5) == pytest.approx(1e6, rel=1e-3)
    assert 1e4 < accounting.epsilon(sampled(0.01, 0.005, 2), 1e-5) < 1e5


def test_edges() -> None:
    assert accounting.total_epsilon([], 1e-5) == 0
    assert accounting.epsilon(dp_event.NoOpDpEvent(), 0.0) == 0
    assert math.isinf(accounting.epsilon(Gaussian(1.0), 0.0))
    assert accounting.epsilon(Gaussian(1.0), 1.0) == 0
    assert accounting.epsilon(Gaussian(1e6), 1e-5) == 0
    assert accounting.delta_of(Gaussian(1.0), math.inf) == 0
    assert math.isfinite(accounting.epsilon(Composed([Laplace(5.0), Gaussian(5.0)]), 1e-13))
    with pytest.raises(ValueError, match="delta"):
        accounting.epsilon(Gaussian(1.0), -1e-9)
    with pytest.raises(ValueError, match="replace-one"):
        accounting.epsilon(dp_event.PoissonSampledDpEvent(0.1, Laplace(1.0)), 1e-5, neighbours="replace-one")


def test_a_huge_pure_loss_is_added_up_and_not_spread_out() -> None:
    """Of e^30000 no distribution can be built; what is known is the sum."""
    huge, step = (
        dp_event.DiscreteLaplaceDpEvent(30_000.0, 1),
        dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(1.0)),
    )
    steps = dp_event.SelfComposedDpEvent(step, 100)
    assert accounting.epsilon(huge, 1e-5) == pytest.approx(30_000)
    assert accounting.epsilon(huge, 1e-5) >= 30_000
    assert accounting.epsilon(
        dp_event.SelfComposedDpEvent(dp_event.LaplaceDpEvent(784 / 1e6), 784), 1e-5
    ) == pytest.approx(1e6)
    mixed = dp_event.ComposedDpEvent([huge, steps])
    assert accounting.epsilon(mixed, 1e-5) == pytest.approx(30_000 + accounting.epsilon(steps, 1e-5))
    assert (
        accounting.epsilon(dp_event.ComposedDpEvent([huge, dp_event.GaussianDpEvent(1.0)]), 0.0) == math.inf
    )
    assert accounting.delta_of(mixed, 29_999) == 1
    assert accounting.delta_of(mixed, 30_001) == pytest.approx(accounting.delta_of(steps, 1.0), rel=1e-6)
    assert accounting.delta_of(huge, 30_001) == 0
