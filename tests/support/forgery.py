"""What a dishonest owner would do: change a bundle and sign everything anew with the real key."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from airlock.bundle import CRATE, INDEX, LEDGER, attestations, check, container, crate, extract, index
from airlock.bundle.contents import Contents
from airlock.evidence import receipts
from airlock.inside import manifest
from airlock.inside.digests import md5_path, sha256_path, walk
from airlock.ledger import chain
from airlock.owner.keys import Signer

Edit = Callable[[Path], None]


def forge(bundle: Path, target: Path, signer: Signer, edit: Edit, *, deep: bool = False) -> Path:
    """Unpack, `edit`, sign the list of files again (`deep`: and every receipt, the ledger and the
    attestations), pack.
    """
    folder = target.with_suffix("")
    folder.mkdir()
    container.unpack(bundle, folder)
    facts = json.loads((folder / INDEX).read_text())["body"]
    edit(folder)
    if deep:
        _sign_all(folder, signer, facts)
    kept = {name: fact for name, fact in facts.items() if name not in ("format", "key", "files")}
    index.write(folder, kept, signer)
    container.pack(folder, target)
    return target


def edit_json(path: str, change: Callable[[Any], None]) -> Edit:
    """An edit of one JSON document."""

    def edit(folder: Path) -> None:
        document = json.loads((folder / path).read_text())
        change(document)
        (folder / path).write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")

    return edit


def edit_text(path: str, old: str, new: str) -> Edit:
    """An edit of one text."""

    def edit(folder: Path) -> None:
        text = (folder / path).read_text()
        assert old in text
        (folder / path).write_text(text.replace(old, new, 1))

    return edit


def lock(folder: Path) -> None:
    """Write the hashes of what lies here into dvc.lock, as `dvc commit` does."""
    document = yaml.safe_load((folder / "dvc.lock").read_text())
    for stage in document["stages"].values():
        for item in [*stage["deps"], *stage.get("outs", [])]:
            if (folder / item["path"]).exists():
                item["md5"] = md5_path(folder / item["path"])
    (folder / "dvc.lock").write_text(yaml.safe_dump(document))


def _sign_all(folder: Path, signer: Signer, facts: dict[str, Any]) -> None:
    for file in sorted(folder.glob("data/released/*/release.json")):
        files = {name: sha256_path(path) for name, path in walk(file.parent) if name != manifest.NAME}
        edit_json(str(file.relative_to(folder)), lambda document, files=files: document.update(files=files))(
            folder
        )
    lock(folder)
    heads = _relink(folder)
    for file in sorted(folder.glob("receipts/*/*.json")):
        body = {
            name: value
            for name, value in json.loads(file.read_text())["body"].items()
            if name not in ("version", "key")
        }
        file.unlink()
        receipts.write(folder, _refresh(body, folder, heads), signer)
    contents = Contents(folder)
    for receipt in contents.witnesses.values():
        (folder / check.attestation_path(receipt)).write_text(
            attestations.sign(attestations.statement(receipt, folder), signer)
        )
    for stale in (INDEX, CRATE):
        (folder / stale).unlink()
    (folder / CRATE).write_text(json.dumps(crate.describe(contents, facts)))


def _refresh(body: dict[str, Any], folder: Path, heads: dict[int, str]) -> dict[str, Any]:
    for section in ("deps", "outs"):
        for path in body[section]:
            if (folder / path).exists():
                body[section][path] = {"sha256": sha256_path(folder / path), "md5": md5_path(folder / path)}
    for release in body["releases"]:
        document = json.loads((folder / release["out"] / "release.json").read_text())
        release |= {"manifest": manifest.digest(folder / release["out"]), "proven": document["proven"]}
    if body["ledger"]:
        body["ledger"]["head"] = heads[body["ledger"]["sequence"]]
    return body


def _relink(folder: Path) -> dict[int, str]:
    """Commit the present manifests, and link the chain anew."""
    digests = {
        manifest.load(file.parent).release_id: manifest.digest(file.parent)
        for file in folder.glob("data/released/*/release.json")
    }
    heads: dict[int, str] = {}
    for path in sorted((folder / LEDGER).glob("*.json")):
        old, new = extract.read(path), []
        for entry in old.entries:
            details = (
                {**entry.details, "manifest": digests[entry.release_id]}
                if entry.kind == "commit"
                else entry.details
            )
            last = new[-1] if new else None
            new.append(
                chain.link(
                    last,
                    entry.kind,
                    population=entry.population,
                    release_id=entry.release_id,
                    details=details,
                )
            )
        extract.write(extract.Extract(old.scratch, tuple(new)), path)
        heads |= {entry.sequence: entry.hash for entry in new}
    return heads
