"""pCDBN's program, step by step: batches, noise, both kinds of steps against a slow oracle, and the whole of it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from airlock.errors import ParamsError
from airlock.inside import manifest
from airlock.models.papers import strided
from stages.release.interactive import Keyed, walk
from stages.release.papers.dp_sgd import dp_sgd
from stages.release.papers.pcdbn import pcdbn, program
from tests.support import strided_oracle as oracle
from tests.support.comparison import KEY, MNIST, batches, facts, params
from tests.support.sealed_records import pictures

SMALL: dict[str, Any] = {
    "preset": "authors-code",
    "maps": [3, 2],
    "hidden": 4,
    "batch": 8,
    "pretraining_epochs": 1,
    "epochs": 3,
}
X, Y = pictures(20, 3, side=16)


def made(
    x: Any = X, y: Any = Y, key: bytes = KEY, epsilon: float = 0.5, device: str = "cpu", **options: Any
) -> program.Program:
    known = facts((16, 16, 1), len(y), 3)
    recipe = pcdbn.resolve(params("pcdbn", epsilon=epsilon, **{**SMALL, **options}), known)
    return program.Program(recipe, known, dp_sgd.load(batches(x, y), known), Keyed(key, "id"), device)


def parts_of(made: program.Program) -> dict[str, Any]:
    return {name: value.double().numpy().copy() for name, value in made.network.state_dict().items()}


def replaced(function: Any, parts: dict[str, Any], name: str, one: Any) -> float:
    """A function of all parts, as a function of one of them."""
    found: float = function({**parts, name: one})
    return found


def slow_batches(count: int, size: int, wanted: int) -> list[list[int]]:
    """The program's next_batch: take the next ones; where they do not suffice, begin again in a new order."""
    order, at, taken, passed = list(range(count)), 0, [], 0
    for _ in range(wanted):
        at += size
        if at > count:
            passed += 1
            drawn = torch.randperm(count, generator=torch.Generator().manual_seed(program.SEED + passed))
            order, at = drawn.tolist(), size
        taken.append(order[at - size : at])
    return taken


@pytest.mark.parametrize(("count", "size"), [(20, 8), (16, 8), (7, 7), (23, 5)])
def test_batches_are_all_of_one_size_and_what_is_left_of_a_pass_is_dropped(count: int, size: int) -> None:
    found = program.Batches(torch.arange(count), size, size)
    assert found.an_epoch == -(-count // size)
    wanted = slow_batches(count, size, 12)
    assert [found[number].tolist() for number in range(12)] == wanted
    part = program.Batches(torch.arange(count), size, 3)
    assert [part[number].tolist() for number in range(12)] == [rows[:3] for rows in wanted]


def test_null_records_are_in_no_batch() -> None:
    labels = Y.copy()
    labels[:5] = -1
    rows = made(y=labels).batches
    assert min(int(rows[number].min()) for number in range(9)) == 5


@pytest.mark.parametrize("depth", [0, 1])
def test_a_step_of_pretraining_is_what_the_slow_oracle_says(depth: int) -> None:
    course = made(epsilon=200.0, batch=4)
    before, rows = parts_of(course), course.batches[0].numpy()
    visible = X[rows].astype(float).transpose(0, 3, 1, 2) / 255
    if depth:
        visible = oracle.sigmoid(oracle.drive(visible, before["filters.0"], before["biases.0"]))
    alphas, names = np.array(course.recipe.sigmoid.alphas), (f"filters.{depth}", f"biases.{depth}")
    size = oracle.delta(visible, alphas)
    first, second = (alphas + size * draws.numpy() for draws in course.constants[depth])

    def cost(parts: dict[str, Any]) -> float:
        filters, bias = (parts[name] for name in names)
        return oracle.cost(visible, filters, bias, first, second)

    assert course.learn(depth, 0) == pytest.approx(cost(before), rel=1e-5)
    after = parts_of(course)
    for name in names:
        few = np.random.default_rng(0).permutation(before[name].size)[:10]
        slope = oracle.gradient(partial(replaced, cost, before, name), before[name], few)
        wanted = oracle.adam(before[name], [slope], rate=0.01).ravel()[few]
        # Differences are good for so much: a first step of Adam is little more than the sign of the slope.
        sure = np.abs(slope.ravel()[few]) > 1e-4
        assert sure.sum() > 1
        assert after[name].ravel()[few][sure] == pytest.approx(wanted[sure], abs=3e-5)
    assert all(np.array_equal(after[name], before[name]) for name in before if name not in names)


def test_a_step_above_the_layers_is_what_the_slow_oracle_says() -> None:
    course = made()
    before, number = parts_of(course), course.pretraining * course.batches.an_epoch + 1
    rows = course.batches[number].numpy()
    seen, noise = oracle.below(X[rows].astype(float) / 255, before), course.noise[1].double().numpy()

    def loss(parts: dict[str, Any]) -> float:
        noisy = oracle.top(seen, parts, batch=True) + noise
        return oracle.taylor_loss(noisy @ parts["outputs.weight"].T + parts["outputs.bias"], Y[rows])

    assert course.tune(number) == pytest.approx(loss(before) / len(rows), rel=1e-4)
    after = parts_of(course)
    for name in ("hidden.weight", "outputs.weight", "outputs.bias"):
        slope = oracle.gradient(partial(replaced, loss, before, name), before[name])
        sure = np.abs(slope) > 1e-3
        assert sure.mean() > 0.2
        wanted = oracle.adam(before[name], [slope], rate=2e-4)
        assert after[name][sure] == pytest.approx(wanted[sure], abs=2e-6)
    # The layers below, and scale and shift (there are none), stay as they are.
    assert np.array_equal(after["filters.0"], before["filters.0"])
    # The statistics that predictions take move a tenth of the way.
    affine = seen @ before["hidden.weight"].T + before["hidden.bias"]
    assert after["norm.running_mean"] == pytest.approx(0.1 * affine.mean(0), abs=1e-4)


def test_layers_are_learned_one_after_the_other_and_batches_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each for its epochs, then what is above them; no batch number, and so no draw of noise, comes twice."""
    course, went = made(pretraining_epochs=2, epochs=3), list[tuple[int, int]]()

    def learned(depth: int, number: int) -> float:
        went.append((depth, number))
        return 0.0

    def tuned(number: int) -> float:
        return learned(2, number)

    monkeypatch.setattr(course, "learn", learned)
    monkeypatch.setattr(course, "tune", tuned)
    walk(course.start(), course.advance, steps=course.epochs, identity="id")
    # Twenty records in batches of eight are three steps an epoch.
    assert [number for _, number in went] == list(range(3 * 7))
    assert [depth for depth, _ in went] == [0] * 6 + [1] * 6 + [2] * 9
    assert len(course.noise) == 9


def test_noise_has_the_programs_law_and_is_drawn_where_it_draws_it() -> None:
    """Twice five constants a layer, once; one vector a step above them; scales over epsilon and whole batches."""
    course = made(epochs=2000, step_records=4)
    assert course.noise.shape == (2000 * 3, 4)
    scale = 3 * (4 + 4**2 / 4) / (0.5 * 8)
    assert float(course.noise.abs().mean()) == pytest.approx(scale, rel=0.03)
    # Of a Laplace variable; a normal one would have sqrt(pi / 2).
    assert float(course.noise.std() / course.noise.abs().mean()) == pytest.approx(2**0.5, rel=0.03)
    drawn = [
        draws.numpy()
        for number in range(60)
        for layer in made(key=bytes([number] * 32), step_records=4).constants
        for draws in layer
    ]
    constants = np.stack(drawn)
    used = np.array(course.recipe.sigmoid.alphas) != 0
    assert used.sum() == 5
    assert not constants[:, ~used].any()
    assert np.abs(constants[:, used]).mean() == pytest.approx(1 / (0.5 * 8 * 32), rel=0.12)
    # Each layer, and records and reconstructions, have draws of their own.
    assert len(np.unique(constants, axis=0)) == len(constants)


def test_a_run_that_was_stopped_ends_in_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stages.release.interactive.CHECKPOINT_STEPS", 1)
    whole = made()
    wanted = walk(whole.start(), whole.advance, steps=whole.epochs, identity="id")
    first, second = made(), made()
    walk(first.start(), first.advance, steps=3, identity="id", checkpoint=tmp_path)
    found = walk(second.start(), second.advance, steps=whole.epochs, identity="id", checkpoint=tmp_path)
    assert set(found) == set(wanted)
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    assert len(found["losses"]) == 2 + 3


def test_a_step_stays_on_its_device() -> None:
    # Nothing can be computed on `meta`, and nothing on it can meet a tensor that is elsewhere: as on a GPU,
    # but without one.
    course = made(device="meta")
    network, rows, sigmoid = course.network, course.batches[0], course.recipe.sigmoid
    units = course.data.scaled(rows).to("meta").permute(0, 3, 1, 2)
    strided.cost(units, network.filters[0], network.biases[0], sigmoid, sigmoid).backward()
    network.descend(course.below[: len(rows)], course.noise[0], course.table[rows.to("meta")])
    for optimiser in course.optimisers[::2]:
        optimiser.step()
    moved = [network.filters[0], network.hidden.weight]
    assert {one.grad.device.type for one in moved if one.grad is not None} == {"meta"}
    kept = {name: value.device.type for name, value in course.start().items() if "step" not in name}
    assert kept.pop("losses") == "cpu"
    assert set(kept.values()) == {"meta"}


def test_the_device_is_the_one_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Absent ones are refused, and all tensors follow: another name of the processor ends in the same bytes."""
    known, went = facts((16, 16, 1), len(Y), 3), list[str]()

    def released(device: str) -> Any:
        asked = params("pcdbn", **{**SMALL, "device": device})
        return pcdbn.make(asked, known, batches(X, Y), key=KEY, release_id="a")[0]

    with pytest.raises(ParamsError, match=r"release\.options\.device 'nowhere' is not on this machine"):
        released("nowhere")
    wanted = released("cpu")

    def chosen(device: str, name: str) -> str:
        went.append(device)
        return "cpu:0"

    monkeypatch.setattr(program, "choose_device", chosen)
    found = released("other")
    assert went == ["other"]
    assert all(np.array_equal(wanted[name], found[name]) for name in wanted)


def test_the_program_learns_and_its_noise_reaches_what_it_learns() -> None:
    x, y = pictures(300, 3, side=16)
    fresh, labels = pictures(200, 3, side=16, seed=1)
    right = {}
    for epsilon in (1e7, 0.02):
        course = made(x, y, epsilon=epsilon, maps=[6, 6], hidden=10, batch=100, epochs=40, learning_rate=0.01)
        state = walk(course.start(), course.advance, steps=course.epochs, identity="id")
        course.put(state)
        scores = course.network.eval()(torch.from_numpy(fresh).float() / 255)
        right[epsilon] = float((scores.argmax(1).numpy() == labels).mean())
    assert right[1e7] > 0.9
    assert right[0.02] < right[1e7] - 0.2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"pretraining": "divergence"}, "architecture pooling"),
        ({"pooling": "maximum"}, "strides instead"),
        ({"preset": "repaired", "architecture": "strides"}, "preset authors-code"),
        ({"preset": "repaired", "step_records": 9}, "architecture strides"),
        ({"preset": "repaired", "device": "cuda"}, "architecture strides"),
    ],
)
def test_what_the_program_has_not_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ParamsError, match=words):
        pcdbn.plan(params("pcdbn", **{"preset": "authors-code", **options}), MNIST)


OLD: dict[str, Any] = {"architecture": "pooling", "epochs": 200, "learning_rate": 2e-3}
IDS = {
    "authors-code": "18554fbef92daf97caed4882d2f6eb7b50eb5bbc7c5852c0c9e1a51f8ad07a7e",
    "paper-literal": "90af997716ecfcbb73bdd987f9b969691c6f5572f6a724d8dbcdf34c2c335097",
    "repaired": "4618438db7787edf07c990b2e75b9d72bc104b79735eb875d2f14217fe4f9bfb",
}


@pytest.mark.parametrize("case", sorted(IDS))
def test_ids_from_before_the_program_are_what_they_were(case: str) -> None:
    """Of a25e4d9 and up to the day that `authors-code` became the program itself."""
    options: dict[str, Any] = {"authors-code": OLD}.get(case, {})
    plan = pcdbn.plan(params("pcdbn", epsilon=0.5, preset=case, **options), MNIST)
    assert manifest.release_id(plan, MNIST) == IDS[case]


def test_the_programs_own_id_is_another_and_names_what_shapes_it() -> None:
    plan = pcdbn.plan(params("pcdbn", epsilon=0.5, preset="authors-code"), MNIST)
    assert manifest.release_id(plan, MNIST) != IDS["authors-code"]
    assert plan.parameters["architecture"] == "strides"
    assert not {"pooling", "device"} & set(plan.parameters)
    # Version 2 was the program with its sums in another order.
    assert plan.version == 3
    assert (plan.parameters["epochs"], plan.parameters["learning_rate"], plan.passes) == (2400, 2e-4, 2420)
    fewer = pcdbn.plan(params("pcdbn", epsilon=0.5, preset="authors-code", step_records=120), MNIST)
    assert manifest.release_id(fewer, MNIST) != manifest.release_id(plan, MNIST)
