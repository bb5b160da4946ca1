"""Run the revisions inside the transaction that `store` has opened and locked."""

from alembic import context

from airlock.ledger.tables import VERSION_TABLE

# One transaction for all of it, also on SQLite: a crash leaves the old revision, never half of the new one.
context.configure(
    connection=context.config.attributes["connection"], version_table=VERSION_TABLE, transactional_ddl=True
)
context.run_migrations()
