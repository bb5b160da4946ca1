"""One in-toto attestation a stage: the signed receipt again, in the words that other tools read.

Statement v1 with the link predicate v0.3, in a DSSE envelope (github.com/secure-systems-lab/dsse). Both are a
few fields of JSON, which is why no package is needed for them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airlock.evidence.receipts import Receipt
from airlock.files import parse_json
from airlock.inside.digests import canonical_json, sha256_path, walk
from airlock.owner.keys import Signer, verify

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://in-toto.io/attestation/link/v0.3"
PAYLOAD = "application/vnd.in-toto+json"
TREE = "airlockTree"  # of folders that are not in the bundle: SHA-256 of the sorted list of (path, SHA-256)


def statement(receipt: Receipt, root: Path) -> dict[str, Any]:
    """What a receipt says, with the hash of each file that is below `root`."""
    body = receipt.body
    return {
        "_type": STATEMENT,
        "subject": _resources(body["outs"], root),
        "predicateType": PREDICATE,
        "predicate": {
            "name": receipt.stage,
            "command": ["airlock", "run", receipt.stage],
            "materials": _resources(body["deps"], root),
            "byproducts": {
                "receipt": {"name": receipt.path, "digest": {"sha256": sha256_path(root / receipt.path)}},
                **{name: body[name] for name in ("did_read", "passes", "releases", "ledger", "when")},
            },
            "environment": {
                name: body[name]
                for name in ("zone", "could_read", "enforcement", "code", "platform")
                if name in body
            },
        },
    }


def _resources(declared: Mapping[str, Mapping[str, str]], root: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for path, hashes in sorted(declared.items()):
        place = root / path
        if place.is_dir():
            found += [
                {"name": f"{path}/{name}", "digest": {"sha256": sha256_path(file)}}
                for name, file in walk(place)
            ]
        else:
            found.append({"name": path, "digest": {"sha256" if place.is_file() else TREE: hashes["sha256"]}})
    return found


def sign(document: Mapping[str, Any], signer: Signer) -> str:
    """The envelope as text."""
    payload = canonical_json(document)
    signature = {"keyid": signer.public_key.hex(), "sig": _encode(signer.sign(_authenticated(payload)))}
    envelope = {"payloadType": PAYLOAD, "payload": _encode(payload), "signatures": [signature]}
    return json.dumps(envelope, indent=1, sort_keys=True) + "\n"


def problem(text: str, expected: Mapping[str, Any], public_key: str) -> str:
    """Why an envelope is not the `expected` statement signed by `public_key`, or nothing."""
    try:
        envelope = parse_json(text)
        payload, signed = base64.b64decode(envelope["payload"]), envelope["signatures"][0]
        signature = base64.b64decode(signed["sig"])
    except (ValueError, KeyError, TypeError, IndexError):
        return "is not a DSSE envelope"
    if signed.get("keyid") != public_key or not verify(
        bytes.fromhex(public_key), _authenticated(payload), signature
    ):
        return "is not signed by the owner's key"
    if payload != canonical_json(expected):
        return "does not say what the stage's receipt says"
    return ""


def _authenticated(payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding: the type is signed with the content."""
    return b"DSSEv1 %d %s %d %s" % (len(PAYLOAD), PAYLOAD.encode(), len(payload), payload)


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode()
