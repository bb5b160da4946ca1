"""Where entries are kept: SQLite or PostgreSQL, written by one process at a time, migrated when opened."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, IntegrityError, NoSuchModuleError, SQLAlchemyError

from airlock.errors import InputError, LedgerError
from airlock.ledger import tables
from airlock.ledger.chain import Entry

MIGRATIONS = Path(__file__).parent / "migrations"
PATIENCE = 60  # seconds that a writer waits for the others before it gives up
LOCK = 0x6169726C6F636B  # "airlock": PostgreSQL's advisory lock that writers take
# By what a database says.
ADVICE = {
    "disk is full": "make room on its disk, then run it again",
    "No space left": "make room on its disk, then run it again",
    "locked": "another command holds it: wait for its end, then run it again",
    "lock timeout": "another command holds it: wait for its end, then run it again",
    "readonly": "make it and its folder writable for you, then run it again",
}
Row = tuple[Any, ...]
_NAMES = [column.name for column in tables.entries.columns]
_SELECT = f"SELECT {', '.join(_NAMES)} FROM {tables.entries.name}"


class Store:
    """A database with the ledger's table. Connections are not kept, so a store may cross a fork."""

    def __init__(self, url: str) -> None:
        self.url = _checked(url)
        self._engine = _engine(self.url)

    def __str__(self) -> str:
        return self.url.render_as_string(hide_password=True)

    @property
    def kind(self) -> str:
        """`sqlite` or `postgresql`."""
        return self.url.get_backend_name()

    def exists(self) -> bool:
        """Whether there is a file to open; a server is asked later."""
        return self.kind != "sqlite" or Path(str(self.url.database)).is_file()

    def touch(self) -> None:
        """Make SQLite's file readable by its owner alone, before anything is in it."""
        if self.kind == "sqlite":
            path = Path(str(self.url.database))
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that sees one state of the ledger."""
        with self._plain_errors(), self._engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that no other writer shares, from its first read to its commit."""
        with self._plain_errors(), self._engine.connect() as plain:
            connection = plain.execution_options(airlock_writes=True)
            with connection.begin():
                if self.kind == "postgresql":
                    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{PATIENCE}s'")
                    connection.exec_driver_sql("SET LOCAL synchronous_commit = on")
                    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({LOCK})")
                yield connection

    def revision(self, connection: Connection) -> str | None:
        """The revision that the database stands at, or None where it holds no ledger."""
        if not sa.inspect(connection).has_table(tables.VERSION_TABLE):
            return None
        return connection.scalar(sa.select(tables.versions.c.version_num))

    def upgrade(self, connection: Connection) -> None:
        """Bring the tables to the newest revision.

        Raises:
            LedgerError: if a newer Airlock has written this ledger.
        """
        from alembic import command
        from alembic.config import Config
        from alembic.script import ScriptDirectory

        known = {script.revision for script in ScriptDirectory(str(MIGRATIONS)).walk_revisions()}
        found = self.revision(connection)
        if found is not None and found not in known:
            raise LedgerError(
                f"the ledger {self} is at revision {found}, newer than this Airlock ({tables.REVISION}): "
                "upgrade Airlock"
            )
        config = Config(attributes={"connection": connection})
        config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
        config.set_main_option("path_separator", "os")
        command.upgrade(config, "head")

    def rows(self, connection: Connection, since: int = 0) -> list[Row]:
        """The rows from entry `since` on, in order and as they are stored."""
        found = connection.exec_driver_sql(f"{_SELECT} WHERE sequence >= {since:d} ORDER BY sequence")
        return list(found.cursor.fetchall())  # plain tuples: thousands of them are compared with each other

    def entries(self, connection: Connection) -> list[Entry]:
        """All rows in order."""
        return [Entry(*row) for row in self.rows(connection)]

    def append(self, connection: Connection, entry: Entry) -> None:
        """Add one row. A second row in the same place breaks a key, so even a writer without the lock cannot
        fork the chain.
        """
        connection.execute(tables.entries.insert(), {name: getattr(entry, name) for name in _NAMES})

    @contextmanager
    def _plain_errors(self) -> Iterator[None]:
        try:
            yield
        except IntegrityError as error:
            raise LedgerError(f"the ledger {self} refused a write ({_cause(error)}): run it again") from None
        except SQLAlchemyError as error:
            cause = _cause(error)
            advice = next(
                (line for word, line in ADVICE.items() if word in cause),
                "check AIRLOCK_LEDGER_URL, the server and its rights",
            )
            raise LedgerError(f"the ledger {self} cannot be used ({cause}): {advice}") from None


def _cause(error: SQLAlchemyError) -> str:
    return str(getattr(error, "orig", None) or error).strip().splitlines()[0]


def _checked(text: str) -> URL:
    try:
        url = make_url(text)
        name = url.get_backend_name()
    except (ArgumentError, NoSuchModuleError):
        raise InputError(
            "AIRLOCK_LEDGER_URL is not a database URL: write sqlite:////PATH or "
            "postgresql://USER@HOST/DATABASE"
        ) from None
    if name == "postgresql" or url.drivername == "postgres":
        return url.set(drivername="postgresql+psycopg")
    if name != "sqlite":
        raise InputError(
            f"a ledger cannot be kept in {name}: use sqlite:////PATH or postgresql://USER@HOST/DATABASE"
        )
    if not url.database or url.database == ":memory:":
        raise InputError("a ledger in memory forgets what was spent: name a file, sqlite:////PATH")
    return url


def _engine(url: URL) -> Engine:
    options = {"timeout": PATIENCE} if url.get_backend_name() == "sqlite" else {"connect_timeout": 10}
    try:
        engine = sa.create_engine(url, poolclass=sa.NullPool, connect_args=options)
    except ImportError:
        raise LedgerError("a PostgreSQL ledger needs psycopg: pip install 'airlock[postgres]'") from None
    if url.get_backend_name() == "sqlite":
        event.listen(engine, "connect", _take_over_transactions)
        event.listen(engine, "begin", _begin)
    return engine


def _take_over_transactions(connection: Any, _: Any) -> None:
    """Python's driver begins transactions late; a ledger needs to say when.

    EXTRA also survives a power cut after commit.
    """
    connection.isolation_level = None
    connection.execute("PRAGMA synchronous = EXTRA")


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get("airlock_writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
