"""meta.json beside sealed records is a file of the workspace: what a price rests on is not taken from it
alone.
"""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import pytest

from airlock.errors import ReleaseError
from airlock.inside.sealed import FILES, SealedReader, seal_contexts
from airlock.owner.keys import Keyring
from airlock.privacy.plan import Facts
from airlock.run import orders
from tests.support.clinic import SCHEMA, Clinic, records

USERS = SCHEMA + "user: {column: patient, per_user: 3}\n"
FORGED: dict[str, Any] = {
    "public": True,
    "per_user": 1,
    "n": 5,
    "n_holdout": 1,
    "labels": ["healthy"],
    "shape": [2],
    "kind": "image",
    "population": "wdbc",
    "fingerprint": "another",
    "friends": {"slots": 0, "appearances": 0},
    "features": "cosine-16-1",
    "number": [0.0, 1.0],
    "participations": 2,
    "night": {"number": 2, "before": 9, "history": "h", "first": {"n": 9, "fingerprint": "f"}},
}


@pytest.fixture
def clinic(clinic: Clinic) -> Clinic:
    table = records(40)
    clinic.add(clinic.file(table.append_column("patient", [[str(row // 2) for row in range(40)]])))
    clinic.ingest(clinic.params())
    return clinic


def checked(clinic: Clinic) -> None:
    facts, _ = orders.read_facts(clinic.root)
    orders.check_facts(facts, params=clinic.params(), workspace=clinic.root, project=clinic.home)


def forge(clinic: Clinic, **changes: Any) -> None:
    path = clinic.root / "data/sealed/meta.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_facts_as_ingest_wrote_them_are_believed(clinic: Clinic) -> None:
    checked(clinic)
    # Of an older data set it does not say what the columns are.
    forge(clinic, columns=None, layout=None)
    checked(clinic)


def test_every_fact_that_a_price_may_rest_on_is_tried() -> None:
    assert {one.name for one in fields(Facts)} - set(orders.UNPRICED) == {*FORGED, "schema"}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_fact_is_refused(clinic: Clinic, name: str) -> None:
    forge(clinic, **{name: FORGED[name]})
    with pytest.raises(ReleaseError, match="dvc repro -f ingest"):
        checked(clinic)


def test_private_records_do_not_become_public_with_their_handle_and_schema(clinic: Clinic) -> None:
    """Who edits all three files of the workspace still does not edit the owner's registry."""
    clinic.write_schema(USERS.replace("public: false", "public: true"))
    handle = clinic.root / "data/handles/clinic/records.json"
    handle.write_text(handle.read_text().replace('"public": false', '"public": true'))
    forge(clinic, public=True)
    with pytest.raises(ReleaseError, match="dvc repro -f ingest"):
        checked(clinic)


def test_the_key_of_sealed_records_does_not_know_whether_they_are_public(clinic: Clinic) -> None:
    """The control: nothing else would have noticed."""
    forge(clinic, public=True, per_user=1)
    facts, generation = orders.read_facts(clinic.root)
    assert facts.public and facts.per_user == 1
    key = Keyring.load(clinic.home).seal_key(seal_contexts(facts, generation=generation)["train"])
    with SealedReader(clinic.root / "data/sealed" / FILES["train"], key) as reader:
        assert reader.read(0).num_rows == 40
    assert seal_contexts(replace(facts, public=False), generation=generation) == seal_contexts(
        facts, generation=generation
    )
