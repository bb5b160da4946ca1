"""All records of one user, from raw files through the real ingest to what is released: within what a user is
priced at, and near it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from airlock.attack import replay
from airlock.inside.sealed import FILES, SealedReader, seal_contexts
from airlock.owner.keys import Keyring
from airlock.params import Params
from airlock.privacy import accounting, events
from airlock.privacy.plan import Facts
from airlock.records import handles
from stages.mechanisms import Whole, mechanism
from tests.support.clinic import SCHEMA, Clinic

PER_USER = 2
USERS = SCHEMA.replace("missing: impute", "missing: drop") + (
    f"user: {{column: patient, per_user: {PER_USER}}}\n"
)
Row = tuple[float | None, str, str, str]
"""Age, site, outcome, patient; without an age it is a null record that keeps its patient."""
OTHERS: list[Row] = [(50.0, "north", "healthy", "B"), (50.0, "south", "ill", "C")]
# More records than are kept: those beyond the bound must not count.
WHOLE: list[Row] = [(100.0, "south", "ill", "A")] * 3
FILES_OF_A_USER: dict[str, list[list[Row]]] = {
    "zero-out": [WHOLE, [(None, "south", "ill", "A")] * 3],
    "replace-one": [WHOLE, [(0.0, "north", "healthy", "D")] * 3],
}


def asked(clinic: Clinic, name: str, near: str) -> Params:
    release = {"mechanism": name, "unit": "user", "neighbours": near, "delta": 1e-3}
    return clinic.params(release=release)


def sealed(clinic: Clinic, params: Params, rows: list[Row]) -> tuple[SealedReader, Facts]:
    """The file of these rows, added and ingested as an owner does it."""
    columns = dict(zip(("age", "site", "outcome", "patient"), zip(*rows, strict=True), strict=True))
    ages = pa.array(columns.pop("age"), pa.float64())
    table = pa.table({"age": ages, **{name: pa.array(one) for name, one in columns.items()}})
    clinic.add(clinic.file(table))
    clinic.ingest(params)
    facts = handles.public_facts(clinic.root, params)
    key = Keyring.load(clinic.home).seal_key(seal_contexts(facts, generation=1)["train"])
    return SealedReader(clinic.root / "data/sealed" / FILES["train"], key), facts


def transcript(clinic: Clinic, params: Params, rows: list[Row], script: Any = None, **facts: Any) -> Any:
    """Every noisy sum of a release of these rows, exact and noisy."""
    reader, known = sealed(clinic, params, rows)
    known = replace(known, **facts)
    with reader, replay.writing(replay.Transcript(script=script)) as written:
        whole = Whole(mechanism(params.release.mechanism))
        whole.make(params, known, reader, key=bytes(32), release_id="id")
    return written.answers, whole.plan(params, known).proven


def reached(clinic: Clinic, name: str, near: str, **facts: Any) -> float:
    """How much of the price one user takes."""
    params = asked(clinic, name, near)
    one, other = ([*OTHERS, *mine] for mine in FILES_OF_A_USER[near])
    first, proven = transcript(clinic, params, one, **facts)
    second, _ = transcript(clinic, params, other, script=first, **facts)
    apart = replay.distance(first, second)
    assert proven.unit == "user" and proven.event is not None
    priced = accounting.epsilon(events.from_json(proven.event), proven.delta, neighbours=near)  # type: ignore[arg-type]
    return apart.epsilon(proven.delta) / priced


@pytest.mark.parametrize("near", ["zero-out", "replace-one"])
@pytest.mark.parametrize("name", ["coefficients", "coefficients-iterated", "inputs", "bounds"])
def test_no_user_moves_a_release_further_than_a_user_is_priced_at(
    clinic: Clinic, name: str, near: str
) -> None:
    found = reached(clinic, name, near)
    assert found <= 1 + 1e-6
    assert found >= (0.9 if near == "zero-out" and name != "coefficients-iterated" else 0.3)


def test_a_user_who_is_priced_as_one_record_is_found(clinic: Clinic) -> None:
    """The control: the same files, and a price that forgets the second record."""
    assert reached(clinic, "coefficients", "zero-out", per_user=1) > 1.5
