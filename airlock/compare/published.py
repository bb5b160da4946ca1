"""The comparison as two CSV files, for the report stage, which may not see bench/results: rows, and the
attacks beside them.

`airlock compare --save stages/open/report/published.csv` writes published.csv, and attacks.csv in the same
folder.
"""

from __future__ import annotations

import csv
import io
import json
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from airlock.compare.comparison import ComparisonRow, Findings
from airlock.errors import InputError

ATTACKS = "attacks.csv"
SHARED_FIELDS = ("kind", "mechanism", "epsilon", "neighbours", "unit", "options", "noise_factor")
BOUNDS = ("law", "bound", "by_law", "reached", "proven", "confidence")
WORDS = ("dataset", "mechanism", "reading", "reason")
INTEGER_FIELDS = ("passes", "records")


@dataclass(frozen=True)
class PublishedTables:
    """What was measured before, anywhere."""

    rows: tuple[ComparisonRow, ...] = ()
    attacks: tuple[Mapping[str, Any], ...] = ()


def write(path: Path, rows: Iterable[ComparisonRow], attacks: Findings) -> None:
    """published.csv at `path`, and attacks.csv beside it."""
    names = [field.name for field in fields(ComparisonRow)]
    path.write_text(_text(names, ([_cell(getattr(row, name)) for name in names] for row in rows)))
    (path.parent / ATTACKS).write_text(_text([*SHARED_FIELDS, *BOUNDS], _lines(attacks)))


def _lines(attacks: Findings) -> Iterable[list[str]]:
    for one in attacks:
        shared = {
            "unit": "record",
            "noise_factor": 1.0,
            **one,
            "options": json.dumps(one.get("options", {}), sort_keys=True),
        }
        for found in one["findings"]:
            bounds = {**found, "bound": found["epsilon"]}
            merged = {**shared, "kind": found.get("kind") or one.get("kind")}
            both = [merged.get(name) for name in SHARED_FIELDS], [bounds.get(name) for name in BOUNDS]
            yield [_cell(value) for part in both for value in part]


def read(rows: Path | None, attacks: Path | None) -> PublishedTables:
    """What `write` wrote; nothing where a file is missing.

    Raises:
        InputError: a file is not one of these.
    """
    return PublishedTables(
        tuple(_read(rows, _row)) if rows else (), tuple(_read(attacks, _attack)) if attacks else ()
    )


def _read(path: Path, convert: Any) -> Iterable[Any]:
    try:
        with path.open(newline="") as file:
            return [convert(line) for line in csv.DictReader(file)]
    except (ValueError, KeyError, TypeError):
        raise InputError(
            f"{path.name} cannot be read: run `airlock compare --save {shlex.quote(str(path))}` again"
        ) from None


def _row(line: Mapping[str, str]) -> ComparisonRow:
    values: dict[str, Any] = {name: _number(text) for name, text in line.items()}
    values |= {name: line[name] for name in WORDS}
    values |= {name: int(line[name]) if line[name] else None for name in INTEGER_FIELDS}
    return ComparisonRow(
        **{**values, "neighbours": line["neighbours"] or None, "simulated": line["simulated"] == "True"}
    )


def _attack(line: Mapping[str, str]) -> dict[str, Any]:
    """One bound, in the form of an entry of bench/results/attacks.json."""
    words = {name: line[name] for name in ("kind", "mechanism", "neighbours", "unit")}
    found = {"kind": line["kind"], "law": line["law"], "epsilon": float(line["bound"])}
    found |= {name: _number(line[name]) for name in ("by_law", "reached", "proven", "confidence")}
    return {
        **words,
        "epsilon": float(line["epsilon"]),
        "options": json.loads(line["options"]),
        "noise_factor": float(line["noise_factor"]),
        "findings": [found],
    }


def _number(text: str) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


def _cell(value: Any) -> str:
    return "" if value is None else "inf" if value == "infinity" else str(value)


def _text(names: list[str], lines: Iterable[list[str]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(lines)
    return out.getvalue()
