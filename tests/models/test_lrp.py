"""captum's epsilon rule is the paper's rule: held against one written straight from Eqs. 4-9."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from airlock.models import lrp
from airlock.models.papers import networks

MU = 0.25


def slow(
    layers: list[tuple[np.ndarray, np.ndarray]], record: np.ndarray, mu: float, *, whole: bool = False
) -> np.ndarray:
    """Dense layers with rectifiers between them, neuron by neuron; from the largest output, or from all of them."""
    activations = [record]
    for number, (weight, bias) in enumerate(layers):
        affine = weight @ activations[-1] + bias
        activations.append(affine if number == len(layers) - 1 else np.maximum(affine, 0))
    relevance = np.where(np.arange(len(activations[-1])) == activations[-1].argmax(), activations[-1], 0.0)
    relevance = activations[-1] if whole else relevance
    for (weight, bias), below in zip(layers[::-1], activations[-2::-1], strict=True):
        lower = np.zeros(len(below))
        for m in range(len(weight)):
            total = sum(below[p] * weight[m, p] for p in range(len(below))) + bias[m]
            for p in range(len(below)):
                lower[p] += below[p] * weight[m, p] / (total + (mu if total >= 0 else -mu)) * relevance[m]
        relevance = lower
    return relevance


def dense(module: nn.Module, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Any affine layer as a matrix and an offset."""
    with torch.no_grad():
        offset = module(torch.zeros(1, *shape)).reshape(-1)
        size = int(np.prod(shape))
        columns = module(torch.eye(size).reshape(size, *shape)).reshape(size, -1) - offset
    return columns.T.double().numpy(), offset.double().numpy()


@pytest.mark.parametrize("whole", [False, True])
def test_dense_network_agrees_with_the_equations(whole: bool) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))
    records = torch.rand(7, 6)
    found = lrp.relevances(network, records, stabiliser=MU, whole=whole)
    layers = [dense(network[index], shape) for index, shape in ((0, (6,)), (2, (5,)), (4, (4,)))]
    for record, relevance in zip(records, found, strict=True):
        wanted = slow(layers, record.double().numpy(), MU, whole=whole)
        assert relevance.numpy() == pytest.approx(wanted, abs=1e-5)


def test_convolution_agrees_with_the_equations() -> None:
    torch.manual_seed(1)
    network = networks.Ordered(
        nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(48, 3))
    )
    records = torch.rand(4, 4, 4, 1)
    found = lrp.relevances(network, records, stabiliser=MU)
    layers = [dense(network.layers[0], (1, 4, 4)), dense(network.layers[3], (48,))]
    for record, relevance in zip(records, found, strict=True):
        assert relevance.reshape(-1).numpy() == pytest.approx(
            slow(layers, record.reshape(-1).double().numpy(), MU), abs=1e-5
        )


def test_relevance_is_conserved_without_bias_and_stabiliser() -> None:
    """Eq. 9."""
    torch.manual_seed(2)
    network = nn.Sequential(nn.Linear(6, 8, bias=False), nn.ReLU(), nn.Linear(8, 3, bias=False))
    records = torch.rand(5, 6) + 0.1
    found = lrp.relevances(network, records, stabiliser=1e-9)
    assert found.sum(1).tolist() == pytest.approx(network(records).max(1).values.tolist(), rel=1e-3)


@pytest.mark.parametrize("shape", [(28, 28, 1), (12,)])
def test_relevance_of_a_record_depends_on_no_other(shape: tuple[int, ...]) -> None:
    network = networks.build("pretraining", shape, 10, seed=0)
    records = torch.rand(6, *shape)
    together = lrp.relevances(network, records, stabiliser=1.0)
    changed = records.clone()
    changed[5] = 0
    assert torch.equal(lrp.relevances(network, changed, stabiliser=1.0)[:5], together[:5])


def test_normalised_relevance_is_within_bounds_whatever_comes_in() -> None:
    rows = np.array([[1.0, 2.0, 4.0], [3.0, 3.0, 3.0], [np.nan, np.inf, -1.0]])
    found = lrp.normalise(rows)
    assert found[0].tolist() == pytest.approx([0, 1 / 3, 1])
    assert found.min() >= 0
    assert found.max() <= 1
    assert not found[1].any()
