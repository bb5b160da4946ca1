"""Room 1: check raw records against their schema, split them by a key, seal them.

One pass; memory does not grow with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airlock.errors import InputError
from airlock.inside.digests import canonical_json
from airlock.inside.room import Room
from airlock.inside.sealed import FILES, META, ROWS, SealedWriter, meta_of
from airlock.records.encoding import encode, pack
from airlock.records.handles import Handle, facts_in, read_folder
from airlock.records.schema import Schema
from airlock.records.schema_checks import check_columns
from airlock.records.schema_file import load_schema
from airlock.records.splits import Split, plan_split
from airlock.records.tables import Table, open_table
from stages.sensitive.users import Users

OTHER_NUMBER = "the {role} of '{name}' are not as many as when they were added: run `airlock add` again"


def main(room: Room) -> None:
    """Seal the records (and a public holdout, if there is one), and say publicly what is known without
    looking at them.
    """
    name = room.params.dataset
    schema = load_schema(room.path(f"data/schemas/{name}.yaml"))
    folder = room.path(f"data/handles/{name}")
    found = read_folder(folder, room.params.ingest.night)
    facts = facts_in(folder, schema, room.params)
    holdout = found.get("holdout")
    split = plan_split(room.params, schema, n=found["records"].n, n_file=holdout.n if holdout else None)
    folder = room.path("data/sealed")
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        train, held = (stack.enter_context(_writer(room, folder, schema, role)) for role in FILES)
        for first_row, batch in _encoded(room, schema, found["records"]):
            _divide(batch, split, first_row, room.keys["split"], train, held)
        if split.source == "file" and holdout:
            for _, batch in _encoded(room, schema, holdout):
                held.write(batch)
    meta = meta_of(facts, generation=room.facts.get("generation"))
    (folder / META).write_bytes(canonical_json(meta) + b"\n")


def _writer(room: Room, folder: Path, schema: Schema, role: str) -> SealedWriter:
    return SealedWriter(folder / FILES[role], room.keys[f"seal:{role}"], rows=ROWS[schema.kind])


def _divide(
    batch: pa.RecordBatch, split: Split, first_row: int, key: bytes, train: SealedWriter, held: SealedWriter
) -> None:
    mask = pa.array(split.held_out(first_row, batch.num_rows, key))
    held.write(batch.filter(mask))
    train.write(batch.filter(pc.invert(mask)))


def _encoded(room: Room, schema: Schema, handle: Handle) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Encode one raw file batch by batch, each with the number of records before it."""
    table = open_table(room.path(f"raw:{handle.role}"), header=schema.header, empty=(handle.night or 1) > 1)
    check_columns(table.columns, schema)
    users = Users(schema.user, room.keys["split"]) if schema.user else None
    counts: Counter[str] = Counter()
    classes: set[int] = set()
    row = 0
    for raw in _batches(table, [*schema.sources, schema.label.column]):
        if row + raw.num_rows > handle.n:
            raise InputError(OTHER_NUMBER.format(role=handle.role, name=handle.name))
        encoded = encode(raw, schema, first_row=row)
        numbers = None
        if users:
            numbers, encoded = users.bound(raw, encoded, first_row=row)
        counts.update(encoded.counts)
        classes.update(np.unique(encoded.y[encoded.valid > 0]).tolist())
        yield row, pack(encoded, user=numbers)
        row += raw.num_rows
        room.send({"kind": "progress", "label": f"sealing {handle.role}", "done": row, "total": handle.n})
    if row != handle.n:
        raise InputError(OTHER_NUMBER.format(role=handle.role, name=handle.name))
    # How many values were changed, and whether a class is empty, depends on values: the owner's log only.
    found = (
        {} if schema.label.number else {"classes_found": len(classes), "classes": len(schema.label.classes)}
    )
    room.note(f"{handle.role} of '{handle.name}' sealed", records=handle.n, counts=dict(counts), **found)


def _batches(table: Table, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """At least one: of a night without records an empty one, which still tells the columns."""
    found = iter(table.batches(columns))
    first = next(found, None)
    yield (
        pa.RecordBatch.from_pydict({name: pa.array([], pa.string()) for name in columns})
        if first is None
        else first
    )
    yield from found
