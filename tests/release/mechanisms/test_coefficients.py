"""The flagship mechanism: its sums, its sensitivity, its bytes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airlock.errors import ParamsError
from airlock.models import sureness
from airlock.models.features.features import feature_map
from airlock.models.features.projection import steps_of
from airlock.models.features.rows import LIMIT
from airlock.models.features.softmax import BOUND, residuals
from airlock.params import Params
from airlock.privacy import accounting, events, sensitivity
from airlock.privacy.noise import add_noise
from airlock.privacy.sums import label_rows
from stages.mechanisms import Whole
from stages.release import perturb, relevance
from stages.release.mechanisms import coefficients, iterated, recipes
from stages.release.mechanisms.heads import Head
from stages.release.noisy_sums import price
from stages.release.passes import Chunk, Records, Wanted, cross_of, gram_of, sum_of
from tests.support.sealed_records import facts, pictures, seal, table

NOISE = b"n" * 32
MECHANISMS = {"coefficients": coefficients, "coefficients-iterated": iterated}


def parameters(mode: str = "off", **release: Any) -> Params:
    """In one stage, where nothing else is asked for."""
    return Params.model_validate({"relevance": {"mode": mode}, "release": {"delta": 1e-5, **release}})


@pytest.mark.parametrize("mechanism", MECHANISMS.values())
@pytest.mark.parametrize("neighbours", ["zero-out", "replace-one"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("data", [table(40, 5, 3), pictures(40, 3)])
@pytest.mark.parametrize("mode", ["off", "auto"])
def test_a_plan_never_promises_more_than_was_asked(
    mechanism: Any, neighbours: str, epsilon: float, data: Any, mode: str
) -> None:
    params = parameters(mode, epsilon=epsilon, neighbours=neighbours)
    plan = Whole(mechanism).plan(params, facts(data[0], 3))
    assert plan.proven.event is not None
    again = accounting.epsilon(events.from_json(plan.proven.event), 1e-5, neighbours=neighbours)
    assert 0.999999 * epsilon <= plan.proven.epsilon == again <= epsilon
    first, rounds = {"tabular": (2, 10), "image": (3, 14)}[facts(data[0], 3).kind]
    assert plan.passes == first + (rounds if plan.interactive else 0)


def test_relevance_and_release_share_one_budget() -> None:
    x, _ = table(40, 5, 3)
    alone = coefficients.plan(parameters(epsilon=1.0), facts(x, 3))
    params = Params.model_validate(
        {"release": {"epsilon": 1.0}, "relevance": {"mode": "statistics", "share": 0.2}}
    )
    beside = coefficients.plan(params, facts(x, 3))
    squares = [
        sum(one["noise_multiplier"] ** -2 for one in plan.proven.event["events"]) for plan in (alone, beside)
    ]
    assert squares[1] == pytest.approx(0.8 * squares[0], rel=1e-12)


def test_a_user_with_many_records_costs_more_noise() -> None:
    x, _ = table(40, 5, 3)
    params = parameters(unit="user")
    with pytest.raises(ParamsError, match="names the user column"):
        coefficients.plan(params, facts(x, 3))
    known = facts(x, 3, users=10, per_user=4)
    one, four = (
        price(recipes.queries(recipes.resolve(p, known), p), p.release) for p in (parameters(), params)
    )
    assert [b.scale / a.scale for a, b in zip(one, four, strict=True)] == pytest.approx([4.0] * 3)
    assert coefficients.plan(params, known).proven.unit == "user"


@pytest.mark.parametrize("passes", [0, 4, 13])
def test_other_numbers_of_passes_are_refused(passes: int) -> None:
    with pytest.raises(ParamsError, match="use auto, 1, 2 or 3"):
        coefficients.plan(parameters(passes=passes), facts(table(40, 5, 3)[0], 3))


def test_shares_must_leave_something() -> None:
    params = parameters(options={"mean_share": 0.5, "gram_share": 0.6})
    with pytest.raises(ParamsError, match="sum to less than 1"):
        coefficients.plan(params, facts(table(40, 5, 3)[0], 3))


# --- The mechanism written again, slowly, in Python integers
# -------------------------------------------------------------


def oracle_root(value: int, square: int) -> int:
    """value * LIMIT / sqrt(square), toward zero, exactly."""
    return int(math.copysign(math.isqrt(value * value * LIMIT * LIMIT // square), value)) if square else 0


def oracle_normalise(row: list[int]) -> list[int]:
    square = sum(value * value for value in row)
    return [oracle_root(value, square) for value in row]


def oracle_noise(total: list[Any], scale: float, release_pass: int, purpose: str, form: str) -> np.ndarray:
    return add_noise(
        np.array(total, np.int64),
        key=NOISE,
        release_id="id",
        release_pass=release_pass,
        purpose=purpose,
        scale=scale,
        form=form,
    )


def oracle(
    rows: list[list[int]], labels: list[int], classes: int, bias: int, scales: dict[str, float]
) -> dict[str, np.ndarray]:
    """Two passes over a table: mean, then Gram matrix and cross moments."""
    n, width = len(rows), len(rows[0])
    mean = oracle_noise(
        [sum(row[j] for row in rows) for j in range(width)], scales["mean"], 1, "mean", "gaussian"
    )
    centre = [int(math.copysign(abs(int(value)) // n, int(value))) for value in mean]
    final = [
        oracle_normalise([row[j] - centre[j] for j in range(width)] + [bias])
        if label >= 0
        else [0] * (width + 1)
        for row, label in zip(rows, labels, strict=True)
    ]
    targets = [
        [classes - 1 if c == label else -1 for c in range(classes)] if label >= 0 else [0] * classes
        for label in labels
    ]
    gram = [[sum(row[i] * row[j] for row in final) for j in range(width + 1)] for i in range(width + 1)]
    cross = [
        [sum(row[i] * t[c] for row, t in zip(final, targets, strict=True)) for c in range(classes)]
        for i in range(width + 1)
    ]
    return {
        "centre": np.array(centre),
        "gram": oracle_noise(gram, scales["gram"], 2, "gram", "symmetric-gaussian"),
        "cross": oracle_noise(cross, scales["cross"], 2, "cross", "gaussian"),
    }


def test_the_release_is_what_the_slow_oracle_says(tmp_path: Path) -> None:
    x, y = table(30, 4, 3)
    valid = np.arange(30) % 7 != 3
    known, params = facts(x, 3), parameters(epsilon=20.0)
    tensors, details = coefficients.make(
        params, known, seal(tmp_path, x, y, valid), key=NOISE, release_id="id"
    )
    made = feature_map("tabular-2", "tabular", (4,))
    rows = made(np.where(valid[:, None], x, 0), valid.astype(np.uint8)).astype(int).tolist()
    labels = np.where(valid, y, -1).tolist()
    scales = {purpose: one["scale"] for purpose, one in details["sums"].items()}
    expected = oracle(rows, labels, 3, made.bias, scales)
    assert set(tensors) == set(expected)
    for name in expected:
        assert np.array_equal(tensors[name], expected[name]), name


def test_rounds_after_a_public_preparation_are_what_the_slow_oracle_says(tmp_path: Path) -> None:
    """Mean, centre, rounds from nothing with momentum: record by record, in Python integers."""
    x, y = table(30, 4, 3)
    valid = np.arange(30) % 7 != 3
    options = {"preparation": "public", "momentum": 0.5, "step": 0.25}
    params = parameters(
        mechanism="coefficients-iterated", epsilon=20.0, passes=4, options=options, features="tabular-2"
    )
    tensors, details = iterated.make(
        params, facts(x, 3), seal(tmp_path, x, y, valid), key=NOISE, release_id="id"
    )
    made = feature_map("tabular-2", "tabular", (4,))
    rows = made(np.where(valid[:, None], x, 0), valid.astype(np.uint8)).astype(int).tolist()
    scales, labels = {name: one["scale"] for name, one in details["sums"].items()}, np.where(valid, y, -1)
    assert list(scales) == ["mean", "residuals-1", "residuals-2", "residuals-3"]
    mean = oracle_noise(
        [sum(row[j] for row in rows) for j in range(4)], scales["mean"], 1, "mean", "gaussian"
    )
    middle = [int(value / 30) for value in mean]
    assert tensors["centre"].tolist() == middle
    centred = [
        oracle_normalise([*(a - c for a, c in zip(row, middle, strict=True)), made.bias] if fine else [0] * 5)
        for row, fine in zip(rows, valid, strict=True)
    ]
    head = oracle_rounds(
        Head.of(np.zeros((5, 3))),
        centred,
        labels,
        details["sums"],
        0.5,
        0.5,
        lambda noisy: 0.25 * 5 / 30 * noisy,
    )
    assert np.array_equal(tensors["head"], head.integers)
    assert details["head_unit"] == head.unit
    assert set(tensors) == {"centre", "head"}


def test_rounds_after_a_private_preparation_are_what_the_slow_oracle_says(tmp_path: Path) -> None:
    """From the closed form of the released moments, with momentum."""
    x, y = table(30, 4, 3)
    valid = np.arange(30) % 7 != 3
    options = {"momentum": 0.5, "step": 0.25, "clip": 0.4, "ridge": 0.2}
    params = parameters(
        mechanism="coefficients-iterated", epsilon=20.0, passes=5, options=options, features="tabular-2"
    )
    tensors, details = iterated.make(
        params, facts(x, 3), seal(tmp_path, x, y, valid), key=NOISE, release_id="id"
    )
    made = feature_map("tabular-2", "tabular", (4,))
    rows = made(np.where(valid[:, None], x, 0), valid.astype(np.uint8)).astype(int)
    centred = [
        oracle_normalise([*(row - tensors["centre"]).tolist(), made.bias] if fine else [0] * 5)
        for row, fine in zip(rows, valid, strict=True)
    ]
    gram = tensors["gram"] / LIMIT**2
    values, vectors = np.linalg.eigh(gram)
    radius = math.sqrt(2 * 5) * details["sums"]["gram"]["scale"] / LIMIT**2
    inverse = vectors @ np.diag(1 / (np.maximum(values, 0) + 0.2 * radius)) @ vectors.T
    start = Head.of(0.8 * inverse @ tensors["cross"] / LIMIT)
    head = oracle_rounds(
        start,
        centred,
        np.where(valid, y, -1),
        details["sums"],
        0.4,
        0.5,
        lambda noisy: 0.25 * 3 * inverse @ noisy,
    )
    found, expected = tensors["head"] * details["head_unit"], head.weights
    assert np.allclose(found, expected, rtol=0, atol=1e-6 * np.abs(expected).max())
    assert iterated.plan(params, facts(x, 3)).parameters["momentum"] == 0.5


def oracle_rounds(
    head: Head,
    rows: list[list[int]],
    labels: np.ndarray,
    sums: dict[str, Any],
    clip: float,
    momentum: float,
    advance: Callable[[np.ndarray], np.ndarray],
) -> Head:
    """All rounds that `sums` has noise of, record by record, in Python integers."""
    moving = np.zeros_like(head.weights)
    for name in [name for name in sums if name.startswith("residuals-")]:
        total = [[0] * head.weights.shape[1] for _ in head.weights]
        for row, label in zip(rows, labels, strict=True):
            target = np.eye(head.weights.shape[1])[[label]] * (label >= 0)
            gap = residuals(head.scores(np.array([row], np.float64)), target, clip)[0].astype(int).tolist()
            total = [
                [value + a * g for value, g in zip(own, gap, strict=True)]
                for own, a in zip(total, row, strict=True)
            ]
        noisy = oracle_noise(total, sums[name]["scale"], sums[name]["pass"], name, "gaussian")
        moving = momentum * moving + noisy * (clip / (LIMIT * BOUND))
        head = Head.of(head.weights + advance(moving))
    return head


def test_a_public_preparation_has_its_own_refusals_and_leaves_old_ids_alone() -> None:
    x, _ = table(40, 5, 3)
    for release, match in (
        ({"options": {"preparation": "public", "gram_share": 0.1}}, "gram_share"),
        ({"options": {"preparation": "public"}, "passes": 1}, "use auto or 2 to 101"),
    ):
        with pytest.raises(ParamsError, match=match):
            iterated.plan(parameters(**release), facts(x, 3))
    weighed = parameters("lrp", options={"preparation": "public"})
    with pytest.raises(ParamsError, match="columns have weights of their own"):
        iterated.plan(weighed, facts(x, 3))
    plain, said = (
        iterated.plan(parameters(options=one), facts(x, 3)) for one in ({}, {"preparation": "private"})
    )
    assert plain.parameters == said.parameters
    assert "preparation" not in plain.parameters


# --- Sensitivity: every pass, given the same earlier releases
# ----------------------------------------------------------------


def contributions(records: Records, question: Callable[[Chunk], Any]) -> dict[str, np.ndarray]:
    return {name: value.astype(object) for name, value in records.ask(question).items()}


def distance(one: np.ndarray, other: np.ndarray) -> float:
    return math.sqrt(sum(int(value) ** 2 for value in (one - other).ravel()))


def questions(steps: int, classes: int, size: int, seed: int) -> dict[str, Callable[[Chunk], Any]]:
    """What is asked after so many steps.

    The head of the rounds stands for any that earlier releases could have given.
    """
    if steps == 0:
        return {"mean": Wanted({"mean": "sum"})}
    head = iterated.Head.of(np.random.default_rng(seed).standard_normal((size, classes)) * 10.0 ** (seed % 4))
    return {
        "gram": Wanted({"gram": "gram"}),
        "cross": Wanted({"cross": "cross"}, classes),
        "residuals": iterated.Residuals(head, 0.3),
        "sureness": iterated.Residuals(head, 0.3, last=True),
    }


records_of_a_neighbour = st.lists(st.floats(0, 1) | st.sampled_from([0.0, 1.0]), min_size=4, max_size=4)


@settings(max_examples=40)
@given(
    records_of_a_neighbour,
    records_of_a_neighbour,
    st.integers(0, 2),
    st.integers(0, 2),
    st.integers(0, 20),
    st.sampled_from([0, 1, 2]),
    st.sampled_from(["tabular-2", "hybrid-6-1@n.g3.c2"]),
)
def test_no_neighbour_moves_a_sum_by_more_than_its_sensitivity(
    tmp_path_factory: pytest.TempPathFactory,
    one: list[float],
    other: list[float],
    label: int,
    other_label: int,
    seed: int,
    steps: int,
    features: str,
) -> None:
    """Adversarial neighbours, end to end: sealed records in, exact sums out, in every pass of both
    mechanisms.
    """
    folder = tmp_path_factory.mktemp("neighbours")
    x, y = table(9, 4, 3, seed)
    worlds = {"as it is": (one, label, 1), "replaced": (other, other_label, 1), "null": ([0.0] * 4, -1, 0)}
    params, made = (
        parameters(epsilon=5.0, passes=3, features=features),
        feature_map(features, "tabular", (4,)),
    )
    released = coefficients.make(params, facts(x, 3), seal(folder, x, y), key=NOISE, release_id=str(seed))[0]
    sums: dict[str, dict[str, np.ndarray]] = {}
    for world, (record, its_label, is_valid) in worlds.items():
        x[4], y[4] = record, its_label
        valid = np.ones(9, np.uint8)
        valid[4] = is_valid
        records = Records(seal(folder, x, y, valid, rows=4), made, (4,))
        records.steps = steps_of(released, made.bias)[:steps]
        sums[world] = {
            name: contributions(records, question)[name]
            for name, question in questions(steps, 3, made.width + 1, seed).items()
        }
    bounds = {
        near: {
            "mean": sensitivity.mean(LIMIT, neighbours=near),
            "gram": sensitivity.gram(LIMIT, neighbours=near),
            "cross": sensitivity.cross(LIMIT, labels="centred", classes=3, neighbours=near),
            "residuals": sensitivity.bounded_cross(LIMIT, BOUND, neighbours=near),
            "sureness": sensitivity.mean(sureness.norm(), neighbours=near),
        }
        for near in ("zero-out", "replace-one")
    }
    for name, value in sums["as it is"].items():
        assert distance(value, sums["null"][name]) <= bounds["zero-out"][name]
        assert distance(value, sums["replaced"][name]) <= bounds["replace-one"][name]


def test_the_bounds_are_nearly_reached() -> None:
    """One record alone, at the end of the grid: noise is not larger than it must be."""
    made = feature_map("tabular-2", "tabular", (4,))
    valid = np.ones(1, np.uint8)
    chunk = Chunk(made(np.ones((1, 4)), valid), np.array([0], np.int32), valid)
    assert distance(sum_of(chunk).astype(object), np.zeros(4, object)) > 0.999 * LIMIT
    assert distance(gram_of(chunk).astype(object), np.zeros((4, 4), object)) > 0.999 * LIMIT**2
    targets = label_rows(chunk.labels, 3, centred=True)
    assert distance(
        cross_of(chunk, targets, 3).astype(object), np.zeros((4, 3), object)
    ) > 0.999 * LIMIT * math.sqrt(6)


# --- Bytes
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("data", [table(90, 4, 3), pictures(90, 3)])
@pytest.mark.parametrize("layout", [None, "n.g3.c2"])
def test_chunks_workers_and_caches_do_not_change_a_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, data: Any, layout: str | None
) -> None:
    x, y = data
    known, params, make = (
        facts(x, 3, layout=layout),
        parameters(epsilon=5.0, mechanism=name),
        MECHANISMS[name].make,
    )
    made = []
    for index, (rows, cache) in enumerate([(90, 2**30), (16, 0), (7, 3000)]):
        monkeypatch.setattr(Records.__init__, "__kwdefaults__", {"cache_bytes": cache, "elsewhere": None})
        folder = tmp_path / str(index)
        folder.mkdir()
        made.append(make(params, known, seal(folder, x, y, rows=rows), key=NOISE, release_id="id")[0])
    for other in made[1:]:
        assert set(other) == set(made[0])
        assert all(np.array_equal(other[tensor], made[0][tensor]) for tensor in other)


def test_the_order_of_chunks_does_not_change_a_sum(tmp_path: Path) -> None:
    x, y = table(64, 4, 3)
    made = feature_map("tabular-2", "tabular", (4,))
    order = np.random.default_rng(0).permutation(64)
    totals = []
    for index, rows in enumerate((np.arange(64), order)):
        folder = tmp_path / str(index)
        folder.mkdir()
        records = Records(seal(folder, x[rows], y[rows], rows=8), made, (4,))
        totals.append(records.ask(Wanted({"mean": "sum", "gram": "gram", "cross": "cross"}, 3)))
    assert all(np.array_equal(totals[0][name], totals[1][name]) for name in totals[0])


def test_another_record_means_other_noise(tmp_path: Path) -> None:
    """Noise is keyed by the exact sum, so the difference of two releases is not the difference of two data
    sets.
    """
    x, y = table(50, 4, 3)
    params, known = parameters(epsilon=1.0, passes=1), facts(x, 3)
    one = coefficients.make(params, known, seal(tmp_path, x, y), key=NOISE, release_id="id")[0]
    x[0] = 1 - x[0]
    other = coefficients.make(params, known, seal(tmp_path, x, y), key=NOISE, release_id="id")[0]
    assert distance(one["gram"].astype(object), other["gram"].astype(object)) > 5 * LIMIT**2


def test_the_stages_price_auto_as_what_it_means() -> None:
    known = facts(table(50, 4, 3)[0], 3, layout="n.g3.c2")
    passes = []
    for stage in (relevance, perturb):
        auto, named = (
            stage.plans(Params.model_validate({"release": {"mechanism": name}}), known)
            for name in ("auto", "coefficients-iterated")
        )
        assert auto == named
        passes.append(next(iter(auto.values())).passes)
    assert passes == [1, 6]


@pytest.mark.parametrize(
    ("epsilon", "features", "passes", "width"),
    [(1.0, "tabular-2", 7, 4), (3.0, "hybrid-32-1@n.g3.c2", 10, 39)],
)
def test_a_table_with_a_layout_is_released_by_the_rule(
    tmp_path: Path, epsilon: float, features: str, passes: int, width: int
) -> None:
    """Map, clip and rounds by signal, and what the last round asks besides: the details name every pass."""
    x, y = table(50, 4, 3)
    params = parameters(mechanism="coefficients-iterated", epsilon=epsilon)
    known = facts(x, 3, layout="n.g3.c2")
    plan = iterated.plan(params, known)
    assert (plan.parameters["features"], plan.passes) == (features, passes)
    assert plan.parameters["clip"] == math.sqrt(0.32 / 3)
    assert (plan.parameters["centre"], plan.parameters["even_ridge"]) == ("shrunk", 1.0)
    tensors, details = iterated.make(params, known, seal(tmp_path, x, y), key=NOISE, release_id="id")
    assert sorted({one["pass"] for one in details["sums"].values()}) == list(range(1, passes + 1))
    assert details["sums"]["sureness"]["pass"] == passes
    assert (tensors["head"].shape, tensors["sureness"].shape) == ((width + 1, 3), (4,))


def test_pictures_walk_with_momentum_and_tables_do_not() -> None:
    known = facts(table(50, 4, 3)[0], 3)
    pictures = replace(known, kind="image", shape=(28, 28, 1), n=5000, features=None)
    asked = parameters(mechanism="coefficients-iterated")
    assert iterated.resolve(asked, pictures)[1].model_dump(include={"momentum", "step"}) == {
        "momentum": 0.7,
        "step": 1.0,
    }
    assert iterated.plan(asked, pictures).passes == 17
    said = parameters(mechanism="coefficients-iterated", options={"momentum": 0.0, "step": 2.0, "rounds": 10})
    assert "momentum" not in iterated.plan(said, pictures).parameters
    assert iterated.plan(said, pictures).passes == 13
    assert "momentum" not in iterated.plan(asked, known).parameters


def test_ids_of_named_maps_are_what_they_were() -> None:
    """Options that came later are hashed where they are used, and only there."""
    known = facts(table(50, 4, 3)[0], 3, layout="n.g3.c2")
    named = parameters(mechanism="coefficients-iterated", features="hybrid-32-1")
    plan = iterated.plan(named, known)
    assert plan.passes == 13
    assert not {"centre", "even_ridge"} & set(plan.parameters)
    assert "sureness" not in plan.parameters["shares"]
    named = parameters(mechanism="coefficients-iterated", features="tabular-2", options={"clip": 0.3})
    assert iterated.plan(named, known).parameters["clip"] == 0.3
    assert iterated.plan(named, known).passes == 12


@pytest.mark.parametrize("mode", ["off", "auto"])
def test_without_whitening_its_pass_and_share_go_to_the_rest(mode: str) -> None:
    known = {
        "coefficients": facts(pictures(40, 3)[0], 3),
        "coefficients-iterated": facts(table(2000, 4, 3)[0], 3, layout="n.g3.c2"),
    }
    for name, half in MECHANISMS.items():
        adaptive, plain = (
            Whole(half).plan(parameters(mode, mechanism=name, options=options), known[name])
            for options in ({}, {"whitening": False})
        )
        assert plain.passes == adaptive.passes - 1
        assert "whitening" not in plain.proven.sensitivity
        assert plain.proven.epsilon == pytest.approx(adaptive.proven.epsilon, rel=1e-6)
    with pytest.raises(ParamsError, match="set release.passes to auto"):
        coefficients.plan(parameters(passes=3, options={"whitening": False}), known["coefficients"])


def test_passes_are_counted(tmp_path: Path) -> None:
    x, y = table(50, 4, 3)
    params = parameters(passes=7, mechanism="coefficients-iterated")
    assert iterated.plan(params, facts(x, 3)).passes == 7
    details = iterated.make(params, facts(x, 3), seal(tmp_path, x, y), key=NOISE, release_id="id")[1]
    assert sorted({one["pass"] for one in details["sums"].values()}) == [1, 2, 3, 4, 5, 6, 7]
