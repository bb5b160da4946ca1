"""Simulated windows in memory, as the behaviour benches take them: encoded, in batches that read like a
sealed file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.datasets import behaviour
from airlock.datasets.behaviour import DAILY, WEEKLY, Windows
from airlock.datasets.simulation import SEED
from airlock.privacy.plan import Facts
from airlock.records.encoding import Encoded, encode, encoded_shape, pack
from airlock.records.schema import Schema
from airlock.records.schema_file import load_schema

ROOT = Path(__file__).parents[2]
TASKS = {"prediction": DAILY, "classification": WEEKLY}
ROWS = 4096


@dataclass(frozen=True)
class BehaviourData:
    """One task's records, encoded, with what the simulation knows about the holdout."""

    facts: Facts
    batches: list[Any]
    holdout: Encoded
    records: Encoded
    windows: dict[str, Windows]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batches)

    @property
    def chunks(self) -> int:
        return len(self.batches)

    def read(self, index: int) -> Any:
        """As a sealed file is read."""
        return self.batches[index]


def load(task: str, seed: str = SEED) -> BehaviourData:
    """Simulate and encode a task's records."""
    name = TASKS[task]
    schema, windows = load_schema(ROOT / f"data/schemas/{name}.yaml"), behaviour.divide(name, seed)
    records, holdout = (_encoded(windows[role], schema) for role in ("records", "holdout"))
    facts = facts_of(name, schema, len(records.y), len(np.unique(windows["records"].users)))
    return BehaviourData(facts, _batches(records, windows["records"].users), holdout, records, windows)


def facts_of(name: str, schema: Schema, n: int, users: int) -> Facts:
    """The public facts that ingest would write."""
    assert schema.user is not None and schema.user.friends is not None
    friends = {"slots": schema.user.friends.slots, "appearances": schema.user.friends.appearances}
    return Facts(
        name, True, "tabular", n, 0, encoded_shape(schema), schema.label.classes, schema.sha256, "simulated",
        users=users, per_user=schema.user.per_user, friends=friends,
    )  # fmt: skip


def _encoded(found: Windows, schema: Schema) -> Encoded:
    parts = [encode(batch, schema) for batch in behaviour.batches(found)]
    x, y, valid = (np.concatenate([getattr(part, name) for part in parts]) for name in ("x", "y", "valid"))
    return Encoded(x, y, valid)


def _batches(records: Encoded, users: NDArray[np.int64]) -> list[Any]:
    def part(start: int) -> Any:
        few = slice(start, start + ROWS)
        return pack(
            Encoded(records.x[few].copy(), records.y[few].copy(), records.valid[few].copy()), user=users[few]
        )

    return [part(start) for start in range(0, len(records.y), ROWS)]


def last_days(data: BehaviourData, days: int) -> BehaviourData:
    """The last so many time points of the training records, and bounds that fit them."""
    points = np.unique(data.windows["records"].point)[-days:]
    chosen = np.isin(data.windows["records"].point, points)
    assert data.facts.friends is not None
    slots = data.facts.friends["slots"]
    records = Encoded(data.records.x[chosen], data.records.y[chosen], data.records.valid[chosen])
    facts = replace(
        data.facts, n=len(records.y), per_user=days, friends={"slots": slots, "appearances": days * slots}
    )
    windows = {**data.windows, "records": data.windows["records"].only(chosen)}
    return BehaviourData(facts, _batches(records, windows["records"].users), data.holdout, records, windows)
