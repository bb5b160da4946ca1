"""Copies of keys under a passphrase, and rotation that gives no question a second answer."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from airlock.errors import InputError, KeysError
from airlock.inside.digests import canonical_json
from airlock.ledger import Ledger
from airlock.owner import keys
from airlock.owner.home import Project, write_private
from airlock.owner.keys import Keyring
from airlock.owner.registry import load_registry

MAGIC = b"AIRKEYS\x01"
SALT, NONCE, LENGTH = 16, 12, 12  # passphrases shorter than LENGTH fall to a patient guesser


def backup(project: Project, file: Path, passphrase: str) -> None:
    """Write every key to one encrypted file.

    Raises:
        KeysError: there are no keys, or the passphrase is too short.
        InputError: the file exists or cannot be written.
    """
    Keyring.load(project)
    if len(passphrase) < LENGTH:
        raise KeysError(
            f"the passphrase needs at least {LENGTH} characters: a backup "
            "may be stolen and guessed at for years"
        )
    if file.exists():
        raise InputError(f"{file} exists: choose another name, a backup never overwrites one")
    salt, nonce = secrets.token_bytes(SALT), secrets.token_bytes(NONCE)
    content = canonical_json(
        {"project": project.id, "keys": {name: key.hex() for name, key in _read_all(project).items()}}
    )
    sealed = AESGCMSIV(_stretch(passphrase, salt)).encrypt(nonce, content, MAGIC)
    try:
        write_private(file, MAGIC + salt + nonce + sealed)
    except OSError as error:
        raise InputError(f"{file} cannot be written ({error.strerror})") from None


def restore(project: Project, file: Path, passphrase: str) -> int:
    """Put the keys of a backup in place and say how many generations there are.

    Raises:
        KeysError: wrong passphrase, another project's keys, or other keys are here already.
    """
    content = _open(file, passphrase)
    if content["project"] != project.id:
        raise KeysError(
            f"{file} holds the keys of project '{content['project']}', this one is '{project.id}'"
        )
    restored = {name: bytes.fromhex(key) for name, key in content["keys"].items()}
    present = _read_all(project) if keys.exist(project) else {}
    held = {name: key for name, key in present.items() if not name.endswith(keys.FORGOTTEN)}
    if any(restored.get(name) != key for name, key in held.items()):
        raise KeysError(
            f"other or newer keys are in {project.keys}: move that folder away first, if you are sure"
        )
    gone = {
        name.removesuffix(keys.FORGOTTEN) for name in (*present, *restored) if name.endswith(keys.FORGOTTEN)
    }
    restored = {name: key for name, key in restored.items() if name not in gone}
    # The master comes last: it is what says that a project's keys are here.
    for name in sorted(restored, key=lambda name: name == "master"):
        write_private(project.keys / name, restored[name])
    return Keyring.load(project).generation


def rotate(project: Project) -> int:
    """Start a new generation and say which.

    A release that was reserved and not finished keeps its noise key: with a new one, the run that takes it
    over would give the same question a second answer for one price.

    Raises:
        KeysError: there are no keys.
        LedgerError: the ledger of private data is missing or was changed.
    """
    private = any(not entry["public"] for entry in load_registry(project).populations.values())
    entries = Ledger.open(project.ledger_url, create=False).history() if private else []
    finished = {entry.release_id for entry in entries if entry.kind == "commit"}
    unfinished = {entry.release_id for entry in entries if entry.kind in ("reserve", "night")} - finished
    return keys.rotate(project, sorted(unfinished)).generation


def _read_all(project: Project) -> dict[str, bytes]:
    files = [
        path for path in sorted(project.keys.rglob("*")) if path.is_file() and not path.name.startswith(".")
    ]
    return {path.relative_to(project.keys).as_posix(): path.read_bytes() for path in files}


def _open(file: Path, passphrase: str) -> dict[str, Any]:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise InputError(
            f"{file} cannot be read ({(error.strerror or 'error').lower()}): check the path"
        ) from None
    if not data.startswith(MAGIC):
        raise KeysError(f"{file} is not a backup of keys")
    salt, nonce, sealed = data[8 : 8 + SALT], data[8 + SALT : 8 + SALT + NONCE], data[8 + SALT + NONCE :]
    try:
        content: dict[str, Any] = json.loads(
            AESGCMSIV(_stretch(passphrase, salt)).decrypt(nonce, sealed, MAGIC)
        )
    except (InvalidTag, ValueError):
        raise KeysError(f"{file} does not open: the passphrase is wrong, or the file was changed") from None
    return content


def _stretch(passphrase: str, salt: bytes) -> bytes:
    return Scrypt(salt, 32, n=2**17, r=8, p=1).derive(passphrase.encode())
