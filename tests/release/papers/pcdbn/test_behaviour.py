"""The behaviour mechanism: its sums, and what one record or one user with all slots can do to them."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airlock.attack import attack, distinguishers, targets
from airlock.attack.samplers import NumpySampler
from airlock.errors import ParamsError
from airlock.models.features.rows import LIMIT
from airlock.models.papers.behaviour import CONSTANT, FINE_GRID, MachineUnits, PatchMap, RowMap, units_of
from airlock.params import Params
from airlock.privacy import accounting, events
from airlock.privacy.noise import add_noise
from airlock.privacy.plan import Facts
from airlock.records.encoding import Encoded, pack
from stages.release.papers.pcdbn import behaviour
from stages.release.passes import Wanted
from stages.release.per_user import sum_records, sum_users
from stages.release.units import records_per_unit
from tests.models.papers.test_dynamics import SMALL, units
from tests.support import attacks

KEY = b"n" * 32
USERS, DAYS, COLUMNS = 5, 3, SMALL.attributes * (SMALL.days + 1)
SHAPE = (COLUMNS + SMALL.slots,)
OPTIONS = {"days": SMALL.days, "height": SMALL.height, "groups": 2}
FACTS = Facts(
    "net", True, "tabular", USERS * DAYS, 0, SHAPE, ("less", "more"), "s", "f",
    users=USERS, per_user=DAYS, friends={"slots": SMALL.slots, "appearances": DAYS * SMALL.slots},
)  # fmt: skip


class Reader:
    """Batches in memory that read like a sealed file."""

    def __init__(self, x: np.ndarray, y: np.ndarray, users: np.ndarray, rows: int = 4) -> None:
        valid = (y >= 0).astype(np.uint8)
        self._batches = [
            pack(
                Encoded(x[i : i + rows].copy(), y[i : i + rows].astype(np.int32), valid[i : i + rows]),
                user=users[i : i + rows],
            )
            for i in range(0, len(y), rows)
        ]

    def __iter__(self) -> Any:
        return iter(self._batches)


def parameters(**release: Any) -> Params:
    given = {"mechanism": "behaviour", "epsilon": 1.0, **release}
    return Params.model_validate({"release": {**given, "options": {**OPTIONS, **given.get("options", {})}}})


def network(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Records, labels, users, and who is in every slot (-1: nobody).

    Nobody is in more slots than allowed: four a day of others.
    """
    random = np.random.default_rng(seed)
    users = np.tile(np.arange(USERS), DAYS)
    friends = np.array([[(user + 1 + slot) % USERS for slot in range(SMALL.slots)] for user in users])
    friends[random.random(friends.shape) < 0.2] = -1
    x = np.where(
        random.random((len(users), *SHAPE)) < 0.3,
        random.integers(0, 2, (len(users), *SHAPE)),
        random.random((len(users), *SHAPE)),
    )
    x[:, COLUMNS:] = np.where(friends >= 0, np.maximum(x[:, COLUMNS:], 2.0**-10), 0)
    return x, random.integers(0, 2, len(users)).astype(np.int32), users, friends


def without(
    x: np.ndarray, y: np.ndarray, users: np.ndarray, friends: np.ndarray, gone: int
) -> tuple[np.ndarray, np.ndarray]:
    """The same network without one user: null records, empty slots."""
    x, y = x.copy(), y.copy()
    x[:, COLUMNS:][friends == gone] = 0
    x[users == gone], y[users == gone] = 0, -1
    return x, y


# --- Prices
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["record", "user"])
@pytest.mark.parametrize("neighbours", ["zero-out", "replace-one"])
@pytest.mark.parametrize("rows", ["machine", "window"])
@pytest.mark.parametrize("epsilon", [0.1, 8.0])
def test_a_plan_never_promises_more_than_was_asked(
    unit: str, neighbours: str, rows: str, epsilon: float
) -> None:
    plan = behaviour.plan(
        parameters(unit=unit, neighbours=neighbours, epsilon=epsilon, options={"rows": rows}), FACTS
    )
    again = accounting.epsilon(events.from_json(plan.proven.event), 1e-5, neighbours=neighbours)
    assert 0.999999 * epsilon <= plan.proven.epsilon == again <= epsilon
    assert (plan.proven.unit, plan.passes) == (unit, 3 if rows == "machine" else 2)
    assert ("bounds" in plan.parameters) == (unit == "user")


def test_settings_that_are_not_offered_are_refused() -> None:
    with pytest.raises(ParamsError, match="needs a schema with `user.friends`"):
        behaviour.plan(parameters(), replace(FACTS, friends=None))
    with pytest.raises(ParamsError, match="no 'grams'; caps: mean"):
        behaviour.plan(parameters(options={"caps": {"grams": 1.0}}), FACTS)
    with pytest.raises(ParamsError, match="release.passes auto"):
        behaviour.plan(parameters(passes=2), FACTS)
    with pytest.raises(ParamsError, match="passes the grid"):
        behaviour.plan(parameters(unit="user", epsilon=1e-7), FACTS)


def test_slots_count_where_a_general_mechanism_protects_users() -> None:
    """`coefficients` knows nothing of slots: each counts as a record taken away and one put in."""
    params = Params.model_validate({"release": {"unit": "user"}})
    assert records_per_unit(params, FACTS) == DAYS + 2 * DAYS * SMALL.slots
    assert records_per_unit(params, replace(FACTS, friends=None)) == DAYS


def test_users_with_slots_have_no_horizon() -> None:
    """`appearances` bounds the slots of one night's file: over eight nights they could be eight times as many."""
    params = Params.model_validate({"release": {"unit": "user", "horizon": 8}})
    with pytest.raises(ParamsError, match=r"needs a schema without `user\.friends`"):
        records_per_unit(params, FACTS)
    assert records_per_unit(params, replace(FACTS, friends=None)) == DAYS


# --- The release written again, slowly, in Python integers
# ----------------------------------------------------------------


def oracle_cut(values: list[int], bound: int) -> list[int]:
    norm = math.sqrt(sum(value * value for value in values))
    within = bound * (1 - 2.0**-36)
    return values if norm <= within else [math.trunc(value * (within / norm)) for value in values]


def oracle_row(record: list[float], centre: list[int], influence: float) -> list[int]:
    """A row of `rows: window`: own part centred, scaled and cut; mean influence; the constant."""
    d, days, scale = SMALL.attributes, SMALL.days, behaviour.SCALES["window"].gain * LIMIT / FINE_GRID
    whole = [math.trunc(value * FINE_GRID) for value in record]
    centres = [centre[place // days] for place in range(d * days)] + centre
    own = [
        math.trunc((value - its_centre) * scale)
        for value, its_centre in zip(whole[: d * (days + 1)], centres, strict=True)
    ]
    longest = int(LIMIT * (1 - influence**2 - CONSTANT**2) ** 0.5)
    norm = math.sqrt(sum(value * value for value in own))
    if norm > longest:
        own = [math.trunc(value * (longest * (1 - 2.0**-36) / norm)) for value in own]
    social = sum(2 * slot - FINE_GRID for slot in whole[d * (days + 1) :] if slot > 0)
    return [*own, math.trunc(social * (influence * LIMIT / (FINE_GRID * SMALL.slots))), int(CONSTANT * LIMIT)]


@pytest.mark.parametrize("unit", ["record", "user"])
def test_the_release_is_what_the_slow_oracle_says(unit: str) -> None:
    x, y, users, _ = network(1)
    x, y = without(x, y, users, np.full((len(y), SMALL.slots), -1), 2)
    params = parameters(
        unit=unit, epsilon=30.0, options={"rows": "window", "caps": {"gram": 0.6, "cross": 0.3}}
    )
    recipe = behaviour.resolve(params, FACTS)
    tensors, details = behaviour.make(params, FACTS, Reader(x, y, users), key=KEY, release_id="id")
    rows = [
        oracle_row(x[place].tolist(), tensors["attribute_centre"].tolist(), behaviour.INFLUENCE[unit])
        if y[place] >= 0
        else None
        for place in range(len(y))
    ]
    size = recipe.size
    totals: dict[int, dict[str, list[int]]] = {}
    for place, row in enumerate(rows):
        owner = totals.setdefault(
            int(users[place]) if unit == "user" else 0, {"gram": [0] * size**2, "cross": [0] * size * 2}
        )
        if row is None:
            continue
        signs = [1, -1] if y[place] == 0 else [-1, 1]
        owner["gram"] = [value + row[i // size] * row[i % size] for i, value in enumerate(owner["gram"])]
        owner["cross"] = [value + row[i // 2] * signs[i % 2] for i, value in enumerate(owner["cross"])]
    for purpose, shape in (("gram", (size, size)), ("cross", (size, 2))):
        parts = [total[purpose] for total in totals.values()]
        if unit == "user":
            parts = [oracle_cut(part, recipe.bounds()[purpose]) for part in parts]
        told = details["sums"][purpose]
        form = "symmetric-gaussian" if purpose == "gram" else "gaussian"
        exact = np.array([sum(column) for column in zip(*parts, strict=True)], np.int64).reshape(shape)
        given = {"release_pass": told["pass"], "purpose": purpose, "scale": told["scale"], "form": form}
        assert np.array_equal(tensors[purpose], add_noise(exact, key=KEY, release_id="id", **given))
    assert details["contributions"]["unit"] == unit


def test_chunks_and_their_order_do_not_change_a_bit() -> None:
    x, y, users, _ = network(2)
    params = parameters(unit="user", epsilon=8.0)
    one, other = (
        behaviour.make(params, FACTS, Reader(x, y, users, rows), key=KEY, release_id="id")[0]
        for rows in (3, 15)
    )
    assert (
        set(one)
        == set(other)
        == {
            "attribute_centre",
            "gram",
            "cross",
            *(f"machine.{name}" for name in MachineUnits.__dataclass_fields__),
        }
    )
    assert all(np.array_equal(one[name], other[name]) for name in one)


# --- Sensitivity: adversarial neighbours, given the same earlier releases
# ------------------------------------------------------


def distance(one: np.ndarray, other: np.ndarray) -> float:
    return math.sqrt(sum(int(value) ** 2 for value in (one.astype(object) - other.astype(object)).ravel()))


def bounds_of(params: Params) -> dict[str, float]:
    return {
        query.purpose: query.sensitivity
        for query in behaviour.queries(behaviour.resolve(params, FACTS), params)
    }


@lru_cache
def maps(unit: str, rows: str, seed: int) -> dict[str, Any]:
    """The rows of every pass after any earlier releases: centre and machine are drawn, eta as long as it may
    be.
    """
    recipe = behaviour.resolve(parameters(unit=unit, options={"rows": rows}), FACTS)
    centre = np.random.default_rng(seed).integers(0, FINE_GRID, SMALL.attributes)
    machine = units(SMALL, 2, seed, social=recipe.options.social) if rows == "machine" else None
    made = {"mean": lambda x, valid: behaviour.mean_rows(SMALL, x, valid, behaviour.MEAN_GAIN)}
    return made | {
        "moments": PatchMap(SMALL, centre, recipe.scales),
        "head": RowMap(SMALL, centre, recipe.scales, machine),
    }


def exact_sums(
    reader: Reader, unit: str, rows: str, seed: int, caps: dict[str, int]
) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    asked = {
        "mean": {"mean": "sum"},
        "moments": {"moments": "gram"},
        "head": {"gram": "gram", "cross": "cross"},
    }
    for name, wanted in asked.items():
        if rows == "window" and name == "moments":
            continue
        question, made = Wanted(wanted, 2), maps(unit, rows, seed)[name]
        found |= (
            sum_records(reader, SHAPE, made, question)
            if unit == "record"
            else sum_users(reader, SHAPE, made, question, caps)
        )
    return found | {name: behaviour.coarsen(found[name]) for name in ("moments",) if name in found}


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 4), st.sampled_from(["machine", "window"]), st.floats(0.05, 1.0))
def test_no_user_moves_a_sum_by_more_than_the_sensitivity(
    seed: int, gone: int, rows: str, cap: float
) -> None:
    """A user goes, with all records and all slots in friends' records; or another user, with other friends,
    comes instead.
    """
    x, y, users, friends = network(seed)
    other = network(seed + 1)
    caps = {"caps": dict.fromkeys(behaviour.CAPS, cap)}
    for near in ("zero-out", "replace-one"):
        params = parameters(unit="user", neighbours=near, options={"rows": rows, **caps})
        recipe = behaviour.resolve(params, FACTS)
        changed, labels = without(x, y, users, friends, gone)
        if near == "replace-one":
            new = np.where(friends == gone, -1, friends)
            new[(new < 0) & (other[3] == gone)] = gone
            changed[:, COLUMNS:][new == gone] = other[0][:, COLUMNS:][new == gone]
            changed[users == gone], labels[users == gone] = other[0][users == gone], other[1][users == gone]
        pair = [
            exact_sums(Reader(*world, users), "user", rows, seed % 50, recipe.bounds())
            for world in ((x, y), (changed, labels))
        ]
        for purpose, bound in bounds_of(params).items():
            assert distance(pair[0][purpose], pair[1][purpose]) <= bound


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 14), st.sampled_from(["machine", "window"]))
def test_no_record_moves_a_sum_by_more_than_the_sensitivity(seed: int, place: int, rows: str) -> None:
    x, y, users, _ = network(seed)
    other = network(seed + 1)
    for near in ("zero-out", "replace-one"):
        changed, labels = x.copy(), y.copy()
        changed[place], labels[place] = (0, -1) if near == "zero-out" else (other[0][place], other[1][place])
        pair = [
            exact_sums(Reader(*world, users), "record", rows, seed % 50, {})
            for world in ((x, y), (changed, labels))
        ]
        for purpose, bound in bounds_of(parameters(neighbours=near, options={"rows": rows})).items():
            assert distance(pair[0][purpose], pair[1][purpose]) <= bound


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(0, SMALL.slots - 1),
    st.sampled_from([0.0, 2.0**-14, 0.25, 0.5, 1.0]),
    st.floats(1e-3, 3.0),
)
def test_a_slot_moves_a_row_by_no_more_than_its_part(seed: int, slot: int, psi: float, social: float) -> None:
    """Lemma 1 of docs/behaviour.md, for machines whose eta is as long as it may be and weights that make
    units sensitive.
    """
    recipe = behaviour.resolve(parameters(unit="user", options={"social": social}), FACTS)
    x = network(seed)[0]
    emptied = x.copy()
    x[:, COLUMNS + slot], emptied[:, COLUMNS + slot] = psi, 0
    valid = np.ones(len(x), np.uint8)
    made = RowMap(
        SMALL, np.full(SMALL.attributes, FINE_GRID // 2), recipe.scales, units(SMALL, 2, seed, social=social)
    )
    assert np.sqrt(((made(x, valid) - made(emptied, valid)) ** 2).sum(1)).max() <= behaviour.row_change(
        recipe
    )
    patches = PatchMap(SMALL, np.full(SMALL.attributes, FINE_GRID // 2), recipe.scales)
    assert np.sqrt(
        ((patches(x, valid) - patches(emptied, valid)) ** 2).sum(1)
    ).max() <= behaviour.influence_change(recipe)


def test_the_bounds_are_nearly_reached() -> None:
    """A user alone whose windows are all alike, at the end of the grid; and a friend whose slot is full."""
    users, y = np.zeros(DAYS, np.int64), np.zeros(DAYS, np.int32)
    x = np.ones((DAYS, *SHAPE))
    reader = Reader(x, y, users)
    recipe = behaviour.resolve(
        parameters(unit="user", options={"rows": "window", "caps": dict.fromkeys(behaviour.CAPS, 1.0)}), FACTS
    )
    made = RowMap(SMALL, np.zeros(SMALL.attributes, np.int64), recipe.scales)
    found = sum_users(reader, SHAPE, made, Wanted({"gram": "gram", "cross": "cross"}, 2), recipe.bounds())
    for purpose in ("gram", "cross"):
        assert distance(found[purpose], np.zeros_like(found[purpose])) > 0.99 * recipe.bounds()[purpose]
    emptied = x.copy()
    emptied[:, -1] = 0
    moved = made(x, np.ones(DAYS, np.uint8)) - made(emptied, np.ones(DAYS, np.uint8))
    assert np.sqrt((moved**2).sum(1)).min() > 0.99 * behaviour.influence_change(recipe) - 2


def test_counting_own_records_only_would_not_protect_a_user() -> None:
    """What the slots are for: somebody whose own records are all null, and who is everybody's friend, moves
    more than own records may.
    """
    x, y, users, friends = network(3)
    x[:, :COLUMNS] = 0.0
    friends[:], friends[:, 0] = -1, 0
    x[:, COLUMNS:] = np.where(friends == 0, 1.0, 0.0)
    y[users == 0], x[users == 0] = -1, 0
    params = parameters(unit="user", options={"rows": "window", "caps": {"cross": 0.02}})
    recipe, y = behaviour.resolve(params, FACTS), np.where(y >= 0, 0, y)
    made = RowMap(SMALL, np.zeros(SMALL.attributes, np.int64), recipe.scales)
    pair = [
        sum_users(
            Reader(*world, users),
            SHAPE,
            made,
            Wanted({"cross": "cross"}, 2),
            {"cross": 10 * recipe.bounds()["cross"]},
        )["cross"]
        for world in ((x, y), without(x, y, users, friends, 0))
    ]
    assert recipe.bounds()["cross"] < distance(*pair) <= bounds_of(params)["cross"]


# --- Attacks
# --------------------------------------------------------------------------------------------------


def test_no_attack_passes_the_proof_and_half_the_noise_is_noticed() -> None:
    quiet = {"confidence": 0.95, "seed": 0, "sampler": "auto", "tick": lambda done, total: None}
    for unit in ("record", "user"):
        asked = parameters(unit=unit)
        sound = attack.attack(attacks.targets_of(asked, FACTS)[0], trials=50_000, **quiet)
        faulty = attack.attack(attacks.targets_of(asked, FACTS, factor=0.5)[0], trials=50_000, **quiet)
        assert 0.6 < sound.finding.best <= sound.target.proven <= 1.0
        assert (sound.word, faulty.word) == ("within the proof", "refutes the proof")


@pytest.mark.parametrize(("epsilon", "seen"), [(1.0, False), (250.0, True)])
def test_a_whole_user_cannot_be_seen_in_the_release(epsilon: float, seen: bool) -> None:
    """The release itself, run on a network with and without one user (records and slots), scored by a learned
    distinguisher.
    """
    x, y, users, friends = network(5)
    x[users == 0] = 1.0
    x[:, COLUMNS:][friends == 0] = 1.0
    worlds = {True: (x, y), False: without(x, y, users, friends, 0)}
    params, calls = parameters(unit="user", epsilon=epsilon, options={"rows": "window"}), [0]

    def observe(count: int, present: bool) -> np.ndarray:
        found = []
        for _ in range(count):
            calls[0] += 1
            key = hashlib.sha256(str(calls[0]).encode()).digest()
            tensors = behaviour.make(
                params, FACTS, Reader(*worlds[present], users), key=key, release_id="attack"
            )[0]
            found.append(tensors["cross"].ravel().astype(float))
        return np.stack(found)

    law = distinguishers.train(observe, runs=12, name="release", pair="a user, or none")
    finding = targets.measure(
        law, NumpySampler(0), trials=30, delta=1e-5, confidence=0.95, tick=lambda done, total: None
    )
    assert finding.epsilon <= epsilon
    assert (finding.epsilon > 1.0) == seen


def test_the_machine_comes_back_from_the_release() -> None:
    x, y, users, _ = network(2)
    tensors = behaviour.make(parameters(epsilon=8.0), FACTS, Reader(x, y, users), key=KEY, release_id="id")[0]
    machine = units_of(tensors)
    assert machine is not None
    assert machine.filters.shape == (2, SMALL.patch)
    assert np.linalg.norm(machine.social) * SMALL.slots / 2**16 <= 0.1
