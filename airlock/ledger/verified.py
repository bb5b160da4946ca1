"""What this process has verified of a chain, and what it means.

A ledger of 10,000 entries takes a quarter of a second to verify and to understand. That is done once: later
questions compare the stored rows with the verified ones, byte by byte, and only look closer at what was added.
Nothing is believed that was not verified here, so there is nothing to forge: no file, no stored sum.
"""

from __future__ import annotations

from collections.abc import Sequence

from airlock.ledger import accounts, chain
from airlock.ledger.accounts import Book
from airlock.ledger.chain import Entry
from airlock.ledger.store import Row


class Verified:
    """The entries of a chain that is right, with their meaning."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.entries: list[Entry] = []
        self.book = Book()
        self.salts: dict[str, str] = {}

    @property
    def last(self) -> Entry:
        """The newest entry."""
        return self.entries[-1]

    @property
    def scratch(self) -> bool:
        """Whether the ledger takes public data only: its first entry says so."""
        return bool(self.entries[0].details["scratch"])

    def begins(self, rows: Sequence[Row]) -> bool:
        """Whether `rows` start with what was verified."""
        return bool(self.rows) and list(rows[: len(self.rows)]) == self.rows

    def follows(self, rows: Sequence[Row]) -> bool:
        """Whether `rows` start with the newest entry that was verified."""
        return bool(self.rows) and bool(rows) and rows[0] == self.rows[-1]

    def grow(self, rows: Sequence[Row]) -> list[str]:
        """Verify and understand further rows.

        Returns:
            What is wrong with them; then this object is not to be used any more.
        """
        added = [Entry(*row) for row in rows]
        if not (self.entries or added):
            return chain.problems([])
        found = chain.problems(added, after=self.entries[-1] if self.entries else None) if added else []
        if not found:
            accounts.add(self.book, added)
            found = self.book.problems
        if not found:
            self.rows += rows
            self.entries += added
            for entry in added:
                if "salt" in entry.details:
                    self.salts.setdefault(entry.population, entry.details["salt"])
        return found
