"""What a release protects: how many records of the sealed file one unit of privacy can change
(docs/proofs/users.md).
"""

from __future__ import annotations

from typing import Any

from airlock.errors import ParamsError
from airlock.params import Params
from airlock.privacy.plan import Facts

RECORDS_PER_REPLACEMENT = 2
"""Replacements that one record stands for under replace-one, where the schema bounds the records of a user.
"""


def records_per_unit(params: Params, facts: Facts) -> int:
    """How many records one unit of privacy has at most: 1, or a user's bound in the schema.

    Over many nights a record counts as often as it may come (docs/proofs/continual.md#participations); a user's
    bound is over all nights by itself.

    A slot of somebody else's record counts as two: the record is replaced by what it is without the user,
    which is to take one record away and to put one in. Where records of a user are bounded, replacing one
    record by another user's lets the first user's next record in and the second user's last one out
    (docs/proofs/users.md#record-unit): two replacements. A null record keeps its user, so that zero-out
    changes one.
    """
    if params.release.unit == "record":
        nights = facts.participations if params.release.horizon else 1
        return nights * (RECORDS_PER_REPLACEMENT if moves_others(params, facts) else 1)
    if facts.per_user is None:
        raise ParamsError(
            "params.yaml: release.unit 'user' needs a schema that names the user column and a bound of "
            "records per user"
        )
    if facts.friends and params.release.horizon is not None:
        raise ParamsError(
            "params.yaml: release.unit 'user' with release.horizon needs a schema without `user.friends`: in how many "
            "slots a user is was bounded for each night alone"
        )
    return facts.per_user + 2 * (facts.friends["appearances"] if facts.friends else 0)


def moves_others(params: Params, facts: Facts) -> bool:
    """Whether changing one record may change which other records are kept."""
    release = params.release
    return release.unit == "record" and release.neighbours == "replace-one" and facts.per_user is not None


def moved_records(params: Params, facts: Facts) -> dict[str, Any]:
    """For a plan's parameters, and so for the release id: said where one record is more than one."""
    moved = {"replaced_records": RECORDS_PER_REPLACEMENT} if moves_others(params, facts) else {}
    again = params.release.horizon is not None and facts.participations > 1
    return {**moved, "participations": facts.participations} if again else moved


def check_alone(params: Params, facts: Facts, name: str) -> None:
    """Refuse where a mechanism is priced for one changed record and more may change.

    Raises:
        ParamsError: the schema bounds records per user and the relation is replace-one.
    """
    if moves_others(params, facts):
        raise ParamsError(
            f"params.yaml: '{name}' with release.neighbours replace-one needs a schema without `user`: "
            "a bound of records per user lets one record change others; use zero-out, or 'coefficients'"
        )


def check_local(params: Params, name: str) -> None:
    """Refuse a cluster.

    Raises:
        ParamsError: release.engine is not local.
    """
    if params.release.engine != "local":
        raise ParamsError(
            f"params.yaml: release.engine '{params.release.engine}' does not serve '{name}': use local"
        )


def check_record(params: Params, name: str) -> None:
    """Refuse users as units, and a cluster.

    Raises:
        ParamsError: the mechanism protects records, on one machine.
    """
    check_local(params, name)
    if params.release.unit != "record":
        raise ParamsError(f"params.yaml: '{name}' offers release.unit record and release.engine local only")
