"""A small private population, its files, and a room to ingest it in, without the runner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from airlock.inside.room import Room
from airlock.inside.sealed import FILES, SealedReader, seal_contexts
from airlock.owner import add, registry
from airlock.owner.home import Project, project
from airlock.owner.keys import Keyring
from airlock.params import Params
from airlock.records import handles
from airlock.records.encoding import Encoded, unpack
from stages.sensitive import ingest

SCHEMA = """name: clinic
kind: tabular
public: false
confirmed: true
label: {column: outcome, classes: [healthy, ill]}
columns:
- {name: age, type: number, bounds: [0, 100], missing: impute}
- {name: site, type: category, categories: [north, south]}
"""


def records(rows: int, seed: int = 0) -> pa.Table:
    """Records of the clinic; `age` is unique, so that a record can be told from all others."""
    generator = np.random.default_rng(seed)
    return pa.table(
        {
            "age": generator.permutation(rows) / rows * 100,
            "site": np.array(["north", "south"])[generator.integers(0, 2, rows)],
            "outcome": np.array(["healthy", "ill"])[generator.integers(0, 2, rows)],
        }
    )


@dataclass
class Clinic:
    """A workspace with one schema, and what is needed to run ingest on it."""

    root: Path
    home: Project
    events: list[Mapping[str, Any]] = field(default_factory=list)

    def write_schema(self, text: str = SCHEMA, name: str = "clinic") -> None:
        (self.root / f"data/schemas/{name}.yaml").write_text(text)

    def file(self, table: pa.Table, name: str = "records.parquet") -> Path:
        path = self.home.folder / name
        pq.write_table(table, path)
        return path

    def add(self, path: Path, **options: Any) -> add.Added:
        return add.add(self.home, self.root, path, **{"name": "clinic", **options})

    def params(self, **sections: Any) -> Params:
        return Params.model_validate({"dataset": "clinic", **sections})

    def ingest(self, params: Params, *, generation: int = 1) -> dict[str, Encoded]:
        """Run the stage in this process and open what it sealed, by role."""
        keyring, facts = Keyring.load(self.home), handles.public_facts(self.root, params)
        keys = {
            f"seal:{role}": keyring.seal_key(context)
            for role, context in seal_contexts(facts, generation=generation).items()
        }
        declared = (f"data/schemas/{params.dataset}.yaml", f"data/handles/{params.dataset}", "data/sealed")
        found = handles.of(self.root, params.dataset, params.ingest.night)
        raw = {f"raw:{role}": registry.check(self.home, keyring, handle) for role, handle in found.items()}
        room = Room(
            "ingest",
            params,
            facts={"generation": generation},
            keys={**keys, "split": keyring.split_key(facts.population)},
            paths={**{path: self.root / path for path in declared}, **raw},
            send=self.events.append,
        )
        ingest.main(room)
        return {role: self.opened(name, keys[f"seal:{role}"], facts.shape) for role, name in FILES.items()}

    def opened(self, name: str, key: bytes, shape: tuple[int, ...]) -> Encoded:
        with SealedReader(self.root / "data/sealed" / name, key) as reader:
            return unpack(pa.concat_batches(list(reader)), shape)


def make_clinic(folder: Path, identity: str = "clinic") -> Clinic:
    """An empty workspace below `folder`; AIRLOCK_HOME must point outside of it."""
    (folder / "work/data/schemas").mkdir(parents=True)
    (folder / "work/data/project.json").write_text(f'{{"id": "{identity}", "version": 1}}')
    made = Clinic(folder / "work", project(folder / "work"))
    made.write_schema()
    return made
