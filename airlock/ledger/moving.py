"""A ledger's way from one database to another, of either kind."""

from __future__ import annotations

from pathlib import Path

from airlock.errors import InputError, LedgerError
from airlock.ledger import chain
from airlock.ledger.entries import Entries, this_minute
from airlock.ledger.store import Store


def move(ledger: Entries, url: str) -> int:
    """Copy every entry, as it is, into an empty database of either kind. From then on the copy is the
    ledger, and this one answers nothing but where it went.

    An SQLite file that this ledger was moved away from before is put aside for it; a copy that an earlier move
    left behind when it was killed is completed.

    Returns:
        How many entries there are.

    Raises:
        InputError: if there is a ledger already.
    """
    target = Store(url)
    _make_place(ledger, target)
    target.touch()
    with ledger.writing() as (connection, known), target.writing() as other:
        there = target.rows(other) if target.revision(other) is not None else []
        if there != known.rows[: len(there)]:
            raise InputError(f"{target} holds a ledger already: name an empty database")
        target.upgrade(other)
        for entry in known.entries[len(there) :]:
            target.append(other, entry)
        if target.rows(other) != known.rows:
            raise LedgerError(f"the copy in {target} is not the ledger: nothing was kept")
        # Written last: the copy is complete when this one stops.
        details = {"to": str(target), "at": this_minute()}
        ledger.store.append(connection, chain.link(known.last, "moved", details=details))
    return len(known.entries)


def _make_place(ledger: Entries, target: Store) -> None:
    if target.kind != "sqlite" or not target.exists():
        return
    path = Path(str(target.url.database))
    if ledger.store.kind == "sqlite" and path.samefile(str(ledger.store.url.database)):
        raise InputError(f"{target} is where the ledger is kept: name another database")
    if not path.stat().st_size:
        return  # an earlier move died here
    with target.reading() as connection:
        there = target.entries(connection) if target.revision(connection) else []
    mine = ledger.look().entries
    if there and there == mine[: len(there)]:
        return  # an earlier move died after the copy was written
    if not there or there[-1].kind != "moved" or there[:-1] != mine[: len(there) - 1]:
        raise InputError(f"{target} exists already: name a new file")
    path.rename(path.with_name(f"{path.name}.moved-{there[-1].sequence}"))
