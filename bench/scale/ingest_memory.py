"""Peak memory of ingest at 10^5, 10^6 and 10^7 rows: it must not grow with the number of records.

nice python -m bench.scale.ingest_memory        writes bench/results/ingest_memory.json
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

RESULTS = Path(__file__).parents[1] / "results/ingest_memory.json"
SIZES = (100_000, 1_000_000, 10_000_000)
BATCH = 100_000
SCHEMA = """name: rows
kind: tabular
confirmed: true
label: {column: outcome, classes: [healthy, ill]}
columns:
- {name: age, type: number, bounds: [0, 120]}
- {name: marker, type: number, bounds: [0, 10]}
- {name: site, type: category, categories: [north, south, west]}
"""


def make_batch(start: int) -> pa.RecordBatch:
    """Rows that depend on their position only."""
    generator = np.random.default_rng(start)
    columns = {
        "age": generator.integers(0, 100, BATCH),
        "marker": np.round(generator.uniform(0, 12, BATCH), 3),
        "site": np.array(["north", "south", "west"])[generator.integers(0, 3, BATCH)],
        "outcome": np.array(["healthy", "ill"])[generator.integers(0, 2, BATCH)],
    }
    return pa.RecordBatch.from_pydict({name: pa.array(values) for name, values in columns.items()})


def make_file(path: Path, rows: int) -> None:
    """Write the raw file batch by batch."""
    kind = make_batch(0).schema
    writer = (
        pa.parquet.ParquetWriter(path, kind) if path.suffix == ".parquet" else pa.csv.CSVWriter(path, kind)
    )
    with writer:
        for start in range(0, rows, BATCH):
            writer.write_batch(make_batch(start))


def ingest(workspace: Path, raw: Path) -> dict[str, Any]:
    """Add and ingest one file in this process, and tell its peak."""
    from airlock.inside.room import Room
    from airlock.inside.sealed import seal_contexts
    from airlock.owner import add
    from airlock.owner.home import project
    from airlock.owner.keys import Keyring
    from airlock.params import Params
    from airlock.records import handles
    from stages.sensitive import ingest as stage

    place = project(workspace)
    add.add(place, workspace, raw, name="rows")
    params = Params.model_validate({"dataset": "rows", "evaluate": {"holdout": "private"}})
    keyring, facts = Keyring.load(place), handles.public_facts(workspace, params)
    keys = {
        f"seal:{role}": keyring.seal_key(context)
        for role, context in seal_contexts(facts, generation=1).items()
    }
    names = ("data/schemas/rows.yaml", "data/handles/rows", "data/sealed")
    paths = {**{name: workspace / name for name in names}, "raw:records": raw}
    start = time.perf_counter()
    stage.main(
        Room(
            "ingest",
            params,
            facts={"generation": 1},
            keys={**keys, "split": keyring.split_key("rows")},
            paths=paths,
        )
    )
    seconds = time.perf_counter() - start
    return {
        "seconds": round(seconds, 1),
        "peak_megabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }


def measure(rows: int, kind: str) -> dict[str, Any]:
    """One measurement in a process of its own."""
    work = Path(__file__).parents[1] / "work"
    work.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=work) as folder, tempfile.TemporaryDirectory(dir="/tmp") as home:
        workspace = Path(folder)
        (workspace / "data/schemas").mkdir(parents=True)
        (workspace / "data/project.json").write_text('{"id": "bench"}')
        (workspace / "data/schemas/rows.yaml").write_text(SCHEMA)
        (workspace / "data/raw").mkdir()
        raw = workspace / f"data/raw/rows.{kind}"
        make_file(raw, rows)
        command = [sys.executable, "-m", "bench.scale.ingest_memory", str(workspace), str(raw)]
        done = subprocess.run(
            command, env={**os.environ, "AIRLOCK_HOME": home}, check=True, capture_output=True, text=True
        )
        return {
            "rows": rows,
            "format": kind,
            "raw_megabytes": round(raw.stat().st_size / 2**20, 1),
            **json.loads(done.stdout),
        }


def main() -> None:
    """Measure all sizes and formats and keep the result."""
    found = [measure(rows, kind) for kind in ("csv", "parquet") for rows in SIZES]
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    for row in found:
        print(row)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps(ingest(Path(sys.argv[1]), Path(sys.argv[2]))))
    else:
        main()
