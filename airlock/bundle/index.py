"""bundle.json: format, commit, and the hash of every other file, signed by the owner's key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airlock.bundle import FORMAT, INDEX
from airlock.errors import BundleError, InputError
from airlock.evidence import receipts
from airlock.files import parse_json
from airlock.inside.digests import canonical_json, sha256_path, walk
from airlock.owner.keys import Signer, verify


def write(root: Path, facts: Mapping[str, Any], signer: Signer) -> None:
    """Sign `facts` and the hashes of all files below `root`."""
    files = {name: sha256_path(path) for name, path in walk(root) if name != INDEX}
    body = {"format": FORMAT, **facts, "key": signer.public_key.hex(), "files": files}
    signed = {"body": body, "signature": signer.sign(canonical_json(body)).hex()}
    (root / INDEX).write_text(json.dumps(signed, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def read(root: Path) -> dict[str, Any]:
    """The signed facts, once every file below `root` was found to be what they say.

    Raises:
        InputError: a newer Airlock made it.
        BundleError: naming the file that was changed, added or removed.
    """
    try:
        document = parse_json((root / INDEX).read_text())
        body, signature, key = (
            document["body"],
            bytes.fromhex(document["signature"]),
            str(document["body"]["key"]),
        )
    except FileNotFoundError:
        raise BundleError(f"there is no {INDEX}: this is not an Airlock bundle") from None
    except (ValueError, KeyError, TypeError):
        raise BundleError(f"{INDEX} was changed: it is not a signed list of files") from None
    if body.get("format") != FORMAT:
        raise InputError(
            f"the bundle has format {body.get('format')}, this Airlock reads "
            f"up to {FORMAT}: install a newer one"
        )
    if not verify(bytes.fromhex(key), canonical_json(body), signature):
        raise BundleError(f"{INDEX} was changed: its signature is wrong")
    _check_files(root, body["files"])
    return dict(body)


def owner_problem(root: Path, key: str) -> str:
    """Why `key` is not the one that the receipts below `root` name as the owner's, or nothing."""
    pinned = root / receipts.OWNER_KEY
    if not pinned.exists():
        return f"{receipts.OWNER_KEY} is missing: nothing says whose receipts these are"
    return (
        ""
        if pinned.read_text().split()[:1] == [key]
        else f"{INDEX} is not signed by the owner's key, the first in {receipts.OWNER_KEY}"
    )


def _check_files(root: Path, listed: Mapping[str, str]) -> None:
    found = {name: path for name, path in walk(root) if name != INDEX}
    for name, digest in sorted(listed.items()):
        if name not in found:
            raise BundleError(f"{name} was removed from the bundle")
        if sha256_path(found[name]) != digest:
            raise BundleError(f"{name} was changed after the bundle was made")
    if added := sorted(found.keys() - listed.keys()):
        raise BundleError(f"{added[0]} was added to the bundle")
