"""Slots for friends: what a schema may say of them, and that a user who goes takes nothing along but own
records and own slots.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airlock.errors import RecordError
from airlock.records.encoding import Encoded
from airlock.records.schema import Friends, Schema, User
from airlock.records.schema_checks import require_complete
from stages.sensitive.users import Users

KEY = b"k" * 32
SLOTS = 2


def user(per_user: int = 2, appearances: int = 100) -> User:
    friends = Friends(name="friend_{}", influence="influence_{}", slots=SLOTS, appearances=appearances)
    return User(column="user", per_user=per_user, friends=friends)


def bound(rows: list[tuple[str | None, list[str | None]]], wanted: User) -> Encoded:
    """Records of these users, with these friends; a record's own value and its slots are all 0.5.

    A user None is a null record.
    """
    x = np.full((len(rows), 1 + SLOTS), 0.5)
    valid = np.array([name is not None for name, _ in rows], np.uint8)
    batch = pa.RecordBatch.from_pydict(
        {
            "user": [name or "nobody" for name, _ in rows],
            **{
                f"friend_{slot + 1}": pa.array([friends[slot] for _, friends in rows], pa.string())
                for slot in range(SLOTS)
            },
        }
    )
    x[valid == 0] = 0
    return Users(wanted, KEY).bound(
        batch, Encoded(x, np.zeros(len(rows), np.int32) - (valid == 0), valid), first_row=0
    )[1]


def test_a_slot_without_a_name_is_empty() -> None:
    found = bound([("a", ["b", None]), ("b", ["", " "]), ("c", ["a", "b"])], user())
    assert found.x.tolist() == [[0.5, 0.5, 0.0], [0.5, 0.0, 0.0], [0.5, 0.5, 0.5]]


def test_who_appears_too_often_is_refused_and_not_cut() -> None:
    rows: list[Any] = [("a", ["z", None]), ("b", [None, "z"]), ("c", ["z", "y"])]
    assert bound(rows, user(appearances=3)).valid.tolist() == [1, 1, 1]
    with pytest.raises(RecordError, match=r"user.friends.appearances.*'friend_1', row 3") as refused:
        bound(rows, user(appearances=1))
    assert "z" not in str(refused.value).replace("size", "")


people = st.sampled_from(["a", "b", "c", "d"])
slot = people | st.none()


@given(
    st.lists(st.tuples(people, st.lists(slot, min_size=SLOTS, max_size=SLOTS)), min_size=1, max_size=12),
    people,
)
def test_a_user_who_goes_takes_along_own_records_and_slots_only(
    rows: list[tuple[str, list[str | None]]], gone: str
) -> None:
    """The neighbour of docs/proofs/behaviour.md#units: all records of one user null, all slots that name the
    user empty. Nothing else moves.
    """
    without = [
        (None, [None, None])
        if name == gone
        else (name, [None if friend == gone else friend for friend in friends])
        for name, friends in rows
    ]
    before, after = bound(rows, user()), bound(without, user())
    for place, (name, friends) in enumerate(rows):
        if name == gone:
            assert not after.x[place].any() and after.y[place] == -1
            continue
        kept = [True, *(friend != gone for friend in friends)]
        assert after.y[place] == before.y[place] and after.valid[place] == before.valid[place]
        assert after.x[place][kept].tolist() == before.x[place][kept].tolist()
        assert not after.x[place][~np.array(kept)].any()


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        (["influence_1", "influence_2", "own"], "the last 2 columns must be influence_1 to influence_2"),
        (["own", "influence_2", "influence_1"], "the last 2 columns must be"),
    ],
)
def test_slots_must_be_the_last_columns(columns: list[str], problem: str) -> None:
    assert problem in problems(columns)
    assert problems(["own", "influence_1", "influence_2"]) == ""


@pytest.mark.parametrize("change", [{"bounds": [-1, 1]}, {"missing": "impute"}, {"missing": "drop"}])
def test_slots_are_plain_numbers_from_zero(change: dict[str, Any]) -> None:
    assert "numbers with bounds [0, high]" in problems(["own", "influence_1", "influence_2"], **change)


def problems(columns: list[str], **change: Any) -> str:
    """What a schema of these columns lacks; `change` is for the last column."""
    from airlock.errors import SchemaError

    described = [{"name": name, "type": "number", "bounds": [0, 1]} for name in columns]
    described[-1] |= change
    document = {
        "name": "net",
        "kind": "tabular",
        "label": {"column": "status", "classes": ["less", "more"]},
        "columns": described,
    }
    schema = Schema.model_validate({**document, "user": user().model_dump()})
    try:
        require_complete(schema, "net.yaml")
    except SchemaError as error:
        return str(error)
    return ""
