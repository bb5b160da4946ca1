"""A ledger's entries as they stand: verified at every look, appended to under a lock that no other writer shares."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Self

from sqlalchemy import Connection

from airlock.errors import LedgerError, LedgerMoved
from airlock.ledger import chain, refusals, tables
from airlock.ledger.accounts import Release
from airlock.ledger.commitments import link_of
from airlock.ledger.store import Row, Store
from airlock.ledger.verified import Verified


class Entries:
    """An append-only, hash-chained book of events. State is derived from its entries at every question."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._verified = Verified()

    @classmethod
    def open(cls, url: str, *, create: bool, scratch: bool = False) -> Self:
        """Open a ledger, bringing its tables to the newest revision.

        Args:
            url: an SQLite or PostgreSQL database.
            create: start a new one if there is none; only `airlock add` and `airlock data fetch` do, for a
                project's first data.
            scratch: a new ledger takes public data only.

        Raises:
            LedgerError: if it is missing, written by a newer Airlock, or cannot be reached.
        """
        store = Store(url)
        if not store.exists():
            if not create:
                raise LedgerError(refusals.missing(str(store)))
            store.touch()
        with store.reading() as connection:
            current = store.revision(connection) == tables.REVISION
        if not current:
            _bring_up(store, create=create, scratch=scratch)
        return cls(store)

    def __str__(self) -> str:
        return str(self.store)

    def write(
        self, connection: Connection, now: Verified, kind: str, release: Release, details: Mapping[str, Any]
    ) -> None:
        terms = {**details, "at": this_minute()}
        self.append(connection, now, kind, release.population, terms, release_id=release.release_id)

    def append(
        self,
        connection: Connection,
        now: Verified,
        kind: str,
        population: str,
        details: Mapping[str, Any],
        *,
        release_id: str = "",
    ) -> None:
        entry = link_of(
            now.last,
            kind,
            population=population,
            salt=now.salts.get(population),
            release_id=release_id,
            details=details,
        )
        self.store.append(connection, entry)

    @contextmanager
    def writing(self) -> Iterator[tuple[Connection, Verified]]:
        """A transaction that no other writer shares, and the ledger as it stands in it.

        All rows are compared before the lock is taken and only the newest under it, so that nobody waits for
        the length of the history.
        """
        self.look()
        with self.store.writing() as connection:
            yield connection, self.newest(connection)

    def look(self) -> Verified:
        """The ledger as it stands, every row of it compared with what was verified.

        Nothing is answered, let alone spent, from a ledger that was changed.
        """
        with self.store.reading() as connection:
            rows = self.store.rows(connection)
        return self._compared(rows)

    def newest(self, connection: Connection) -> Verified:
        """What was verified, and what came since."""
        if self._verified.rows:
            rows = self.store.rows(connection, self._verified.last.sequence)
            if self._verified.follows(rows):
                return self._grown(rows[1:])
        return self._compared(self.store.rows(connection))

    def _compared(self, rows: Sequence[Row]) -> Verified:
        if not self._verified.begins(rows):
            self._verified = Verified()
        return self._grown(rows[len(self._verified.rows) :])

    def _grown(self, rows: Sequence[Row]) -> Verified:
        found, known = self._verified.grow(rows), self._verified
        if found:
            self._verified = Verified()
            raise LedgerError(
                f"the ledger {self} was changed: {found[0]}; run `airlock budget verify` and restore a backup"
            )
        if known.book.moved is not None:
            raise LedgerMoved(refusals.moved(str(self), known.book.moved))
        return known


def _bring_up(store: Store, *, create: bool, scratch: bool) -> None:
    with store.writing() as connection:
        fresh = store.revision(connection) is None
        if fresh and not create:
            raise LedgerError(refusals.missing(str(store)))
        store.upgrade(connection)
        if fresh:
            # A random name makes every ledger's chain its own: a new one can never pass for an old one.
            details = {"ledger": uuid.uuid4().hex, "scratch": scratch, "at": this_minute()}
            store.append(connection, chain.link(None, "open", details=details))


def this_minute() -> str:
    """To the minute, like receipts: entries are published in bundles, and how long a stage read records is
    not.
    """
    return datetime.now(UTC).isoformat(timespec="minutes")
