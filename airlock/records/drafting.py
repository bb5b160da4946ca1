"""A first schema for a raw file: what can be seen in it, marked as unconfirmed, and blanks that only the
owner can fill.

Nothing is guessed that is not said: every column has its reason, which goes to the owner's terminal and into
the draft.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airlock.errors import InputError
from airlock.records.draft_file import written
from airlock.records.guesses import (
    RARE_CLASS,
    Choice,
    Wishes,
    as_number,
    choice_of,
    columns_of,
    decimal_of,
    image_of,
    label_of,
    nearly_alike,
)
from airlock.records.profiles import NAN, Profile, RowProgress, parses_as_number, profiles_of
from airlock.records.schema import MISSING
from airlock.records.schema_checks import fits, listed
from airlock.records.tables import Table

NO_HEADER = (
    "{name}: the first line may be a record instead of a header (column {place} {why}): "
    "say --no-header to call the columns c1, c2, ..., or --header if these are names"
)


@dataclass(frozen=True)
class Draft:
    """A drafted schema and the reasons for it.

    `choices`, `rare` and `notes` tell about records: they are for the owner.
    """

    text: str
    choices: tuple[Choice, ...]
    rare: Mapping[str, int]
    notes: tuple[str, ...]
    number: bool = False


def draft(
    table: Table, name: str, wishes: Wishes | None = None, progress: RowProgress = lambda rows: None
) -> Draft:
    """Draft a schema.

    Raises:
        InputError: no header or label can be told, a wish fits no column, or the label has one class only.
    """
    wishes = wishes or Wishes()
    if table.format == "csv" and wishes.header is None:
        _refuse_numbers_for_names(table)
    _check_wishes(table.columns, wishes)
    if len(table.columns) == 1:
        raise InputError(
            "no column is left to learn from: only one was found, and columns are separated by , ; tab or |"
        )
    profiles = profiles_of(table, progress)
    if table.format == "csv" and wishes.header is None:
        _refuse_values_for_names(table, profiles)
    decimal, notes = decimal_of(profiles, wishes)
    target, why = label_of(profiles, wishes.label)
    number = as_number(target, wishes, decimal)
    notes = [f"label: {target.name} ({why})", *notes, *([number] if number else nearly_alike(target))]
    rest = [profile for profile in profiles.values() if profile is not target]
    image = image_of(rest, wishes, notes)
    used = columns_of(image) if image else set()
    choices = [Choice(profile, "image") for profile in rest if profile.name in used]
    choices += [
        choice_of(profile, wishes, decimal, bool(image)) for profile in rest if profile.name not in used
    ]
    if image and number:
        raise InputError(
            f"label '{target.name}' is a number, which is for tables: name a column of classes with --label"
        )
    if not image and all(choice.kind == "ignored" for choice in choices):
        reasons = "; ".join(f"'{choice.profile.name}': {choice.why}" for choice in choices[:3])
        raise InputError(
            f"no column is left to learn from: name some with --number or --category ({reasons})"
        )
    choices.append(Choice(target, "label", why))
    extra = _extra(table, profiles, decimal, notes)
    counts = {} if number else target.counts or {}
    rare = {value: count for value, count in counts.items() if count < RARE_CLASS}
    ordered = tuple(sorted(choices, key=lambda choice: choice.profile.place))
    return Draft(
        written(name, target, image, ordered, extra, number), ordered, rare, tuple(notes), bool(number)
    )


def _refuse_numbers_for_names(table: Table) -> None:
    empty = [place for place, name in enumerate(table.columns, start=1) if not name.strip()]
    number = next(
        (place for place, name in enumerate(table.columns, start=1) if parses_as_number(name)), None
    )
    if number:
        raise InputError(
            NO_HEADER.format(name=table.path.name, place=number, why="is named by a number or a date")
        )
    # An empty name in the first place is the index that pandas writes; in the last, a separator at the line's end.
    if empty and empty not in ([1], [len(table.columns)]):
        raise InputError(NO_HEADER.format(name=table.path.name, place=empty[-1], why="has an empty name"))


def _refuse_values_for_names(table: Table, profiles: Mapping[str, Profile]) -> None:
    last = profiles[table.columns[-1]]
    if not last.name.strip() and last.missing < last.rows:
        raise InputError(NO_HEADER.format(name=table.path.name, place=last.place, why="has an empty name"))
    found = next((profile.place for profile in profiles.values() if profile.named_like_value), None)
    if found:
        why = "has its name among its values"
        raise InputError(NO_HEADER.format(name=table.path.name, place=found, why=why))


def _check_wishes(columns: Sequence[str], wishes: Wishes) -> None:
    """A wish that fits no column is a typing error, and is told before anything is read."""
    if wishes.label is not None and wishes.label not in columns:
        raise InputError(f"unknown column '{wishes.label}': the file has {listed(columns, 8)}")
    for pattern in (*wishes.ignored, *wishes.categories, *wishes.numbers):
        if not any(fits(name, [pattern]) for name in columns):
            raise InputError(f"no column fits '{pattern}': the file has {listed(columns, 8)}")


def _extra(table: Table, profiles: Mapping[str, Profile], decimal: str, notes: list[str]) -> dict[str, Any]:
    """Fields of the whole file, written only where they differ from what is usual."""
    extra: dict[str, Any] = {}
    if not table.header:
        extra["header"] = False
    if decimal != ".":
        extra["decimal"] = decimal
    if any(profile.nan for profile in profiles.values()):
        extra["missing_values"] = [*MISSING, *NAN]
        notes.append("NaN is written for missing values: `missing_values` lists it")
    return extra


def slug(path: Path) -> str:
    """A population's name from a file's."""
    return re.sub(r"[^a-z0-9]+", "-", path.name.split(".")[0].lower()).strip("-") or "records"
