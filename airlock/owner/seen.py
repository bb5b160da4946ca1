"""Which records and users came on which night of a population that grows, by keyed digests in AIRLOCK_HOME.

A release over many nights is priced for records that come on a stated number of nights, and for users with a
stated number of records over the population's life (docs/nights.md). Both are counted here and held, batch by
batch; a batch is known by its fingerprint, so that one which is added again counts once.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal

from airlock.errors import InputError
from airlock.owner import rows
from airlock.owner.home import Project
from airlock.records.schema import Schema
from airlock.records.tables import Table
from airlock.records.values import as_texts

Kind = Literal["record", "user"]
Counts = Mapping[int, int]
ROW = "row"
"""Records are known again by all that the schema reads of them."""
_TABLE = """CREATE TABLE IF NOT EXISTS seen (
    population TEXT, kind TEXT, digest INTEGER, batch TEXT, times INTEGER,
    PRIMARY KEY (population, kind, digest, batch)) WITHOUT ROWID"""


@dataclass(frozen=True)
class Batch:
    """What is counted of one batch: how often each record and each user is in it, by digest."""

    fingerprint: str
    records: Counts
    users: Counts


def look(table: Table, schema: Schema, key: bytes, fingerprint: str, identity: str) -> Batch:
    """Count a batch.

    Args:
        table: the records of one night.
        schema: theirs.
        key: of the digests.
        fingerprint: of the batch.
        identity: the column that names a record, or `ROW`.

    Raises:
        InputError: there is no such column, or a record has no name in it.
    """
    if identity != ROW and identity not in table.columns:
        raise InputError(f"{table.path.name} has no column '{identity}' (--id): it names each record")
    records: Counter[int] = Counter()
    users: Counter[int] = Counter()
    for batch in table.batches():
        if identity != ROW:
            records.update(_named(batch, identity, key, "record"))
        elif schema.kind != "tabular":
            records.update(_plain(batch, schema, key))
        if schema.user:
            users.update(_named(batch, schema.user.column, key, "user"))
    if identity == ROW and schema.kind == "tabular":
        for digests in rows.digests(table, schema, key):
            records.update(digest - 2**63 for digest in digests.tolist())
    if identity == ROW:
        # Rows that look the same on one night are as many records as they are; on two nights they are one again.
        records = Counter(dict.fromkeys(records, 1))
    if schema.user:
        # What is beyond the bound on one night becomes a null record there.
        users = Counter({user: min(times, schema.user.per_user) for user, times in users.items()})
    return Batch(fingerprint, records, users)


def ways(schema: Schema, identity: str) -> dict[Kind, str]:
    """All that the counts of a batch depend on beside its records, as text: counts that were made in another way say
    nothing about these.
    """
    columns = list(dict.fromkeys((*schema.sources, schema.label.column)))
    if schema.kind == "tabular":
        columns.sort()  # digests of rows do not depend on their order
    row = [columns, schema.kind, *schema.missing_values, schema.decimal] if identity == ROW else []
    user = [schema.user.column, schema.user.per_user] if schema.user else []
    return {"record": json.dumps([identity, *row]), "user": json.dumps(user)}


def check(
    project: Project,
    population: str,
    batch: Batch,
    *,
    participations: int,
    schema: Schema,
    first: Batch | None = None,
    replaced: str = "",
) -> None:
    """Refuse a batch with a record that comes too often, or a user with too many records.

    Args:
        first: a batch that is counted before this one, and remembered if this one is not refused.
        replaced: the batch that was in its place, whose records do not count.

    Raises:
        InputError: with how many, and what to do.
    """
    with _open(project) as known:
        if first:
            _enter(known, population, first)
        again = _beyond(known, population, "record", batch, participations, replaced)
        bound = schema.user.per_user if schema.user else 0
        many = _beyond(known, population, "user", batch, bound, replaced) if schema.user else 0
        if again:
            nights = "one night" if participations == 1 else f"{participations} nights"
            raise InputError(
                f"{again:,} of these records would be on more than {nights} of '{population}': take them out of the "
                "file, name a column that tells records apart (--id COLUMN, with the first batch), or say --distinct "
                "if they are other people's and only look alike"
            )
        if many:
            raise InputError(
                f"{many:,} users would have more than {bound} records over all nights of '{population}' "
                "(user.per_user in the schema): take their further records out of the file"
            )


def enter(project: Project, population: str, batch: Batch) -> None:
    """Remember a batch; once more changes nothing."""
    with _open(project) as known:
        _enter(known, population, batch)


def _enter(known: sqlite3.Connection, population: str, batch: Batch) -> None:
    for kind, counts in (("record", batch.records), ("user", batch.users)):
        known.execute(
            "DELETE FROM seen WHERE population = ? AND kind = ? AND batch = ?",
            (population, kind, batch.fingerprint),
        )
        lines = ((population, kind, digest, batch.fingerprint, times) for digest, times in counts.items())
        known.executemany("INSERT INTO seen VALUES (?, ?, ?, ?, ?)", lines)


def remove(project: Project, population: str, fingerprint: str) -> None:
    """Forget a batch that was never released: its records may come with another one."""
    with _open(project) as known:
        known.execute("DELETE FROM seen WHERE population = ? AND batch = ?", (population, fingerprint))


def knows(project: Project, population: str, fingerprint: str) -> bool:
    """Whether anything of a batch was entered."""
    with _open(project) as known:
        found = known.execute(
            "SELECT 1 FROM seen WHERE population = ? AND batch = ? LIMIT 1", (population, fingerprint)
        ).fetchone()
    return found is not None


def _beyond(
    known: sqlite3.Connection, population: str, kind: Kind, batch: Batch, most: int, replaced: str
) -> int:
    """How many records or users of a batch would come more often than `most`, all nights together."""
    counts = batch.records if kind == "record" else batch.users
    known.execute("CREATE TEMP TABLE tonight (digest INTEGER PRIMARY KEY, times INTEGER)")
    known.executemany("INSERT INTO tonight VALUES (?, ?)", counts.items())
    found = known.execute(
        "SELECT COUNT(*) FROM tonight WHERE times + COALESCE((SELECT SUM(seen.times) FROM seen WHERE "
        "population = ? AND kind = ? AND seen.digest = tonight.digest AND batch NOT IN (?, ?)), 0) > ?",
        (population, kind, batch.fingerprint, replaced, most),
    ).fetchone()
    known.execute("DROP TABLE tonight")
    return int(found[0])


@contextmanager
def _open(project: Project) -> Iterator[sqlite3.Connection]:
    path = project.folder / "seen.db"
    if not path.exists():
        path.touch(mode=0o600)
    with closing(sqlite3.connect(path)) as known, known:
        known.execute("PRAGMA synchronous = EXTRA")
        known.execute(_TABLE)
        yield known


def _named(batch: Any, column: str, key: bytes, kind: Kind) -> Iterable[int]:
    for name in as_texts(batch.column(column), column).to_pylist():
        if not name:
            raise InputError(f"a record has no {kind} in column '{column}': every one needs it")
        yield _digest(name.encode(), key, kind)


def _plain(batch: Any, schema: Schema, key: bytes) -> Iterable[int]:
    """Of records that are no rows of a table: of all values that the schema reads, as they stand in the file."""
    columns = list(dict.fromkeys((*schema.sources, schema.label.column)))
    for record in batch.select(columns).to_pylist():
        yield _digest(repr([record[name] for name in columns]).encode(), key, "record")


def _digest(data: bytes, key: bytes, kind: Kind) -> int:
    digest = blake2b(data, key=key, person=f"seen {kind}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
