"""The ledger: append-only, hash-chained, in SQLite or PostgreSQL. docs/ledger.md tells how it works."""

from airlock.ledger.accounts import Account, Cap, Release
from airlock.ledger.chain import Entry
from airlock.ledger.ledger import Ledger, Reservation
from airlock.ledger.quotes import Quote, Spent

__all__ = ["Account", "Cap", "Entry", "Ledger", "Quote", "Release", "Reservation", "Spent"]
