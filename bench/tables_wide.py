"""What generous bounds cost: the default release of development tables, upper bounds 1, 10 or 100 times as far, as
it is and with `relevance.quantiles`.

    python -m bench.tables_wide

Cells go to bench/results/tables/wide.jsonl and are not made twice.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np

from bench import keel
from bench.tables_beside import airlock

RESULTS = Path(__file__).parent / "results/tables/wide.jsonl"
TABLES = ("pima", "vehicle", "banana", "bupa", "ionosphere", "saheart")
FACTORS, SPLITS, EPSILON = (1, 10, 100), 3, 1.0


def main() -> None:
    """Make the missing cells."""
    known = [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    done = {(cell["table"], cell["split"], cell["factor"], cell.get("quantiles", False)) for cell in known}
    for cell in product(range(SPLITS), TABLES, FACTORS, (False, True)):
        split, name, factor, quantiles = cell
        if (name, split, factor, quantiles) not in done:
            told = {"table": name, "split": split, "factor": factor, "quantiles": quantiles}
            right = accuracy(name, split, factor, quantiles=quantiles)
            with RESULTS.open("a") as file:
                file.write(json.dumps({**told, "accuracy": right}) + "\n")


def accuracy(name: str, split: int, factor: int, *, quantiles: bool) -> float:
    """Of the release of one split, numbers encoded by bounds [low, low + factor (high - low)]."""
    table = widened(keel.load(name), factor)
    order = np.random.default_rng([split, len(table.y)]).permutation(len(table.y))
    held, kept = order[: len(order) // 5], order[len(order) // 5 :]
    scores, _ = airlock(table, kept, held, EPSILON, "auto", split, quantiles=quantiles)
    return float(np.mean(scores.argmax(axis=1) == table.y[held]))


def widened(table: keel.Table, factor: int) -> keel.Table:
    """The same records under wider bounds."""
    from airlock.records.encoding import encode

    columns = tuple(
        column.model_copy(
            update={
                "bounds": (
                    column.bounds[0],
                    column.bounds[0] + factor * (column.bounds[1] - column.bounds[0]),
                )
            }
        )
        if column.bounds
        else column
        for column in table.schema.columns
    )
    schema = table.schema.model_copy(update={"columns": columns})
    encoded = encode(table.records, schema)
    return replace(table, schema=schema, x=encoded.x, y=encoded.y)


if __name__ == "__main__":
    main()
