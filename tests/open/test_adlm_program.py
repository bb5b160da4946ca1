"""AdLM's authors' program in the shape of the design: noise drawn once in the release, training from it alone;
network, loss and step against a slow oracle.
"""

from __future__ import annotations

import itertools
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from airlock.errors import ParamsError
from airlock.inside import manifest
from airlock.models.papers.adlm_program import AdlmProgram
from airlock.params import TrainParams
from stages.open.mechanisms import adlm as opened
from stages.release.papers.adlm import adlm
from tests.support import strided_oracle as oracle
from tests.support.comparison import KEY, MNIST, batches, facts, params
from tests.support.sealed_records import pictures

SIDE, BATCH = 16, 12
X, Y = pictures(30, 3, side=SIDE)
ABOUT = facts((SIDE, SIDE, 1), 30, 3)
ILM: dict[str, Any] = {"preset": "authors-code", "batch": BATCH}


def released(folder: Path, x: Any = X, y: Any = Y, **asked: Any) -> tuple[manifest.Manifest, dict[str, Any]]:
    from stages.release.papers.adlm import ilm

    about, given = facts((SIDE, SIDE, 1), len(y), 3), params("ilm", **{**ILM, **asked})
    tensors, details = ilm.make(given, about, batches(x, y), key=KEY, release_id="a")
    data = {"kind": "image", "shape": [SIDE, SIDE, 1], "labels": ["0", "1", "2"], "n": len(y)}
    plan = ilm.plan(given, about)
    manifest.write(folder, plan=plan, facts=about, release_id="a", details={"data": data, **details})
    return manifest.load(folder), tensors


def slow_convolution(visible: Any, layer: Any) -> Any:
    """The size is kept; (n, channels, side, side)."""
    weight, bias = (one.detach().double().numpy() for one in (layer.weight, layer.bias))
    side, made = visible.shape[2], np.zeros((len(visible), len(weight), *visible.shape[2:]))
    for i, j in itertools.product(range(side), repeat=2):
        for r, s in itertools.product(range(5), repeat=2):
            if 0 <= i + r - 2 < side and 0 <= j + s - 2 < side:
                made[:, :, i, j] += visible[:, :, i + r - 2, j + s - 2] @ weight[:, :, r, s].T
    return made + bias[None, :, None, None]


def slow_below(network: AdlmProgram, records: Any) -> Any:
    """Rectified first, then pooled, as the program has it; maps last. Pixels are those that it sees, in [-1, 1]."""
    hidden = records.transpose(0, 3, 1, 2)
    for layer in network.convolutions:
        rectified = np.maximum(slow_convolution(hidden, layer), 0)
        half = rectified.shape[2] // 2
        hidden = rectified.reshape(*rectified.shape[:2], half, 2, half, 2).max((3, 5))
    return hidden.transpose(0, 2, 3, 1).reshape(len(records), -1)


def slow_scores(below: Any, parts: dict[str, Any], *, batch: bool = True) -> Any:
    affine = below @ parts["last.weight"].T + parts["last.bias"]
    mean = affine.mean(0) if batch else parts["norm.running_mean"]
    variance = affine.var(0) if batch else parts["norm.running_var"]
    normal = (affine - mean) / np.sqrt(variance + 1e-3) * parts["norm.weight"] + parts["norm.bias"]
    units = np.clip(np.maximum(normal, 0), -1, 1)
    return units @ parts["outputs.weight"].T + parts["outputs.bias"]


def parts_of(network: Any) -> dict[str, Any]:
    return {name: value.double().numpy().copy() for name, value in network.state_dict().items()}


@pytest.mark.parametrize("signed", [True, False])
def test_scores_are_what_the_slow_oracle_says(signed: bool) -> None:
    network = AdlmProgram((SIDE, SIDE, 1), 3, signed=signed).double()
    records = np.random.default_rng(0).normal(size=(5, SIDE, SIDE, 1))
    below = slow_below(network, 2 * records - 1 if signed else records)
    for batch in (False, True):
        wanted = slow_scores(below, parts_of(network), batch=batch)
        found = network.train(batch)(torch.from_numpy(records)).detach().numpy()
        assert found == pytest.approx(wanted)
    alone = network.eval()(torch.from_numpy(records[:1])).detach().numpy()
    assert alone == pytest.approx(network(torch.from_numpy(records)).detach().numpy()[:1])


def test_first_weights_are_the_programs() -> None:
    torch.manual_seed(0)
    drawn = [parts_of(AdlmProgram((28, 28, 1), 10)) for _ in range(20)]
    parts = {name: np.concatenate([one[name].ravel() for one in drawn]) for name in drawn[0]}
    assert drawn[0]["last.weight"].shape == (25, 7 * 7 * 64)
    for name in ("convolutions.0", "convolutions.1", "last", "outputs"):
        weight = parts[f"{name}.weight"]
        assert np.abs(weight).max() <= 0.2, name
        # Of a normal that is cut off at two deviations.
        assert weight.std() == pytest.approx(0.1 * 0.8796, rel=0.03), name
        assert np.allclose(parts[f"{name}.bias"], 0.1), name
    assert np.array_equal(drawn[0]["norm.weight"], np.ones(25))
    assert not parts["norm.bias"].any()


@pytest.mark.parametrize(
    ("course_of", "pixels"),
    [(opened.Program, lambda x: 2 * x - 1), (opened.UnitProgram, lambda x: x)],
    ids=["program", "unit"],
)
def test_a_step_is_what_the_slow_oracle_says(course_of: Any, pixels: Any, tmp_path: Path) -> None:
    """Noisy pixels are cut to [-10, 10] as the network sees them."""
    unit = {"pixels": "unit"} if course_of is opened.UnitProgram else {}
    release, tensors = released(tmp_path, epsilon=50.0, **unit)
    course = course_of(TrainParams(batch=BATCH, learning_rate=3e-4), release.details, tensors, "cpu")
    assert release.details["network"] == course.name
    before, rows = parts_of(course.network), next(course.steps(0)).numpy()
    noise = tensors["label_noise"] / 2**16
    below = slow_below(
        course.network, np.clip(pixels(tensors["inputs"][rows] / 255), -10, 10).reshape(-1, SIDE, SIDE, 1)
    )

    def loss(parts: dict[str, Any]) -> float:
        term = float((noise * parts["outputs.weight"].T).sum())
        return oracle.taylor_loss(slow_scores(below, parts), Y[rows]) - len(rows) * 3 * term

    course.steps = lambda epoch: iter([torch.from_numpy(rows)])  # type: ignore[method-assign]
    assert course.epoch(0) == pytest.approx(loss(before) / len(rows), rel=1e-4)
    after = parts_of(course.network)
    for name in ("last.weight", "norm.weight", "norm.bias", "outputs.weight", "outputs.bias"):
        few = np.random.default_rng(1).permutation(before[name].size)[:20]

        def at(one: Any, name: str = name) -> float:
            return loss({**before, name: one})

        slope = oracle.gradient(partial(at), before[name], few)
        wanted, sure = (
            oracle.adam(before[name], [slope], rate=3e-4).ravel()[few],
            np.abs(slope.ravel()[few]) > 1e-3,
        )
        assert sure.any(), name
        assert after[name].ravel()[few][sure] == pytest.approx(wanted[sure], abs=3e-6), name
    # The convolutions are trained too.
    assert not np.array_equal(after["convolutions.0.weight"], before["convolutions.0.weight"])


def test_every_weight_is_moved_by_adam_as_tensorflow_has_it(tmp_path: Path) -> None:
    """By slopes so small that the 1e-8 counts, which stands beside the root of what is not yet corrected."""
    release, tensors = released(tmp_path)
    course = opened.Program(TrainParams(batch=BATCH, learning_rate=3e-4), release.details, tensors, "cpu")
    before, drawn = parts_of(course.network), np.random.default_rng(2)
    slopes = [
        {name: drawn.normal(0, 1e-7, one.shape) for name, one in course.network.named_parameters()}
        for _ in range(3)
    ]
    for step in slopes:
        for name, one in course.network.named_parameters():
            one.grad = torch.from_numpy(step[name]).float()
        course.optimiser.step()
    assert set(slopes[0]) == {name for name in before if "running" not in name and "tracked" not in name}
    after = parts_of(course.network)
    for name in slopes[0]:
        wanted = oracle.adam(before[name], [step[name] for step in slopes], rate=3e-4)
        assert after[name] - before[name] == pytest.approx(wanted - before[name], abs=4e-7), name


def test_batches_and_their_records_come_in_another_order_in_each_epoch(tmp_path: Path) -> None:
    release, tensors = released(tmp_path)
    part = opened.Program(TrainParams(batch=5), release.details, tensors, "cpu")
    epochs = [[rows.tolist() for rows in part.steps(epoch)] for epoch in range(8)]
    assert {tuple(rows[0] // BATCH for rows in steps) for steps in epochs} == {(0, 1), (1, 0)}
    for batch in range(2):
        assert len({tuple(rows) for steps in epochs for rows in steps if rows[0] // BATCH == batch}) == 8


def test_a_step_is_one_batch_with_one_noise_vector_and_what_is_left_is_dropped(tmp_path: Path) -> None:
    release, tensors = released(tmp_path, epsilon=0.5)
    drawn = tensors["inputs"] - X.reshape(30, -1).astype(np.int64)
    whole = opened.Program(TrainParams(batch=BATCH), release.details, tensors, "cpu")
    steps = [rows.tolist() for rows in whole.steps(3)]
    assert sorted(itertools.chain(*steps)) == list(range(24))
    for rows in steps:
        assert len(np.unique(drawn[rows], axis=0)) == 1
    part = opened.Program(TrainParams(batch=5), release.details, tensors, "cpu")
    assert [len(rows) for rows in part.steps(0)] == [5, 5]
    assert all(len(np.unique(drawn[rows.tolist()], axis=0)) == 1 for rows in part.steps(0))
    # Other epochs, other records of a batch.
    assert [rows.tolist() for rows in part.steps(0)] != [rows.tolist() for rows in part.steps(1)]


def test_a_batch_with_one_noise_vector_gives_its_records_away(tmp_path: Path) -> None:
    """Exactly, wherever a pixel is black in one record of the batch; noise for each record gives nothing so."""
    from bench.papers.adlm_program import reconstruct

    dark = X.copy()
    dark[::BATCH] = 0
    for noise, options in (("batch", {}), ("record", {"noise": "record", "label_noise": "coefficients"})):
        _, tensors = released(tmp_path / noise, dark, Y, epsilon=0.5, **options)
        found = reconstruct(tensors["inputs"][:24], BATCH) == dark.reshape(30, -1)[:24]
        assert found.mean() == 1 if noise == "batch" else found.mean() < 0.2


def test_label_noise_is_one_matrix_of_the_programs_scale_and_labels_are_raw(tmp_path: Path) -> None:
    release, tensors = released(tmp_path, epsilon=0.6)
    assert tensors["label_noise"].shape == (25, 3)
    # Delta_3 / (e3 |L|), e3 two thirds of epsilon without relevance.
    scale = 3 * (25 + 25**2 / 4) / (0.4 * BATCH)
    assert np.abs(tensors["label_noise"] / 2**16).mean() == pytest.approx(scale, rel=0.35)
    middle = tensors["coefficients"][:, 1] / release.details["fine"]
    assert np.array_equal(middle, 0.5 - np.eye(3)[Y])
    assert math.isinf(release.proven.epsilon)
    assert "labels are released as they are" in release.proven.reason
    assert "labels" not in release.details["epsilons"]


def test_it_learns_predicts_each_record_alone_and_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    x, y = pictures(120, 3, side=SIDE)
    release, tensors = released(tmp_path / "release", x, y, epsilon=1e6, batch=40)
    asked = TrainParams(batch=40, learning_rate=3e-3, epochs=10)
    whole: Any = opened.train(asked, release, tensors)
    fresh, labels = pictures(60, 3, side=SIDE, seed=1)
    assert (whole.model.predict(fresh) == labels).mean() > 0.9
    assert np.array_equal(whole.model.predict(fresh), whole.model.predict_alone(fresh))
    opened.train(asked.model_copy(update={"epochs": 5}), release, tensors, checkpoint=tmp_path / "kept")
    resumed: Any = opened.train(asked, release, tensors, checkpoint=tmp_path / "kept")
    assert all(np.array_equal(whole.model.state[key], resumed.model.state[key]) for key in whole.model.state)


@pytest.mark.parametrize("preset", ["authors-code", "sound"])
def test_the_device_is_the_one_that_was_asked_for(
    preset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Absent ones are refused, and all tensors follow: another name of the processor ends in the same bytes."""
    release, tensors = released(tmp_path, preset=preset)
    asked, went = TrainParams(epochs=1), list[str]()
    with pytest.raises(ParamsError, match=r"train\.device 'nowhere' is not on this machine"):
        opened.train(asked.model_copy(update={"device": "nowhere"}), release, tensors)
    wanted: Any = opened.train(asked.model_copy(update={"device": "cpu"}), release, tensors)

    def chosen(device: str, name: str) -> str:
        went.append(device)
        return "cpu:0"

    monkeypatch.setattr("airlock.models.devices.choose_device", chosen)
    found: Any = opened.train(asked.model_copy(update={"device": "other"}), release, tensors)
    assert went == ["other"]
    assert all(np.array_equal(wanted.model.state[key], found.model.state[key]) for key in wanted.model.state)


def test_a_matrix_is_for_images_and_shared_noise_and_other_ids_stay() -> None:
    cases: list[tuple[Any, dict[str, Any]]] = [(facts((12,), 40), {}), (MNIST, {"noise": "record"})]
    for about, options in cases:
        with pytest.raises(ParamsError, match="use coefficients"):
            adlm.plan(params("adlm", preset="authors-code", label_noise="matrix", **options), about)
    for number, options in enumerate(EARLIER):
        before = adlm.plan(params("adlm", preset="authors-code", **options), MNIST)
        assert ("label_noise" in before.parameters, "pixels" in before.parameters) == (number == 1, False)
        assert manifest.release_id(before, MNIST) == OLD_IDS[number]
    now = adlm.plan(params("adlm", preset="authors-code"), MNIST)
    assert (now.parameters["pixels"], now.parameters["allocation"]) == ("signed", "floored")
    assert manifest.release_id(now, MNIST) not in OLD_IDS


@pytest.mark.parametrize(
    ("options", "about"),
    [
        ({"allocation": "raised"}, MNIST),
        ({"allocation": "floored", "label_noise": "coefficients"}, MNIST),
        ({"pixels": "signed", "preset": "sound"}, MNIST),
        ({"pixels": "signed"}, facts((32, 32, 3), 40, 10)),
        ({"allocation": "floored"}, facts((12,), 40)),
    ],
)
def test_what_only_a_program_has_is_refused_elsewhere(options: dict[str, Any], about: Any) -> None:
    with pytest.raises(
        ParamsError, match=r"release\.options\.\w+ '\w+' is of the authors' program for \w+ images: use"
    ):
        adlm.plan(params("adlm", **{"preset": "authors-code", **options}), about)


EARLIER = ({"label_noise": "coefficients"}, {"pixels": "unit", "allocation": "clamped"})
OLD_IDS = (
    "e6fffe9df8f1bae9790e551a53dccad9675d01294e08e5c3cb01115d2421288c",
    "3956f6d26045d0099b966d4b2498c7dcf963f17adacbf2cbae3848b40aa3a623",
)
"""Of `authors-code` before it had the program's network and label noise, and before it had its pixels and shares."""
