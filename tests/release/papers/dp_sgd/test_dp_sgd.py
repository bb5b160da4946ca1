"""DP-SGD: clipped sums are the slow ones, noise and samples are keyed, the price is what was asked for."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from airlock.errors import ParamsError
from airlock.models.papers import networks
from airlock.privacy import accounting, events
from stages.release.interactive import Keyed
from stages.release.papers.dp_sgd import dp_sgd
from tests.support.comparison import KEY, batches, blobs, facts, params

ABOUT = facts((12,), 500, 3)
SMALL = {"epochs": 1, "batch": 50, "learning_rate": 0.5}


def data_of(n: int = 40, shape: tuple[int, ...] = (12,)) -> dp_sgd.Data:
    generator = torch.Generator().manual_seed(0)
    records = torch.rand(n, *shape, generator=generator)
    labels = torch.randint(0, 3, (n,), generator=generator)
    labels[3] = -1
    return dp_sgd.Data(records, labels)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("linear", (12,)),
        ("perceptron", (12,)),
        ("opacus-cnn", (28, 28, 1)),
        ("two-convolutions", (16, 16, 1)),
    ],
)
@pytest.mark.parametrize("clip", [0.05, 100.0])
def test_clipped_sums_agree_with_one_record_at_a_time(name: str, shape: tuple[int, ...], clip: float) -> None:
    data, network = data_of(20, shape), networks.build(name, shape, 3, seed=0)
    slow = torch.zeros(sum(parameter.numel() for parameter in network.parameters()))
    for row in range(20):
        if data.labels[row] >= 0:
            loss = torch.nn.functional.cross_entropy(
                network(data.records[row : row + 1]), data.labels[row : row + 1]
            )
            flat = torch.cat(
                [gradient.reshape(-1) for gradient in torch.autograd.grad(loss, list(network.parameters()))]
            )
            slow += flat * min(1.0, clip / float(flat.norm()))
    clipped = dp_sgd.Clipped(network, clip)
    assert torch.allclose(clipped.sum_of(data, torch.arange(20)), slow, atol=1e-4)
    assert torch.allclose(clipped.sum_of(data, torch.arange(20)), slow, atol=1e-4)
    clipped.remove()


def test_one_record_moves_the_sum_by_at_most_the_clip() -> None:
    data, network = data_of(), networks.build("perceptron", (12,), 3, seed=0)
    clipped = dp_sgd.Clipped(network, 0.01)
    whole = clipped.sum_of(data, torch.arange(40))
    for row in range(5):
        without = clipped.sum_of(data, torch.tensor([one for one in range(40) if one != row]))
        assert float((whole - without).norm()) <= 0.01 * 1.001


def test_an_empty_sample_is_a_step_of_pure_noise() -> None:
    network = networks.build("linear", (12,), 3, seed=0)
    assert not dp_sgd.Clipped(network, 1.0).sum_of(data_of(), torch.tensor([], dtype=torch.long)).any()


def test_plan_says_how_often_records_are_read_and_at_what_price() -> None:
    plan = dp_sgd.plan(params("dp-sgd", **SMALL), ABOUT)
    assert plan.interactive
    assert plan.passes == 10
    assert plan.proven.arithmetic == "idealised"
    assert 0.98 < plan.proven.epsilon <= 1.0
    assert accounting.epsilon(events.from_json(plan.proven.event), 1e-5) == plan.proven.epsilon


def test_replace_one_needs_more_noise_but_not_twice_as_much() -> None:
    _, out = dp_sgd.resolve(params("dp-sgd", **SMALL), ABOUT)
    _, replaced = dp_sgd.resolve(params("dp-sgd", neighbours="replace-one", **SMALL), ABOUT)
    assert 1.1 * out.noise < replaced.noise < 2 * out.noise


def test_training_learns_is_keyed_and_ignores_torch_seeds() -> None:
    records, labels = blobs(500)
    asked = params("dp-sgd", epsilon=8.0, epochs=5, batch=50, learning_rate=1.0)
    made = []
    for seed, name in ((0, "a"), (1, "a"), (1, "b")):
        torch.manual_seed(seed)
        made.append(dp_sgd.make(asked, ABOUT, batches(records, labels), key=KEY, release_id=name)[0])
    assert all(np.array_equal(made[0][name], made[1][name]) for name in made[0])
    assert any(not np.array_equal(made[0][name], made[2][name]) for name in made[0])
    weight, bias = made[0]["network.layers.1.weight"], made[0]["network.layers.1.bias"]
    test_records, test_labels = blobs(300, seed=1)
    assert ((test_records @ weight.T + bias).argmax(1) == test_labels).mean() > 0.9


def test_noise_has_the_priced_size() -> None:
    settings = dp_sgd.Settings(
        rate=0.1, steps=1, clip=0.5, learning_rate=1.0, multiplier=3.0, reach=2, batch=50
    )
    noisy = dp_sgd._add_noise(torch.zeros(20_000), settings, Keyed(KEY, "a"), 0)
    assert float(noisy.std()) == pytest.approx(3.0, rel=0.03)


def test_images_only_network_is_refused_for_tables() -> None:
    with pytest.raises(ParamsError, match="perceptron or linear"):
        dp_sgd.plan(params("dp-sgd", model="opacus-cnn"), ABOUT)
