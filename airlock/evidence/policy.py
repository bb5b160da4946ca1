"""Who may sign what: the owner's key signs for every zone, and another one only for what the owner has
admitted it to.

receipts/runner.pub names the owner's key, in its first line. receipts/policy.json lists admitted keys and is
signed by the owner's: a line that a stranger adds to either of them admits nobody.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airlock.errors import InputError, KeysError
from airlock.evidence.zones import ZONES
from airlock.files import parse_json
from airlock.inside.digests import canonical_json
from airlock.owner.keys import Signer, verify
from airlock.run import paths

OWNER_KEY = "receipts/runner.pub"
POLICY = "receipts/policy.json"
VERSION = 1


@dataclass(frozen=True)
class Policy:
    """The owner's key, and the zones that each admitted key may sign for.

    `problem` says why the list is not believed; `serial` counts the lists that the owner has signed.
    """

    owner: str = ""
    admitted: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    problem: str = ""
    serial: int = 0

    def objection(self, key: str, zone: str) -> str:
        """Why a receipt of `zone` may not be signed by `key`, or nothing."""
        if key == self.owner or zone in self.admitted.get(key, ()):
            return ""
        if key in self.admitted or zone != "open":
            return (
                f"is of a stage in zone {zone}, which the key {key[:16]} "
                "may not sign for: only the owner's may"
            )
        return (
            f"is signed by a key that the owner has not admitted: run `airlock keys admit {key}` on the "
            "owner's machine"
        )


def read(pinned: str | None, policy: str | None) -> Policy:
    """What the two files say; without the second one, nobody but the owner is admitted."""
    owner = ((pinned or "").split() or [""])[0]
    if not policy:
        return Policy(owner)
    try:
        document = parse_json(policy)
        body, signature = document["body"], bytes.fromhex(document["signature"])
        admitted = {str(key): tuple(map(str, zones)) for key, zones in body["admitted"].items()}
        serial = int(body.get("serial", 0))
        signed = body["owner"] == owner and verify(bytes.fromhex(owner), canonical_json(body), signature)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Policy(owner, problem=f"{POLICY} is not a list of admitted keys: it was cut or edited")
    if not signed:
        return Policy(owner, problem=f"{POLICY} is not signed by the owner's key: nobody is admitted by it")
    return Policy(owner, admitted, serial=serial)


def of_workspace(workspace: Path) -> Policy:
    """The policy of the working tree."""
    return read(paths.read_text(workspace, OWNER_KEY), paths.read_text(workspace, POLICY))


def admit(
    workspace: Path, signer: Signer, key: str, zones: tuple[str, ...] = ("open",), *, newest: int = 0
) -> Policy:
    """Let another key sign receipts of these zones; of none: dismiss it.

    Args:
        workspace: whose policy.
        signer: the owner's.
        key: the other one, in hexadecimal.
        zones: what it may sign for.
        newest: the highest serial that the owner's machine has signed so far.

    Raises:
        KeysError: this is not the owner's machine, or the list here is not the newest that it has signed.
        InputError: that is not a public key, or not a zone.
    """
    present = of_workspace(workspace)
    if not present.owner:
        raise InputError(f"{OWNER_KEY} is not there yet: run `dvc repro`, whose first receipt brings it")
    if present.owner != signer.public_key.hex():
        raise KeysError(f"only the owner can admit a key: the key here is not the first in {OWNER_KEY}")
    if objection := outdated(present, newest):
        raise KeysError(objection)
    key = known_key(key)
    if not set(zones) <= set(ZONES):
        raise InputError(
            f"there is no zone '{', '.join(set(zones) - set(ZONES))}': choose from {', '.join(ZONES)}"
        )
    others = {name: list(given) for name, given in present.admitted.items() if name != key}
    body: dict[str, Any] = {
        "version": VERSION,
        "owner": present.owner,
        "admitted": {**others, **({key: sorted(zones)} if zones else {})},
        "serial": max(present.serial, newest) + 1,
    }
    document = {"body": body, "signature": signer.sign(canonical_json(body)).hex()}
    paths.write(workspace, POLICY, (json.dumps(document, indent=1, sort_keys=True) + "\n").encode())
    return of_workspace(workspace)


def known_key(text: str) -> str:
    """A public key that somebody typed, as it is written here.

    Raises:
        InputError: it is none. An empty one (of a script, whose variable is not set) must not pass as no question.
    """
    if not is_key(text.lower()):
        raise InputError(
            f"'{text}' is not a public key: it has 64 hexadecimal digits, and `airlock audit` shows it"
        )
    return text.lower()


def is_key(text: str) -> bool:
    """Whether a text is a public key in hexadecimal, as it is written."""
    return len(text) == 64 and set(text) <= set("0123456789abcdef")


def outdated(present: Policy, newest: int) -> str:
    """Why this list is not the owner's last word, or nothing: an older one may admit a key that was dismissed."""
    if present.serial >= newest:
        return ""
    return (
        f"{POLICY} is list {present.serial} of admitted keys, and this machine has signed list {newest}: restore "
        "the newest from git"
    )
