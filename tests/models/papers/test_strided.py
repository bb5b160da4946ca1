"""The network of pCDBN's program and its optimiser, against the formulas written out in NumPy, index by index."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from airlock.models.papers import cells, strided, taylor
from airlock.models.papers.chebyshev import Polynomial, polynomial
from airlock.models.papers.epsilon_hat import EpsilonHatAdam
from airlock.models.papers.networks import build
from tests.support import strided_oracle as oracle

DRAWN = np.random.default_rng(0)
NOISY = Polynomial("noisy", tuple(alpha + 0.05 for alpha in polynomial("published-7").alphas))


def tensor(values: Any) -> torch.Tensor:
    return torch.from_numpy(np.asarray(values, np.float64))


@pytest.mark.parametrize("side", [28, 14, 9, 7])
def test_the_drive_has_strides_of_two_and_tensorflows_padding(side: int) -> None:
    visible, filters, bias = (
        DRAWN.random((2, 3, side, side)),
        DRAWN.normal(size=(4, 3, 5, 5)),
        DRAWN.random(4),
    )
    found = strided.drive(tensor(visible), tensor(filters), tensor(bias)).numpy()
    assert found.shape[2] == math.ceil(side / 2)
    assert found == pytest.approx(oracle.drive(visible, filters, bias))


@pytest.mark.parametrize("side", [14, 9])
def test_the_answer_blows_up_and_exchanges_height_and_width(side: int) -> None:
    hidden, filters = DRAWN.random((2, 4, -(-side // 2), -(-side // 2))), DRAWN.normal(size=(4, 3, 5, 5))
    found = strided.answer(tensor(hidden), tensor(filters), (side, side)).numpy()
    assert found == pytest.approx(oracle.answer(hidden, filters, side))


def test_hidden_units_are_divided_by_the_greatest_drive_of_the_batch() -> None:
    drives = DRAWN.normal(size=(strided.CHUNK + 3, 2, 4, 4))
    drives[-1, :, 0, 0] = 9.0  # not in the record that is looked at alone
    found = strided.activations(tensor(drives), NOISY).numpy()
    assert found == pytest.approx(oracle.activations(drives, NOISY.alphas))
    alone = strided.activations(tensor(drives[:1]), NOISY).numpy()
    assert not np.allclose(alone, found[:1])


def test_cost_and_delta_are_what_the_slow_oracle_says() -> None:
    visible, filters, bias = (
        DRAWN.random((3, 2, 10, 10)),
        0.3 * DRAWN.normal(size=(3, 2, 5, 5)),
        DRAWN.random(3),
    )
    sigmoid = polynomial("published-7")
    wanted = oracle.cost(visible, filters, bias, sigmoid.alphas, NOISY.alphas)
    found = strided.cost(tensor(visible), tensor(filters), tensor(bias), sigmoid, NOISY)
    assert float(found) == pytest.approx(wanted)
    assert strided.delta(tensor(visible), sigmoid) == pytest.approx(oracle.delta(visible, sigmoid.alphas))


@pytest.mark.parametrize("side", [28, 14, 10])
def test_both_convolutions_are_the_same_over_cells(side: int) -> None:
    visible, filters, bias = (
        tensor(DRAWN.random((2, 3, side, side))),
        tensor(DRAWN.normal(size=(4, 3, 5, 5))),
        tensor(DRAWN.random(4)),
    )
    lying = cells.cut(visible)
    assert lying.shape == (2, 12, side // 2, side // 2)
    assert torch.allclose(
        cells.drive(lying, filters, bias), strided.drive(visible, filters, bias), atol=1e-12
    )
    hidden = tensor(DRAWN.random((2, 4, side // 2, side // 2)))
    wanted = cells.cut(strided.answer(hidden, filters, (side, side)))
    assert torch.allclose(cells.answer(hidden, filters), wanted, atol=1e-12)


@pytest.mark.parametrize("shape", [(3, 2, 9, 10), (3, 2, 9, 9)])
def test_an_odd_side_has_no_cells_and_the_same_cost(shape: tuple[int, ...]) -> None:
    visible, filters, bias = DRAWN.random(shape), DRAWN.normal(size=(3, 2, 5, 5)), DRAWN.random(3)
    assert not cells.fit(tensor(visible))
    found = strided.cost(tensor(visible), tensor(filters), tensor(bias), polynomial("published-7"), NOISY)
    assert bool(torch.isfinite(found))
    if shape[2] == shape[3]:
        alphas = polynomial("published-7").alphas
        assert float(found) == pytest.approx(oracle.cost(visible, filters, bias, alphas, NOISY.alphas))


@pytest.mark.parametrize("name", ["published-7", "chebyshev-1", "taylor-tanh", "with even orders"])
def test_gradients_of_hidden_units_are_differences_of_the_oracle(name: str) -> None:
    """Inside [0, 1], at its ends (where they are cut), and through the greatest drive of the batch."""
    even = Polynomial("with even orders", (0.4, 0.3, 0.2, -0.5, 0.1))
    sigmoid = even if name == even.name else polynomial(name)
    drives, weights = np.random.default_rng(3).normal(size=(2, strided.CHUNK + 3, 2, 3, 3))
    found = tensor(drives).requires_grad_()
    (strided.activations(found, sigmoid) * tensor(weights)).sum().backward()
    assert found.grad is not None

    def total(values: Any) -> float:
        return float((oracle.activations(values, sigmoid.alphas) * weights).sum())

    wanted = oracle.gradient(total, drives)
    assert found.grad.numpy() == pytest.approx(wanted, abs=1e-5)
    assert abs(wanted.ravel()[drives.argmax()]) > 1e-3


def test_greatest_drives_that_are_equal_share_the_gradient() -> None:
    drives = tensor(DRAWN.random((2, 1, 2, 2)))
    drives[:, 0, 0, 0] = 2.0
    ours, torchs = (drives.clone().requires_grad_() for _ in range(2))
    strided.activations(ours, NOISY).square().sum().backward()
    NOISY(torchs / torchs.amax()).clamp(0, 1).square().sum().backward()
    assert ours.grad is not None
    assert torchs.grad is not None
    assert torch.allclose(ours.grad, torchs.grad)


def test_the_closed_form_above_the_layers_is_what_automatic_differentiation_gives() -> None:
    made: Any = [build("strided:3-2-6", (16, 16, 1), 3, seed=1).double().train() for _ in range(2)]
    below, noise = tensor(DRAWN.random((7, 4 * 4 * 2))), tensor(DRAWN.normal(size=6))
    table = tensor(taylor.coefficients(np.arange(7) % 3, 3))
    found = made[0].descend(below, noise, table)
    wanted = taylor.polynomial(made[1].outputs(made[1].last(below) + noise), table).sum()
    wanted.backward()
    assert float(found) == pytest.approx(float(wanted.detach()))
    for layer in ("hidden", "outputs"):
        for ours, torchs in zip(
            getattr(made[0], layer).parameters(), getattr(made[1], layer).parameters(), strict=True
        ):
            assert torch.allclose(ours.grad, torchs.grad, atol=1e-12)
    ours, torchs = (one.norm.state_dict() for one in made)
    assert all(torch.allclose(ours[name], torchs[name]) for name in torchs)


def test_scores_are_what_the_slow_oracle_says_with_the_batchs_statistics_and_with_stored_ones() -> None:
    network: Any = build("strided:3-2-4", (16, 16, 1), 3, seed=1).double()
    records = DRAWN.random((6, 16, 16, 1))
    parts = {name: value.numpy().copy() for name, value in network.state_dict().items()}
    for batch in (False, True):
        network.train(batch)
        found = network(tensor(records)).detach().numpy()
        assert found == pytest.approx(oracle.scores(records, parts, batch=batch))
    # A pass of training moves the stored statistics.
    assert not np.allclose(network.norm.running_mean.numpy(), parts["norm.running_mean"])


def test_a_prediction_depends_on_one_record_alone() -> None:
    network = build("strided:3-2-24", (16, 16, 1), 3, seed=1)
    # Of its own: what is drawn from the others' generator depends on which of them ran before.
    records = torch.from_numpy(np.random.default_rng(5).random((6, 16, 16, 1))).float()
    network.train()(records)
    alone = network.eval()(records[:1])
    assert alone.any(), "scores of units that are all silent would not show it"
    assert torch.allclose(alone, network(records)[:1], atol=1e-6)
    # As the program predicts, it would not be so.
    assert not torch.allclose(network.train()(records[:2])[:1], network(records)[:1], atol=1e-5)


def test_first_weights_are_normal_and_drawn_again_beyond_two_deviations() -> None:
    network = strided.Strided((32, 64, 25), (28, 28, 1), 10)
    assert network.hidden.weight.shape == (25, 7 * 7 * 64)
    for weight in (*network.filters, network.hidden.weight, network.outputs.weight):
        assert float(weight.detach().abs().max()) <= 0.2
        # Of a normal that is cut off at two deviations.
        rough = 0.02 if weight.numel() > 1000 else 0.1
        assert float(weight.detach().std()) == pytest.approx(0.1 * 0.8796, rel=rough)
    assert not any(bias.any() for bias in (*network.biases, network.hidden.bias, network.outputs.bias))


def test_adam_is_tensorflows() -> None:
    gradients = DRAWN.normal(size=(4, 5)) * 10.0 ** -np.arange(3, 8)
    values, theirs = (torch.zeros(5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    ours, torchs = EpsilonHatAdam([values], rate=0.1), torch.optim.Adam([theirs], lr=0.1)
    for gradient in gradients:
        for one, optimiser in ((values, ours), (theirs, torchs)):
            one.grad = tensor(gradient)
            optimiser.step()
    wanted = oracle.adam(np.zeros(5), gradients, rate=0.1)
    assert values.detach().numpy() == pytest.approx(wanted, rel=1e-9)
    # torch.optim.Adam is another one where gradients are small.
    assert not np.allclose(theirs.detach().numpy(), wanted, rtol=0.05)
