"""Signed receipts: what a stage could read, what it did read, what it made, and under which layers.

They are git-tracked files, receipts/STAGE/DIGEST.json, signed by the runner (Ed25519). The public keys are pinned in
receipts/runner.pub: the owner's first, and never replaced silently.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airlock.errors import KeysError
from airlock.inside.digests import canonical_json, sha256_json
from airlock.owner.keys import Signer, verify

FOLDER = "receipts"
PINNED = "receipts/runner.pub"
VERSION = 1


@dataclass(frozen=True)
class Receipt:
    """One receipt as it stands in git. `problem` says why it cannot be believed, or is empty."""

    path: str
    body: Mapping[str, Any]
    problem: str = ""

    @property
    def stage(self) -> str:
        return str(self.body.get("stage", "?"))


def pin(workspace: Path, public_key: bytes, *, owner: bool) -> list[str]:
    """The keys that receipts/runner.pub names, with the runner's own.

    The first is the data owner's key and only it may sign for stages that can read records. A modeller's machine,
    which has released data only, adds its own key below.

    Raises:
        KeysError: a stage that reads records would be signed by another key than the pinned one.
    """
    path, line = workspace / PINNED, public_key.hex()
    known = path.read_text().split() if path.exists() else []
    if owner and known and known[0] != line:
        raise KeysError(
            f"{PINNED} names another owner's key: restore that project's keys (airlock keys restore FILE), "
            f"or remove receipts/ and data/handles/ to start a history of your own"
        )
    return known if line in known else [*known, line]


def write(workspace: Path, body: Mapping[str, Any], signer: Signer, *, archive: Path | None = None) -> Path:
    """Sign `body` and put it under receipts/STAGE/, a copy into `archive`, and the key into receipts/runner.pub."""
    document = {"version": VERSION, "key": signer.public_key.hex(), **body}
    signed = {"body": document, "signature": signer.sign(canonical_json(document)).hex()}
    text = json.dumps(signed, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    name = f"{body['stage']}/{sha256_json(document)[:16]}.json"
    keys = pin(workspace, signer.public_key, owner=body["zone"] != "open")
    _put(workspace / PINNED, "".join(key + "\n" for key in keys))
    if archive:
        _put(archive / name, text)
    return _put(workspace / FOLDER / name, text)


def _put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text)
    os.replace(temporary, path)
    return path


def collect(workspace: Path, archive: Path, wanted: Callable[[Receipt], bool]) -> list[Path]:
    """Bring archived receipts that are `wanted` into the workspace.

    A queued experiment runs in a copy of the workspace, and DVC brings home its dvc.lock but not its new files.
    """
    pinned = workspace / PINNED
    keys = pinned.read_text().split() if pinned.exists() else []
    brought = []
    for file in sorted(archive.glob("*/*.json")):
        name = f"{file.parent.name}/{file.name}"
        if not (workspace / FOLDER / name).exists() and wanted(
            _read_one(f"{FOLDER}/{name}", file.read_text(), keys)
        ):
            brought.append(_put(workspace / FOLDER / name, file.read_text()))
    return brought


def read(files: Iterable[tuple[str, str]], pinned: str) -> list[Receipt]:
    """Check each (path, text) against the pinned keys; what cannot be believed is returned with its problem."""
    return [_read_one(path, text, pinned.split()) for path, text in files]


def _read_one(path: str, text: str, pinned: list[str]) -> Receipt:
    try:
        document = json.loads(text)
        body, signature = document["body"], bytes.fromhex(document["signature"])
        key, zone, stage = str(body["key"]), body["zone"], body["stage"]
    except (ValueError, KeyError, TypeError):
        return Receipt(path, {}, "is not a receipt: it was cut or edited")
    if key not in pinned:
        return Receipt(path, body, f"is signed by a key that {PINNED} does not name")
    if zone != "open" and key != pinned[0]:
        return Receipt(path, body, "is of a stage that reads records, but not signed by the owner's key")
    if not verify(bytes.fromhex(key), canonical_json(body), signature):
        return Receipt(path, body, "has a wrong signature: it was edited")
    if Path(path).stem != sha256_json(body)[:16] or Path(path).parent.name != stage:
        return Receipt(path, body, "is not under its own name: it was moved or renamed")
    return Receipt(path, body)


def in_workspace(workspace: Path) -> list[Receipt]:
    """All receipts of the working tree."""
    pinned = workspace / PINNED
    files = sorted((workspace / FOLDER).glob("*/*.json"))
    texts = [(file.relative_to(workspace).as_posix(), file.read_text()) for file in files]
    return read(texts, pinned.read_text() if pinned.exists() else "")
