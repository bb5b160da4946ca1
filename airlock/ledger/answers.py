"""What a ledger is asked: what was spent, what more would cost, and whether anything is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from airlock.errors import LedgerError
from airlock.ledger import chain, commitments, quotes, refusals
from airlock.ledger.accounts import Cap, Release, read_book
from airlock.ledger.chain import Entry, Head
from airlock.ledger.entries import Entries
from airlock.ledger.quotes import Quote, Spent
from airlock.ledger.totals import with_charge
from airlock.ledger.verified import Verified


class Answers(Entries):
    """A ledger that is read. Every answer is computed from the entries as they stand."""

    @property
    def scratch(self) -> bool:
        """Whether it takes public data only."""
        return self.look().scratch

    def cap(self, population: str) -> Cap | None:
        """The cap in force."""
        return self.look().book.account(population).cap

    def populations(self) -> list[str]:
        """Every population that has a cap or a release."""
        return self.look().book.populations

    def snapshot(self, populations: Iterable[str] | None = None) -> tuple[dict[str, Any], list[Spent]]:
        """The head, and what populations have spent, all from one state of the ledger."""
        known = self.look()
        everyone = known.book.accounts()
        wanted = everyone if populations is None else populations
        found = [quotes.spent(everyone.get(name) or known.book.account(name)) for name in wanted]
        return self._receipt(known), found

    def quote(self, population: str, releases: Iterable[Release]) -> Quote:
        """Price further releases without reserving them; those that are known already cost nothing and are
        left out.
        """
        book = self.look().book
        fresh = (with_charge(release) for release in releases if release.release_id not in book.releases)
        return Quote(book.account(population), tuple(fresh))

    def objection(self, quote: Quote) -> str | None:
        """Why `reserve` would refuse what was quoted, or None if it would not."""
        return refusals.objection(quote, scratch=self.scratch)

    def spent(self, population: str) -> Spent:
        """The total of everything reserved or committed, and what is left."""
        return quotes.spent(self.look().book.account(population))

    def nights(self, population: str, horizon: str) -> list[Release]:
        """The releases of one horizon, in order."""
        return self.look().book.account(population).nights(horizon)

    def release(self, release_id: str) -> Release | None:
        """A release as the ledger knows it."""
        return self.look().book.releases.get(release_id)

    def history(self, population: str | None = None) -> list[Entry]:
        """All entries, or those of one population."""
        return [entry for entry in self.look().entries if population in (None, entry.population)]

    def head(self) -> str:
        """Hash of the last entry, which holds all before it."""
        return self.look().last.hash

    def receipt(self) -> dict[str, Any]:
        """What a signed receipt keeps of the ledger, so that cutting or rewriting it later is found."""
        return self._receipt(self.look())

    def _receipt(self, known: Verified) -> dict[str, Any]:
        return {
            "url_kind": self.store.kind,
            "scratch": known.scratch,
            "sequence": known.last.sequence,
            "head": known.last.hash,
        }

    def verify(self, heads: Iterable[str | Head] = ()) -> list[str]:
        """Everything that is wrong, one line each.

        Args:
            heads: hashes, or (sequence, hash), from signed receipts: they find a cut tail and a rewritten
                ledger.
        """
        heads = list(heads)
        try:
            known = self.look()
        except LedgerError:
            with self.store.reading() as connection:
                entries = self.store.entries(connection)
            found = chain.problems(entries) or self._book_problems(entries)
            return found + chain.lost(entries, heads)
        return commitments.problems(known.entries) + chain.lost(known.entries, heads)

    def _book_problems(self, entries: Sequence[Entry]) -> list[str]:
        book = read_book(entries)
        gone = [] if book.moved is None else [refusals.moved(str(self), book.moved)]
        return book.problems or gone
