"""The hidden layer that is trained without data, its contribution ratios and how noise is divided, held
against slow versions.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airlock.models.features.projection import SYNAPSE, Centre, Neurons, steps_of, tensors_of
from airlock.models.features.rows import LIMIT
from airlock.models.moments import Moments
from airlock.models.papers import hidden_layer

VALID = np.ones(1, np.uint8)


def made_up(neurons: int = 6, classes: int = 3, seed: int = 0) -> hidden_layer.Lower:
    """A hidden_layer network that could have come from any first release."""
    random = np.random.default_rng(seed)
    space = hidden_layer.Discriminant(
        random.standard_normal((5, classes - 1)), random.standard_normal((classes, classes - 1)), 100
    )
    layers = [
        (random.standard_normal((classes - 1, neurons)), random.standard_normal(neurons)),
        (random.standard_normal((neurons, classes)), random.standard_normal(classes)),
    ]
    return hidden_layer.lower_of(space, layers)


# --- Ratios
# --------------------------------------------------------------------------------------------------


def slow_ratios(row: list[int], output: list[list[int]], offset: list[int]) -> list[int]:
    """In Python's integers: floor(LIMIT |z_I V_Ik| / sum_J |z_J V_Jk|)."""
    classes, neurons = range(len(offset)), range(len(row))
    scores = [sum(row[i] * output[i][k] for i in neurons) + offset[k] for k in classes]
    best = scores.index(max(scores))
    parts = [abs(row[i] * output[i][best]) for i in neurons]
    return [math.floor(Fraction(LIMIT * part, sum(parts))) if sum(parts) else 0 for part in parts]


@given(st.lists(st.integers(0, LIMIT), min_size=6, max_size=6), st.integers(0, 50))
def test_ratios_are_the_slow_ones(row: list[int], seed: int) -> None:
    network = made_up(seed=seed)
    found = (
        hidden_layer.ratios(np.array([row], float), network.output, network.offset)[0].astype(int).tolist()
    )
    assert found == slow_ratios(row, network.output.tolist(), network.offset.tolist())
    assert min(found) >= 0 and sum(found) <= LIMIT


@pytest.mark.parametrize("stabiliser", [1e-9, 0.05, 10.0])
def test_ratios_are_those_of_layer_wise_relevance_propagation(stabiliser: float) -> None:
    """Eqs. 4-7 with any stabiliser, through the network itself: the share of a neuron's relevance does not
    depend on it.
    """
    network, random = made_up(), np.random.default_rng(1)
    rows = np.floor(random.random((20, 6)) * LIMIT / 3)
    found = hidden_layer.ratios(rows, network.output, network.offset) / LIMIT
    for row, shares in zip(rows, found, strict=True):
        received = row @ network.output + network.offset
        best = int(received.argmax())
        steady = stabiliser if received[best] >= 0 else -stabiliser
        relevance = np.array(
            [row[i] * network.output[i, best] / (received[best] + steady) * received[best] for i in range(6)]
        )
        assert shares == pytest.approx(np.abs(relevance) / np.abs(relevance).sum(), abs=1e-4)


def test_a_null_record_has_no_ratio() -> None:
    network = made_up()
    assert not hidden_layer.ratios(np.zeros((2, 6)), network.output, network.offset).any()


# --- The hidden layer
# --------------------------------------------------------------------------------------------------


def test_neurons_are_exact_rectified_and_within_the_limit() -> None:
    network, random = made_up(), np.random.default_rng(2)
    rows = np.trunc(random.standard_normal((30, 5)) * LIMIT / 4)
    valid = np.ones(30, np.uint8)
    valid[3] = 0
    found = network.step(rows, valid)
    for row, is_valid, neurons in zip(rows.astype(int).tolist(), valid, found, strict=True):
        products = [sum(row[j] * int(network.step.matrix[j, i]) for j in range(5)) for i in range(6)]
        exact = [
            max(0, int(math.copysign(abs(one) // int(SYNAPSE), one)) + int(network.step.offset[i]))
            for i, one in enumerate(products)
        ]
        square = sum(value * value for value in exact)
        expected = (
            exact
            if square <= LIMIT**2
            else [math.isqrt(value * value * LIMIT**2 // square) for value in exact]
        )
        assert neurons.tolist() == pytest.approx(np.array(expected) * int(is_valid), abs=1)
        assert sum(int(value) ** 2 for value in neurons) <= LIMIT**2


def test_weights_too_large_for_exact_products_are_refused() -> None:
    with pytest.raises(OverflowError, match="more coarsely"):
        Neurons(np.full((4, 2), 2**38), np.zeros(2, np.int64))


def test_dead_neurons_do_not_stop_a_release() -> None:
    space = hidden_layer.Discriminant(np.full((5, 2), 1e-3), np.zeros((3, 2)), 100)
    dead = [(np.zeros((2, 4)), np.full(4, -1.0)), (np.zeros((4, 3)), np.ones(3))]
    network = hidden_layer.lower_of(space, dead)
    rows = network.step(np.full((2, 5), 1000.0), np.ones(2, np.uint8))
    assert not rows.any() and not hidden_layer.ratios(rows, network.output, network.offset).any()
    behind = hidden_layer.allocate(network, np.zeros(4, np.int64), "important")(rows, np.ones(2, np.uint8))
    assert np.isfinite(behind).all()


def test_steps_survive_a_release() -> None:
    network = made_up()
    behind = hidden_layer.allocate(network, np.arange(6), "important")
    steps = [Centre(np.arange(5), 7), network.step, behind]
    again = steps_of(tensors_of(steps), 7)
    rows = np.trunc(np.random.default_rng(0).standard_normal((4, 5)) * 1000)
    wide = np.column_stack([rows, np.zeros(4)])[:, :5]
    for one, other in zip(steps[1:], again[1:], strict=True):
        before, wide = wide, one(wide, np.ones(4, np.uint8))
        assert np.array_equal(other(before, np.ones(4, np.uint8)), wide)


def test_noise_does_not_move_classes_apart() -> None:
    """Cross moments that are noise alone: without the correction of `discriminant` classes would seem to be
    far apart.
    """
    random, size, classes, n, noise = np.random.default_rng(0), 200, 4, 1000, 30.0
    apart = []
    for _ in range(20):
        cross = noise * random.standard_normal((size, classes))
        space = hidden_layer.discriminant(
            Moments(np.full(size, n / size), np.eye(size), cross, 1e-9, n), noise
        )
        apart.append(float((space.means**2).sum()))
    uncorrected = hidden_layer.discriminant(
        Moments(np.full(size, n / size), np.eye(size), cross, 1e-9, n), 0.0
    )
    assert np.mean(apart) < 0.2 * float((uncorrected.means**2).sum())


def test_coordinates_have_unit_variance_and_the_means_of_the_classes() -> None:
    random, n, classes = np.random.default_rng(3), 4000, 3
    labels = random.integers(classes, size=n)
    rows = (
        random.standard_normal((n, 5)) @ random.standard_normal((5, 5))
        + random.standard_normal((classes, 5))[labels] * 3
    )
    rows -= rows.mean(axis=0)
    values, vectors = np.linalg.eigh(rows.T @ rows)
    cross = rows.T @ (np.eye(classes)[labels] - 1 / classes)
    space = hidden_layer.discriminant(Moments(values, vectors, cross, 1e-9, n), 0.0)
    coordinates = rows @ space.matrix
    assert coordinates.T @ coordinates / n == pytest.approx(np.eye(2), abs=1e-6)
    found = np.array([coordinates[labels == label].mean(axis=0) for label in range(classes)])
    assert space.means - space.means.mean(axis=0) == pytest.approx(found - found.mean(axis=0), abs=0.15)


# --- Allocation
# --------------------------------------------------------------------------------------------------


def slow_axes(network: hidden_layer.Lower, noisy: list[int], direction: str) -> list[float]:
    """C_I = (m_I / a_I)^(1/4), neuron by neuron."""
    count = len(noisy)
    equal = sum(max(one, 0) for one in noisy) / count
    means = [float(np.mean(network.samples[:, i])) for i in range(count)]
    variances = [float(np.mean((network.samples[:, i] - means[i]) ** 2)) for i in range(count)]
    least = 0.1 * sum(variances) / count
    axes = []
    for i in range(count):
        share = max(noisy[i] / equal, 0.1)
        importance = {"important": share, "opposite": 1 / share, "equal": 1.0}[direction]
        axes.append((max(variances[i], least) / importance) ** 0.25)
    return axes


@pytest.mark.parametrize("direction", ["important", "opposite", "equal"])
def test_noise_on_a_neuron_is_the_slow_axis(direction: hidden_layer.Direction) -> None:
    network, noisy = made_up(), [40, 1000, -30, 200, 3000, 0]
    step = hidden_layer.allocate(network, np.array(noisy), direction)
    axes = np.array(slow_axes(network, noisy, direction))
    assert step.weights is not None
    # Weights are 1 / C on a grid of 512 steps.
    assert step.weights[:-1] / step.weights[:-1].max() == pytest.approx(axes.min() / axes, abs=1 / 256)
    assert step.centre == pytest.approx(network.samples.mean(axis=0) * LIMIT, abs=1)


def test_directions_are_each_others_opposite() -> None:
    network, noisy = made_up(), np.array([10, 1000, 100, 100, 100, 100])
    weights = {
        name: hidden_layer.allocate(network, noisy, name).weights
        for name in ("important", "equal", "opposite")
    }
    relative = {name: value[1] / value[0] for name, value in weights.items() if value is not None}
    assert relative["important"] > relative["equal"] > relative["opposite"]


records = st.lists(st.integers(-LIMIT, LIMIT), min_size=5, max_size=5)


@settings(max_examples=40)
@given(
    records,
    st.integers(0, 30),
    st.lists(st.integers(-(10**9), 10**9), min_size=6, max_size=6),
    st.sampled_from(["important", "opposite"]),
)
def test_no_axis_makes_a_row_longer_than_the_limit(
    row: list[int], seed: int, noisy: list[int], direction: hidden_layer.Direction
) -> None:
    network = made_up(seed=seed)
    scale = min(1.0, LIMIT / max(math.sqrt(sum(value * value for value in row)), 1.0))
    given_row = np.trunc(np.array([row], float) * scale * (1 - 1e-9))
    found = hidden_layer.allocate(network, np.array(noisy), direction)(network.step(given_row, VALID), VALID)[
        0
    ]
    assert sum(int(value) ** 2 for value in found) <= LIMIT**2
