"""Method of auxiliary coordinates: coefficients are those of autograd, records stay apart, clipping and
analytic bounds hold.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from airlock.models.papers import mac, networks
from tests.support import auxiliary_bounds as auxiliary

SIZES = (5, 4, 3)
HOW = mac.Coordinates(steps=5, rate=0.05, bound=10.0)
UNITS = {
    "classify": mac.CLASSIFIER,
    "reconstruct": mac.AUTOENCODER,
    "relu classify": mac.LayerUnits("relu", "logistic", biases=True),
    "relu reconstruct": mac.LayerUnits("relu", "linear", biases=True),
}


def example(
    seed: int, task: str = "classify", n: int = 6, scale: float = 1.0
) -> tuple[list[torch.Tensor], torch.Tensor, torch.Tensor]:
    generator, labelled = torch.Generator().manual_seed(seed), task.endswith("classify")
    sizes, extra = SIZES if labelled else (5, 4, 5), int(UNITS[task].biases)
    weights = [
        torch.randn(i + extra, o, generator=generator, dtype=torch.float64) * scale
        for i, o in pairwise(sizes)
    ]
    records = torch.rand(n, 5, generator=generator, dtype=torch.float64)
    labels = torch.nn.functional.one_hot(torch.randint(0, 3, (n,), generator=generator), 3).double()
    return weights, records, labels if labelled else records


def objective(weight: torch.Tensor, inputs: torch.Tensor, wanted: torch.Tensor, unit: str) -> torch.Tensor:
    """E of one layer and one record, straight from the paper; one more row of weights is a bias."""
    active = inputs @ weight[: len(inputs)] + (weight[-1] if len(weight) > len(inputs) else 0)
    if unit == "logistic":
        return (torch.nn.functional.softplus(active) - wanted * active).sum() / 2
    outputs = {"softplus": torch.nn.functional.softplus, "relu": torch.relu, "linear": torch.clone}[unit](
        active
    )
    return (wanted - outputs).square().sum() / 2


@pytest.mark.parametrize("task", UNITS)
def test_coefficients_are_the_taylor_coefficients_of_autograd(task: str) -> None:
    weights, records, targets = example(0, task)
    units = UNITS[task]
    z = mac.find_coordinates(weights, records, targets, HOW, units)
    first, second = (mac.coefficients(weights, records, targets, z, units, order) for order in (1, 2))
    inputs, wanted = [records, *z], [*z, targets]
    for k, (weight, unit) in enumerate(zip(weights, units.each(2), strict=True)):
        for n in range(len(records)):

            def at(w: torch.Tensor, k: int = k, n: int = n, unit: str = unit) -> torch.Tensor:
                return objective(w, inputs[k][n], wanted[k][n], unit)

            slope = torch.autograd.functional.jacobian(at, weight)
            bend = torch.autograd.functional.hessian(at, weight)
            assert torch.allclose(torch.outer(first[k].inputs[n], first[k].linear[n]), slope)
            b = slope - torch.einsum("ihjg,jg->ih", bend, weight)
            assert torch.allclose(torch.outer(second[k].inputs[n], second[k].linear[n]), b)
            curvature = second[k].curvature
            assert curvature is not None
            for h in range(weight.shape[1]):
                C = curvature[n, h] / 2 * torch.outer(second[k].inputs[n], second[k].inputs[n])
                assert torch.allclose(C, bend[:, h, :, h] / 2)


@pytest.mark.parametrize("task", UNITS)
def test_coordinate_gradients_are_those_of_autograd(task: str) -> None:
    weights, records, targets = example(1, task)
    units = UNITS[task]
    z = [one.clone().requires_grad_() for one in mac.forward(weights, records, 10.0, units)]
    inputs, wanted = [records, *z], [*z, targets]
    parts = [(k, unit, n) for k, unit in enumerate(units.each(2)) for n in range(6)]
    want = torch.autograd.grad(
        sum(objective(weights[k], inputs[k][n], wanted[k][n], unit) for k, unit, n in parts), z
    )  # type: ignore[arg-type]
    given_to_first = units.activate(records, weights[0])
    for got, one in zip(
        mac.coordinate_gradients(weights, given_to_first, targets, z, units), want, strict=True
    ):
        assert torch.allclose(got, one)


@pytest.mark.parametrize("task", UNITS)
def test_released_network_computes_what_was_trained(task: str) -> None:
    weights, records, _ = example(2, task)
    units, name = (
        UNITS[task],
        {"classify": "softplus", "reconstruct": "autoencoder", "relu classify": "relu"}.get(
            task, "relu-autoencoder"
        ),
    )
    network = networks.build(f"{name}:4", (5,), 3, seed=0).double()
    state = {}
    for k, weight in enumerate(weights):
        state |= {f"layers.{1 + 2 * k}.weight": units.without_bias(weight).T}
        state |= {f"layers.{1 + 2 * k}.bias": weight[-1]} if units.biases else {}
    network.load_state_dict(state)
    hidden = mac.forward(weights, records, 1e9, units)[0]
    assert torch.allclose(network(records), mac.apply(units.output, units.activate(hidden, weights[1])))


@given(st.integers(0, 10_000), st.sampled_from(["adam", "sgd"]))
def test_no_record_sees_another(seed: int, optimiser: str) -> None:
    weights, records, targets = example(seed)
    how = mac.Coordinates(5, 0.05, 10.0, optimiser)  # type: ignore[arg-type]
    together = mac.find_coordinates(weights, records, targets, how, mac.CLASSIFIER)
    alone = mac.find_coordinates(weights, records[2:3], targets[2:3], how, mac.CLASSIFIER)
    assert all(torch.allclose(many[2], one[0]) for many, one in zip(together, alone, strict=True))
    assert all((one.norm(dim=1) <= 10.0 + 1e-9).all() for one in together)


def test_finding_coordinates_goes_downhill() -> None:
    weights, records, targets = example(3)

    def total(z: list[torch.Tensor]) -> float:
        inputs, wanted = [records, *z], [*z, targets]
        return float(
            sum(
                objective(w, inputs[k][n], wanted[k][n], "logistic" if k else "softplus")
                for k, w in enumerate(weights)
                for n in range(6)
            )
        )

    found = mac.find_coordinates(weights, records, targets, mac.Coordinates(30, 0.02, 100.0), mac.CLASSIFIER)
    assert total(found) < total(mac.forward(weights, records, 100.0, mac.CLASSIFIER))


@settings(max_examples=50)
@given(
    st.integers(0, 10_000), st.floats(0.01, 5), st.floats(0.01, 5), st.integers(0, 5), st.sampled_from([1, 2])
)
def test_one_record_moves_the_joint_vector_by_at_most_one(
    seed: int, t_linear: float, t_bend: float, row: int, order: mac.Order
) -> None:
    weights, records, targets = example(seed, scale=2.0)
    shares = np.random.default_rng(seed).dirichlet(np.ones(2 * order))
    keep = torch.arange(6) != row
    z = mac.find_coordinates(weights, records, targets, HOW, mac.CLASSIFIER)
    every = mac.coefficients(weights, records, targets, z, mac.CLASSIFIER, order)
    fewer = mac.coefficients(
        weights, records[keep], targets[keep], [one[keep] for one in z], mac.CLASSIFIER, order
    )
    thresholds = [t_linear, t_bend][:order]
    square, blocks = 0.0, iter(shares)
    for all_of, rest in zip(every, fewer, strict=True):
        for limit, one, other in zip(
            thresholds, all_of.clipped_sums(thresholds), rest.clipped_sums(thresholds), strict=True
        ):
            square += float((one - other).square().sum()) / limit**2 * next(blocks)
    assert square <= 1 + 1e-9


def test_clipped_sums_agree_with_one_record_at_a_time() -> None:
    weights, records, targets = example(4)
    z = mac.find_coordinates(weights, records, targets, HOW, mac.CLASSIFIER)
    for layer in mac.coefficients(weights, records, targets, z, mac.CLASSIFIER, 2):
        assert layer.curvature is not None
        slow = [torch.zeros(()), torch.zeros(())]
        for n in range(6):
            b = torch.outer(layer.inputs[n], layer.linear[n])
            C = torch.stack(
                [c / 2 * torch.outer(layer.inputs[n], layer.inputs[n]) for c in layer.curvature[n]]
            )
            slow = [
                total + one * min(1.0, 0.3 / float(one.norm()))
                for total, one in zip(slow, (b, C), strict=True)
            ]
        assert all(
            torch.allclose(got, want) for got, want in zip(layer.clipped_sums([0.3, 0.3]), slow, strict=True)
        )


@settings(max_examples=200)
@given(st.integers(0, 10_000), st.floats(0.1, 30), st.floats(0, 3), st.integers(1, 4), st.integers(1, 4))
def test_corrected_bounds_hold(seed: int, bound: float, scale: float, inputs: int, outputs: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(inputs, outputs, generator=generator, dtype=torch.float64) * scale
    lengths = weight.norm(dim=0).numpy()
    z, wanted = (
        torch.randn(64, size, generator=generator, dtype=torch.float64) for size in (inputs, outputs)
    )
    # Half of the pairs point along a column and away from it, where the bounds are tightest.
    z[::2] = weight[:, 0] if scale else z[::2]
    z, wanted = (
        bound * z / z.norm(dim=1, keepdim=True).clamp_min(1e-30),
        bound * wanted / wanted.norm(dim=1, keepdim=True),
    )
    layer = mac.coefficients([weight], z, wanted, [], mac.AUTOENCODER, 2)[0]
    linear, curved = (float(norm.max()) for norm in layer.norms())
    assert 2 * linear <= auxiliary.linear(lengths, bound) * (1 + 1e-9)
    assert 2 * curved <= auxiliary.curvature(lengths, bound) * (1 + 1e-9)
    output = mac.coefficients([weight], z, (wanted > 0).double(), [], mac.CLASSIFIER, 2)[0]
    linear, curved = (float(norm.max()) for norm in output.norms())
    assert 2 * linear <= auxiliary.output_linear(lengths, bound) * (1 + 1e-9)
    assert 2 * curved <= auxiliary.output_curvature(lengths, bound) * (1 + 1e-9)


@pytest.mark.parametrize(("bound", "ratio"), [(0.3, 1.53), (0.5, 1.39), (1.0, 1.13)])
def test_published_bound_on_b_is_too_small_for_small_thresholds(bound: float, ratio: float) -> None:
    weight, z = torch.zeros(1, 1, dtype=torch.float64), torch.full((1, 1), bound, dtype=torch.float64)
    layer = mac.coefficients([weight], z, -z, [], mac.AUTOENCODER, 2)[0]
    moved = 2 * float(layer.norms()[0])  # replaced by its opposite
    assert moved / auxiliary.published_linear(np.zeros(1), bound) == pytest.approx(ratio, rel=0.01)
    assert moved <= auxiliary.linear(np.zeros(1), bound)


@pytest.mark.parametrize("bound", [12.5, 30.0])
def test_published_bound_holds_for_the_published_thresholds_on_a_grid(bound: float) -> None:
    given_z = torch.linspace(-bound, bound, 201, dtype=torch.float64).repeat(2)[:, None]
    wanted = torch.tensor([-bound, bound], dtype=torch.float64).repeat_interleave(201)[:, None]
    for length in np.linspace(0, 1, 41):
        layer = mac.coefficients([torch.tensor([[length]])], given_z, wanted, [], mac.AUTOENCODER, 2)[0]
        assert 2 * float(layer.norms()[0].max()) <= auxiliary.published_linear(np.array([length]), bound)
