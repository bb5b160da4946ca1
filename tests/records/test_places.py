"""Records may lie in one file, in a folder of Parquet parts, or at an address: they are the same records."""

from __future__ import annotations

import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airlock.errors import InputError
from airlock.owner import registry
from airlock.owner.add import CapRequest
from airlock.owner.keys import Keyring
from airlock.records.places import at_hand, fetch, parts_of
from airlock.records.tables import open_table
from tests.conftest import Workspace
from tests.support.clinic import SCHEMA, Clinic, make_clinic, records


@pytest.fixture
def clinic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clinic:
    monkeypatch.setenv("AIRLOCK_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("AIRLOCK_LEDGER_URL", raising=False)
    return make_clinic(tmp_path)


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    """A hundred records in three parts, beside what Spark leaves there."""
    return write_parts(tmp_path / "parts")


def write_parts(folder: Path) -> Path:
    table = records(100)
    for index, (first, count) in enumerate([(0, 30), (30, 30), (60, 40)]):
        folder.mkdir(exist_ok=True)
        pq.write_table(table.slice(first, count), folder / f"part-{index}.parquet")
    (folder / "_SUCCESS").write_text("")
    (folder / "_metadata.parquet").write_bytes(b"not a part")
    return folder


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The folder over HTTP, on loopback."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()


def rows(path: Path) -> pa.Table:
    return pa.Table.from_batches(open_table(path).batches())


def test_parts_are_read_as_one_table_in_the_order_of_their_names(parts: Path) -> None:
    assert open_table(parts).count() == 100
    assert rows(parts).equals(records(100))
    assert pa.Table.from_batches(open_table(parts).batches(["site"])).column_names == ["site"]


def test_folder_names_are_columns(tmp_path: Path) -> None:
    for site in ("north", "south"):
        (tmp_path / f"data/site={site}").mkdir(parents=True)
        pq.write_table(pa.table({"age": [1.0, 2.0]}), tmp_path / f"data/site={site}/0.parquet")
    assert rows(tmp_path / "data").to_pydict() == {
        "age": [1.0, 2.0, 1.0, 2.0],
        "site": ["north", "north", "south", "south"],
    }


def test_parts_with_other_columns_and_folders_without_parts_are_refused(parts: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"age": [1.0]}), parts / "part-9.parquet")
    with pytest.raises(InputError, match=r"part-9\.parquet has other columns"):
        open_table(parts)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no Parquet files were found"):
        open_table(tmp_path / "empty")


@pytest.mark.parametrize(
    "address", ["{server}/parts/", "zip://::file://{folder}/parts.zip", "file://{folder}/parts"]
)
def test_an_address_gives_the_same_records(parts: Path, tmp_path: Path, server: str, address: str) -> None:
    with zipfile.ZipFile(tmp_path / "parts.zip", "w") as archive:
        for path in sorted(parts.iterdir()):
            archive.write(path, path.name)
    with at_hand(address.format(server=server, folder=tmp_path), tmp_path / "spool") as path:
        assert rows(path).equals(records(100))
    assert not (tmp_path / "spool").exists()


def test_one_file_at_an_address_keeps_its_name(parts: Path, tmp_path: Path, server: str) -> None:
    path = fetch(f"{server}/parts/part-1.parquet", tmp_path / "spool")
    assert path.name == "part-1.parquet" and path.read_bytes() == (parts / "part-1.parquet").read_bytes()


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("{server}/nothing/", "no Parquet files were found"),
        ("{server}/nothing.parquet", "cannot be read"),
        ("http://user:password@127.0.0.1:1/parts/", "no Parquet files were found"),
        ("nonsense://place/parts", "cannot be read"),
    ],
)
def test_what_cannot_be_reached_is_told_in_a_line_without_the_address(
    server: str, tmp_path: Path, address: str, message: str
) -> None:
    with (
        pytest.raises(InputError, match=message) as caught,
        at_hand(address.format(server=server), tmp_path / "spool"),
    ):
        pass
    assert "password" not in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "spool").exists()


def test_a_folder_is_added_ingested_and_known_when_it_changes(clinic: Clinic, parts: Path) -> None:
    handle = clinic.add(parts, cap=CapRequest(3, 1e-5)).handle
    assert (handle.n, handle.format) == (100, "parquet")
    sealed = clinic.ingest(clinic.params())
    assert len(sealed["train"].x) == 100
    keyring = Keyring.load(clinic.home)
    assert registry.check(clinic.home, keyring, handle) == parts
    pq.write_table(records(40, seed=5), parts / "part-2.parquet")
    with pytest.raises(InputError, match="changed since"):
        registry.check(clinic.home, keyring, handle)


def test_a_part_under_another_name_is_the_same_population(clinic: Clinic, parts: Path) -> None:
    clinic.add(parts, cap=CapRequest(3, 1e-5))
    clinic.write_schema(SCHEMA.replace("name: clinic", "name: other"), "other")
    with pytest.raises(InputError, match="belong to population 'clinic' already"):
        clinic.add(parts / "part-1.parquet", name="other")


def test_parts_are_listed_in_one_order_whatever_the_folder_says(parts: Path) -> None:
    assert [part.name for part in parts_of(str(parts))] == [
        "part-0.parquet",
        "part-1.parquet",
        "part-2.parquet",
    ]


def test_records_at_an_address_are_ingested_behind_the_wall(
    workspace: Workspace, tmp_path: Path, server: str
) -> None:
    write_parts(tmp_path / "parts")
    (workspace.root / "data/schemas/clinic.yaml").write_text(SCHEMA)
    workspace.run(
        "airlock", "add", f"{server}/parts/", "--name", "clinic", "--epsilon", "3", "--delta", "1e-5"
    )
    workspace.set("dataset", "clinic")
    workspace.run("airlock", "run", "ingest")
    assert (workspace.root / "data/sealed/train.sealed").stat().st_size > 0
    left = [path for path in workspace.home.rglob("*") if path.suffix == ".parquet" or "spool" in path.name]
    assert left == []
    pq.write_table(records(40, seed=5), tmp_path / "parts/part-2.parquet")
    done = workspace.run("airlock", "run", "ingest", check=False)
    assert done.returncode != 0 and "changed since they were added" in done.stderr


def test_an_address_that_cannot_be_reached_says_what_it_needs() -> None:
    with pytest.raises(InputError, match="needs the package '"):
        parts_of("dropbox://nobody/x")
    with pytest.raises(InputError, match="no kind of address that is known"):
        parts_of("nobody://x/y")
