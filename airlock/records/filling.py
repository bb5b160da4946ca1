"""Bounds for the numbers of a draft: from the owner's answers, for a pattern of columns, or from a data
dictionary. No record is read.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from airlock.errors import InputError
from airlock.params import parse_yaml
from airlock.records.draft_file import flow
from airlock.records.schema_checks import fits, listed
from airlock.records.schema_file import LOADER

LOW_NAMES, HIGH_NAMES, NAMES = (
    ("low", "min", "minimum", "lower"),
    ("high", "max", "maximum", "upper"),
    ("name", "column", "variable"),
)
WHY = ("why", "source", "description")
FORM = "bounds are two numbers or two dates, as in --bounds 0,3 or --bounds 2000-01-01,2030-12-31"


@dataclass(frozen=True)
class Bound:
    """Low and high as they stand in YAML, and where they come from."""

    low: Any
    high: Any
    why: str = ""


def parse_bound(text: str, why: str = "") -> Bound:
    """Bounds from "LOW_NAMES,HIGH_NAMES" (or "LOW_NAMES HIGH_NAMES").

    Raises:
        InputError: they are no two ascending numbers or dates.
    """
    parts = text.replace("[", " ").replace("]", " ").replace(",", " ").replace(";", " ").split()
    values = [_value(part) for part in parts] if len(parts) == 2 else []
    numbers = [value for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)]
    same = len(values) == 2 and (
        len(numbers) == 2 or (not numbers and all(hasattr(value, "year") for value in values))
    )
    if not same or not values[0] < values[1] or any(math.isinf(value) for value in numbers):
        raise InputError(f"'{text}' is no bound: {FORM}")
    return Bound(values[0], values[1], why)


def _value(text: str) -> Any:
    """A number or a date; YAML takes 1e9 and 1.5e-3 without a sign or a point for text."""
    try:
        value = parse_yaml(text)
        return float(value) if isinstance(value, str) else value
    except (yaml.YAMLError, ValueError):
        return text


def read_dictionary(path: Path) -> dict[str, Bound]:
    """Bounds from a data dictionary in CSV: columns name, low, high and, if there is one, why.

    Raises:
        InputError: the file lacks one of them, or a line has no bounds.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error):
        raise InputError(
            f"{path.name} cannot be read as CSV in UTF-8: give a table with the columns name, low, high"
        ) from None
    keys = {key.strip().lower(): key for key in (rows[0] if rows else {}) if key}
    wanted = [
        next((keys[name] for name in names if name in keys), None)
        for names in (NAMES, LOW_NAMES, HIGH_NAMES, WHY)
    ]
    if None in wanted[:3]:
        raise InputError(
            f"{path.name} has no columns name, low, high: they say which column has which bounds"
        )
    name, low, high, why = wanted
    filled = [row for row in rows if (row[low] or "").strip() and (row[high] or "").strip()]
    return {
        (row[name] or "").strip(): parse_bound(
            f"{row[low]} {row[high]}", (row[why] or "").strip() if why else ""
        )
        for row in filled
    }


def open_columns(text: str) -> list[dict[str, Any]]:
    """The columns of a draft that still need bounds."""
    return [column for column in _bounded(text) if column.get("bounds") is None]


def _bounded(text: str) -> list[dict[str, Any]]:
    """The numbers and dates of a draft, its label among them where that is a number.

    Raises:
        InputError: it was edited into something that is no schema.
    """
    try:
        document = parse_yaml(text, LOADER)
        columns = [column for column in document.get("columns") or [] if column["type"] != "category"]
        label = document.get("label") or {}
        number = [{**label, "name": label["column"]}] if label.get("type") == "number" else []
        return [*columns, *number]
    except (yaml.YAMLError, AttributeError, KeyError, TypeError):
        raise InputError(
            "the draft is not valid YAML any more: mend it, or draft again with --force"
        ) from None


def fill(text: str, bounds: Mapping[str, Bound], *, again: bool = True) -> tuple[str, list[str]]:
    """A draft with bounds for columns, by name; and which were filled.

    With `again` False, those that have some keep them.
    """
    filled: list[str] = []
    lines = [_filled(line, bounds, filled, again) for line in text.splitlines()]
    return "\n".join(lines) + "\n", filled


def for_pattern(text: str, bound: Bound, patterns: Sequence[str]) -> dict[str, Bound]:
    """One bound for all columns that fit a pattern; without patterns, for those that have none yet.

    Raises:
        InputError: nothing fits.
    """
    numbers = [column["name"] for column in _bounded(text)]
    if not patterns:
        return dict.fromkeys((column["name"] for column in open_columns(text)), bound)
    for pattern in patterns:
        if not any(fits(name, [pattern]) for name in numbers):
            raise InputError(
                f"--columns '{pattern}' fits no number or date of the draft: it has {listed(numbers, 8)}"
            )
    return {name: bound for name in numbers if fits(name, patterns)}


def _filled(line: str, bounds: Mapping[str, Bound], filled: list[str], again: bool) -> str:
    start, key = ("- ", "name") if line.startswith("- {") else ("label: ", "column")
    if not line.startswith(f"{start}{{"):
        return line
    try:
        column = parse_yaml(line.removeprefix(start), LOADER)
        found = bounds.get(column.get(key))
    except (yaml.YAMLError, ValueError, TypeError, AttributeError):
        return line  # written by hand in another way: it stays as it is, and the check names what it lacks
    divided = column.get("type", "category") != "category"
    if found is None or not divided or (column.get("bounds") is not None and not again):
        return line
    filled.append(column[key])
    column |= {"bounds": [found.low, found.high]} | ({"why": found.why} if found.why else {})
    return f"{start}{flow(column)}"
