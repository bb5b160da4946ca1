"""The networks of the comparisons: shapes, the normalising of Eq. 22, reproducible weights."""

from __future__ import annotations

import pytest
import torch

from airlock.models.papers import networks
from stages.release.papers.dp_sgd.lower_layers import CONVOLUTIONAL_NETWORKS


@pytest.mark.parametrize("name", sorted(networks.NETWORKS))
@pytest.mark.parametrize("shape", [(28, 28, 1), (32, 32, 3), (16, 16, 1), (30,)])
def test_every_network_takes_every_shape(name: str, shape: tuple[int, ...]) -> None:
    if name in (*CONVOLUTIONAL_NETWORKS, "adlm-program") and len(shape) == 1:
        pytest.skip("for images only")
    network = networks.build(name, shape, 4, seed=0).eval()
    assert network(torch.rand(2, *shape)).shape == (2, 4)


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
