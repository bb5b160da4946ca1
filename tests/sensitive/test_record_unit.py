"""One record with a bound of records per user: what changes through the real ingest is what is priced
(docs/proofs/users.md).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from airlock.errors import ParamsError
from airlock.models.features.features import feature_map
from airlock.models.features.rows import LIMIT
from airlock.params import Params
from airlock.privacy import sensitivity
from airlock.records import handles
from stages.mechanisms import MECHANISMS, mechanism
from stages.release import evaluate_private, relevance
from stages.release.mechanisms import recipes
from stages.release.units import records_per_unit
from tests.support.clinic import SCHEMA, Clinic
from tests.support.sealed_records import facts, table

USERS = SCHEMA.replace("missing: impute", "missing: drop") + "user: {column: patient, per_user: 1}\n"


Record = tuple[float | None, str, str, str]
"""Age, site, outcome, patient."""


def sums(clinic: Clinic, rows: list[Record]) -> tuple[dict[str, Any], Any]:
    """Sums of the kept rows, as a release makes them, and which records are kept."""
    names = ("age", "site", "outcome", "patient")
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    arrays = {
        "age": pa.array(columns.pop("age"), pa.float64()),
        **{name: pa.array(one) for name, one in columns.items()},
    }
    clinic.add(clinic.file(pa.table(arrays)))
    found = clinic.ingest(clinic.params())["train"]
    made = feature_map("tabular-2", "tabular", found.x.shape[1:])(found.x, found.valid)
    signs = np.where(found.y < 0, 0, 2 * found.y - 1)[:, None]
    kept = np.column_stack([found.x, found.y, found.valid])
    return {"mean": made.sum(0), "gram": made.T @ made, "cross": made.T @ np.hstack([signs, -signs])}, kept


def random_record(random: np.random.Generator, patients: str) -> Record:
    age = float(random.choice([0.0, 100.0, 37.0]))
    return (
        age,
        str(random.choice(["north", "south"])),
        str(random.choice(["healthy", "ill"])),
        str(random.choice(list(patients))),
    )


def moved(clinic: Clinic, rows: list[Record], place: int, other: Record) -> tuple[int, dict[str, float]]:
    """How many kept records change, and how far each sum moves, when one record is another."""
    first, before = sums(clinic, rows)
    second, after = sums(clinic, [*rows[:place], other, *rows[place + 1 :]])
    distances = {name: float(np.linalg.norm(first[name] - second[name])) for name in first}
    return int((before != after).any(axis=1).sum()), distances


def priced(clinic: Clinic, near: str) -> dict[str, float]:
    """The sensitivities that a release of these records is priced with."""
    params = clinic.params(release={"neighbours": near, "passes": 2})
    recipe = recipes.resolve(params, handles.public_facts(clinic.root, params))
    return {query.purpose: query.sensitivity for query in recipes.queries(recipe, params)}


def test_a_null_record_keeps_its_user_so_zero_out_changes_one_record(clinic: Clinic) -> None:
    random = np.random.default_rng(1)
    for _ in range(12):
        rows = [random_record(random, "AB") for _ in range(6)]
        place = int(random.integers(6))
        gone: Record = (None, *rows[place][1:])
        count, distances = moved(clinic, rows, place, gone)
        assert count <= 1
        assert all(distances[name] <= bound for name, bound in priced(clinic, "zero-out").items())


def test_no_replaced_record_moves_a_sum_by_more_than_is_priced(clinic: Clinic) -> None:
    random, most, farthest = np.random.default_rng(2), 0, 0.0
    worst: list[tuple[list[Record], int, Record]] = [
        (
            [(0.0, "north", "ill", "A"), (0.0, "north", "ill", "B"), (100.0, "south", "ill", "A")],
            0,
            (100.0, "south", "ill", "B"),
        )
    ]
    found = [[random_record(random, "AB") for _ in range(6)] for _ in range(14)]
    for rows, place, other in [
        *worst,
        *((rows, int(random.integers(3)), random_record(random, "ABC")) for rows in found),
    ]:
        count, distances = moved(clinic, rows, place, other)
        bounds = priced(clinic, "replace-one")
        assert all(distances[name] <= bound for name, bound in bounds.items())
        most = max(most, count)
        farthest = max(farthest, distances["mean"] / sensitivity.mean(LIMIT, neighbours="replace-one"))
    # The control: three records change, and a sum moves farther than one replaced record could move it.
    assert most == 3
    assert farthest > 1


def test_without_a_bound_one_record_is_one_record(clinic: Clinic) -> None:
    x, _ = table(10, 3, 2)
    params = Params.model_validate({"release": {"neighbours": "replace-one"}})
    assert records_per_unit(params, facts(x, 2)) == 1
    assert records_per_unit(params, facts(x, 2, per_user=4)) == 2
    assert records_per_unit(Params(), facts(x, 2, per_user=4)) == 1


PRICED = {
    "coefficients",
    "coefficients-iterated",
    "inputs",
    "bounds",
    "neuron-allocation",
    "patch-moments",
    "behaviour",
}
UNPROVEN = {"neuron-noise", "behaviour-published"}


@pytest.mark.parametrize("name", sorted(set(MECHANISMS) - UNPROVEN))
def test_every_mechanism_prices_it_or_refuses_it(name: str) -> None:
    pictures = name in ("patch-moments", "pcdbn")
    x = np.zeros((20, 16, 16, 1), np.uint8) if pictures else np.zeros((20, 11))
    known = facts(x, 2, per_user=3, friends={"slots": 2, "appearances": 6} if name == "behaviour" else None)
    options = {"days": 2, "height": 2} if name == "behaviour" else {}
    release = {"mechanism": name, "neighbours": "replace-one", "options": options}
    params = Params.model_validate({"release": release})
    if name not in PRICED:
        with pytest.raises(ParamsError, match="a bound of records per user"):
            mechanism(name).plan(params, known)
        return
    plan = mechanism(name).plan(params, known)
    assert plan.parameters["replaced_records"] == 2
    if name != "behaviour":
        alone = mechanism(name).plan(params, replace(known, per_user=None))
        assert "replaced_records" not in alone.parameters
        reach = [float(one.split("L2 ")[1].split()[0]) for one in plan.proven.sensitivity.split(";")]
        before = [float(one.split("L2 ")[1].split()[0]) for one in alone.proven.sensitivity.split(";")]
        assert reach == pytest.approx([2 * one for one in before], rel=1e-5)


def test_evaluation_and_relevance_price_it_too() -> None:
    known = facts(np.zeros((20, 4)), 2, per_user=3, n_holdout=5)
    given = {
        "evaluate": {"holdout": "private"},
        "relevance": {"mode": "statistics"},
        "release": {"neighbours": "replace-one"},
    }
    params = Params.model_validate(given)
    count = evaluate_private.plans(params, known)[evaluate_private.EVALUATION]
    assert count.proven.sensitivity == "right: L2 2 grid units"
    assert count.parameters["replaced_records"] == 2
    assert relevance.plans(params, known)[relevance.RELEVANCE].parameters["replaced_records"] == 2


@pytest.mark.parametrize("mode", ["off", "statistics"])
def test_so_many_records_that_a_sum_could_pass_its_integers_are_refused_before_any_is_read(mode: str) -> None:
    params = Params.model_validate({"relevance": {"mode": mode}})
    for n, fits in ((2**32, True), (2**32 + 2**20, False)):
        known = facts(np.zeros((20, 4)), 2, n=n)
        for plan in (
            mechanism("coefficients").plan,
            relevance.plans if mode != "off" else mechanism("coefficients").plan,
        ):
            if fits:
                plan(params, known)
            else:
                with pytest.raises(ParamsError, match="64-bit integers"):
                    plan(params, known)
