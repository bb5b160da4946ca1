"""Settings of DP-MAC: presets hold what the paper and the authors' program say, and what is asked for goes
before them.
"""

from __future__ import annotations

import math

import pytest

from airlock.errors import ParamsError
from stages.release.papers.dp_mac import dp_mac
from stages.release.papers.dp_mac.settings import CLAIMED_SETTINGS, PRESETS, Options, settle
from tests.support.comparison import MNIST, facts, params

USPS = facts((16, 16, 1), 5000)


@pytest.mark.parametrize(
    ("preset", "claimed", "sigma", "proven"),
    [
        ("authors-mnist", 0.5, 4.4, 0.31),
        ("authors-mnist", 2.0, 2.8, 1.10),
        ("authors-usps", 1.0, 7.8, 0.75),
        ("authors-usps", 8.0, 1.8, 6.42),
    ],
)
def test_the_programs_noise_proves_less_than_is_claimed(
    preset: str, claimed: float, sigma: float, proven: float
) -> None:
    asked, about = (
        params("dp-mac", preset=preset, epsilon=claimed),
        MNIST if preset == "authors-mnist" else USPS,
    )
    priced, recipe = dp_mac.plan(asked, about), dp_mac.resolve(asked, about)
    assert recipe.sigma == sigma and recipe.units.biases
    assert priced.claimed is not None and priced.claimed.epsilon == claimed
    assert priced.proven.epsilon == pytest.approx(proven, abs=0.01)


def test_what_goes_with_an_epsilon_is_taken_for_the_nearest_one() -> None:
    assert settle(Options(preset="authors-usps", sigma="auto"), 1.3).batch == 250
    assert settle(Options(preset="authors-usps", sigma="auto"), 6.0).batch == 500
    small = settle(Options(preset="authors-mnist", sigma="auto"), 0.4)
    assert (small.batch, small.epochs, small.projection_sigma, small.decay_epochs) == (500, 10, 16.0, 7)


def test_what_is_asked_for_goes_before_the_preset() -> None:
    asked = settle(Options(preset="authors-mnist", batch=77, projection_sigma=5.0, units="softplus"), 0.5)
    assert (asked.batch, asked.projection_sigma, asked.units, asked.hidden) == (77, 5.0, "softplus", (300,))


@pytest.mark.parametrize("preset", [name for name in PRESETS if name])
def test_every_preset_is_complete(preset: str) -> None:
    for epsilon in CLAIMED_SETTINGS[preset]:
        asked = settle(Options.model_validate({"preset": preset}), epsilon)
        open_ended = {name for name, value in asked if value is None}
        assert open_ended <= {"decay_epochs", "threshold_second", "projection"}


def test_a_projection_of_a_reconstruction_is_refused() -> None:
    with pytest.raises(ParamsError, match="projection is for classifiers"):
        dp_mac.plan(params("dp-mac", preset="authors-usps", epsilon=8.0, projection=9), USPS)


def test_weights_of_standard_deviation_one_are_no_longer_offered() -> None:
    with pytest.raises(ParamsError, match="initial"):
        dp_mac.plan(params("dp-mac", initial="normal"), USPS)


@pytest.mark.parametrize("claimed", [1.0, 2.0, 4.0, 8.0])
def test_the_programs_claims_are_what_the_moments_accountant_gives(claimed: float) -> None:
    """Abadi et al.: integer moments of the sampled Gaussian, added up, and Markov's inequality.

    No factor for the layers is left out.
    """
    options = settle(Options(preset="authors-usps"), claimed)
    assert options.batch and options.epochs
    rate, sigma, steps = (
        options.batch / 5000,
        CLAIMED_SETTINGS["authors-usps"][claimed]["sigma"],
        options.epochs * 5000 / options.batch,
    )

    def moment(order: int) -> float:
        terms = [
            math.comb(order, i) * rate**i * (1 - rate) ** (order - i) * math.exp((i * i - i) / (2 * sigma**2))
            for i in range(order + 1)
        ]
        return math.log(sum(terms))

    found = min((steps * moment(order + 1) + math.log(1e5)) / order for order in range(1, 30))
    assert found == pytest.approx(claimed, rel=0.04)
    assert (
        dp_mac.plan(params("dp-mac", preset="authors-usps", epsilon=claimed), USPS).proven.epsilon
        < 0.85 * found
    )
