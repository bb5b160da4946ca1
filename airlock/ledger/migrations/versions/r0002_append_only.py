"""A seat belt: the database itself refuses to change or remove an entry.

Whoever owns the database can take it off; the hash chain and the heads in receipts are what finds that out.
"""

from alembic import op

revision = "0002"
down_revision = "0001"

REFUSAL = "the ledger is append-only"
SQLITE = (
    "CREATE TRIGGER ledger_no_update BEFORE UPDATE ON ledger_entries BEGIN SELECT RAISE(ABORT, "
    f"'{REFUSAL}'); END",
    "CREATE TRIGGER ledger_no_delete BEFORE DELETE ON ledger_entries BEGIN SELECT RAISE(ABORT, "
    f"'{REFUSAL}'); END",
    # INSERT OR REPLACE removes a row without firing the trigger above.
    f"""CREATE TRIGGER ledger_no_replace BEFORE INSERT ON ledger_entries
        WHEN EXISTS (SELECT 1 FROM ledger_entries WHERE sequence >= NEW.sequence OR previous = NEW.previous \
OR hash = NEW.hash)
        BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END""",
)
POSTGRESQL = (
    f"""CREATE FUNCTION ledger_refuse() RETURNS trigger LANGUAGE plpgsql
        AS $$ BEGIN RAISE EXCEPTION '{REFUSAL}'; END $$""",
    """CREATE TRIGGER ledger_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_entries
        FOR EACH STATEMENT EXECUTE FUNCTION ledger_refuse()""",
)


def upgrade() -> None:
    """Add the triggers."""
    for statement in SQLITE if op.get_bind().dialect.name == "sqlite" else POSTGRESQL:
        op.execute(statement)
