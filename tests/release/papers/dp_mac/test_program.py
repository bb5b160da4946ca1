"""The presets that are named after the authors' program against a slow oracle in NumPy, record by record, in that
program's own terms: it clips the slope of a squared error, twice ours, at a bound dT that is twice our threshold, and
halves afterwards. The numbers are the program's for a claimed 8 and 0.5 (docs/errata/dp-mac.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

from airlock.models.papers import mac, networks
from stages.release import interactive
from stages.release.papers.dp_mac import coordinates, dp_mac
from stages.release.papers.dp_sgd import dp_sgd
from tests.support.comparison import KEY, facts, params

torch.set_num_threads(1)
RECORDS, SIDE, BATCH, Z_STEPS, STEPS = 40, 4, 8, 30, 12
ABOUT = facts((SIDE, SIDE, 1), RECORDS, 3)
Array = Any


@dataclass(frozen=True)
class Program:
    """What the program has; `small` is what is made smaller here."""

    preset: str
    epsilon: float
    output: str
    sigma: float
    bound: float
    rate: float
    decay: float
    stop: int
    z_rate: float
    small: dict[str, Any] = field(default_factory=dict)


PROGRAMS = [
    Program("authors-usps", 8.0, "linear", 1.8, 0.001, 0.003, 0.97, 10**6, 0.001, {"hidden": (6, 4)}),
    Program(
        "authors-mnist", 0.5, "logistic", 4.4, 0.3, 0.03, 0.7, 7, 0.01, {"hidden": (6,), "projection": 7}
    ),
]
every_program = pytest.mark.parametrize("program", PROGRAMS, ids=[one.preset for one in PROGRAMS])


def started(program: Program, **more: Any) -> tuple[coordinates.CoordinateDescent, dict[str, Any]]:
    """The mechanism's own walk in doubles, before its first step; one record is null."""
    generator = torch.Generator().manual_seed(3)
    records = torch.rand(RECORDS, SIDE, SIDE, 1, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 3, (RECORDS,), generator=generator)
    labels[5] = -1
    options = {"preset": program.preset, "batch": BATCH, **program.small, **more}
    recipe = dp_mac.resolve(params("dp-mac", epsilon=program.epsilon, **options), ABOUT)
    run = coordinates.CoordinateDescent(
        recipe, dp_sgd.Data(records, labels), interactive.Keyed(KEY, "a"), "cpu"
    )
    plain = run.learn_projection
    run.learn_projection = lambda directions: plain(directions).double()  # type: ignore[method-assign]
    state = run.start()
    return run, {name: one.double() if one.is_floating_point() else one for name, one in state.items()}


def learned(program: Program) -> tuple[coordinates.CoordinateDescent, dict[str, Any]]:
    """With biases and directions, after four steps; some hidden units are at work."""
    run, state = started(program, learning_rate=0.02)
    for step in range(4):
        state = run.advance(step, state)
    weights = weights_of(state, run.recipe.layers)
    hidden = [slow_forward(weights, record)[0] for record, _ in pairs(run, state, torch.arange(RECORDS))]
    assert all(np.mean([layers[k] > 0 for layers in hidden]) > 0.1 for k in range(len(weights) - 1))
    return run, state


def weights_of(state: dict[str, Any], layers: int) -> list[Array]:
    return [state[f"weight{k}"].numpy() for k in range(layers)]


def pairs(
    run: coordinates.CoordinateDescent, state: dict[str, Any], rows: Any
) -> Iterator[tuple[Array, Array]]:
    """Inputs and targets of the records that are not null."""
    for row in rows.tolist():
        if run.data.labels[row] >= 0:
            record = run.data.records[row].numpy().ravel()
            if "projection" in state:
                yield record @ state["projection"].numpy(), np.eye(3)[int(run.data.labels[row])]
            else:
                yield record, record


def slow_activation(weight: Array, inputs: Array) -> Array:
    """a_h, the last row of the weights being biases."""
    return np.array(
        [sum(w * v for w, v in zip(column[:-1], inputs, strict=True)) + column[-1] for column in weight.T]
    )


def slow_forward(weights: list[Array], record: Array) -> tuple[list[Array], Array]:
    """Rectified hidden units and the last layer's a."""
    hidden: list[Array] = []
    for weight in weights[:-1]:
        hidden.append(np.maximum(slow_activation(weight, hidden[-1] if hidden else record), 0))
    return hidden, slow_activation(weights[-1], hidden[-1])


def slow_loss(weight: Array, inputs: Array, target: Array, kind: str) -> float:
    """Of one layer and one record: Eq. 3, or App. G's for labels."""
    active = slow_activation(weight, inputs)
    if kind == "logistic":
        return float(sum(np.log1p(np.exp(a)) - y * a for a, y in zip(active, target, strict=True)) / 2)
    made = active if kind == "linear" else np.maximum(active, 0)
    return float(((target - made) ** 2).sum() / 2)


def slow_total(weights: list[Array], record: Array, target: Array, z: list[Array], output: str) -> float:
    """Eq. 2 of one record, mu = 1."""
    inputs, wanted = [record, *z], [*z, target]
    kinds = ["relu"] * len(z) + [output]
    return sum(slow_loss(*layer) for layer in zip(weights, inputs, wanted, kinds, strict=True))


def program_slope(weight: Array, inputs: Array, target: Array, kind: str) -> Array:
    """What the program multiplies a layer's inputs with: of a squared error, or of the whole cross-entropy."""
    active = slow_activation(weight, inputs)
    if kind == "logistic":
        return 1 / (1 + np.exp(-active)) - target
    return 2 * (active - target) if kind == "linear" else 2 * (np.maximum(active, 0) - target) * (active > 0)


def slow_adam(
    rate: float, value: Array, slope: Array, memory: tuple[Array, Array], step: int
) -> tuple[Any, Any]:
    """Kingma and Ba, Algorithm 1."""
    first, second = 0.9 * memory[0] + 0.1 * slope, 0.999 * memory[1] + 0.001 * slope**2
    move = (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
    return value - rate * move, (first, second)


def slow_coordinates(
    program: Program, weights: list[Array], record: Array, target: Array, *, plain: bool = False
) -> list[Array]:
    """Thirty steps for all layers at once from the forward pass, with a memory of this record's own."""
    z, _ = slow_forward(weights, record)
    memory = [(np.zeros_like(one), np.zeros_like(one)) for one in z]
    for step in range(1, Z_STEPS + 1):
        inputs, wanted, kinds = [record, *z], [*z, target], ["relu"] * len(z) + [program.output]
        slopes = []
        for k in range(len(z)):
            own = 2 * (z[k] - np.maximum(slow_activation(weights[k], inputs[k]), 0))
            above = program_slope(weights[k + 1], inputs[k + 1], wanted[k + 1], kinds[k + 1])
            # The program counts the cross-entropy whole beside whole squared errors; both are halved here.
            slopes.append((own + weights[k + 1][:-1] @ above) / 2)
        for k, slope in enumerate(slopes):
            if plain:
                z[k] = z[k] - program.z_rate * slope
            else:
                z[k], memory[k] = slow_adam(program.z_rate, z[k], slope, memory[k], step)
    return z


def clipped(program: Program, weights: list[Array], record: Array, target: Array) -> list[Array]:
    """One record's part of every layer's slope: of norm dT at most, halved."""
    z = slow_coordinates(program, weights, record, target)
    kinds = ["relu"] * len(z) + [program.output]
    parts = []
    for weight, inputs, wanted, kind in zip(weights, [record, *z], [*z, target], kinds, strict=True):
        whole = np.outer([*inputs, 1.0], program_slope(weight, inputs, wanted, kind))
        parts.append(whole * min(1.0, program.bound / max(np.sqrt((whole**2).sum()), 1e-30)) / 2)
    return parts


@every_program
def test_the_released_network_is_the_programs_forward_pass(program: Program) -> None:
    run, state = learned(program)
    kind = "relu" if program.output == "logistic" else "relu-autoencoder"
    widths = "-".join(str(width) for width in program.small["hidden"])
    assert run.recipe.network == f"{kind}:{widths}"
    network = networks.build(run.recipe.network, (SIDE, SIDE, 1), 3, seed=0).double()
    tensors = {
        name.removeprefix("network."): torch.from_numpy(one) for name, one in run.tensors(state).items()
    }
    network.load_state_dict(tensors)
    made = network(run.data.records)[run.data.labels >= 0].detach().numpy()
    weights = weights_of(state, run.recipe.layers)
    slow = [slow_forward(weights, record)[1] for record, _ in pairs(run, state, torch.arange(RECORDS))]
    assert np.allclose(made, slow)
    assert np.abs(weights[-1][-1]).max() > 0.01  # biases were learned


@every_program
def test_both_objectives_have_the_slopes_that_are_released_and_followed(program: Program) -> None:
    """Coefficients and the coordinates' slopes against differences of the losses themselves."""
    run, state = learned(program)
    weights = weights_of(state, run.recipe.layers)
    record, target = next(pairs(run, state, torch.tensor([0])))
    z = [one + 0.05 for one in slow_forward(weights, record)[0]]
    given = [torch.from_numpy(one)[None] for one in (record, target, *z)]
    tensors, step = run.weights(state), 1e-6
    kinds = ["relu"] * len(z) + [program.output]
    layers = mac.coefficients(tensors, given[0], given[1], given[2:], run.units, 1)
    for k, layer in enumerate(layers):
        slope = torch.outer(layer.inputs[0], layer.linear[0]).numpy()
        for place in np.ndindex(*weights[k].shape):
            ends = []
            for sign in (1, -1):
                moved = weights[k].copy()
                moved[place] += sign * step
                ends.append(slow_loss(moved, [record, *z][k], [*z, target][k], kinds[k]))
            assert slope[place] == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-6)
    first = run.units.activate(given[0], tensors[0])
    for k, found in enumerate(mac.coordinate_gradients(tensors, first, given[1], given[2:], run.units)):
        for unit in range(len(z[k])):
            ends = []
            for sign in (1, -1):
                elsewhere = [one.copy() for one in z]
                elsewhere[k][unit] += sign * step
                ends.append(slow_total(weights, record, target, elsewhere, program.output))
            assert float(found[0, unit]) == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-6)


@every_program
@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
def test_coordinates_take_the_programs_steps(program: Program, optimiser: str) -> None:
    run, state = learned(program)
    how = mac.Coordinates(Z_STEPS, program.z_rate, run.how.bound, optimiser)  # type: ignore[arg-type]
    if optimiser == "adam":
        assert run.how == how
    weights = weights_of(state, run.recipe.layers)
    every = list(pairs(run, state, torch.arange(10)))
    records, targets = (torch.from_numpy(np.stack(part)) for part in zip(*every, strict=True))
    found = mac.find_coordinates(run.weights(state), records, targets, how, run.units)
    moved = 0.0
    for row, (record, target) in enumerate(every):
        slow = slow_coordinates(program, weights, record, target, plain=optimiser == "sgd")
        for fast, one, begun in zip(found, slow, slow_forward(weights, record)[0], strict=True):
            assert np.allclose(fast[row].numpy(), one, atol=1e-9)
            moved = max(moved, float(np.abs(one - begun).max()))
    assert moved > program.z_rate / 10


@every_program
def test_steps_are_the_programs(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve of them, so that the rate falls twice: which sums get noise, how much, and where Adam goes."""
    drawn: list[tuple[str, Array, Any, Array]] = []
    plain = interactive.Keyed.gaussian

    def spy(self: Any, step: int, purpose: str, total: torch.Tensor, scale: Any) -> torch.Tensor:
        noise = plain(self, step, purpose, total, scale)
        drawn.append((f"{purpose} of {step}", total.numpy().copy(), scale, noise.numpy()))
        return noise

    monkeypatch.setattr(interactive.Keyed, "gaussian", spy)
    run, state = started(program)
    layers = run.recipe.layers
    memory = [(np.zeros_like(one), np.zeros_like(one)) for one in weights_of(state, layers)]
    scale = program.sigma * math.sqrt(layers) * program.bound / 2
    for step in range(STEPS):
        before, drawn[:] = weights_of(state, layers), []
        state = run.advance(step, state)
        purposes = [one[0] for one in drawn if not one[0].startswith("projection")]
        assert purposes == [f"block {k} of {step}" for k in range(layers)]
        assert len(drawn) - layers == (step == 0 and "projection" in state)
        rows = run.keyed.sample(step, BATCH / RECORDS, RECORDS)
        every = [clipped(program, before, *pair) for pair in pairs(run, state, rows)]
        rate = program.rate * max(
            program.decay ** (step * BATCH // RECORDS), program.decay ** (program.stop - 1)
        )
        for k, (_, total, priced, noise) in enumerate(drawn[-layers:]):
            slow = sum((parts[k] for parts in every), np.zeros_like(before[k]))
            assert np.allclose(total, slow, atol=1e-9) and priced == pytest.approx(scale)
            after, memory[k] = slow_adam(rate, before[k], (slow + scale * noise) / BATCH, memory[k], step + 1)
            assert np.allclose(state[f"weight{k}"].numpy(), after, atol=1e-8)


@every_program
def test_noise_of_a_step_is_gaussian_fresh_and_as_large_as_the_programs(program: Program) -> None:
    run, state = started(program)
    totals = [torch.zeros_like(weight) for weight in run.weights(state)]
    scale = program.sigma * math.sqrt(run.recipe.layers) * program.bound / 2 / BATCH
    draws = np.array(
        [
            np.concatenate(
                [one.numpy().ravel() / scale for one in run.perturb(step, totals, state["thresholds"])]
            )
            for step in range(400)
        ]
    )
    count = draws.size
    assert float((draws**2).mean()) == pytest.approx(1, abs=5 * math.sqrt(2 / count))
    assert float(draws.mean()) == pytest.approx(0, abs=5 / math.sqrt(count))
    for limit in (0.5, 1.0, 2.0):
        share = math.erf(limit / math.sqrt(2))
        found = float((np.abs(draws) < limit).mean())
        assert found == pytest.approx(share, abs=5 * math.sqrt(share * (1 - share) / count))
    # Another step's noise, and another coefficient's, are others.
    assert float((draws[1:] * draws[:-1]).mean()) == pytest.approx(0, abs=5 / math.sqrt(count))
    assert float((draws[:, 1:] * draws[:, :-1]).mean()) == pytest.approx(0, abs=5 / math.sqrt(count))
    sizes = [weight.numel() for weight in totals]
    for place in np.cumsum([0, *sizes[:-1]]), np.cumsum(sizes) - 1:
        deviations = draws[:, place].std(0)
        assert deviations == pytest.approx(1, abs=5 / math.sqrt(2 * len(draws)))


@every_program
def test_first_weights_and_biases_are_as_large_as_the_programs(program: Program) -> None:
    about = facts((28, 28, 1), 60_000) if program.output == "logistic" else facts((16, 16, 1), 5000)
    recipe = dp_mac.resolve(params("dp-mac", epsilon=program.epsilon, preset=program.preset), about)
    data = dp_sgd.Data(torch.zeros(1, *about.shape), torch.zeros(1, dtype=torch.int64))
    run = coordinates.CoordinateDescent(recipe, data, interactive.Keyed(KEY, "a"), "cpu")
    for weight in run.weights(run.start()):
        inputs, outputs = len(weight) - 1, weight.shape[1]
        wanted = math.sqrt(2 / (inputs + outputs))
        assert float(weight.std()) == pytest.approx(wanted, rel=5 / math.sqrt(2 * weight.numel()))
        assert float(weight[-1].std()) == pytest.approx(wanted, rel=5 / math.sqrt(2 * outputs))


@every_program
def test_coordinates_get_no_noise(program: Program) -> None:
    rows, sums = torch.arange(RECORDS), []
    for sigma in (0.01, 1000.0):
        run, state = started(program, sigma=sigma)
        if "projection" in state:
            state["projection"] = torch.eye(SIDE * SIDE, 7, dtype=torch.float64)
        sums.append(run.sums(state, rows))
    assert all(torch.equal(quiet, loud) for quiet, loud in zip(*sums, strict=True))


def test_directions_are_those_of_the_noisy_covariance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of records of length 1, noise of the priced size on the diagonal and by sqrt 2 less off it."""
    (program,) = (one for one in PROGRAMS if "projection" in one.small)
    drawn: list[Array] = []
    plain = interactive.Keyed.gaussian

    def spy(self: Any, step: int, purpose: str, total: torch.Tensor, scale: Any) -> torch.Tensor:
        noise = plain(self, step, purpose, total, scale)
        drawn.append(noise.numpy())
        return noise

    monkeypatch.setattr(interactive.Keyed, "gaussian", spy)
    run, _ = started(program)
    assert run.recipe.options.projection_sigma == 16.0
    found = run.learn_projection(7).numpy()
    size = SIDE * SIDE
    noisy = np.zeros((size, size))
    for record, label in zip(run.data.records.numpy().reshape(-1, size), run.data.labels, strict=True):
        if label >= 0:
            unit = record / math.sqrt((record**2).sum())
            noisy += np.outer(unit, unit)
    for i in range(size):
        for j in range(i, size):
            noise = 16.0 * drawn[0][i, j] / (1 if i == j else math.sqrt(2))
            noisy[i, j] += noise
            noisy[j, i] += noise if i != j else 0
    values, vectors = np.linalg.eigh(noisy)
    leading = vectors[:, np.argsort(-values)[:7]]
    assert np.allclose(found @ found.T, leading @ leading.T, atol=1e-5)
