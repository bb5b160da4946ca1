"""The private profile, where the release is one of `inputs`: a Parquet file beside the page, and a section of
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airlock.inside import manifest
from airlock.inside.room import Room
from airlock.models.distribution import Distribution, bin_names, distribution_of
from airlock.models.profile import Row, rows_of, table_of
from airlock.storage import load_tensors

RELEASE, FILE = "data/released/release", "profile.parquet"
MOST_SHOWN = 60
"""Columns on the page; the file has all."""


def write_profile(room: Room) -> dict[str, Any] | None:
    """Write data/report/profile.parquet; the section of the page, or None where there is no such release."""
    folder = room.path(RELEASE)
    if not (folder / manifest.NAME).exists():
        return None
    release = manifest.load(folder)
    if release.mechanism != "inputs":
        return None
    import pyarrow.parquet as pq

    known = distribution_of(release.details, load_tensors(folder / "release.safetensors"))
    rows = rows_of(known)
    pq.write_table(table_of(rows), room.path("data/report") / FILE)
    return section_of(known, rows)


def section_of(known: Distribution, rows: Sequence[Row]) -> dict[str, Any]:
    """What the template lays out: a line for each column, and the strongest pairs."""
    pairs = sorted((row for row in rows if row.kind == "association"), key=lambda row: -row.value)
    label = known.names[-1]
    strength = {row.column: row.value for row in pairs if row.other == label}
    columns = []
    for one in known.bins.columns[:MOST_SHOWN]:
        name = one.column.name
        cells = [row for row in rows if row.column == name and row.kind in ("histogram", "missing")]
        columns.append(
            {
                "name": name,
                "cells": cells,
                "missing": next((row for row in cells if row.kind == "missing"), None),
                "most": max(cells, key=lambda row: row.value),
                "association": strength.get(name),
            }
        )
    return {
        "columns": columns,
        "more": max(len(known.names) - MOST_SHOWN, 0),
        "label": label,
        "labels": bin_names(known.bins.columns[-1]),
        "pairs": [row for row in pairs[:8] if row.value > 0],
        "records": known.n,
    }
