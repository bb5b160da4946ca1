"""Convolutional Boltzmann machines: energy, conditionals, pooling and learning against sums written out."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from airlock.models.papers import boltzmann
from airlock.models.papers.boltzmann import Biases, Chain, Machine
from airlock.models.papers.chebyshev import polynomial


def free_energy(machine: Machine, visible: torch.Tensor) -> torch.Tensor:
    """-log of the unnormalised probability of visible units, hidden units summed out (without pooling)."""
    return -torch.nn.functional.softplus(machine.drive(visible)).sum((1, 2, 3)) - (
        visible.sum((2, 3)) * machine.visible
    ).sum(1)


def contrastive_divergence(
    machine: Machine,
    visible: torch.Tensor,
    generator: torch.Generator,
    *,
    chain: Chain | None = None,
    steps: int = 1,
    biases: Biases | None = None,
) -> Machine:
    """CD-k: the direction in which the machine should move, statistics of the data less those of a
    reconstruction (Hinton 2002).
    """
    chain, biases = chain or Chain(), biases or Biases()
    model = visible
    for _ in range(steps):
        model = chain.step(machine, model, generator, biases)
    data, found = (
        boltzmann.statistics(machine, units, chain.hidden(machine, units, biases))
        for units in (visible, model)
    )
    return data.moved(found, -1.0)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def machine(groups: int = 2, channels: int = 1, size: tuple[int, int] = (2, 2), seed: int = 0) -> Machine:
    drawn = generator(seed)
    made = boltzmann.fresh(groups, channels, size, drawn, deviation=0.7)
    made = Machine(made.filters, torch.randn(groups, generator=drawn), torch.randn(channels, generator=drawn))
    return Machine(*(value.double() for value in (made.filters, made.hidden, made.visible)))


def slow_energy(made: Machine, visible: np.ndarray, hidden: np.ndarray) -> float:
    """Eq. 4, index by index."""
    w, b, c = (value.numpy() for value in (made.filters, made.hidden, made.visible))
    total = 0.0
    for k, i, j in itertools.product(*map(range, hidden.shape)):
        for channel, r, s in itertools.product(*map(range, w.shape[1:])):
            total -= hidden[k, i, j] * w[k, channel, r, s] * visible[channel, i + r, j + s]
        total -= b[k] * hidden[k, i, j]
    return total - sum(c[channel] * visible[channel].sum() for channel in range(len(c)))


def test_energy_is_equation_4() -> None:
    made = machine(3, 2, (2, 3))
    visible, hidden = torch.rand(1, 2, 4, 5, dtype=torch.float64), torch.rand(1, 3, 3, 3, dtype=torch.float64)
    assert float(boltzmann.energy(made, visible, hidden)) == pytest.approx(
        slow_energy(made, visible[0].numpy(), hidden[0].numpy())
    )


def test_conditionals_are_differences_of_energies() -> None:
    """log odds of a unit = energy with it off less energy with it on, for hidden units (Eq.

    5) and visible ones (Eq. 6).
    """
    made = machine()
    visible, hidden = (
        boltzmann.sample(torch.full((1, 1, 3, 3), 0.5, dtype=torch.float64), generator()),
        torch.zeros(1, 2, 2, 2).double(),
    )
    hidden[0, 0, 0, 1] = hidden[0, 1, 1, 1] = 1
    for k, i, j in itertools.product(range(2), range(2), range(2)):
        on, off = hidden.clone(), hidden.clone()
        on[0, k, i, j], off[0, k, i, j] = 1, 0
        gap = boltzmann.energy(made, visible, off) - boltzmann.energy(made, visible, on)
        assert float(made.drive(visible)[0, k, i, j]) == pytest.approx(float(gap))
    for i, j in itertools.product(range(3), range(3)):
        on, off = visible.clone(), visible.clone()
        on[0, 0, i, j], off[0, 0, i, j] = 1, 0
        gap = boltzmann.energy(made, off, hidden) - boltzmann.energy(made, on, hidden)
        assert float(made.answer(hidden)[0, 0, i, j]) == pytest.approx(float(gap))


def test_biases_of_a_record_are_added_to_the_machines_own() -> None:
    made, visible = machine(), torch.rand(3, 1, 4, 4, dtype=torch.float64)
    extra = torch.randn(3, 2, dtype=torch.float64)
    moved = made.drive(visible, extra)
    for record in range(3):
        alone = Machine(made.filters, made.hidden + extra[record], made.visible)
        assert torch.allclose(moved[record], alone.drive(visible)[record])
    hidden = torch.rand(3, 2, 3, 3, dtype=torch.float64)
    seen = torch.randn(3, 1, dtype=torch.float64)
    assert torch.allclose(made.answer(hidden, seen), made.answer(hidden) + seen[:, :, None, None])


def test_free_energy_sums_hidden_units_out() -> None:
    made, visible = machine(1), torch.rand(1, 1, 3, 3, dtype=torch.float64)
    states = [
        torch.tensor(bits, dtype=torch.float64).reshape(1, 1, 2, 2)
        for bits in itertools.product((0, 1), repeat=4)
    ]
    total = math.log(sum(math.exp(-float(boltzmann.energy(made, visible, state))) for state in states))
    assert float(free_energy(made, visible)) == pytest.approx(-total)


@pytest.mark.parametrize("side", [4, 5])
def test_pooling_is_a_softmax_over_each_block_and_nothing(side: int) -> None:
    drive = torch.randn(2, 3, side, side, generator=generator()).double() * 3
    units, pooled = boltzmann.pool(drive, 2)
    for n, k, i, j in itertools.product(range(2), range(3), range(0, side, 2), range(0, side, 2)):
        powers = drive[n, k, i : i + 2, j : j + 2].exp()
        assert torch.allclose(units[n, k, i : i + 2, j : j + 2], powers / (1 + powers.sum()))
        assert float(pooled[n, k, i // 2, j // 2]) == pytest.approx(float(1 - 1 / (1 + powers.sum())))
    # Large drives do not overflow.
    assert torch.isfinite(boltzmann.pool(drive * 1e3, 2)[0]).all()


def test_a_block_has_at_most_one_unit_on_as_often_as_it_should() -> None:
    units = boltzmann.pool(torch.randn(1, 1, 5, 5, generator=generator(1)).double(), 2)[0]
    drawn = boltzmann.sample_blocks(units.expand(20_000, 1, 5, 5), 2, generator(2))
    assert float(torch.nn.functional.avg_pool2d(drawn[:, :, :4, :4], 2).max()) <= 0.25
    assert torch.allclose(drawn.mean(0), units[0], atol=0.02)


def test_normalised_drives_stay_where_the_series_holds() -> None:
    drive = torch.randn(4, 7, 3, 3, generator=generator()) * 50
    normal = boltzmann.normalise(drive)
    assert float(normal.abs().max()) <= 1.0
    assert torch.equal(normal.sign(), drive.sign())
    small = torch.full((1, 1, 1, 1), -0.5)
    assert float(boltzmann.normalise(small)) == pytest.approx(-0.5 / (2 + 1e-4 * 0.25) ** 0.75)


def test_the_polynomial_energy_nears_the_mean_field_energy() -> None:
    made, visible = machine(3), torch.rand(5, 1, 6, 6, dtype=torch.float64)
    exact = boltzmann.energy(made, visible, torch.sigmoid(boltzmann.normalise(made.drive(visible))))
    energies = [
        boltzmann.approximate_energy(made, visible, polynomial(f"chebyshev-{degree}")) for degree in (1, 3, 7)
    ]
    gaps = [float((energy - exact).abs().max()) for energy in energies]
    assert gaps[0] > 10 * gaps[1] > 100 * gaps[2]


@pytest.mark.parametrize("size", [1, 2])
def test_statistics_are_the_derivative_of_the_energy(size: int) -> None:
    made, visible = machine(), torch.rand(3, 1, 5, 5, dtype=torch.float64)
    hidden = Chain(size).hidden(made, visible, Biases())
    leaves = Machine(*(value.clone().requires_grad_() for value in (made.filters, made.hidden, made.visible)))
    boltzmann.energy(leaves, visible, hidden).mean().backward()  # type: ignore[no-untyped-call]
    found = boltzmann.statistics(made, visible, hidden)
    for leaf, value in (
        (leaves.filters, found.filters),
        (leaves.hidden, found.hidden),
        (leaves.visible, found.visible),
    ):
        assert leaf.grad is not None
        assert torch.allclose(-leaf.grad, value)


@pytest.mark.parametrize("size", [1, 2])
def test_contrastive_divergence_makes_the_records_likelier_than_noise(size: int) -> None:
    """Pictures with one horizontal bar; after learning their free energy is far below that of pictures with
    as many random pixels.
    """
    drawn = generator()
    rows = torch.randint(8, (100,), generator=drawn)
    bars = torch.zeros(100, 1, 8, 8)
    bars[torch.arange(100), 0, rows] = 1
    noise = boltzmann.sample(torch.full((100, 1, 8, 8), 1 / 8), drawn)
    made = boltzmann.fresh(4, 1, (3, 3), drawn)
    before = (free_energy(made, noise) - free_energy(made, bars)).mean()
    for _ in range(60):
        made = made.moved(contrastive_divergence(made, bars, drawn, chain=Chain(size)), 0.05)
    after = (free_energy(made, noise) - free_energy(made, bars)).mean()
    assert float(after) > float(before) + 5
