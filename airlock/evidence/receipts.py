"""Signed receipts: what a stage could read, what it did read, what it made, and under which layers.

They are git-tracked files, receipts/STAGE/DIGEST.json, signed by the runner (Ed25519) with a key that the
owner's policy lets sign for the stage's zone (`evidence.policy`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airlock.errors import KeysError
from airlock.evidence import policy
from airlock.evidence.policy import OWNER_KEY, POLICY, Policy
from airlock.files import parse_json, replace
from airlock.inside.digests import canonical_json, sha256_json
from airlock.owner.keys import Signer, verify
from airlock.run import paths

FOLDER = "receipts"
VERSION = 1
__all__ = ["FOLDER", "OWNER_KEY", "POLICY", "Receipt", "collect", "in_workspace", "pin", "read", "write"]


@dataclass(frozen=True)
class Receipt:
    """One receipt as it stands in git. `problem` says why it cannot be believed, or is empty."""

    path: str
    body: Mapping[str, Any]
    problem: str = ""

    @property
    def stage(self) -> str:
        return str(self.body.get("stage", "?"))


def pin(workspace: Path, public_key: bytes, *, owner: bool) -> str:
    """The owner's key, which is the one that receipts/runner.pub names first, or the first one that signs
    here.

    Only it may sign for stages that can read records. A modeller's machine, which has released data only,
    signs with a key of its own, which the owner admits (`airlock keys admit`).

    Raises:
        KeysError: a stage that reads records would be signed by another key than the pinned one.
    """
    known, line = policy.of_workspace(workspace).owner, public_key.hex()
    if owner and known and known != line:
        raise KeysError(
            f"{OWNER_KEY} names another owner's key: restore that project's keys (airlock keys restore FILE), "
            f"or remove receipts/ and data/handles/ to start a history of your own"
        )
    return known or line


def write(workspace: Path, body: Mapping[str, Any], signer: Signer, *, archive: Path | None = None) -> Path:
    """Sign `body` and put it under receipts/STAGE/, and a copy into `archive`."""
    document = {"version": VERSION, "key": signer.public_key.hex(), **body}
    signed = {"body": document, "signature": signer.sign(canonical_json(document)).hex()}
    text = json.dumps(signed, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    name = f"{body['stage']}/{sha256_json(document)[:16]}.json"
    owner = pin(workspace, signer.public_key, owner=body["zone"] != "open")
    if not (workspace / OWNER_KEY).exists():
        paths.write(workspace, OWNER_KEY, f"{owner}\n".encode())
    if archive:
        replace(archive / name, text, durable=True)
    paths.write(workspace, f"{FOLDER}/{name}", text.encode())
    return workspace / FOLDER / name


def collect(workspace: Path, archive: Path, wanted: Callable[[Receipt], bool], signers: Policy) -> list[Path]:
    """Bring archived receipts that are `wanted` into the workspace.

    A queued experiment runs in a copy of the workspace, and DVC brings home its dvc.lock but not its new
    files.
    """
    brought = []
    for file in sorted(archive.glob("*/*.json")):
        name = f"{file.parent.name}/{file.name}"
        if not (workspace / FOLDER / name).exists() and wanted(
            _read_one(f"{FOLDER}/{name}", file.read_text(), signers)
        ):
            paths.write(workspace, f"{FOLDER}/{name}", file.read_bytes())
            brought.append(workspace / FOLDER / name)
    return brought


def read(files: Iterable[tuple[str, str]], signers: Policy) -> list[Receipt]:
    """Check each (path, text) against the owner's policy; what cannot be believed is returned with its
    problem.
    """
    return [_read_one(path, text, signers) for path, text in files]


def _read_one(path: str, text: str, signers: Policy) -> Receipt:
    try:
        document = parse_json(text)
        body, signature = document["body"], bytes.fromhex(document["signature"])
        key, zone, stage = str(body["key"]), str(body["zone"]), body["stage"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return Receipt(path, {}, "is not a receipt: it was cut or edited")
    if objection := signers.objection(key, zone):
        return Receipt(path, body, objection)
    if not policy.is_key(key) or not verify(bytes.fromhex(key), canonical_json(body), signature):
        return Receipt(path, body, "has a wrong signature: it was edited")
    if Path(path).stem != sha256_json(body)[:16] or Path(path).parent.name != stage:
        return Receipt(path, body, "is not under its own name: it was moved or renamed")
    return Receipt(path, body)


def in_workspace(workspace: Path) -> list[Receipt]:
    """All receipts of the working tree."""
    return read(files(workspace), policy.of_workspace(workspace))


def files(workspace: Path) -> list[tuple[str, str]]:
    """Path and text of every receipt of the working tree, unread."""
    found = sorted((workspace / FOLDER).glob("*/*.json"))
    names = [file.relative_to(workspace).as_posix() for file in found]
    return [(name, paths.read_text(workspace, name) or "") for name in names]
