"""Archived releases are whole, unchanged, and never replaced."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from airlock.errors import ReleaseError
from airlock.inside import manifest
from airlock.privacy.guarantees import Guarantee
from airlock.privacy.plan import Facts, Plan
from airlock.run import archive

PLAN = Plan("coefficients", 1, {}, 1, Guarantee("proven", "record", "zero-out", 1.0, 1e-5))
FACTS = Facts("clinic", False, "tabular", 100, 0, (3,), ("a", "b"), "schema", "fingerprint")
ID = manifest.release_id(PLAN, FACTS)


def make(folder: Path, content: bytes = b"noisy sums") -> Path:
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "sums.bin").write_bytes(content)
    manifest.write(folder, plan=PLAN, facts=FACTS, release_id=ID)
    return folder


def test_release_comes_back_as_it_was(tmp_path: Path) -> None:
    made = make(tmp_path / "made")
    digest = archive.store(tmp_path / "archive", ID, made)
    assert archive.holds(tmp_path / "archive", ID)
    assert archive.restore(tmp_path / "archive", ID, tmp_path / "a" / "b", manifest_sha256=digest) == digest
    assert (tmp_path / "a" / "b" / "deep" / "sums.bin").read_bytes() == b"noisy sums"
    assert manifest.digest(tmp_path / "a" / "b") == digest


def test_restoring_replaces_what_is_there(tmp_path: Path) -> None:
    archive.store(tmp_path / "archive", ID, make(tmp_path / "made"))
    make(tmp_path / "target", b"something else")
    archive.restore(tmp_path / "archive", ID, tmp_path / "target")
    assert (tmp_path / "target" / "deep" / "sums.bin").read_bytes() == b"noisy sums"


def test_storing_again_changes_nothing_and_other_bytes_are_refused(tmp_path: Path) -> None:
    first = archive.store(tmp_path / "archive", ID, make(tmp_path / "one"))
    assert archive.store(tmp_path / "archive", ID, make(tmp_path / "same")) == first
    with pytest.raises(ReleaseError, match="archived with other bytes"):
        archive.store(tmp_path / "archive", ID, make(tmp_path / "two", b"other noise"))
    assert manifest.digest(tmp_path / "archive" / ID) == first
    assert [path.name for path in (tmp_path / "archive").iterdir()] == [ID]


def test_folder_that_is_another_release_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match="run `dvc repro`"):
        archive.store(tmp_path / "archive", "f" * 64, make(tmp_path / "made"))


def test_damaged_or_missing_archive_is_never_replayed(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match="not in the archive"):
        archive.restore(tmp_path / "archive", ID, tmp_path / "target")
    digest = archive.store(tmp_path / "archive", ID, make(tmp_path / "made"))
    with pytest.raises(ReleaseError, match="not what the ledger committed"):
        archive.restore(tmp_path / "archive", ID, tmp_path / "target", manifest_sha256="0" * 64)
    (tmp_path / "archive" / ID / "deep" / "sums.bin").write_bytes(b"changed")
    with pytest.raises(ReleaseError, match=r"not what release\.json says"):
        archive.restore(tmp_path / "archive", ID, tmp_path / "target", manifest_sha256=digest)
    assert not (tmp_path / "target").exists()


def test_processes_that_store_together_keep_one_copy(tmp_path: Path) -> None:
    made = make(tmp_path / "made")
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=archive.store, args=(tmp_path / "archive", ID, made)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 4
    assert [path.name for path in (tmp_path / "archive").iterdir()] == [ID]
