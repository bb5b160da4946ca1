"""The ledger: append-only, hash-chained, in SQLite or PostgreSQL. docs/ledger.md tells how it works."""

from stages.boundary.ledger.accounts import Account, Cap, Release
from stages.boundary.ledger.chain import Entry
from stages.boundary.ledger.ledger import Ledger, Reservation
from stages.boundary.ledger.totals import Quote, Spent

__all__ = ["Account", "Cap", "Entry", "Ledger", "Quote", "Release", "Reservation", "Spent"]
