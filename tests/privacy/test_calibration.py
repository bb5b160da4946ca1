"""What is calibrated to a price never costs more than the price,
to the last bit, and wastes almost nothing.
"""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from dp_accounting import dp_event
from hypothesis import given, settings
from hypothesis import strategies as st

from airlock.privacy import accounting, calibration

EPSILONS = st.floats(1e-3, 50)
DELTAS = st.floats(1e-15, 0.1)


def history(multipliers: list[float]) -> list[dp_event.DpEvent]:
    return [dp_event.GaussianDpEvent(multiplier) for multiplier in multipliers]


@settings(max_examples=30, deadline=None)
@given(EPSILONS, DELTAS, st.lists(st.integers(1, 1000), min_size=1, max_size=13))
def test_a_release_priced_to_fit_fits_and_wastes_nothing(
    epsilon: float, delta: float, weights: list[int]
) -> None:
    shares = [weight / sum(weights) for weight in weights]
    multipliers = calibration.split(calibration.gaussian_mu(epsilon, delta, draws=10**6), shares)
    cost = accounting.total_epsilon(history(multipliers), delta)
    assert epsilon * (1 - 1e-9) <= cost <= epsilon


@settings(max_examples=30, deadline=None)
@given(EPSILONS, DELTAS, st.integers(2, 40))
def test_releases_that_share_a_cap_fill_it_and_never_pass_it(cap: float, delta: float, releases: int) -> None:
    mu = calibration.gaussian_mu(cap, delta)
    whole = calibration.split(mu, [1 / releases] * releases)
    # Each release divides its own part again, as relevance and release do.
    parts = [calibration.split(1 / multiplier, [0.1, 0.2, 0.7]) for multiplier in whole]
    assert sum(1 / Fraction(z) ** 2 for z in whole) <= Fraction(mu) ** 2
    assert accounting.total_epsilon(history([z for part in parts for z in part]), delta) <= cap * (1 + 1e-14)


def test_share_f_gets_one_over_mu_root_f() -> None:
    assert calibration.split(0.5, [0.25, 0.75]) == pytest.approx([4.0, 2 / math.sqrt(0.75)])
    assert calibration.split(2.0, [1.0]) == [0.5]


@pytest.mark.parametrize("shares", [[], [0.5, 0.6], [-0.1, 1.0], [0.0, 1.0], [math.nan]])
def test_impossible_shares_are_refused(shares: list[float]) -> None:
    with pytest.raises(ValueError, match="shares"):
        calibration.split(1.0, shares)


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [(0.0, 1e-5), (-1.0, 1e-5), (math.inf, 1e-5), (math.nan, 1e-5), (1.0, 0.0), (1.0, 1.0)],
)
def test_impossible_prices_are_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(ValueError, match="calibration needs"):
        calibration.gaussian_mu(epsilon, delta)


def test_draws_are_paid_for_out_of_delta() -> None:
    assert calibration.gaussian_mu(1.0, 1e-5, draws=10**12) == calibration.gaussian_mu(1.0, 1e-5)
    with pytest.raises(ValueError, match="draws"):
        calibration.gaussian_mu(400.0, 1e-5, draws=10**6)


@given(st.integers(1, 2**52), st.floats(1e-3, 1e3))
def test_noise_is_never_less_than_sensitivity_times_multiplier(sensitivity: int, multiplier: float) -> None:
    assert Fraction(calibration.noise_scale(sensitivity, multiplier)) >= sensitivity * Fraction(multiplier)


@pytest.mark.parametrize("neighbours", ["zero-out", "replace-one"])
def test_sampled_steps_are_calibrated_from_above(neighbours: calibration.Neighbours) -> None:
    multiplier = calibration.sampled_gaussian_multiplier(
        1.0, 1e-5, rate=0.02, steps=300, neighbours=neighbours
    )

    def cost(noise: float) -> float:
        step = dp_event.PoissonSampledDpEvent(0.02, dp_event.GaussianDpEvent(noise))
        return accounting.epsilon(dp_event.SelfComposedDpEvent(step, 300), 1e-5, neighbours=neighbours)

    assert cost(multiplier) <= 1.0 < cost(multiplier * 0.997)
