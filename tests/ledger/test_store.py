"""Databases: missing, empty, older, newer, out of reach; and the triggers that keep rows as they are."""

from __future__ import annotations

import multiprocessing
import stat
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.script import ScriptDirectory

from airlock.errors import InputError, LedgerError
from airlock.ledger import Ledger, tables
from airlock.ledger.store import MIGRATIONS, Store
from tests.support.bookkeeping import name, reserve


def test_missing_ledger_is_an_error_and_never_a_fresh_start(url: str, tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="is missing: restore it from a backup"):
        Ledger.open(url, create=False)
    assert not list(tmp_path.rglob("*.db"))


def test_creating_twice_keeps_what_is_there(ledger: Ledger, url: str) -> None:
    reserve(ledger, "a")
    again = Ledger.open(url, create=True)
    assert again.head() == ledger.head()


def test_two_new_ledgers_never_share_a_chain(urls) -> None:  # type: ignore[no-untyped-def]
    assert Ledger.open(urls(), create=True).head() != Ledger.open(urls(), create=True).head()


def test_rows_cannot_be_changed_or_removed(ledger: Ledger, url: str) -> None:
    store = Store(url)
    statements = ["UPDATE ledger_entries SET population = 'x'", "DELETE FROM ledger_entries"]
    if store.kind == "sqlite":
        statements.append("INSERT OR REPLACE INTO ledger_entries VALUES (2, 'cap', 'x', '', '{}', 'x', 'y')")
    else:
        statements.append("TRUNCATE ledger_entries")
    before = ledger.history()
    for statement in statements:
        with pytest.raises(LedgerError, match="append-only"), store.writing() as connection:
            connection.execute(sa.text(statement))
    assert ledger.history() == before


def test_older_ledger_is_upgraded_and_keeps_its_entries(url: str) -> None:
    from alembic import command
    from alembic.config import Config

    store = Store(url)
    store.touch()
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    with store.writing() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        from airlock.ledger import chain

        store.append(
            connection, chain.link(None, "open", details={"ledger": "old", "scratch": False, "at": ""})
        )
    ledger = Ledger.open(url, create=False)
    assert ledger.history()[0].details["ledger"] == "old"
    with store.reading() as connection:
        assert store.revision(connection) == tables.REVISION
    with pytest.raises(LedgerError, match="append-only"), store.writing() as connection:
        connection.execute(sa.text("DELETE FROM ledger_entries"))


def test_newer_ledger_is_refused(ledger: Ledger, url: str) -> None:
    store = Store(url)
    with store.writing() as connection:
        connection.execute(sa.text(f"UPDATE {tables.VERSION_TABLE} SET version_num = '9999'"))
    with pytest.raises(LedgerError, match="revision 9999, newer than this Airlock"):
        Ledger.open(url, create=True)


def test_table_and_newest_revision_agree(ledger: Ledger, url: str) -> None:
    assert ScriptDirectory(str(MIGRATIONS)).get_current_head() == tables.REVISION
    with Store(url).reading() as connection:
        columns = sa.inspect(connection).get_columns("ledger_entries")
    assert [column["name"] for column in columns] == [column.name for column in tables.entries.columns]
    assert not any(column["nullable"] for column in columns)


def _create(url: str, results: multiprocessing.SimpleQueue[str]) -> None:
    results.put(Ledger.open(url, create=True).head())


def test_processes_that_create_together_make_one_ledger(url: str) -> None:
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    workers = [context.Process(target=_create, args=(url, results)) for _ in range(4)]
    for worker in workers:
        worker.start()
    heads = {results.get() for _ in workers}
    for worker in workers:
        worker.join()
    assert heads == {Ledger.open(url, create=False).head()}


def test_sqlite_file_belongs_to_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "ledger.db"
    Ledger.open(f"sqlite:///{path}", create=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_file_that_is_no_ledger_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").write_bytes(b"not a database, but long enough to be read as one" * 40)
    with pytest.raises(LedgerError, match="not a database"):
        Ledger.open(f"sqlite:///{tmp_path}/ledger.db", create=True)


@pytest.mark.parametrize("url", ["sqlite://", "mysql://host/ledger", "nonsense", "oracle+nothing://x"])
def test_impossible_urls_are_named(url: str) -> None:
    with pytest.raises(InputError, match="sqlite:////PATH"):
        Ledger.open(url, create=True)


def test_unreachable_server_is_one_line_without_the_password() -> None:
    with pytest.raises(LedgerError, match="cannot be used") as error:
        Ledger.open("postgresql://airlock:secret@127.0.0.1:1/ledger", create=True)
    assert "secret" not in str(error.value)
    assert "\n" not in str(error.value)


def test_a_ledger_that_another_command_holds_is_told_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airlock.ledger.store.PATIENCE", 0)
    url = f"sqlite:///{tmp_path}/ledger.db"
    held = Ledger.open(url, create=True)
    with Store(url).writing(), pytest.raises(LedgerError, match="another command holds it: wait for its end"):
        reserve(held, "a")


def test_ledger_survives_a_fork(ledger: Ledger) -> None:
    context = multiprocessing.get_context("fork")
    child = context.Process(target=reserve, args=(ledger, "a", 1.0))
    child.start()
    child.join()
    assert child.exitcode == 0
    assert ledger.release(name("a")) is not None


@pytest.mark.xdist_group("postgresql")
def test_role_that_may_only_read_and_append_is_enough(server: str) -> None:
    import psycopg

    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA rights")
        url = f"{server}&options=-csearch_path%3Drights"
        Ledger.open(url, create=True).set_cap("clinic", 3, 1e-5, who="owner", why="test")
        connection.execute("CREATE ROLE clerk LOGIN")
        connection.execute("GRANT USAGE ON SCHEMA rights TO clerk")
        connection.execute("GRANT SELECT, INSERT ON rights.ledger_entries TO clerk")
        connection.execute("GRANT SELECT ON rights.ledger_version TO clerk")
    clerk = Ledger.open(url.replace("airlock@", "clerk@"), create=False)
    assert reserve(clerk, "a").status == "new"
    clerk.commit(name("a"), name("bytes"))
    assert clerk.verify([clerk.head()]) == []
