"""Where a bundle's files come from: what lies in DVC's cache was brought by DVC, which believes any list of files."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from airlock.bundle.sources import Cache
from airlock.errors import InputError

RECORDS = b"the owner's"
MD5 = hashlib.md5(RECORDS, usedforsecurity=False).hexdigest()


def cached(work: Path, entries: object) -> str:
    """A list in the cache, with the one file of that hash; and its name."""
    objects = work / ".dvc/cache/files/md5"
    data = json.dumps(entries).encode()
    name = hashlib.md5(data, usedforsecurity=False).hexdigest() + ".dir"
    for digest, content in ((name, data), (MD5, RECORDS)):
        (objects / digest[:2]).mkdir(parents=True, exist_ok=True)
        (objects / digest[:2] / digest[2:]).write_bytes(content)
    return name


@pytest.mark.parametrize(
    "entry",
    [
        {"md5": MD5, "relpath": "../../elsewhere"},
        {"md5": MD5, "relpath": ".git/hooks/pre-commit"},
        {"md5": "../../../../../secret", "relpath": "a"},
        "a",
    ],
)
def test_a_list_in_the_cache_leads_nowhere_else(tmp_path: Path, entry: object) -> None:
    work, target = tmp_path / "work", tmp_path / "bundle/data/model"
    (tmp_path / "secret").write_text("a key")
    item = {"path": "data/model", "md5": cached(work, [entry])}
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError, match="damaged in the DVC cache"):
        Cache(work).write(item, target, remote="released")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_list_that_is_not_of_its_hash_is_one_line_and_an_honest_one_is_written(tmp_path: Path) -> None:
    honest = [{"md5": MD5, "relpath": "a/b.json"}]
    name = cached(tmp_path, honest)
    Cache(tmp_path).write({"path": "data/model", "md5": name}, tmp_path / "out", remote="released")
    assert (tmp_path / "out/a/b.json").read_bytes() == RECORDS
    (tmp_path / ".dvc/cache/files/md5" / name[:2] / name[2:]).write_text("[")
    with pytest.raises(InputError, match="damaged in the DVC cache"):
        Cache(tmp_path).write({"path": "data/model", "md5": name}, tmp_path / "out", remote="released")


@pytest.mark.parametrize(
    "digest", ["../../../../../secret", "..//dev/zero", "", None, MD5.upper(), f"{MD5}.dir.dir"]
)
def test_a_hash_in_the_lock_is_no_place(tmp_path: Path, digest: str | None) -> None:
    work = tmp_path / "work"
    cached(work, [])
    (tmp_path / "secret").write_text("a key")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError, match="has no hash in dvc.lock"):
        Cache(work).write({"path": "data/model", "md5": digest}, tmp_path / "out", remote="released")
    assert sorted(tmp_path.rglob("*")) == before
