"""`patch-moments`: what is released, at what sensitivity, and that filters and head need nothing else."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airlock.attack import attack
from airlock.errors import ParamsError
from airlock.inside import manifest
from airlock.models.features.rows import LIMIT
from airlock.models.papers import patches
from airlock.params import Params, TrainParams
from airlock.privacy import accounting, events, sensitivity
from airlock.privacy.noise import add_noise
from airlock.storage import load_model, save_model
from stages.open.mechanisms import patch_moments as opened
from stages.release.papers.pcdbn import patch_moments
from tests.support import attacks
from tests.support.comparison import MNIST
from tests.support.sealed_records import facts, pictures, seal

NOISE = b"n" * 32
X, Y = pictures(600, 3, side=12)
SMALL = {"layers": [3, 2]}
QUIET = {"confidence": 0.95, "seed": 0, "sampler": "auto", "tick": lambda done, total: None}


def parameters(options: dict[str, Any] | None = None, **release: Any) -> Params:
    asked = {"mechanism": "patch-moments", "epsilon": 5.0, "options": options or SMALL, **release}
    return Params.model_validate({"release": asked, "relevance": {"mode": "off"}})


def released(
    folder: Path, params: Params, x: np.ndarray = X, y: np.ndarray = Y
) -> tuple[dict[str, Any], dict[str, Any]]:
    return patch_moments.make(params, facts(x, 3), seal(folder, x, y, rows=128), key=NOISE, release_id="id")


@pytest.mark.parametrize("neighbours", ["zero-out", "replace-one"])
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 8.0])
@pytest.mark.parametrize("layers", [[6], [6, 4]])
def test_a_plan_never_promises_more_than_was_asked(
    neighbours: str, epsilon: float, layers: list[int]
) -> None:
    plan = patch_moments.plan(parameters({"layers": layers}, neighbours=neighbours, epsilon=epsilon), MNIST)
    assert plan.proven.event is not None
    again = accounting.epsilon(events.from_json(plan.proven.event), 1e-5, neighbours=neighbours)
    assert 0.999999 * epsilon <= plan.proven.epsilon == again <= epsilon
    assert plan.passes == len(layers) + 3
    assert not plan.public_only


def test_sensitivities_are_those_of_the_theorem() -> None:
    for near, first, second in (
        ("zero-out", LIMIT, LIMIT),
        ("replace-one", math.sqrt(2) * (LIMIT + 25), math.sqrt(2) * (LIMIT + 108)),
    ):
        params = parameters({"layers": [6, 4]}, neighbours=near)
        asked = patch_moments.queries(patch_moments.resolve(params, MNIST), params)
        assert [one.sensitivity for one in asked[:2]] == pytest.approx([first, second])
        assert [(one.purpose, one.release_pass) for one in asked] == [
            ("patches1", 1), ("patches2", 2), ("mean", 3), ("whitening", 4), ("gram", 5), ("cross", 5),
        ]  # fmt: skip
        assert sum(one.share for one in asked) <= 1.0


@pytest.mark.parametrize(
    ("options", "release", "words"),
    [
        ({"layers": []}, {}, "1 or 2 layers"),
        ({"layers": [4, 4, 4]}, {}, "1 or 2 layers"),
        ({"layers": [25]}, {}, "1 to 24 filters"),
        ({"layers": [2, 33]}, {}, "1 to 32 filters"),
        (SMALL, {"features": "hog-1"}, "learns its features"),
        (SMALL, {"passes": 3}, "needs 5"),
    ],
)
def test_what_it_does_not_offer_is_refused(
    options: dict[str, Any], release: dict[str, Any], words: str
) -> None:
    with pytest.raises(ParamsError, match=words):
        patch_moments.plan(parameters(options, **release), MNIST)


def test_tables_are_refused() -> None:
    with pytest.raises(ParamsError, match="for images"):
        patch_moments.plan(parameters(), facts(np.zeros((3, 4)), 3))


# --- The release
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("learner", ["divergence", "eigenvectors"])
def test_released_moments_are_noisy_sums_and_filters_follow_from_them_alone(
    tmp_path: Path, learner: str
) -> None:
    """The oracle: sums of single records' matrices, the keyed noise, the layer trained again from the
    released tensor.
    """
    x, y = X[:40], Y[:40]
    tensors, details = released(tmp_path, parameters({**SMALL, "learner": learner}), x, y)
    layers: list[patches.FilterLayer] = []
    for depth, (size, count) in enumerate([(25, 3), (54, 2)]):
        purpose = f"patches{depth + 1}"
        exact = sum(
            patches.moments(x[index : index + 1], layers)[0].astype(np.int64) for index in range(40)
        ).reshape(size, size)
        said = details["sums"][purpose]
        wanted = add_noise(
            exact,
            key=NOISE,
            release_id="id",
            release_pass=depth + 1,
            purpose=purpose,
            scale=said["scale"],
            form="symmetric-gaussian",
        )
        assert np.array_equal(tensors[purpose], wanted)
        layers.append(patch_moments.train_layer(tensors[purpose], depth, count, learner))
        assert np.array_equal(layers[depth].filters, tensors[f"filters{depth + 1}"])
    assert details["filters"]["learner"] == learner
    assert tensors["gram"].shape == (patches.width((12, 12, 1), (3, 2)),) * 2


def test_chunks_and_null_records_do_not_change_a_bit(tmp_path: Path) -> None:
    x, y = X[:60].copy(), Y[:60]
    valid = (np.arange(60) % 7 != 3).astype(np.uint8)
    made = []
    for index, rows in enumerate((60, 7)):
        folder = tmp_path / str(index)
        folder.mkdir()
        made.append(
            patch_moments.make(
                parameters(), facts(x, 3), seal(folder, x, y, valid, rows=rows), key=NOISE, release_id="id"
            )[0]
        )
    assert set(made[0]) == {
        "patches1",
        "patches2",
        "filters1",
        "filters2",
        "centre",
        "whitening",
        "gram",
        "cross",
    }
    assert all(np.array_equal(made[0][name], made[1][name]) for name in made[0])


def test_the_open_half_trains_on_learned_filters_and_its_model_can_be_kept(tmp_path: Path) -> None:
    params, known = parameters(epsilon=20.0), facts(X, 3)
    tensors, details = released(tmp_path, params)
    data = {"kind": "image", "n": len(X), "shape": [12, 12, 1], "labels": list(known.labels), "schema": "s"}
    plan = patch_moments.plan(params, known)
    manifest.write(
        tmp_path / "release", plan=plan, facts=known, release_id="id", details={"data": data, **details}
    )
    release = manifest.load(tmp_path / "release")
    trained = opened.train(TrainParams(), release, tensors)
    fresh, labels = pictures(200, 3, side=12, seed=1)
    assert np.mean(trained.model.predict(fresh) == labels) > 0.9
    save_model(trained.model, tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert np.array_equal(again.logits(fresh), trained.model.logits(fresh))


# --- Sensitivity: adversarial neighbours
# --------------------------------------------------------------------------------------


def extreme_images() -> list[np.ndarray]:
    """Black, white, one pixel (faint or bright), a faint grid, stripes that are orthogonal to each other,
    noise.
    """
    shape = (12, 12, 1)
    images = [np.zeros(shape), np.full(shape, 255), np.eye(12)[:, :, None] * 255]
    for value in (1, 255):
        dot = np.zeros(shape)
        dot[5, 5] = value
        images.append(dot)
    down, across = np.indices((12, 12))
    images += [
        ((grid % 2) * value)[:, :, None] for grid in (down, across, down + across) for value in (1, 255)
    ]
    images.append(np.random.default_rng(0).integers(0, 256, shape))
    return [image.astype(np.uint8) for image in images]


image = st.sampled_from(extreme_images()) | st.integers(0, 10**6).map(
    lambda seed: np.random.default_rng(seed).integers(0, 2 + seed % 254, (12, 12, 1)).astype(np.uint8)
)


@settings(max_examples=60)
@given(image, image, st.integers(0, 3))
def test_no_neighbour_moves_the_moments_by_more_than_their_sensitivity(
    one: np.ndarray, other: np.ndarray, depth: int
) -> None:
    below = [patches.layer(np.random.default_rng(depth).standard_normal((3, 25)), 0)] if depth else []
    rows = patches.moments(np.stack([one, other]), below).astype(np.int64).astype(object)
    size = math.isqrt(len(rows[0]))
    assert sum(value * value for value in rows[0]) <= sensitivity.moment(LIMIT, size) ** 2
    apart = sum(value * value for value in rows[0] - rows[1])
    assert apart <= sensitivity.moment(LIMIT, size, neighbours="replace-one") ** 2


def test_the_bounds_are_nearly_reached() -> None:
    """Stripes down and stripes across have nearly orthogonal moments."""
    images = extreme_images()
    rows = patches.moments(np.stack([images[6], images[8]]))
    assert np.sqrt((rows[0] ** 2).sum()) > 0.999 * LIMIT
    assert np.sqrt(((rows[0] - rows[1]) ** 2).sum()) > 1.3 * LIMIT


def test_root_two_times_the_norm_is_not_enough_once_matrices_are_truncated() -> None:
    """Two orthogonal matrices of rank one: truncating their 0.99 leaves a negative product."""
    before = [np.array([[0.99, -99], [-99, 9900]]), np.array([[9900, 99], [99, 0.99]])]
    norm = math.ceil(max(np.linalg.norm(one) for one in before))
    assert np.trace(before[0] @ before[1]) == pytest.approx(0, abs=1e-9)
    first, second = (np.trunc(one) for one in before)
    assert (
        np.sqrt(2) * norm + 0.9
        < np.linalg.norm(first - second)
        <= sensitivity.moment(norm, 2, neighbours="replace-one")
    )


def test_an_attack_stays_below_the_proof_and_half_the_noise_is_noticed() -> None:
    asked = parameters({"layers": [6, 4]}, epsilon=0.5)
    sound = attack.attack(attacks.targets_of(asked, MNIST)[0], trials=100_000, **QUIET)
    faulty = attack.attack(attacks.targets_of(asked, MNIST, factor=0.5)[0], trials=100_000, **QUIET)
    assert 0.25 < sound.finding.best <= sound.target.proven <= 0.5
    assert (sound.word, faulty.word) == ("within the proof", "refutes the proof")
