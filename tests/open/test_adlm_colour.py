"""AdLM's authors' program for colour images: network, loss, step, noise and what comes before and after it, against a
slow oracle.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from airlock.attack.samplers import NumpySampler
from airlock.errors import ParamsError
from airlock.inside import manifest
from airlock.models.papers import crops
from airlock.models.papers.adlm_colour import AdlmColour
from airlock.params import TrainParams
from stages.mechanisms import mechanism
from stages.open.mechanisms import adlm as opened
from stages.release.keyed_noise import KeyedNoise
from stages.release.papers.adlm import adlm, colour
from tests.support import strided_oracle as oracle
from tests.support.comparison import KEY, batches, facts, params
from tests.support.sealed_records import pictures

CIFAR = facts((32, 32, 3), 50_000)
SIDE, BATCH = 4, 12


def coloured(n: int, side: int = SIDE, seed: int = 0) -> tuple[Any, Any]:
    """Bars that lie, for images are mirrored."""
    grey, labels = pictures(n, 3, side=side, seed=seed)
    grey = grey.transpose(0, 2, 1, 3)
    return np.repeat(grey, 3, axis=3) // np.array([1, 2, 3], np.uint8), labels


X, Y = coloured(30)


def released(folder: Path, x: Any = X, y: Any = Y, name: str = "ilm", **asked: Any) -> tuple[Any, Any]:
    module, shape = mechanism(name), tuple(x.shape[1:])
    about, given = (
        facts(shape, len(y), 3),
        params(name, **{"preset": "authors-code", "batch": BATCH, **asked}),
    )
    tensors, details = module.make(given, about, batches(x, y), key=KEY, release_id="a")
    data = {"kind": "image", "shape": list(shape), "labels": ["0", "1", "2"], "n": len(y)}
    plan = module.plan(given, about)
    manifest.write(folder, plan=plan, facts=about, release_id="a", details={"data": data, **details})
    return manifest.load(folder), tensors


def parts_of(network: Any) -> dict[str, Any]:
    return {name: value.double().numpy().copy() for name, value in network.state_dict().items()}


def slow_convolution(visible: Any, weight: Any, bias: Any, stride: int) -> Any:
    """(n, side, side, channels) as TensorFlow pads it: what does not divide goes behind."""
    side, kernel = visible.shape[1], weight.shape[2]
    out = math.ceil(side / stride)
    before = max((out - 1) * stride + kernel - side, 0) // 2
    weight = np.ascontiguousarray(weight.transpose(2, 3, 1, 0))
    made = np.zeros((len(visible), out, out, len(bias)))
    for i, j, r, s in itertools.product(range(out), range(out), range(kernel), range(kernel)):
        y, x = stride * i + r - before, stride * j + s - before
        if 0 <= y < side and 0 <= x < side:
            made[:, i, j] += visible[:, y, x] @ weight[r, s]
    return np.maximum(made + bias, 0)


def slow_normal(values: Any, parts: dict[str, Any], name: str, *, batch: bool) -> Any:
    axes = tuple(range(values.ndim - 1))
    mean = values.mean(axes) if batch else parts[f"{name}.running_mean"]
    variance = values.var(axes) if batch else parts[f"{name}.running_var"]
    return (values - mean) / np.sqrt(variance + 1e-3) * parts[f"{name}.weight"] + parts[f"{name}.bias"]


def slow_scores(squares: Any, parts: dict[str, Any], *, batch: bool = True) -> Any:
    values = squares * 2 - 1
    for image in values:
        image[...] = (image - image.mean()) / max(image.std(), 1 / np.sqrt(image.size))
    one = slow_convolution(values, parts["first.weight"], parts["first.bias"], 2)
    one = slow_normal(one, parts, "norms.0", batch=batch)
    two = slow_convolution(one, parts["second.weight"], parts["second.bias"], 1)
    both = slow_normal(np.concatenate([two, one], axis=3), parts, "norms.1", batch=batch)
    three = slow_convolution(both, parts["third.weight"], parts["third.bias"], 1)
    three = slow_normal(three, parts, "norms.2", batch=batch)
    half = three.shape[1] // 2
    pooled = np.zeros((len(three), half, half, three.shape[3]))
    for i, j in itertools.product(range(half), repeat=2):
        pooled[:, i, j] = three[:, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2].mean((1, 2))
    affine = pooled.reshape(len(three), -1) @ parts["last.weight"].T + parts["last.bias"]
    units = slow_normal(affine, parts, "norm", batch=batch)
    return (np.clip(units, -1, 1) if batch else units) @ parts["outputs.weight"].T + parts["outputs.bias"]


@pytest.mark.parametrize("side", [8, 7, 24])
def test_scores_are_what_the_slow_oracle_says(side: int) -> None:
    """Of squares in the middle: 2 of 24 are cut off on each side, and odd sides have an odd zero around them. The
    first image is nearly even, so that the least deviation is its.
    """
    network = AdlmColour((side, side, 3), 3).double()
    records = np.random.default_rng(0).random((3, side, side, 3))
    records[0] = 0.5 + 1e-3 * records[0]
    seen = records[:, 2:22, 2:22] if side == 24 else records
    for batch in (False, True):
        wanted = slow_scores(seen, parts_of(network), batch=batch)
        found = network.train(batch)(torch.from_numpy(records)).detach().numpy()
        assert found == pytest.approx(wanted)
    alone = network.eval()(torch.from_numpy(records[:1])).detach().numpy()
    assert alone == pytest.approx(network(torch.from_numpy(records)).detach().numpy()[:1])


def test_first_weights_are_the_programs() -> None:
    network = AdlmColour((32, 32, 3), 10)
    parts = parts_of(network)
    assert parts["last.weight"].shape == (30, 5 * 5 * 256)
    for name, inputs, maps, side in (("first", 3, 128, 3), ("second", 128, 128, 5), ("third", 256, 256, 5)):
        assert parts[f"{name}.weight"].shape == (maps, inputs, side, side)
        limit = np.sqrt(6 / ((inputs + maps) * side * side))
        assert np.abs(parts[f"{name}.weight"]).max() == pytest.approx(limit, rel=0.01)
        assert parts[f"{name}.weight"].std() == pytest.approx(limit / np.sqrt(3), rel=0.03)
        assert np.unique(parts[f"{name}.bias"]) == pytest.approx([0.0 if name == "first" else 0.1])
    for name, deviation, bias in (("last", 0.04, 0.1), ("outputs", 1 / 30, 0.0)):
        assert np.abs(parts[f"{name}.weight"]).max() <= 2 * deviation
        assert parts[f"{name}.weight"].std() == pytest.approx(0.8796 * deviation, rel=0.1)
        assert np.unique(parts[f"{name}.bias"]) == pytest.approx([bias])


def test_a_step_is_what_the_slow_oracle_says(tmp_path: Path) -> None:
    """Down the slope of mean loss, size of label noise and decay; what predicts follows by nine elevenths."""
    release, tensors = released(tmp_path, epsilon=5.0)
    course = opened.ColourProgram(
        TrainParams(batch=BATCH, learning_rate=1.0), release.details, tensors, "cpu"
    )
    before, rows = parts_of(course.network), next(course.steps(0)).numpy()
    noise, squares = (
        tensors["label_noise"] / 2**16,
        (tensors["inputs"][rows] / 255).reshape(-1, SIDE, SIDE, 3),
    )

    def loss(parts: dict[str, Any]) -> float:
        mean = oracle.taylor_loss(slow_scores(squares.copy(), parts), Y[rows]) / (len(rows) * 3)
        penalty = float(np.abs(noise * parts["outputs.weight"].T).mean())
        return mean + penalty + 0.004 * float((parts["last.weight"] ** 2).sum()) / 2

    one = next(course.steps(0))
    course.steps = lambda epoch: iter([one])  # type: ignore[method-assign]
    assert course.epoch(0) == pytest.approx(loss(before), rel=1e-5)
    after, average = parts_of(course.network), parts_of(course.average)
    layers = ("first", "second", "third", "norms.0", "norms.1", "norms.2", "last", "norm", "outputs")
    for name in (f"{layer}.{kind}" for layer in layers for kind in ("weight", "bias")):
        few = np.random.default_rng(1).permutation(before[name].size)[:2]
        slope = oracle.gradient(lambda place, name=name: loss({**before, name: place}), before[name], few)  # type: ignore[misc]
        wanted = (before[name] - slope).ravel()[few]
        assert after[name].ravel()[few] == pytest.approx(wanted, rel=1e-3, abs=2e-5), name
        assert average[name] == pytest.approx(
            before[name] + (after[name] - before[name]) * 9 / 11, abs=1e-6
        ), name


def test_every_weight_goes_down_its_slope_and_remembers_none(tmp_path: Path) -> None:
    release, tensors = released(tmp_path)
    course = opened.ColourProgram(
        TrainParams(batch=BATCH, learning_rate=0.5), release.details, tensors, "cpu"
    )
    before, drawn = parts_of(course.network), np.random.default_rng(3)
    slopes = {name: np.zeros(one.shape) for name, one in course.network.named_parameters()}
    for _ in range(2):
        for name, one in course.network.named_parameters():
            step = drawn.normal(0, 0.1, one.shape)
            slopes[name] += step
            one.grad = torch.from_numpy(step).float()
        course.optimiser.step()
    after = parts_of(course.network)
    for name, slope in slopes.items():
        assert np.allclose(after[name], before[name] - 0.5 * slope, atol=1e-6), name


def test_what_predicts_is_a_moving_average_that_begins_short(tmp_path: Path) -> None:
    release, tensors = released(tmp_path, epsilon=5.0)
    course = opened.ColourProgram(TrainParams(batch=4, learning_rate=0.1), release.details, tensors, "cpu")
    wanted = parts_of(course.network)["second.weight"]
    for epoch in (0, 1):
        for step, rows in enumerate(list(course.steps(epoch))):
            course.steps = lambda _, rows=rows, done=3 * epoch + step: _only(course, rows, done)  # type: ignore[method-assign, misc]
            course.epoch(epoch)
            del course.steps
            done = 3 * epoch + step + 1
            decay = min(0.9999, (1 + done) / (10 + done))
            wanted = decay * wanted + (1 - decay) * parts_of(course.network)["second.weight"]
    assert parts_of(course.result())["second.weight"] == pytest.approx(wanted, abs=1e-6)
    # Statistics are those of training, not averages of them.
    kept, now = dict(course.average.named_buffers()), dict(course.network.named_buffers())
    assert all(torch.equal(kept[name], now[name]) for name in now)
    assert kept["norms.0.running_mean"].any()
    # After very many steps a weight is followed by a ten-thousandth of the way.
    course.done, bias = 10**6, course.network.second.bias
    with torch.no_grad():
        bias.add_(10_000)
    wanted = parts_of(course.average)["second.bias"]
    course.stepped()
    way = parts_of(course.average)["second.bias"] - wanted
    assert way == pytest.approx((bias.detach().double().numpy() - wanted) / 10_000, rel=1e-3)


def _only(course: Any, rows: Any, done: int) -> Any:
    course.done = done
    return iter([rows])


def test_a_step_is_as_many_records_as_a_batch_has_and_fresh_squares(tmp_path: Path) -> None:
    x, y = coloured(30, side=24)
    release, tensors = released(tmp_path, x, y)
    whole = opened.ColourProgram(TrainParams(batch=100), release.details, tensors, "cpu")
    steps = [rows.tolist() for rows in whole.steps(3)]
    assert [len(rows) for rows in steps] == [12, 12, 12]
    assert sorted({*itertools.chain(*steps)}) == list(range(30))
    assert [*itertools.chain(*steps)][30:] == steps[0][:6]
    part = opened.ColourProgram(TrainParams(batch=5), release.details, tensors, "cpu")
    assert [rows.tolist() for rows in part.steps(3)] == [rows[:5] for rows in steps]
    images, tops = np.arange(2 * 24 * 24 * 3).reshape(2, 24, 24, 3), np.array([0, 4])
    squares = crops.cut(images, tops, tops[::-1])
    assert np.array_equal(squares[0], images[0, 0:20, 4:24])
    assert np.array_equal(squares[1], images[1, 4:24, 0:20])
    assert crops.middle((32, 32, 3)) == (slice(6, 26), slice(6, 26))


def test_a_step_sees_a_square_anywhere_of_each_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All five rows and columns that 20 of 24 can begin at, each by itself; others in the next epoch."""
    release, tensors = released(tmp_path, *coloured(30, side=24))
    course = opened.ColourProgram(TrainParams(batch=BATCH), release.details, tensors, "cpu")
    seen, plain = list[Any](), crops.cut

    def noted(images: Any, tops: Any, lefts: Any) -> Any:
        seen.append((images.shape, tops.tolist(), lefts.tolist()))
        return plain(images, tops, lefts)[:, :4, :4]

    small = AdlmColour((4, 4, 3), 3)
    monkeypatch.setattr(crops, "cut", noted)
    monkeypatch.setattr(course, "network", small)
    for epoch in range(4):
        for rows in course.steps(epoch):
            inputs, table = opened.batch_of(tensors, release.details, rows.numpy())
            course.loss(torch.from_numpy(inputs), torch.from_numpy(table))
    assert {shape for shape, _, _ in seen} == {(12, 24, 24, 3)}
    places = [tuple(zip(tops, lefts, strict=True)) for _, tops, lefts in seen]
    assert {*itertools.chain(*places)} == {*itertools.product(range(5), repeat=2)}
    assert len(set(places)) == 4 * 3


def slow_distortion(x: Any) -> Any:
    """Record by record, by the release's own stream."""
    stream = KeyedNoise(KEY, "a").named_stream(2, "distortions")
    made = []
    for image in x.astype(np.float64):
        mirror, contrast = (int(word) for word in stream.words(2))
        seen = image[:, ::-1] if mirror % 2 else image
        factor = 0.2 + 1.6 * contrast / 2**64
        means = np.array([seen[:, :, channel].mean() for channel in range(3)])
        made.append(np.rint((seen - means) * factor + means))
    return np.stack(made)


@pytest.mark.parametrize("name", ["adlm", "ilm"])
def test_all_records_share_one_noise_image_after_they_are_distorted(name: str, tmp_path: Path) -> None:
    x, y = coloured(90, side=16)
    options = {"network": "public"} if name == "adlm" else {}
    release, tensors = released(tmp_path, x, y, name, epsilon=2.5, **options)
    drawn = tensors["inputs"].reshape(x.shape) - slow_distortion(x)
    assert len(np.unique(drawn.reshape(90, -1), axis=0)) == 1
    # By relevance each channel of a pixel has the same; even noise is drawn for each.
    assert np.array_equal(drawn[0, :, :, 0], drawn[0, :, :, 1]) == (name == "adlm")
    assert "clip" not in release.details
    assert release.details["network"] == "adlm-colour"
    assert math.isinf(release.proven.epsilon)
    assert "shared by all records" in release.proven.reason
    assert np.array_equal(tensors["coefficients"][:, 1] / 2**16, 0.5 - np.eye(3)[y])
    assert tensors["label_noise"].shape == (30, 3)


def test_an_attack_tells_an_even_image_from_a_black_one_for_distortions_change_neither() -> None:
    even = np.stack([np.full((SIDE, SIDE, 3), value) for value in (0, 178)]).reshape(2, -1)
    stream = KeyedNoise(KEY, "a").named_stream(2, "distortions")
    ((_, found, _),) = colour.distorted([(0, even, Y[:2])], (SIDE, SIDE, 3), stream)
    assert np.array_equal(found, even)
    (target,) = adlm.targets(params("adlm", epsilon=0.01, preset="authors-code"), CIFAR)
    scores = [target.law.score(NumpySampler(1), 50, present) for present in (False, True)]
    assert scores[0].max() < scores[1].min()


def test_scales_are_the_programs() -> None:
    """Claimed 2.5: 0.25, 1.5, 0.75; Delta 5,400 on [-1, 1], 2,550, and 2 * 400 / 50,000."""
    recipe = adlm.resolve(params("adlm", epsilon=2.5, preset="authors-code"), CIFAR)
    assert recipe.epsilons == pytest.approx((0.25, 1.5, 0.75))
    assert 2 * recipe.input_scale == pytest.approx(5400 / (7200 * 1.5))
    assert recipe.label_scale == pytest.approx(2550 / (7200 * 0.75))
    assert recipe.relevance_scale == pytest.approx(2 * 400 / (0.25 * 50_000))
    given = adlm.resolve(params("adlm", preset="authors-code", budget=[0.2, 0.4, 0.4]), CIFAR)
    assert given.options.budget == (0.2, 0.4, 0.4)


def test_noise_has_the_priced_scale(tmp_path: Path) -> None:
    x, y = coloured(20, side=32)
    _, tensors = released(tmp_path, x, y, epsilon=2.5, batch=7200)
    drawn = (tensors["inputs"].reshape(x.shape) - slow_distortion(x))[0] / 255
    # Twenty records are the batch; inputs have two thirds of epsilon.
    scale = 27 * 10 * 10 / (20 * 2.5 * 0.6 / 0.9)
    assert np.abs(drawn).mean() == pytest.approx(scale, rel=0.06)


def test_relevance_is_raised_as_the_program_does_it() -> None:
    random, unit = np.random.default_rng(0), 2**16
    total = random.integers(0, 50 * unit, 24 * 24 * 3)
    sizes = [abs(total.reshape(-1, 3)[pixel].mean()) for pixel in range(24 * 24)]
    wanted = [min((one - min(sizes)) / (max(sizes) - min(sizes)) + 0.3, 1) for one in sizes]
    found = colour.raised(total, (24, 24, 3), unit)
    assert found / unit == pytest.approx(np.array(wanted), abs=2 / unit)
    noisy = found - unit // 2
    lifted = colour.lifted(noisy, (24, 24, 3), unit).reshape(24, 24, 3)
    for i, j, k in itertools.product(range(24), range(24), range(3)):
        inside = 2 <= i < 22 and 2 <= j < 22
        assert lifted[i, j, k] == noisy[24 * i + j] + (int(0.3 * unit) if inside else 0)
    shares = colour.shares(lifted.ravel(), unit)
    low = np.maximum(lifted[:, :, 0] / unit, 0.01)
    assert shares[::3].reshape(24, 24) == pytest.approx(np.maximum(24**2 * low / low.sum(), 0.01))
    assert shares.mean() == pytest.approx(1, abs=0.01)


def test_it_learns_predicts_each_record_alone_and_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    x, y = coloured(120)
    release, tensors = released(tmp_path / "release", x, y, epsilon=1e6, batch=40)
    asked = TrainParams(batch=40, learning_rate=0.5, epochs=12)
    whole: Any = opened.train(asked, release, tensors)
    fresh, labels = coloured(60, seed=1)
    assert (whole.model.predict(fresh) == labels).mean() > 0.8
    assert np.array_equal(whole.model.predict(fresh), whole.model.predict_alone(fresh))
    opened.train(asked.model_copy(update={"epochs": 5}), release, tensors, checkpoint=tmp_path / "kept")
    resumed: Any = opened.train(asked, release, tensors, checkpoint=tmp_path / "kept")
    assert all(np.array_equal(whole.model.state[key], resumed.model.state[key]) for key in whole.model.state)


def test_what_the_preset_was_before_stays_under_its_ids() -> None:
    for name, old in OLD_IDS.items():
        module = mechanism(name)
        before = module.plan(params(name, preset="authors-code", label_noise="coefficients"), CIFAR)
        assert manifest.release_id(before, CIFAR) == old
        assert manifest.release_id(module.plan(params(name, preset="authors-code"), CIFAR), CIFAR) != old
    for options in ({"label_noise": "coefficients"}, {"preset": "sound"}, {"noise": "record"}):
        with pytest.raises(ParamsError, match="absolute or clamped"):
            adlm.plan(params("adlm", **{"preset": "authors-code", "allocation": "raised", **options}), CIFAR)


OLD_IDS = {
    "adlm": "e6fffe9df8f1bae9790e551a53dccad9675d01294e08e5c3cb01115d2421288c",
    "ilm": "88254595121f889776449656177991e74cb53c73729bc61853d816c16c6927a6",
}
"""Of `authors-code` for colour images before it was the program for them."""
