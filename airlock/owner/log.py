"""The owner's log, read again: what `init` saw of a file, and how many values `ingest` clipped, found missing
and dropped.

All of it depends on records. It is shown on a terminal, or when the owner asks with `airlock log`; never in
what DVC or Prefect keep.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from airlock.owner.home import Project

# of the records: more clipped or missing values than this in a column are a bound or a format gone wrong
WARNING_SHARE = 0.05


@dataclass(frozen=True)
class Changed:
    """How many values of a column were clipped or missing."""

    column: str
    clipped: int
    missing: int


def stages(project: Project) -> list[str]:
    """The stages that have a log."""
    return sorted(path.stem for path in project.log.glob("*.jsonl"))


def entries(project: Project, stage: str) -> list[dict[str, Any]]:
    """The lines of a stage's log, the oldest first; a line that was cut by a crash is left out."""
    path = project.log / f"{stage}.jsonl"
    if not path.is_file():
        return []
    found = []
    for line in path.read_text(errors="replace").splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        found += [entry] if isinstance(entry, dict) else []
    return found


def last_summaries(project: Project, stage: str) -> list[dict[str, Any]]:
    """The newest entry about each file: the records of a population, its holdout, a draft."""
    newest = {
        str(entry["message"]): entry
        for entry in entries(project, stage)
        if "counts" in entry or "columns" in entry
    }
    last = max((str(entry.get("time")) for entry in newest.values()), default="")
    # One run seals the records and perhaps a holdout: what is older than a minute before is another run's.
    return [entry for entry in newest.values() if str(entry.get("time"))[:16] == last[:16]] or list(
        newest.values()
    )[-1:]


def shown(entry: Mapping[str, Any]) -> RenderableType:
    """An entry as a table."""
    return _draft_table(entry) if "columns" in entry else _ingest_table(entry)


def changes(counts: Mapping[str, int]) -> list[Changed]:
    """Counts by column, the most changed first."""
    found: dict[str, dict[str, int]] = {}
    for key, count in counts.items():
        if match := re.fullmatch(r"(clipped|missing) in '(.*)'", key, re.DOTALL):
            found.setdefault(match[2], {})[match[1]] = count
    rows = [Changed(name, each.get("clipped", 0), each.get("missing", 0)) for name, each in found.items()]
    return sorted(rows, key=lambda row: (-max(row.clipped, row.missing), row.column))


def _ingest_table(entry: Mapping[str, Any]) -> RenderableType:
    records, counts = int(entry.get("records") or 0), entry.get("counts") or {}
    found, dropped = changes(counts), int(counts.get("dropped records", 0))
    table = Table("column", "clipped", "missing", "", box=None, title=None)
    for row in found:
        table.add_row(
            plain(row.column),
            _count(row.clipped, records),
            _count(row.missing, records),
            _warning(row, records),
        )
    head = (
        f"{plain(str(entry['message']))}: {records:,} records, {dropped:,} of "
        "them dropped. For your eyes only:"
    )
    empty = int(entry.get("classes", 0)) - int(entry.get("classes_found", 0))
    tail = [f"{empty} of {entry['classes']} classes have no record"] if empty > 0 else []
    return Group(head, *([table] if found else ["no value was clipped or missing"]), *tail)


def _draft_table(entry: Mapping[str, Any]) -> RenderableType:
    table = Table("column", "taken for", "missing", "levels", "why", box=None)
    for row in entry["columns"]:
        missing = f"{row['missing']:.1%}" if row["missing"] else ""
        table.add_row(
            plain(row["name"]) or "(no name)", row["kind"], missing, row["levels"], plain(row["why"])
        )
    rare = ", ".join(f"'{plain(name)}' ({count})" for name, count in (entry.get("rare") or {}).items())
    tail = (
        [
            f"rare classes, with their records: {rare}. A class with so few is a fact about people: merge "
            "or remove it"
        ]
        if rare
        else []
    )
    return Group(
        f"{plain(str(entry['message']))}. For your eyes only:",
        table,
        *map(plain, entry.get("notes") or ()),
        *tail,
    )


def plain(text: str) -> str:
    """Names come from a file: no control characters, and no markup of the terminal's."""
    return escape("".join(filter(str.isprintable, text)))


def _count(count: int, records: int) -> str:
    return f"{count:,} ({count / records:.1%})" if count and records else (f"{count:,}" if count else "")


def _warning(row: Changed, records: int) -> str:
    if records and row.clipped > WARNING_SHARE * records:
        return "many clipped: are the bounds right?"
    return "many missing: is it read right?" if records and row.missing > WARNING_SHARE * records else ""
