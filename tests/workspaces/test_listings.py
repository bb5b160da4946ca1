"""Lists of files that DVC obeys: names and hashes that lead elsewhere, and what an honest one is."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path

import pytest

from airlock.errors import BoundaryError, InputError
from airlock.evidence.checker import lock_of
from airlock.evidence.revisions import Workspace as Files
from airlock.run import dvc
from airlock.workspaces import listings
from airlock.workspaces.parcel import Store
from flows.reproduction import exchange

MD5 = "0" * 32


def put(place: Path, entries: object) -> str:
    """A list at a place, under its right hash."""
    data = json.dumps(entries).encode()
    name = hashlib.md5(data, usedforsecurity=False).hexdigest() + ".dir"
    file = place / "files/md5" / name[:2] / name[2:]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    return name


def test_an_honest_list_is_laid_into_the_cache(tmp_path: Path) -> None:
    place, cache = tmp_path / "place", tmp_path / "cache"
    name = put(place, [{"md5": MD5, "relpath": "model.json"}, {"md5": MD5, "relpath": "a/b.safetensors"}])
    for _ in range(2):
        listings.bring(Store(str(place)), cache, [("data/model", name), ("data/metrics/train.json", MD5)])
    assert [file.name for file in cache.rglob("*.dir")] == [name[2:]]


@pytest.mark.parametrize(
    "entry",
    [
        {"md5": MD5, "relpath": "../../../.bashrc"},
        {"md5": MD5, "relpath": "/etc/passwd"},
        {"md5": MD5, "relpath": "a//b"},
        {"md5": MD5, "relpath": ".git/hooks/pre-commit"},
        {"md5": MD5, "relpath": "sub/dvc.yaml"},
        {"md5": MD5, "relpath": ""},
        {"md5": "../../../../keys/master", "relpath": "a"},
        {"relpath": "a"},
        "a",
    ],
)
def test_a_list_that_leads_elsewhere_is_refused_under_its_right_hash_too(
    tmp_path: Path, entry: object
) -> None:
    """A stranger's own hand-over has the right hash of whatever it says."""
    place, cache = tmp_path / "place", tmp_path / "cache"
    with pytest.raises(BoundaryError, match="hand over again"):
        listings.bring(Store(str(place)), cache, [("data/model", put(place, [entry]))])
    assert not cache.exists()


def test_a_list_that_is_not_of_its_hash_is_refused(tmp_path: Path) -> None:
    name = put(tmp_path, [{"md5": MD5, "relpath": "a"}])
    (tmp_path / "files/md5" / name[:2] / name[2:]).write_text("[]")
    with pytest.raises(BoundaryError, match="was changed"):
        listings.bring(Store(str(tmp_path)), tmp_path / "cache", [("data/model", name)])


@pytest.mark.parametrize("name", ["../../x.dir", f"{MD5}/../x", MD5[:-1], None, 3])
def test_a_hash_that_is_a_path_is_refused(tmp_path: Path, name: object) -> None:
    with pytest.raises(BoundaryError, match="no hash"):
        listings.bring(Store(str(tmp_path)), tmp_path / "cache", [("data/model", name)])
    with pytest.raises(InputError, match="does not have"):
        listings.bring(Store(str(tmp_path)), tmp_path / "cache", [("data/model", f"{MD5}.dir")])


def test_a_list_that_is_damaged_here_is_brought_again(tmp_path: Path) -> None:
    """As one of a pull that was cut short: nothing at the place is to blame for it."""
    place, cache = tmp_path / "place", tmp_path / "cache"
    name = put(place, [{"md5": MD5, "relpath": "model.json"}])
    damaged = cache / name[:2] / name[2:]
    damaged.parent.mkdir(parents=True)
    damaged.write_text("[")
    listings.bring(Store(str(place)), cache, [("data/model", name)])
    assert damaged.read_bytes() == (place / "files/md5" / name[:2] / name[2:]).read_bytes()


STOLEN = b"written by a stranger"
OWN = hashlib.md5(STOLEN, usedforsecurity=False).hexdigest()
ELSEWHERE = "../../../stolen"


def led_elsewhere(place: Path, kind: str) -> str:
    """What dvc.lock says of an out that DVC would write elsewhere."""
    for base in (place / "files/md5", place):
        (base / OWN[:2]).mkdir(parents=True)
        (base / OWN[:2] / OWN[2:]).write_bytes(STOLEN)
    honest = put(place, [{"md5": OWN, "relpath": "a"}])
    item = {"path": "data/model", "hash": "md5", "md5": honest, "size": 1, "nfiles": 1}
    if kind == "list":
        item["md5"] = put(place, [{"md5": OWN, "relpath": ELSEWHERE}])
    elif kind == "names":
        item["files"] = [{"md5": OWN, "relpath": ELSEWHERE, "size": len(STOLEN)}]
    else:  # a hash as DVC 2 had it, of a list in another folder of the place; DVC holds that to its hash as little
        del item["hash"]
        (place / honest[:2]).mkdir(exist_ok=True)
        (place / honest[:2] / honest[2:]).write_text(json.dumps([{"md5": OWN, "relpath": ELSEWHERE}]))
    return json.dumps({"schema": "2.0", "stages": {"train": {"cmd": "airlock run train", "outs": [item]}}})


@pytest.mark.parametrize("kind", ["list", "names", "older hash"])
def test_a_scheduled_pull_looks_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """A modeller's nightly training brings what is new from the remote of released data."""
    monkeypatch.setenv("AIRLOCK_HOME", str(tmp_path / "home"))
    work, place = tmp_path / "work", tmp_path / "place"
    for folder in (".dvc", "data", "stages"):
        (work / folder).mkdir(parents=True)
    subprocess.run(["git", "init", "-q"], cwd=work, check=True)
    (work / ".dvc/config").write_text(
        f"[core]\n    analytics = false\n['remote \"released\"']\n    url = {place}\n"
    )
    (work / "data/project.json").write_text('{"id": "clinic"}')
    (work / "params.yaml").write_text("dataset: wdbc\n")
    (work / "dvc.yaml").write_text(
        "stages:\n  train:\n    cmd: airlock run train\n    meta: {zone: open}\n    deps: [stages]\n"
        "    outs: [{data/model: {remote: released}}]\n"
    )
    (work / "dvc.lock").write_text(led_elsewhere(place, kind))
    with pytest.raises(BoundaryError, match="hand over again|is not followed"):
        exchange(work, "pull", print)
    assert not (tmp_path / "stolen").exists()
    environment = {**os.environ, "DVC_SITE_CACHE_DIR": str(tmp_path / "notes")}
    pull = dvc.command("pull", "--remote", "released", "train")
    subprocess.run(pull, cwd=work, env=environment, check=False, capture_output=True)
    assert (tmp_path / "stolen").exists(), "the control: DVC itself writes it"


def test_a_lock_that_says_more_is_refused_by_the_audit_too(tmp_path: Path) -> None:
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    for wrong in ([], {"outs": "data/model"}, {"outs": [{"path": "data/model", "md5": MD5}]}, {"deps": [3]}):
        (tmp_path / "dvc.lock").write_text(json.dumps({"schema": "2.0", "stages": {"train": wrong}}))
        with pytest.raises(BoundaryError, match=r"dvc\.lock: stage 'train' has what is not followed"):
            lock_of(Files(tmp_path))
    item = {"path": "data/model", "hash": "md5", "md5": MD5, "size": 1, "isexec": True}
    (tmp_path / "dvc.lock").write_text(json.dumps({"stages": {"train": {"cmd": "x", "outs": [item]}}}))
    assert list(lock_of(Files(tmp_path))) == ["train"], "the control"
