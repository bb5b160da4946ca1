"""A ledger in each kind of database.

PostgreSQL is a real server, started here from the machine's own packages.
"""

from __future__ import annotations

import getpass
import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airlock.ledger import Ledger

Urls = Callable[[], str]
KINDS = ["sqlite", pytest.param("postgresql", marks=pytest.mark.xdist_group("postgresql"))]


def _programs() -> Path | None:
    """Folder of initdb, pg_ctl and postgres; Debian keeps them out of PATH."""
    folders = [Path(folder) for folder in os.environ["PATH"].split(":")] + sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), reverse=True
    )
    return next(
        (
            folder
            for folder in folders
            if all((folder / name).exists() for name in ("initdb", "pg_ctl", "postgres"))
        ),
        None,
    )


def _account() -> str:
    """PostgreSQL refuses to run as root."""
    if os.getuid() != 0:
        return getpass.getuser()
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """URL of a running server's maintenance database."""
    programs, account = _programs(), _account()
    if programs is None:
        pytest.skip("no PostgreSQL server on this machine: apt install postgresql")
    folder = Path(tempfile.mkdtemp(prefix="airlock-pg-"))
    data = folder / "data"
    os.chown(folder, pwd.getpwnam(account).pw_uid, -1)

    def run(*command: str) -> None:
        other = (
            {"user": account, "group": pwd.getpwnam(account).pw_gid, "extra_groups": []}
            if os.getuid() == 0
            else {}
        )
        program = [str(programs / command[0]), "-D", str(data), *command[1:]]
        with (folder.parent / f"{folder.name}.log").open("ab") as log:
            subprocess.run(
                program, cwd=folder, check=True, stdout=log, stderr=log, stdin=subprocess.DEVNULL, **other
            )

    try:
        run("initdb", "-A", "trust", "-U", "airlock", "-E", "UTF8", "--locale=C", "--no-sync")
        run(
            "pg_ctl",
            "-w",
            "start",
            "-o",
            f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off",
        )
        yield f"postgresql://airlock@/postgres?host={folder}"
    finally:
        if (data / "postmaster.pid").exists():
            run("pg_ctl", "-w", "stop", "-m", "immediate")
        shutil.rmtree(folder)
        (folder.parent / f"{folder.name}.log").unlink(missing_ok=True)


@pytest.fixture(params=KINDS)
def urls(request: pytest.FixtureRequest, tmp_path: Path) -> Urls:
    """Gives the URL of a new, empty place for a ledger at every call."""
    if request.param == "postgresql":
        return schemas(request.getfixturevalue("server"), tmp_path.name)
    numbers = itertools.count()
    return lambda: f"sqlite:///{tmp_path}/home/{next(numbers)}.db"


def schemas(server: str, name: str) -> Urls:
    """Makes an empty schema on the server at every call."""
    numbers = itertools.count()

    def schema() -> str:
        import psycopg

        made = f"{name}_{os.getpid()}_{next(numbers)}".lower().replace("-", "_")[-60:]
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f'CREATE SCHEMA "{made}"'.encode())
        return f"{server}&options=-csearch_path%3D{made}"

    return schema


@pytest.fixture
def url(urls: Urls) -> str:
    """One empty place."""
    return urls()


@pytest.fixture
def ledger(url: str) -> Ledger:
    """A new ledger in which 'clinic' may spend epsilon 3 at delta 1e-5."""
    ledger = Ledger.open(url, create=True)
    ledger.set_cap("clinic", 3, 1e-5, who="owner", why="ethics board")
    return ledger
