"""Neuron allocation: what it costs, what one record can move, what its bytes are, and what an attack sees of
it.
"""

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
from airlock.models.features.features import feature_map
from airlock.models.features.projection import spectral_radius, steps_of
from airlock.models.features.rows import LIMIT
from airlock.models.papers.hidden_layer import Discriminant, lower_of
from airlock.params import Params, TrainParams
from airlock.privacy import accounting, events
from airlock.privacy.noise import add_noise
from airlock.storage import load_model, save_model
from stages.mechanisms import mechanism
from stages.open.mechanisms.neuron_allocation import PULL_STRENGTH
from stages.release.papers.neuron import neuron_allocation
from stages.release.passes import Records, Wanted
from tests.support import attacks
from tests.support.sealed_records import facts, pictures, seal, table

NOISE = b"n" * 32
QUICK = {"epochs": 3, "hidden": 6}


def parameters(*, epsilon: float = 1.0, neighbours: str = "zero-out", **options: Any) -> Params:
    release = {
        "mechanism": "neuron-allocation",
        "epsilon": epsilon,
        "neighbours": neighbours,
        "options": options,
    }
    return Params.model_validate({"release": release, "relevance": {"mode": "off"}})


def make(
    folder: Path, params: Params, x: Any, y: Any, classes: int = 3, **sealing: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    return neuron_allocation.make(
        params, facts(x, classes), seal(folder, x, y, **sealing), key=NOISE, release_id="id"
    )


@pytest.mark.parametrize("neighbours", ["zero-out", "replace-one"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("data", [table(40, 5, 3), pictures(40, 3)])
def test_a_plan_never_promises_more_than_was_asked(neighbours: str, epsilon: float, data: Any) -> None:
    plan = neuron_allocation.plan(parameters(epsilon=epsilon, neighbours=neighbours), facts(data[0], 3))
    assert plan.proven.event is not None
    again = accounting.epsilon(events.from_json(plan.proven.event), 1e-5, neighbours=neighbours)
    assert 0.999999 * epsilon <= plan.proven.epsilon == again <= epsilon
    assert plan.passes == {"tabular": 4, "image": 5}[facts(data[0], 3).kind]
    assert plan.interactive and not plan.public_only


def test_direction_changes_the_release_and_not_its_price() -> None:
    known = facts(table(40, 5, 3)[0], 3)
    plans = [
        neuron_allocation.plan(parameters(direction=name), known)
        for name in ("important", "opposite", "equal")
    ]
    assert len({plan.proven.epsilon for plan in plans}) == 1
    assert len({manifest.release_id(plan, known) for plan in plans}) == 3


def test_users_pay_for_all_of_their_records() -> None:
    known = facts(table(40, 5, 3)[0], 3, users=10, per_user=4)
    user = Params.model_validate({"release": {"unit": "user"}})
    scales = [
        {one.purpose: one.sensitivity for one in asked(params, known)} for params in (parameters(), user)
    ]
    assert {name: scales[1][name] / scales[0][name] for name in scales[0]} == pytest.approx(
        dict.fromkeys(scales[0], 4.0)
    )


def asked(params: Params, known: Any) -> Any:
    return neuron_allocation.queries(neuron_allocation.resolve(params, known), params)


def test_bad_options_are_one_clear_line() -> None:
    known = facts(table(40, 5, 3)[0], 3)
    with pytest.raises(ParamsError, match="sum to less than 1"):
        neuron_allocation.plan(parameters(first_share=0.9, gram_share=0.2), known)
    with pytest.raises(ParamsError, match="is auto"):
        neuron_allocation.plan(Params.model_validate({"release": {"passes": 2}}), known)
    with pytest.raises(ParamsError, match="direction"):
        neuron_allocation.plan(parameters(direction="sideways"), known)


# --- Sensitivity: every pass, given the same earlier releases
# -----------------------------------------------------------------


def distance(one: Any, other: Any) -> float:
    return math.sqrt(sum(int(value) ** 2 for value in (one.astype(object) - other.astype(object)).ravel()))


def hostile(seed: int, rows: int) -> neuron_allocation.Ratios:
    """A lower network that earlier releases could have given, as bad as it gets: few neurons, far apart
    scales.
    """
    random = np.random.default_rng(seed)
    space = Discriminant(
        random.standard_normal((rows, 2)) * 10.0 ** (seed % 5), random.standard_normal((3, 2)), 9
    )
    hidden = 1 + seed % 4
    layers = [
        (random.standard_normal((2, hidden)), random.standard_normal(hidden) * (seed % 3)),
        (random.standard_normal((hidden, 3)), np.zeros(3)),
    ]
    return neuron_allocation.Ratios(lower_of(space, layers))


records_of_a_neighbour = st.lists(st.floats(0, 1) | st.sampled_from([0.0, 1.0]), min_size=4, max_size=4)


@settings(max_examples=25)
@given(
    records_of_a_neighbour,
    records_of_a_neighbour,
    st.integers(0, 2),
    st.integers(0, 2),
    st.integers(0, 60),
    st.sampled_from(["important", "opposite", "equal"]),
)
def test_no_neighbour_moves_a_sum_by_more_than_its_sensitivity(
    tmp_path_factory: pytest.TempPathFactory,
    one: list[float],
    other: list[float],
    label: int,
    other_label: int,
    seed: int,
    direction: Any,
) -> None:
    """Adversarial neighbours: sealed records in, exact sums out, in the two passes that `coefficients` does
    not have.
    """
    folder = tmp_path_factory.mktemp("neighbours")
    x, y = table(9, 4, 3, seed)
    made = feature_map("tabular-2", "tabular", (4,))
    question = hostile(seed, 5)
    noisy = np.random.default_rng(seed).integers(-(10**6), 10**6, question.lower.output.shape[0])
    centre = np.random.default_rng(seed).integers(-LIMIT // 3, LIMIT // 3, 4)
    sums: dict[str, dict[str, Any]] = {}
    for world, (record, its_label, valid) in {
        "here": (one, label, 1),
        "there": (other, other_label, 1),
        "null": ([0.0] * 4, -1, 0),
    }.items():
        x[4], y[4] = record, its_label
        present = np.ones(9, np.uint8)
        present[4] = valid
        records = Records(seal(folder, x, y, present, rows=4), made, (4,))
        records.steps = [*steps_of({"centre": centre}, made.bias), question.lower.step]
        sums[world] = dict(records.ask(question))
        records.steps = [*records.steps, neuron_allocation.allocate(question.lower, noisy, direction)]
        sums[world] |= records.ask(Wanted({"gram": "gram", "cross": "cross"}, 3))
    for neighbours, world in (("zero-out", "null"), ("replace-one", "there")):
        bounds = {
            query.purpose: query.sensitivity
            for query in asked(parameters(neighbours=neighbours), facts(x, 3))
        }
        for name, value in sums["here"].items():
            assert distance(value, sums[world][name]) <= bounds[name], (neighbours, name)


def test_the_bound_on_ratios_is_reached() -> None:
    """One neuron does all for one record, another for the other: noise is not larger than it must be."""
    question = hostile(3, 5)
    lower = question.lower
    alone = np.eye(len(lower.output)) * LIMIT
    shares = [neuron_allocation.sum_of_ratios(alone[place : place + 1], lower) for place in range(2)]
    bounds = {
        near: asked(parameters(neighbours=near), facts(table(9, 4, 3)[0], 3))
        for near in ("zero-out", "replace-one")
    }
    ratio = {
        near: next(one.sensitivity for one in found if one.purpose == "ratios")
        for near, found in bounds.items()
    }
    assert distance(shares[0], 0 * shares[0]) == LIMIT <= ratio["zero-out"] < LIMIT * 1.001
    assert LIMIT * 1.414 < distance(shares[0], shares[1]) <= ratio["replace-one"] < LIMIT * 1.415


# --- Bytes
# --------------------------------------------------------------------------------------------------


def test_the_release_is_what_the_slow_oracle_says(tmp_path: Path) -> None:
    """Given the released steps: neurons, ratios' pass and moments once more, record by record in Python's
    integers.
    """
    x, y = table(30, 4, 3)
    valid = np.arange(30) % 7 != 3
    params = parameters(epsilon=20.0, **QUICK)
    tensors, details = neuron_allocation.make(
        params, facts(x, 3), seal(tmp_path, x, y, valid), key=NOISE, release_id="id"
    )
    made = feature_map("tabular-2", "tabular", (4,))
    rows = made(np.where(valid[:, None], x, 0), valid.astype(np.uint8))
    first, neurons, last = steps_of(tensors, made.bias)
    final = []
    for row, is_valid in zip(rows, valid, strict=True):
        flag = np.array([is_valid], np.uint8)
        below = first(row[None], flag)[0].astype(int).tolist()
        products = [
            sum(a * int(w) for a, w in zip(below, column, strict=True)) for column in neurons.matrix.T
        ]
        raised = [
            max(0, int(math.copysign(abs(p) // 4096, p)) + int(b)) if is_valid else 0
            for p, b in zip(products, neurons.offset, strict=True)
        ]
        assert sum(value * value for value in raised) <= LIMIT**2, (
            "the oracle is for rows that are not shortened"
        )
        weighed = [(z - int(c)) * int(w) for z, c, w in zip(raised, last.centre, last.weights, strict=False)]
        weighed = [*weighed, last.bias * int(last.weights[-1])] if is_valid else [0] * 7
        square = sum(value * value for value in weighed)
        final.append(
            [int(math.copysign(math.isqrt(v * v * LIMIT**2 // square), v)) if square else 0 for v in weighed]
        )
    targets = [
        [2 if label == c else -1 for c in range(3)] if ok else [0] * 3
        for label, ok in zip(y, valid, strict=True)
    ]
    gram = [[sum(row[i] * row[j] for row in final) for j in range(7)] for i in range(7)]
    cross = [
        [sum(row[i] * t[c] for row, t in zip(final, targets, strict=True)) for c in range(3)]
        for i in range(7)
    ]
    for name, exact, form in (("gram", gram, "symmetric-gaussian"), ("cross", cross, "gaussian")):
        given_noise = {
            "key": NOISE,
            "release_id": "id",
            "release_pass": 4,
            "purpose": name,
            "scale": details["sums"][name]["scale"],
        }
        assert np.array_equal(
            tensors[name], add_noise(np.array(exact, np.int64), form=form, **given_noise)
        ), name


@pytest.mark.parametrize("data", [table(90, 4, 3), pictures(60, 3)])
def test_chunks_do_not_change_a_bit(tmp_path: Path, data: Any) -> None:
    made = []
    for rows in (90, 16):
        (tmp_path / str(rows)).mkdir()
        made.append(make(tmp_path / str(rows), parameters(epsilon=5.0, **QUICK), *data, rows=rows)[0])
    assert all(np.array_equal(made[0][name], made[1][name]) for name in made[0])


def test_released_ratios_are_ratios(tmp_path: Path) -> None:
    x, y = table(2000, 5, 3)
    tensors, _ = make(tmp_path, parameters(epsilon=50.0, **QUICK), x, y, rows=1024)
    assert tensors["ratios"].sum() == pytest.approx(2000 * LIMIT, rel=0.02)
    assert tensors["ratios"].min() > -0.01 * 2000 * LIMIT


# --- What it is good for, and what an attack sees
# -----------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [table(1200, 6, 3), pictures(400, 3)])
@pytest.mark.parametrize("direction", ["important", "equal"])
def test_a_model_is_trained_and_survives_the_disk(tmp_path: Path, data: Any, direction: str) -> None:
    held = len(data[1]) // 4
    fresh, data = tuple(part[:held] for part in data), tuple(part[held:] for part in data)
    params, known = parameters(epsilon=60.0, direction=direction, hidden=12, epochs=40), facts(data[0], 3)
    tensors, details = make(tmp_path, params, *data, rows=256)
    about = {
        "kind": known.kind,
        "n": known.n,
        "shape": list(known.shape),
        "labels": list(known.labels),
        "schema": "s",
    }
    (tmp_path / "out").mkdir()
    plan = neuron_allocation.plan(params, known)
    manifest.write(
        tmp_path / "out", plan=plan, facts=known, release_id="id", details={"data": about, **details}
    )
    trained = mechanism("neuron-allocation", "open").train(
        TrainParams(), manifest.load(tmp_path / "out"), tensors
    )
    assert (trained.model.predict(fresh[0]) == fresh[1]).mean() > 0.9
    save_model(trained.model, tmp_path / "model")
    assert np.array_equal(load_model(tmp_path / "model").logits(fresh[0]), trained.model.logits(fresh[0]))


def test_an_attack_stays_below_the_proof_and_half_the_noise_is_noticed() -> None:
    known, quiet = (
        facts(table(400, 30, 2)[0], 2),
        {"confidence": 0.95, "seed": 0, "sampler": "auto", "tick": lambda done, total: None},
    )
    sound, faulty = (
        attack.attack(attacks.targets_of(parameters(), known, factor=f)[0], trials=200_000, **quiet)
        for f in (1.0, 0.5)
    )
    assert 0.7 < sound.finding.best <= sound.target.proven <= 1.0
    assert (sound.word, faulty.word) == ("within the proof", "refutes the proof")


def test_the_release_itself_is_attacked_and_keeps_its_word() -> None:
    """Few records, the last one present or not: a learned score
    over all released numbers, ratios among them.
    """
    generator = np.random.default_rng(0)
    records, labels = generator.random((4, 3)), np.array([0, 1, 0, 1])
    records[3] = 1.0
    target = attacks.black_box(
        parameters(hidden=3, epochs=1), facts(records, 2), records, labels, seed=0, runs=8
    )
    quiet = {"confidence": 0.95, "seed": 0, "sampler": "auto", "tick": lambda done, total: None}
    assert attack.attack(target, trials=12, **quiet).finding.epsilon <= target.proven <= 1.0


def test_expected_moments_decide_where_the_noise_is_large(tmp_path: Path) -> None:
    """At a tiny epsilon the head follows the released model, at a large one the records: expected records
    fade.
    """
    x, y = table(300, 6, 3)
    weights = {}
    for epsilon in (0.01, 100.0):
        (tmp_path / str(epsilon)).mkdir()
        tensors, details = make(tmp_path / str(epsilon), parameters(epsilon=epsilon, **QUICK), x, y)
        size = len(tensors["gram"])
        assert np.trace(tensors["expected.gram"]) == pytest.approx(details["samples"] * LIMIT**2, rel=0.01)
        weights[epsilon] = (
            PULL_STRENGTH * spectral_radius(size, details["sums"]["gram"]["scale"]) / LIMIT**2 * size / 300
        )
    assert weights[0.01] > 10 and weights[100.0] < 0.2
