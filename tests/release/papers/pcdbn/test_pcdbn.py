"""pCDBN as published: every reading has the epsilon that its theorem says, and releases what was priced."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from airlock.attack import attack
from airlock.errors import ParamsError
from airlock.inside.manifest import Manifest
from airlock.models.papers import boltzmann
from airlock.models.papers.belief import Belief, brackets, code_delta, domain_bracket, monomials
from airlock.models.papers.chebyshev import polynomial
from airlock.models.papers.networks import build
from airlock.params import TrainParams
from airlock.privacy.guarantees import Guarantee
from stages.open.mechanisms import pcdbn as opened
from stages.release.keyed_noise import KeyedNoise
from stages.release.papers.pcdbn import energy_coefficients, pcdbn, training
from tests.support import attacks
from tests.support.comparison import KEY, MNIST, batches, facts, params
from tests.support.sealed_records import pictures

SMALL = facts((16, 16, 1), 40, 3)
FEW: dict[str, Any] = {"maps": [3, 2], "hidden": 4}
QUIET = {"confidence": 0.95, "seed": 0, "sampler": "numpy", "tick": lambda done, total: None}
X, Y = pictures(40, 3, side=16)


# --- Sensitivities and prices
# ------------------------------------------------------------------------------------------------


def slow_bracket(image: np.ndarray, alphas: tuple[float, ...], scale: float) -> float:
    """Lemma 2's bracket for one record, index by index, at W = 1 and b = 1, with a constant Z."""
    side, total = len(image) - 4, 0.0
    for i, j in itertools.product(range(side), repeat=2):
        patch = [image[i + r, j + s] for r, s in itertools.product(range(5), repeat=2)]
        hidden = sum(abs(alpha) * ((sum(patch) + 1) / scale) ** order for order, alpha in enumerate(alphas))
        total += sum(hidden * value for value in patch) + hidden
    return total + float(image.sum())


@pytest.mark.parametrize("name", ["chebyshev-1", "chebyshev-7", "published-7"])
def test_lemma_two_is_what_it_says_and_white_records_reach_it(name: str) -> None:
    sigmoid = polynomial(name)
    image = np.random.default_rng(0).random((9, 9))
    fast = brackets(torch.from_numpy(image)[None, None], sigmoid, scale=26.0)
    assert float(fast) == pytest.approx(slow_bracket(image, sigmoid.alphas, 26.0))
    white = torch.ones(1, 2, 9, 9, dtype=torch.float64)
    assert float(brackets(white, sigmoid, scale=51.0)) == pytest.approx(domain_bracket(2, 9, 9, sigmoid))
    assert float(brackets(white, sigmoid)) == pytest.approx(domain_bracket(2, 9, 9, sigmoid))


def test_figures_of_the_review_are_confirmed() -> None:
    assert 2 * domain_bracket(1, 28, 28, polynomial("published-7")) == pytest.approx(1.064e5)
    assert [monomials(1, degree) for degree in (1, 2, 3, 5, 7)] == [378, 3654, 27_405, 906_192, 18_156_204]
    layers = pcdbn.resolve(params("pcdbn"), MNIST).parts
    assert layers[0].printed == pytest.approx(2 * domain_bracket(1, 28, 28, polynomial("chebyshev-1")))
    assert layers[1].printed == pytest.approx(2 * domain_bracket(32, 12, 12, polynomial("chebyshev-1")))


def test_the_codes_delta_is_a_fraction_of_lemma_two() -> None:
    units = torch.from_numpy(X.astype(np.float64) / 255).permute(0, 3, 1, 2)
    sigmoid = polynomial("published-7")
    assert code_delta(units, sigmoid) < 0.2 * 2 * float(brackets(units, sigmoid).max())


@pytest.mark.parametrize("neighbours", ["zero-out", "replace-one"])
def test_the_repaired_reading_costs_what_was_asked(neighbours: str) -> None:
    plan = pcdbn.plan(params("pcdbn", epsilon=0.5, neighbours=neighbours), MNIST)
    recipe = pcdbn.resolve(params("pcdbn", epsilon=0.5, neighbours=neighbours), MNIST)
    assert 0.4999 < recipe.pure <= 0.5
    assert plan.proven.epsilon <= 0.5
    assert (plan.claimed, plan.public_only, plan.passes) == (None, False, 3)


def test_lemma_two_over_the_domain_would_be_more_than_enough_for_the_layers_and_too_little_for_ten_classes() -> (
    None
):
    recipe = pcdbn.resolve(
        params("pcdbn", epsilon=0.5, neighbours="replace-one", sensitivity="domain"), MNIST
    )
    needed = [part.l1 / recipe.scale(part) / part.epsilon for part in recipe.parts]
    assert needed[0] == pytest.approx(0.1827, abs=0.001)
    assert 1 / needed[2] == pytest.approx(181.25 / 203.125, abs=0.001)
    # What the code charges under replace-one is twice that.
    assert recipe.reach == 2
    # The code takes it for each class.
    code = pcdbn.resolve(params("pcdbn", preset="authors-code"), MNIST)
    assert code.parts[2].printed == 1812.5


@pytest.mark.parametrize(
    ("preset", "words"), [("authors-code", "public constants"), ("paper-literal", "from the records")]
)
def test_published_readings_prove_nothing_and_are_for_public_data(preset: str, words: str) -> None:
    plan = pcdbn.plan(params("pcdbn", epsilon=0.5, preset=preset), MNIST)
    assert plan.proven.epsilon == math.inf
    assert plan.public_only
    assert words in plan.proven.reason
    assert plan.claimed is not None
    assert plan.claimed.epsilon == 0.5


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"approximation": "chebyshev-3"}, "degree 1"),
        ({"sensitivity": "batch"}, "no batches"),
        ({"preset": "authors-code", "sensitivity": "domain"}, "sensitivity batch"),
        ({"pretraining": "reconstruction"}, "pretraining divergence"),
        ({"approximation": "nothing"}, "not known"),
    ],
)
def test_readings_that_do_not_exist_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ParamsError, match=words):
        pcdbn.plan(params("pcdbn", **options), MNIST)
    with pytest.raises(ParamsError, match="images of at least"):
        pcdbn.plan(params("pcdbn"), facts((12, 12, 1), 10))


# --- The release
# --------------------------------------------------------------------------------------------------


def released(
    x: np.ndarray, y: np.ndarray, rows: int = 16, **options: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    return pcdbn.make(
        params("pcdbn", epsilon=0.5, **{**FEW, **options}),
        SMALL,
        batches(x, y, rows),
        key=KEY,
        release_id="id",
    )


def exact_energy(network: Belief, x: np.ndarray, depth: int) -> np.ndarray:
    """S of the layer's units on the grid, written out patch by patch in Python integers."""
    units = (
        (network.units(torch.from_numpy(x.astype(np.float32) / np.float32(255)), depth).double() * 255)
        .round()
        .numpy()
        .astype(int)
    )
    size = units.shape[1] * 25 + 1
    total = np.zeros((size, size), object)
    for record in units:
        for i, j in itertools.product(range(record.shape[1] - 4), range(record.shape[2] - 4)):
            patch = [*record[:, i : i + 5, j : j + 5].ravel().tolist(), 255]
            total += np.outer(np.array(patch, object), np.array(patch, object))
    return total.astype(np.int64)


def test_released_coefficients_are_what_the_slow_oracle_says() -> None:
    tensors, details = released(X[:4], Y[:4])
    recipe = pcdbn.resolve(params("pcdbn", epsilon=0.5, **FEW), SMALL)
    network = energy_coefficients.fresh(recipe, SMALL)
    keyed = KeyedNoise(KEY, "id")
    for depth in (0, 1):
        purpose = f"layer{depth + 1}"
        exact = exact_energy(network, X[:4], depth)
        unit = 255**2 * len(exact) / 0.2355714139240209 * details["scales"][purpose]
        wanted = energy_coefficients._noisy_matrix(
            keyed, exact, unit, release_pass=depth + 1, purpose=purpose
        )
        assert np.array_equal(tensors[purpose], wanted)
        network.set_machine(
            depth,
            energy_coefficients.learn(tensors[purpose], tensors[f"{purpose}.visible"], 40, recipe, depth),
        )
    for name, value in network.state_dict().items():
        assert np.array_equal(tensors[f"network.{name}"], value.numpy()), name


def test_chunks_do_not_change_the_first_layers_coefficients() -> None:
    one, other = (released(X, Y, rows=rows)[0] for rows in (64, 7))
    assert all(np.array_equal(one[name], other[name]) for name in ("layer1", "layer1.visible"))


units_of = st.lists(st.sampled_from([0.0, 1.0]) | st.floats(0, 1), min_size=36, max_size=36)


@settings(max_examples=30)
@given(units_of, st.integers(0, 2))
def test_no_record_moves_the_coefficients_by_more_than_their_sensitivity(
    pixels: list[float], label: int
) -> None:
    """Any image of 16 x 16 with a 6 x 6 pattern over its whole area, against the null record."""
    image = (np.array(pixels).reshape(6, 6) * 255).round().repeat(3, axis=0).repeat(3, axis=1)[:16, :16]
    recipe = pcdbn.resolve(params("pcdbn", **FEW), SMALL)
    network = energy_coefficients.fresh(recipe, SMALL)
    x = image.astype(np.uint8)[None, :, :, None]
    for depth in (0, 1):
        units = (network.units(torch.from_numpy(x.astype(np.float32) / 255), depth).double() * 255).round()
        patches = torch.nn.functional.unfold(units, 5)[0].T.numpy()
        rows = np.column_stack([patches, np.full(len(patches), 255.0)]) / 255
        energy = 0.2355714139240209 / rows.shape[1] * np.abs(rows.T @ rows).sum() + float(units.sum()) / 255
        assert energy <= recipe.parts[depth].l1 * (1 + 1e-12)
    top = (
        np.rint(network.top(torch.from_numpy(x.astype(np.float32) / 255)).detach().double().numpy()[0] * 255)
        / 255
    )
    signs = np.where(np.arange(3) == label, -0.5, 0.5)
    assert np.abs(np.outer(signs, top)).sum() + np.outer(top, top).sum() / 8 <= recipe.parts[2].l1


def test_a_null_record_adds_nothing() -> None:
    x, y = X[:6].copy(), Y[:6].copy()
    network = build("pcdbn:3-2-4", (16, 16, 1), 3, seed=0).eval()
    assert isinstance(network, Belief)
    x[5], y[5] = 0, -1
    for depth in (0, 1):
        sums = []
        for count in (5, 6):
            pairs = energy_coefficients._units(network, depth, SMALL, batches(x[:count], y[:count]))
            sums.append(sum(float(units.sum()) for units, _ in pairs))
        assert sums[0] == sums[1]


def manifest_of(details: dict[str, Any], n: int, side: int = 16) -> Manifest:
    details = {
        **details,
        "data": {"kind": "image", "shape": [side, side, 1], "labels": ["a", "b", "c"], "n": n},
    }
    proven = Guarantee("proven", "record", "zero-out", math.inf, 0.0, reason="a test")
    return Manifest("id", "pcdbn", 1, {}, "record", "zero-out", None, proven, 0, False, "", {}, details)


def test_the_open_half_minimises_the_released_taylor_loss() -> None:
    """Without noise to speak of its weights are those that damped least squares on p finds."""
    known = facts((28, 28, 1), 300, 3)
    x, y = pictures(300, 3, side=28)
    asked = params("pcdbn", epsilon=1e6, maps=[4, 4], hidden=12)
    tensors, details = pcdbn.make(asked, known, batches(x, y), key=KEY, release_id="id")
    trained = opened.train(TrainParams(ridge=10.0), manifest_of(details, 300, side=28), tensors)
    network = trained.model.module()  # type: ignore[attr-defined]
    top = (
        np.rint(network.top(torch.from_numpy(x.astype(np.float32) / 255)).detach().double().numpy() * 255)
        / 255
    )
    damping = 10.0 * opened.moments_of(tensors, details).radius
    wanted = np.linalg.solve(top.T @ top + damping * np.eye(12), 4 * top.T @ (np.eye(3)[y] - 0.5))
    assert top @ network.outputs.weight.detach().double().numpy().T == pytest.approx(top @ wanted, abs=0.05)
    fresh, labels = pictures(200, 3, side=28, seed=1)
    assert np.mean(trained.model.predict(fresh) == labels) > 0.8


@pytest.mark.parametrize("pretraining", ["reconstruction", "divergence"])
def test_the_codes_reading_trains_a_network_and_its_noise_reaches_it(pretraining: str) -> None:
    x, y = pictures(300, 3, side=16)
    known = facts((16, 16, 1), 300, 3)
    few = {
        "preset": "authors-code",
        "architecture": "pooling",
        "pretraining": pretraining,
        "maps": [6, 6],
        "hidden": 10,
        "pretraining_epochs": 2,
        "epochs": 150,
        "batch": 100,
        "learning_rate": 0.02,
    }
    made = {}
    for epsilon in (1e7, 0.5):
        tensors, details = pcdbn.make(
            params("pcdbn", epsilon=epsilon, **few), known, batches(x, y), key=KEY, release_id="id"
        )
        trained = opened.train(TrainParams(), manifest_of(details, 300), tensors)
        fresh, labels = pictures(200, 3, side=16, seed=1)
        made[epsilon] = float(np.mean(trained.model.predict(fresh) == labels))
        assert trained.metrics["epsilon"] == "infinity"
    assert made[1e7] > 0.9
    assert made[0.5] < made[1e7]


def test_a_step_of_contrastive_divergence_is_the_difference_of_the_statistics() -> None:
    """In parts of CHUNK records, against `boltzmann.statistics` of all records at once."""
    drawn, count = torch.Generator().manual_seed(0), training.CHUNK + 7
    machine = boltzmann.fresh(3, 2, (5, 5), drawn, deviation=0.5)
    units, sigmoid = torch.rand(count, 2, 9, 9, generator=drawn), polynomial("published-7")
    hidden = sigmoid(boltzmann.normalise(machine.drive(units))).clamp(0, 1)
    again = torch.sigmoid(machine.answer(hidden))
    found = sigmoid(boltzmann.normalise(machine.drive(again))).clamp(0, 1)
    gap = boltzmann.statistics(machine, units, hidden).moved(
        boltzmann.statistics(machine, again, found), -1.0
    )
    step = training.contrast(machine, units, sigmoid, sigmoid)
    assert torch.allclose(step.filters, gap.filters / 25, atol=1e-6)
    assert torch.allclose(step.hidden, gap.hidden / 25, atol=1e-6)
    assert torch.allclose(step.visible, gap.visible / 81, atol=1e-6)


def test_a_step_of_reconstruction_follows_the_codes_cost() -> None:
    """In parts of CHUNK records, against Adam on the cost of all records at once; and the cost falls."""
    drawn, count = torch.Generator().manual_seed(0), training.CHUNK + 7
    machine = boltzmann.fresh(3, 2, (5, 5), drawn, deviation=0.5)
    units, sigmoid = torch.rand(count, 2, 9, 9, generator=drawn), polynomial("published-7")

    def cost(machine: boltzmann.Machine) -> torch.Tensor:
        hidden, again, found = training.walk(machine, units, sigmoid, sigmoid)
        return (found - hidden).abs().mean() + (again - units).abs().mean()

    leaf = machine.filters.clone().requires_grad_()
    optimiser = torch.optim.Adam([leaf], lr=0.01)
    cost(boltzmann.Machine(leaf, machine.hidden, machine.visible)).backward()  # type: ignore[no-untyped-call]
    optimiser.step()
    moved = training.reconstruct(machine, iter([(units, sigmoid, sigmoid)]), 0.01)
    assert torch.allclose(moved.filters, leaf, atol=1e-5)
    later = training.reconstruct(machine, iter([(units, sigmoid, sigmoid)] * 30), 0.01)
    assert cost(later) < 0.9 * cost(machine)


# --- Attacks
# --------------------------------------------------------------------------------------------------


def test_activations_of_a_batch_give_the_target_away() -> None:
    target = attacks.targets_of(params("pcdbn", epsilon=0.5, preset="authors-code"), MNIST)[0]
    found = attack.attack(target, trials=3000, **QUIET)
    assert found.finding.epsilon > 5
    assert found.word == "refutes the claim"


def test_repaired_coefficients_stay_within_the_proof_and_a_tenth_of_the_noise_is_noticed() -> None:
    asked = params("pcdbn", epsilon=4.0, maps=[1, 1], hidden=1)
    sound = [attack.attack(target, trials=5000, **QUIET) for target in attacks.targets_of(asked, MNIST)]
    faulty = [
        attack.attack(target, trials=5000, **QUIET) for target in attacks.targets_of(asked, MNIST, factor=0.1)
    ]
    assert all(one.finding.best <= one.target.proven for one in sound)
    assert {one.word for one in sound} == {"within the proof"}
    assert max(one.finding.best for one in sound) > 0.3
    assert "refutes the proof" in {one.word for one in faulty}
