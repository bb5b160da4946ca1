"""The one table that all ledgers share. `migrations/` makes it; its newest revision is `REVISION`."""

from __future__ import annotations

from sqlalchemy import Column, Integer, MetaData, String, Table, Text

REVISION = "0002"
VERSION_TABLE = "ledger_version"

metadata = MetaData()

entries = Table(
    "ledger_entries",
    metadata,
    Column("sequence", Integer, primary_key=True, autoincrement=False),
    Column("kind", String(16), nullable=False),
    Column("population", Text, nullable=False),
    Column("release_id", Text, nullable=False),
    Column("payload", Text, nullable=False),
    Column("previous", String(64), nullable=False, unique=True),
    Column("hash", String(64), nullable=False, unique=True),
)

versions = Table(VERSION_TABLE, metadata, Column("version_num", String(32), primary_key=True))
