"""AdLM and ILM: every reading has the epsilon that its theorem
says, and what is released is what was priced.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from airlock.attack import targets
from airlock.attack.samplers import NumpySampler
from airlock.errors import ParamsError
from airlock.models.papers import networks, taylor
from airlock.params import Params
from airlock.privacy import accounting, events
from stages.mechanisms import mechanism
from stages.release.papers.adlm import adlm, ilm, perturbation, pretraining
from stages.release.papers.adlm.targets import even_epsilon
from tests.support.comparison import KEY, MNIST, batches, blobs, facts, params

CIFAR = facts((32, 32, 3), 50_000)


@pytest.mark.parametrize(
    ("reading", "delta", "factor"),
    [
        ("literal", 39_337_984, 0.0359),
        ("fan-in", 1_254_400, 1.125),
        ("one-map", 39_200, 36),
        ("pooled-map", 9_800, 144),
    ],
)
def test_inputs_have_the_epsilon_of_theorem_a1(reading: str, delta: int, factor: float) -> None:
    recipe = adlm.resolve(params("adlm", epsilon=0.3, preset="paper-literal", sensitivity=reading), MNIST)
    assert recipe.epsilons[1] == pytest.approx(0.075)
    assert recipe.input_scale == pytest.approx(delta / (1800 * 0.075))
    assert recipe.input_epsilon / recipe.epsilons[1] == pytest.approx(factor, rel=1e-3)


def test_norm_scaling_divides_by_the_root_of_the_features() -> None:
    recipe = adlm.resolve(
        params("adlm", preset="paper-literal", sensitivity="pooled-map", scaling="norm"), MNIST
    )
    assert recipe.input_epsilon / recipe.epsilons[1] == pytest.approx(144 / 28)


def test_colour_images_have_the_sensitivity_of_the_code() -> None:
    recipe = adlm.resolve(params("adlm", preset="paper-literal", sensitivity="pooled-map"), CIFAR)
    assert recipe.input_scale * 7200 * recipe.epsilons[1] == pytest.approx(5400)


@pytest.mark.parametrize(("neighbours", "factor"), [("replace-one", 1.986), ("zero-out", 0.993)])
def test_labels_have_the_epsilon_of_theorem_a2(neighbours: str, factor: float) -> None:
    recipe = adlm.resolve(params("adlm", preset="paper-literal", neighbours=neighbours), MNIST)
    assert recipe.label_epsilon / recipe.epsilons[2] == pytest.approx(factor, rel=1e-3)


@pytest.mark.parametrize(("claimed", "pure", "at_delta"), [(0.25, 9.25, 1.36), (0.5, 18.5, 2.94)])
def test_even_shares_have_the_epsilons_of_theorem_a3(claimed: float, pure: float, at_delta: float) -> None:
    options = {"preset": "paper-literal", "sensitivity": "pooled-map", "network": "public"}
    recipe = adlm.resolve(params("adlm", epsilon=claimed, neighbours="replace-one", **options), MNIST)
    assert recipe.input_epsilon + recipe.label_epsilon == pytest.approx(pure, abs=0.01)
    assert even_epsilon(recipe, 1e-5) == pytest.approx(at_delta, abs=0.01)


def test_sound_preset_proves_what_was_asked_for_and_claims_nothing() -> None:
    for module, name in ((adlm, "adlm"), (ilm, "ilm")):
        plan = module.plan(params(name, epsilon=1.0), facts((30,), 400, 2))
        assert plan.claimed is None
        assert not plan.public_only
        assert 0.99 <= plan.proven.epsilon <= 1.0
        assert accounting.epsilon(events.from_json(plan.proven.event), 1e-5) == plan.proven.epsilon


def test_even_shares_buy_less_noise_at_a_positive_delta() -> None:
    wdbc = facts((30,), 400, 2)
    even, pure = ilm.resolve(params("ilm"), wdbc, adaptive=False), adlm.resolve(params("adlm"), wdbc)
    assert even.input_epsilon + even.label_epsilon > 1.1
    assert pure.input_epsilon + pure.label_epsilon + pure.relevance_epsilon == pytest.approx(1)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"preset": "paper-literal"}, "raw records"),
        ({"preset": "authors-code"}, "shared by a batch"),
        ({"preset": "authors-code", "noise": "record"}, "raw records"),
        ({"preset": "authors-code", "noise": "record", "network": "public"}, "least and greatest"),
        ({"noise": "batch"}, "shared by a batch"),
    ],
)
def test_what_has_no_proof_is_for_public_data_and_says_why(options: dict[str, str], word: str) -> None:
    plan = adlm.plan(params("adlm", **options), MNIST)
    assert plan.public_only
    assert math.isinf(plan.proven.epsilon)
    assert word in plan.proven.reason


def test_literal_claim_is_true_once_the_network_is_public() -> None:
    plan = adlm.plan(
        params("adlm", epsilon=0.5, preset="paper-literal", network="public", neighbours="replace-one"), MNIST
    )
    assert plan.claimed is not None
    assert plan.claimed.epsilon == 0.5
    recipe = adlm.resolve(
        params("adlm", epsilon=0.5, preset="paper-literal", network="public", neighbours="replace-one"), MNIST
    )
    assert recipe.relevance_epsilon == pytest.approx(recipe.epsilons[0] / 2)
    # Features and relevance are within their claims; labels need 1.986 e3 where e3 was claimed.
    assert recipe.input_epsilon < recipe.epsilons[1]
    assert plan.proven.epsilon == pytest.approx(0.5 * (0.25 * 0.0359 + 0.5 * 1.986 + 0.125), rel=1e-3)


def test_reads_are_counted() -> None:
    assert adlm.plan(params("adlm"), MNIST).passes == 2
    assert adlm.plan(params("adlm", preset="paper-literal"), MNIST).passes == 14
    assert ilm.plan(params("ilm", preset="paper-literal"), MNIST).passes == 1


def test_bad_shares_are_refused() -> None:
    with pytest.raises(ParamsError, match="sum to 1"):
        adlm.plan(params("adlm", budget=[0.5, 0.5, 0.5]), MNIST)
    with pytest.raises(ParamsError, match="did you mean 'preset'"):
        adlm.plan(params("adlm", presett="sound"), MNIST)


@pytest.mark.parametrize(
    ("name", "options"),
    [("adlm", {}), ("ilm", {}), ("adlm", {"preset": "authors-code", "pretraining_epochs": 1, "batch": 50})],
)
def test_a_release_holds_noise_of_the_priced_scale(name: str, options: dict[str, object]) -> None:
    records, labels = blobs(600)
    labels[5] = -1
    records[5] = 0
    about, asked = facts((12,), 600, 3), params(name, epsilon=5.0, **options)
    module = mechanism(name)
    tensors, details = module.make(asked, about, batches(records, labels), key=KEY, release_id="a")
    recipe = adlm.resolve(asked, about, adaptive=name == "adlm")
    drawn = tensors["inputs"] / details["grid"] - records
    assert tensors["inputs"].shape == (600, 12)
    assert tensors["coefficients"].shape == (600, 3, 3)
    middle = tensors["coefficients"][:, 1] / details["fine"] - taylor.coefficients(labels, 3)[:, 1]
    if recipe.options.noise == "record":
        # The mean absolute value of Laplace noise is its scale.
        assert np.abs(drawn).mean(0) == pytest.approx(tensors["scales"], rel=0.2)
        assert np.abs(middle).mean() == pytest.approx(recipe.label_scale, rel=0.1)
    else:
        assert np.abs(drawn[:50] - drawn[0]).max() < 2 / details["grid"]
        assert np.abs(drawn[50] - drawn[0]).max() > 0.1
        assert np.abs(middle[:50] - middle[0]).max() < 1e-4
    assert (1 / tensors["scales"]).sum() * recipe.span == pytest.approx(recipe.input_epsilon)


def test_a_release_is_reproducible_and_keyed() -> None:
    records, labels = blobs(80)
    about, asked = facts((12,), 80, 3), params("ilm")
    first, again, other = (
        ilm.make(asked, about, batches(records, labels), key=KEY, release_id=name)[0]["inputs"]
        for name in "aab"
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_images_go_through_relevance() -> None:
    generator = np.random.default_rng(0)
    records, labels = (
        generator.integers(0, 256, (40, 28, 28, 1)).astype(np.uint8),
        generator.integers(0, 10, 40),
    )
    records[:, :, 14:] = 0
    tensors, _ = adlm.make(
        params("adlm", epsilon=500.0),
        facts((28, 28, 1), 40),
        batches(records, labels),
        key=KEY,
        release_id="a",
    )
    assert tensors["relevance"].shape == (784,)
    # Lots of budget: inputs come out as they are, up to a rounding.
    share = perturbation.allocate(tensors["relevance"].astype(float))
    assert share.sum() == pytest.approx(784)


def test_a_network_that_is_trained_with_privacy_is_charged() -> None:
    about = facts((12,), 2000, 3)
    plan = adlm.plan(params("adlm", network="released", pretraining_epochs=1), about)
    assert plan.interactive
    assert plan.passes == 102
    assert not plan.public_only
    kinds = [part["kind"] for part in plan.proven.event["events"]]
    assert kinds == ["discrete-laplace", "self-composed"]
    assert 0.5 < plan.proven.epsilon <= 1.0


def test_relevance_network_decides_whether_there_is_a_proof() -> None:
    proven = {}
    for network in ("public", "released", "raw"):
        asked = params("adlm", pretraining_epochs=1).model_dump()
        asked["relevance"]["network"] = network
        proven[network] = adlm.plan(Params.model_validate(asked), facts((12,), 2000, 3)).proven.epsilon
    assert proven["public"] <= 1.0
    assert proven["released"] <= 1.0
    assert proven["raw"] == math.inf


def test_a_network_trained_with_privacy_learns_and_its_noise_is_keyed() -> None:
    """The released network: better than the public one it started from, the same for the same key, another
    for another release.
    """
    records, labels = blobs(2000)
    about, asked = (
        facts((12,), 2000, 3),
        params("adlm", epsilon=200.0, network="released", pretraining_epochs=1),
    )
    recipe = adlm.resolve(asked, about)
    made = [
        pretraining.network(
            recipe, asked, about, batches(records, labels), key=KEY, release_id=name
        ).state_dict()
        for name in ("a", "a", "b")
    ]
    assert all(torch.equal(made[0][name], made[1][name]) for name in made[0])
    assert any(not torch.equal(made[0][name], made[2][name]) for name in made[0])
    network = networks.build("pretraining", (12,), 3, seed=pretraining.PUBLIC_SEED)
    right = []
    for state in (network.state_dict(), made[0]):
        network.load_state_dict({name: value.clone() for name, value in state.items()})
        right.append(float((network(torch.from_numpy(records).float()).argmax(1).numpy() == labels).mean()))
    assert right[1] > 0.8 > right[0]
    tensors, details = adlm.make(asked, about, batches(records, labels), key=KEY, release_id="a")
    assert tensors["relevance"].shape == (12,)
    assert details["epsilons"]["inputs"] == pytest.approx(200 * 0.75 * 0.25)


def test_attacks_find_the_published_readings_and_spare_the_sound_ones() -> None:
    published = adlm.targets(
        params("adlm", epsilon=2.0, preset="paper-literal", sensitivity="pooled-map"), MNIST
    )
    found = targets.measure(published[0].law, NumpySampler(0), trials=20_000)
    assert published[0].claimed == pytest.approx(0.5)
    assert published[0].proven == pytest.approx(72)
    assert 5 < found.epsilon <= 72
    record = ilm.targets(params("ilm"), facts((30,), 400, 2))[2]
    faulty = ilm.targets(params("ilm"), facts((30,), 400, 2), factor=0.5)[2]
    assert record.proven == pytest.approx(1.0, rel=0.01)
    assert (
        0.7
        < targets.measure(record.law, NumpySampler(0), trials=200_000, delta=1e-5).epsilon
        <= record.proven
    )
    assert targets.measure(faulty.law, NumpySampler(0), trials=50_000, delta=1e-5).epsilon > faulty.proven
    uneven = adlm.targets(params("adlm"), facts((30,), 400, 2))[3]
    assert (
        0.7 * uneven.proven
        < targets.measure(uneven.law, NumpySampler(0), trials=100_000, confidence=0.999).epsilon
        <= uneven.proven
    )
    batch = adlm.targets(params("adlm", preset="authors-code"), MNIST)[0]
    assert targets.measure(batch.law, NumpySampler(0), trials=20_000).epsilon > 8
