"""Polynomials for the sigmoid: the true series, the paper's example, and its rivals."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.polynomial import chebyshev as numpy_chebyshev

from airlock.errors import ParamsError
from airlock.models.papers.chebyshev import polynomial, series, sigmoid


@pytest.mark.parametrize(
    ("degree", "error"), [(1, 4.7e-3), (3, 1.13e-4), (5, 2.8e-6), (7, 6.6e-8), (15, 3e-14)]
)
def test_the_series_comes_as_near_as_its_degree_allows(degree: int, error: float) -> None:
    found = polynomial(f"chebyshev-{degree}")
    assert found.degree == degree
    assert found.error() <= error


def test_coefficients_are_the_integrals_of_equation_10() -> None:
    """A_k = 2/pi * integral of f T_k / sqrt(1 - x^2), here by brute force over the angle."""
    angle = (np.arange(200_000) + 0.5) * np.pi / 200_000
    slow = [2 / np.pi * np.mean(sigmoid(np.cos(angle)) * np.cos(order * angle)) * np.pi for order in range(6)]
    slow[0] /= 2
    assert series(sigmoid, 5) == pytest.approx(slow, abs=1e-12)


@pytest.mark.parametrize("degree", [1, 2, 7, 12])
def test_powers_of_x_are_those_that_numpy_finds(degree: int) -> None:
    wanted = numpy_chebyshev.cheb2poly(series(sigmoid, degree))
    alphas = np.array(polynomial(f"chebyshev-{degree}").alphas)
    assert alphas[: len(wanted)] == pytest.approx(wanted, abs=1e-12)


def test_even_orders_vanish() -> None:
    assert polynomial("chebyshev-8").alphas[2::2] == pytest.approx([0.0] * 4, abs=1e-15)
    assert polynomial("chebyshev-2").alphas[:2] == pytest.approx(polynomial("chebyshev-1").alphas)


def test_the_papers_example_is_a_flat_step_and_not_the_series() -> None:
    published, true = polynomial("published-7"), polynomial("chebyshev-7")
    x = np.linspace(-1, 1, 101)
    slope = sum(order * alpha * x ** (order - 1) for order, alpha in enumerate(published.alphas) if order)
    assert slope == pytest.approx(35 / 32 * (1 - x**2) ** 3, abs=1e-12)
    assert (published(-1.0), published(0.0), published(1.0)) == pytest.approx((0.0, 0.5, 1.0))
    assert published.error() == pytest.approx(0.3221, abs=1e-4)
    assert np.abs(published(x) - true(x)).max() == pytest.approx(0.3221, abs=1e-3)
    assert published.alphas[1] / true.alphas[1] == pytest.approx(4.375, abs=1e-3)
    # Four and a half times the noise: the paper's sensitivity grows with the sum of |alpha|.
    assert published.total == 3.5
    assert true.total == pytest.approx(0.773, abs=1e-3)


def test_rivals_are_worse_than_the_series_of_their_degree() -> None:
    assert polynomial("taylor-5").error() > 50 * polynomial("chebyshev-5").error()
    assert polynomial("piecewise").error() > 4 * polynomial("chebyshev-1").error()
    x = np.linspace(-0.2, 0.2, 9)
    assert polynomial("taylor-tanh")(x) == pytest.approx(np.tanh(x), abs=1e-6)
    assert polynomial("taylor-7")(x) == pytest.approx(sigmoid(x), abs=1e-10)


@pytest.mark.parametrize("name", ["chebyshev-0", "chebyshev-99", "taylor-8", "legendre-3", ""])
def test_other_names_are_refused_with_what_there_is(name: str) -> None:
    with pytest.raises(ParamsError, match="published-7"):
        polynomial(name)
