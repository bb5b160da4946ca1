"""The networks of the comparisons: shapes, the normalising of Eq. 22, reproducible weights."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from airlock.models.papers import networks
from stages.release.papers.dp_sgd.lower_layers import CONVOLUTIONAL_NETWORKS


@pytest.mark.parametrize("name", sorted(networks.NETWORKS))
@pytest.mark.parametrize("shape", [(28, 28, 1), (32, 32, 3), (16, 16, 1), (30,)])
def test_every_network_takes_every_shape(name: str, shape: tuple[int, ...]) -> None:
    if name in (*CONVOLUTIONAL_NETWORKS, "adlm-program", "adlm-grey", "adlm-colour") and len(shape) == 1:
        pytest.skip("for images only")
    network = networks.build(name, shape, 4, seed=0).eval()
    assert network(torch.rand(2, *shape)).shape == (2, 4)


def slow_windows(image: NDArray[np.float64], side: int, step: int) -> Iterator[tuple[int, int, Any]]:
    """Every place of a window of (maps, height, width), row by row."""
    for i, j in itertools.product(*((range(0, size - side + 1, step)) for size in image.shape[1:])):
        yield i // step, j // step, image[:, i : i + side, j : j + side]


def slow_layer(image: NDArray[np.float64], weight: Any, bias: Any, step: int) -> NDArray[np.float64]:
    """Convolution, rectifier, maxima over 2 x 2 at every place."""
    seen = {(i, j): part for i, j, part in slow_windows(image, weight.shape[2], step)}
    rows, columns = (max(place[axis] for place in seen) + 1 for axis in (0, 1))
    made = np.zeros((len(weight), rows, columns))
    for (i, j), part in seen.items():
        made[:, i, j] = np.maximum([(kernel * part).sum() for kernel in weight] + bias, 0)
    pooled = np.zeros((len(weight), rows - 1, columns - 1))
    for i, j, part in slow_windows(made, 2, 1):
        pooled[:, i, j] = part.max((1, 2))
    return pooled


def test_two_convolutions_have_128_units_and_are_what_the_slow_oracle_says() -> None:
    """Xiang et al., Table II: two convolutions, a hidden layer of 128, the outputs."""
    network = networks.build("two-convolutions", (28, 28, 1), 10, seed=0).double()
    state = {name: value.numpy() for name, value in network.state_dict().items()}
    assert [state[f"layers.{number}.weight"].shape for number in (0, 3, 7, 9)] == [
        (16, 1, 8, 8),
        (32, 16, 4, 4),
        (128, 512),
        (10, 128),
    ]
    records = np.random.default_rng(0).random((2, 28, 28, 1))
    for record, found in zip(records, network(torch.from_numpy(records)).detach().numpy(), strict=True):
        image = np.pad(record.transpose(2, 0, 1), ((0, 0), (3, 3), (3, 3)))
        for number in (0, 3):
            image = slow_layer(image, state[f"layers.{number}.weight"], state[f"layers.{number}.bias"], 2)
        hidden = np.maximum(state["layers.7.weight"] @ image.ravel() + state["layers.7.bias"], 0)
        assert found == pytest.approx(state["layers.9.weight"] @ hidden + state["layers.9.bias"])


def test_contrast_is_the_equation() -> None:
    """Eq. 22, map by map."""
    hidden = torch.rand(2, 7, 3, 3) * 50
    found = networks.Contrast()(hidden)
    for m in range(7):
        squares = (hidden[:, max(0, m - 2) : m + 3] ** 2).sum(1)
        expected = hidden[:, m] / torch.maximum(hidden[:, m], (2 + 1e-4 * squares) ** 0.75)
        assert torch.allclose(found[:, m], expected)
    assert float(found.max()) <= 1


def test_contrast_takes_tables_too() -> None:
    assert networks.Contrast()(torch.rand(2, 7)).shape == (2, 7)


def test_last_hidden_layer_is_within_bounds() -> None:
    unit = networks.UnitRange(3)
    found = unit(torch.randn(20, 3) * 100)
    assert (float(found.min()), float(found.max())) == (0, 1)
    assert float(unit.eval()(torch.randn(20, 3) * 1000).min()) >= 0


def test_same_seed_gives_the_same_weights_and_leaves_torch_alone() -> None:
    state = torch.get_rng_state()
    first, second = (networks.build("adlm", (28, 28, 1), 10, seed=3) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert torch.equal(torch.get_rng_state(), state)


def test_first_layer_of_adlm_has_only_the_perturbed_bias() -> None:
    network = networks.Adlm((28, 28, 1), 10)
    assert network.first.bias is None
    assert network.bias.shape == (32,)
    assert "bias" not in dict(network.named_parameters())


@pytest.mark.parametrize("shape", [(28, 28, 1), (32, 32, 3), (30,)])
def test_the_perturbed_bias_is_added_to_the_affine_layer(shape: tuple[int, ...]) -> None:
    """Wherever it is cheapest to add: the scores are those of adding it right after the first layer, to the
    bit.
    """
    network = networks.Adlm(shape, 10)
    network.bias.copy_(torch.randn(len(network.bias)) * 3)
    records = torch.rand(5, *shape)
    affine = network.first(networks.channels_first(records))
    expected = network.outputs(
        network.last(network.body(affine + network.bias.reshape(1, -1, *[1] * (affine.ndim - 2))))
    )
    assert torch.equal(network(records), expected)
