"""How a ledger's tables came to be, one revision after the other (alembic)."""
