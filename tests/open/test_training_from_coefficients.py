"""Training from a release: closed form, descent, checkpoints; and what is made of the model afterwards."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from airlock.errors import InputError, ParamsError
from airlock.inside import manifest
from airlock.inside.manifest import Manifest
from airlock.models.moments import Moments, choose_damping, choose_ridge, closed_form, loss, moments_of
from airlock.params import Params, TrainParams
from airlock.storage import load_model, save_model
from stages.open.evaluate import judge
from stages.open.mechanisms import coefficients
from stages.open.mechanisms import iterated as coefficients_iterated
from stages.release.mechanisms import coefficients as released
from stages.release.mechanisms import iterated as iterated
from tests.support.sealed_records import facts, seal, table

X, Y = table(3000, 6, 3)


def release(folder: Path, mechanism: Any = released, **options: Any) -> tuple[Manifest, dict[str, Any]]:
    """A release of the table above, as train finds it."""
    params = Params.model_validate({"release": {"epsilon": 2.0, **options}, "relevance": {"mode": "off"}})
    known = facts(X, 3)
    tensors, details = mechanism.make(
        params, known, seal(folder, X, Y, rows=512), key=b"n" * 32, release_id="id"
    )
    data = {"kind": "tabular", "n": len(X), "shape": [6], "labels": list(known.labels), "schema": "s"}
    manifest.write(
        folder / "release",
        plan=mechanism.plan(params, known),
        facts=known,
        release_id="id",
        details={"data": data, **details},
    )
    return manifest.load(folder / "release"), tensors


def training(**changes: Any) -> TrainParams:
    return TrainParams.model_validate({"epochs": 60, "learning_rate": 0.05, "batch": 64, **changes})


@pytest.mark.parametrize("passes", [1, 2, 3])
def test_the_closed_form_learns_in_any_number_of_passes(tmp_path: Path, passes: int) -> None:
    trained = coefficients.train(training(), *release(tmp_path, passes=passes))
    assert np.mean(trained.model.predict(X) == Y) > 0.9


def test_the_closed_form_minimises_the_released_loss(tmp_path: Path) -> None:
    found, tensors = release(tmp_path)
    moments = moments_of(tensors, found.details, len(X))
    best = closed_form(moments, 0.3)
    random = np.random.default_rng(0)
    for _ in range(20):
        assert loss(moments, best, 0.3) < loss(moments, best + 0.01 * random.standard_normal(best.shape), 0.3)


def test_moments_are_in_units_of_the_rows(tmp_path: Path) -> None:
    found, tensors = release(tmp_path, epsilon=200.0)
    moments = moments_of(tensors, found.details, len(X))
    assert moments.values.sum() == pytest.approx(len(X), rel=0.01)
    assert moments.radius < 1.0


def test_the_ridge_follows_the_noise_level_within_bounds(tmp_path: Path) -> None:
    ridges = []
    for epsilon in (0.01, 0.5, 2.0, 200.0):
        found, tensors = release(tmp_path, epsilon=epsilon)
        ridges.append(choose_ridge(moments_of(tensors, found.details, len(X)), "auto"))
    assert ridges == sorted(ridges)
    assert 0.1 <= ridges[0] < 0.4
    assert ridges[-1] == 0.5


@pytest.mark.parametrize("head", ["linear", "mlp"])
def test_descent_learns_from_samples_alone(tmp_path: Path, head: str) -> None:
    given = release(tmp_path)
    trained = coefficients.train(training(method="sgd", head=head), *given)
    assert np.mean(trained.model.predict(X) == Y) > 0.88
    assert trained.curve[-1][1] < trained.curve[0][1]
    assert [epoch for epoch, _ in trained.curve] == list(range(1, 61))
    assert trained.metrics["rows_per_second"] > 1000
    assert "rows_per_second" not in coefficients.train(training(), *given).metrics


def test_the_same_seed_gives_the_same_bytes_and_another_does_not(tmp_path: Path) -> None:
    given = release(tmp_path)
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        save_model(
            coefficients.train(training(method="sgd", epochs=5, seed=seed), *given).model, tmp_path / name
        )
    a, b, c = ((tmp_path / name / "model.safetensors").read_bytes() for name in "abc")
    assert a == b != c


def test_an_interrupted_training_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    given = release(tmp_path)
    whole = coefficients.train(training(method="sgd", head="mlp", epochs=120), *given)
    coefficients.train(training(method="sgd", head="mlp", epochs=70), *given, checkpoint=tmp_path / "kept")
    resumed = coefficients.train(
        training(method="sgd", head="mlp", epochs=120), *given, checkpoint=tmp_path / "kept"
    )
    assert resumed.curve == whole.curve
    for one, other in zip(resumed.model.layers, whole.model.layers, strict=True):
        assert np.array_equal(one[0], other[0])
        assert np.array_equal(one[1], other[1])


def test_a_checkpoint_of_another_training_is_not_taken(tmp_path: Path) -> None:
    given = release(tmp_path)
    coefficients.train(training(method="sgd", epochs=50, seed=1), *given, checkpoint=tmp_path / "kept")
    fresh = coefficients.train(training(method="sgd", epochs=50), *given)
    beside = coefficients.train(training(method="sgd", epochs=50), *given, checkpoint=tmp_path / "kept")
    assert beside.curve == fresh.curve


def test_an_mlp_has_no_closed_form(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match="set train.method to sgd"):
        coefficients.train(training(head="mlp"), *release(tmp_path))


def test_a_device_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match="train.device 'tpu'"):
        coefficients.train(training(method="sgd", device="tpu"), *release(tmp_path))


def test_the_iterated_head_is_the_released_one_and_beats_chance(tmp_path: Path) -> None:
    found, tensors = release(tmp_path, iterated)
    trained = coefficients_iterated.train(training(), found, tensors)
    assert np.array_equal(trained.model.layers[0][0], tensors["head"] * found.details["head_unit"])
    assert np.mean(trained.model.predict(X) == Y) > 0.9


def test_a_model_survives_its_folder(tmp_path: Path) -> None:
    model = coefficients.train(training(), *release(tmp_path, passes=3)).model
    save_model(model, tmp_path / "model")
    assert np.array_equal(load_model(tmp_path / "model").logits(X), model.logits(X))
    assert json.loads((tmp_path / "model/model.json").read_text())["labels"] == [
        "class 0",
        "class 1",
        "class 2",
    ]


def test_a_damaged_or_missing_model_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a model folder"):
        load_model(tmp_path / "nowhere")
    (tmp_path / "model").mkdir()
    (tmp_path / "model/model.json").write_text("{}")
    (tmp_path / "model/model.safetensors").write_bytes(b"junk")
    with pytest.raises(InputError, match="damaged model"):
        load_model(tmp_path / "model")


def test_judging_counts_right_and_wrong(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from airlock.records.encoding import Encoded, pack

    model = coefficients.train(training(), *release(tmp_path)).model
    valid = np.ones(len(X), np.uint8)
    valid[::10] = 0
    pq.write_table(pa.Table.from_batches([pack(Encoded(X, Y, valid))]), tmp_path / "holdout.parquet")
    metrics, confusion = judge(model, tmp_path / "holdout.parquet")
    known, predicted = valid > 0, model.predict(X)
    assert metrics["records"] == confusion.sum() == known.sum()
    assert metrics["accuracy"] == np.mean(predicted[known] == Y[known])
    assert confusion[0, 1] == np.sum((Y == 0) & (predicted == 1) & known)
    assert metrics["recall"]["class 2"] == pytest.approx(np.mean(predicted[known & (Y == 2)] == 2))


def planted(size: int, noise: float, seed: int = 0) -> tuple[NDArray[np.float64], Moments]:
    """Ten strong directions and many weak ones, under symmetric noise whose spectrum ends at `noise`."""
    generator = np.random.default_rng(seed)
    true = np.concatenate([np.full(size - 10, 0.05 * noise), np.linspace(1.0, 6.0, 10) * noise])
    turn = np.linalg.qr(generator.normal(size=(size, size)))[0]
    upper = np.triu(generator.normal(size=(size, size)), 1)
    rough = (
        (upper + upper.T + np.diag(generator.normal(size=size)) * np.sqrt(2)) * noise / (2 * np.sqrt(size))
    )
    values, vectors = np.linalg.eigh((turn * true) @ turn.T + rough)
    return true, Moments(values, vectors, np.zeros((size, 2)), noise, size)


def test_cleaning_finds_what_lies_beyond_the_noise() -> None:
    true, moments = planted(400, 3.0)
    cleaned = moments.damped(None)
    strong = true[-9:]
    assert np.abs(cleaned[-9:] - strong).max() < 0.06 * strong.max()
    assert np.abs(cleaned[-9:] - strong).mean() < 0.5 * np.abs(moments.values[-9:] - strong).mean()
    assert (cleaned[:300] == moments.radius / 2).all()


@pytest.mark.parametrize(
    ("size", "level", "cleans"), [(400, 5.0, True), (400, 30.0, False), (31, 5.0, False)]
)
def test_a_spectrum_is_cleaned_where_it_is_large_and_seen(size: int, level: float, cleans: bool) -> None:
    moments = Moments(np.ones(size), np.eye(size), np.zeros((size, 2)), radius=level, n=size)
    assert (choose_damping(moments, "auto") is None) is cleans
    assert choose_damping(moments, 0.3) == 0.3


def test_auto_trains_on_only_where_the_release_becomes_likelier(tmp_path: Path) -> None:
    """A head that was scaled to nothing is mended; one that descent has already found is left as it is."""
    given = release(tmp_path, epsilon=20.0)
    solved = coefficients.train(training(), *given)
    faint = replace(solved.model, layers=[(solved.model.layers[0][0] * 0.01, solved.model.layers[0][1])])
    asked = training(method="auto", epochs=200)
    mended = coefficients.further(asked, *given, replace(solved, model=faint), None)
    assert mended.metrics["likelihood_gained"] > 0.1
    assert mended.metrics["epochs"] == mended.curve[-1][0] > 0
    assert mended.curve[-1][1] < mended.curve[0][1]
    again = coefficients.further(asked, *given, mended, None)
    assert again.metrics["likelihood_gained"] < 0.01
    assert np.mean(mended.model.predict(X) == Y) > 0.88
