"""Convolutions by frequencies and pooled ones against torch's own layers, values and gradients."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from airlock.models.papers import pooled_convolutions
from airlock.models.papers.adlm_program import AdlmProgram
from airlock.models.papers.frequencies import frequencies


@pytest.mark.parametrize(
    ("height", "width", "side"), [(14, 14, 5), (8, 12, 5), (7, 10, 5), (5, 9, 3), (4, 4, 7)]
)
def test_a_convolution_by_frequencies_is_the_direct_one(height: int, width: int, side: int) -> None:
    drawn = torch.Generator().manual_seed(0)
    images = torch.randn(6, 3, height, width, generator=drawn, dtype=torch.float64)
    weight = torch.randn(4, 3, side, side, generator=drawn, dtype=torch.float64)
    fixed = frequencies(height, width, side, torch.float64)
    spectrum = fixed.there(images.permute(2, 3, 1, 0).contiguous())
    found = fixed.back(torch.bmm(fixed.of_kernels(weight), spectrum)).permute(3, 2, 0, 1)
    torch.testing.assert_close(found, functional.conv2d(images, weight, padding=side // 2))
    # An orthonormal basis: as long there as here, and back again.
    torch.testing.assert_close(spectrum.norm(), images.norm())
    torch.testing.assert_close(fixed.back(spectrum).permute(3, 2, 0, 1), images)


def plain(records: torch.Tensor, *layers: nn.Conv2d) -> torch.Tensor:
    hidden = records.permute(0, 3, 1, 2)
    for layer in layers:
        hidden = functional.max_pool2d(functional.relu(layer(hidden)), 2)
    return hidden.permute(0, 2, 3, 1).flatten(1)


def slopes(found: torch.Tensor, weights: torch.Tensor, layers: list[nn.Conv2d]) -> list[torch.Tensor]:
    given = [one for layer in layers for one in layer.parameters()]
    return list(torch.autograd.grad((found * weights).sum(), given))


@pytest.mark.parametrize(("shape", "chunk"), [((16, 16, 1), 4), ((8, 12, 2), 3), ((28, 28, 1), 128)])
def test_pooled_convolutions_are_torchs_with_their_gradients(
    shape: tuple[int, int, int], chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In several chunks, the last one smaller."""
    monkeypatch.setattr(pooled_convolutions, "CHUNK", chunk)
    torch.manual_seed(1)
    layers = [nn.Conv2d(shape[2], 3, 5, padding=2).double(), nn.Conv2d(3, 4, 5, padding=2).double()]
    records = torch.randn(10, *shape, dtype=torch.float64)
    wanted, found = plain(records, *layers), pooled_convolutions.pooled(records, *layers)
    torch.testing.assert_close(found, wanted)
    weights = torch.randn_like(wanted)
    for one, other in zip(slopes(found, weights, layers), slopes(wanted, weights, layers), strict=True):
        torch.testing.assert_close(one, other)


def test_of_equal_values_the_first_is_the_greatest() -> None:
    """Where all four are equal, one of them has the whole slope."""
    four = [torch.zeros(1, 1, 2) for _ in range(4)]
    four[2][0, 0, 1] = four[3][0, 0, 1] = 1.0
    maxima = pooled_convolutions._greatest(four, torch.ones(1))
    assert maxima.values.tolist() == [[[1.0, 2.0]]]
    back = [torch.empty(1, 1, 2) for _ in range(4)]
    assert pooled_convolutions._give_back(torch.tensor([[[3.0, 5.0]]]), maxima, back).tolist() == [8.0]
    assert [one.flatten().tolist() for one in back] == [[3, 0], [0, 0], [0, 5], [0, 0]]


def test_training_goes_this_way_and_predicting_the_direct_one(monkeypatch: pytest.MonkeyPatch) -> None:
    network, went, way = AdlmProgram((16, 16, 1), 3), list[int](), pooled_convolutions.pooled
    records = torch.randn(4, 16, 16, 1)
    wanted = network.eval().below(records)

    def noted(given: torch.Tensor, *layers: nn.Conv2d) -> torch.Tensor:
        went.append(len(given))
        return way(given, *layers)

    monkeypatch.setattr(pooled_convolutions, "pooled", noted)
    torch.testing.assert_close(network.train().below(records), wanted)
    assert torch.equal(network.eval().below(records), wanted)
    assert went == [4]
    # Sides that cannot be halved twice, and whoever asks for a record's own gradient, have the direct one.
    odd = AdlmProgram((15, 15, 1), 3).train()
    assert odd.below(torch.randn(4, 15, 15, 1)).shape == (4, 4 * 4 * 64)
    torch.autograd.backward(network.train().below(records.requires_grad_()).sum())
    assert records.grad is not None
    assert went == [4]
