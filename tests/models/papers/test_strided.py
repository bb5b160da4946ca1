"""The network of pCDBN's program and its optimiser, against the formulas written out in NumPy, index by index."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from airlock.models.papers import strided
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
    for weight in (network.filters[1].detach(), network.hidden.weight.detach()):
        assert float(weight.abs().max()) <= 0.2
        # Of a normal that is cut off at two deviations.
        assert float(weight.std()) == pytest.approx(0.1 * 0.8796, rel=0.02)
    assert not network.hidden.bias.any()
    assert not network.biases[0].any()


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
