"""What is handed over beside DVC's own files: the project's history as a git bundle, and a signed note about it.

Both are plain files at the place that DVC pushes to, so any kind of remote will do, and whoever can read it needs no
access to the owner's repository.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from airlock.errors import BoundaryError, InputError
from airlock.files import MOST_BYTES, parse_json
from airlock.inside.digests import canonical_json, sha256_path
from airlock.owner.keys import Signer, verify

FOLDER, NOTE, HISTORY = "airlock-handover", "handover.json", "history.bundle"
VERSION = 1


@dataclass(frozen=True)
class Note:
    """What the owner signs.

    Attributes:
        project: its id.
        commit, branch: what was handed over.
        airlock: the version that made it.
        history: SHA-256 of the bundle.
        key: the owner's, which receipts/runner.pub names too.
    """

    project: str
    commit: str
    branch: str
    airlock: str
    history: str
    key: str
    version: int = VERSION

    def signed(self, signer: Signer) -> bytes:
        """As it is written."""
        body = asdict(self)
        document = {"body": body, "signature": signer.sign(canonical_json(body)).hex()}
        return (json.dumps(document, indent=1, sort_keys=True) + "\n").encode()


def read(data: bytes, place: str) -> Note:
    """The note at a place.

    Raises:
        InputError: it is no note.
        BoundaryError: its signature is wrong.
    """
    try:
        document = parse_json(data)
        body, signature = document["body"], bytes.fromhex(document["signature"])
        note = Note(**body)
        plain = all(isinstance(value, str) for value in (note.project, note.airlock, note.key, note.history))
        if not (plain and re.fullmatch("[0-9a-f]{40,64}", note.commit)) or note.version != VERSION:
            raise ValueError
        if not re.fullmatch("[A-Za-z0-9][A-Za-z0-9._/-]{0,99}", note.branch):
            raise ValueError
        right = verify(bytes.fromhex(note.key), canonical_json(body), signature)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InputError(f"{place}/{FOLDER}/{NOTE} is no note of `airlock hand-over`") from None
    if not right:
        raise BoundaryError(f"{place}/{FOLDER}/{NOTE} has a wrong signature: ask the owner for it again")
    return note


def address(place: str) -> str:
    """A place as DVC is told it: an address, or an absolute path.

    Raises:
        InputError: it has a password in it, which git and logs would keep, or letters that DVC cannot write down.
    """
    told = place if "://" in place else str(Path(place).expanduser().absolute())
    if not told.isascii():
        raise InputError(
            f"{told} has letters that DVC's settings cannot hold: give a place with an ASCII name, such as a link to it"
        )
    if "://" not in place:
        return told
    if re.match(r"[a-z0-9+]+://[^/@]*:[^/@]*@", place):
        raise InputError(
            "leave the password out of the address: DVC asks for it, or `dvc remote modify --local` keeps it"
        )
    return place.rstrip("/")


class Store:
    """The place itself, by DVC's own file systems."""

    def __init__(self, place: str, config: Mapping[str, Any] | None = None) -> None:
        from dvc.fs import get_cloud_fs  # type: ignore[import-untyped]

        try:
            kind, settings, path = get_cloud_fs(
                config, **({"name": "released"} if config else {"url": place})
            )
            self._files = kind(**settings)
        except Exception as error:  # a missing plugin, an unknown scheme, bad settings: DVC's own words
            raise InputError(f"DVC cannot use {place} ({_words(error)})") from None
        self._place, self._path = place, path

    def put(self, file: Path, name: str) -> None:
        """Write a file there."""
        target = self._files.join(self._path, FOLDER, name)
        try:
            self._files.makedirs(self._files.parent(target), exist_ok=True)
            self._files.put_file(str(file), target)
        except Exception as error:
            raise InputError(f"{self._place} cannot be written ({_words(error)})") from None

    def read(self, name: str) -> bytes:
        """What DVC keeps there under a name.

        Raises:
            InputError: it is not there, cannot be read, or is larger than any list of files.
        """
        try:
            with self._files.open(self._files.join(self._path, *name.split("/")), "rb") as file:
                data = bytes(file.read(MOST_BYTES + 1))
        except Exception as error:
            raise InputError(f"{self._place} does not have {name} ({_words(error)})") from None
        if len(data) > MOST_BYTES:
            raise InputError(f"{self._place} has {name} in more than {MOST_BYTES >> 20} MiB: ask the owner")
        return data

    def get(self, name: str, file: Path) -> None:
        """Bring a file from there.

        Raises:
            InputError: nothing was handed over there, or it cannot be read.
        """
        try:
            self._files.get_file(self._files.join(self._path, FOLDER, name), str(file))
        except FileNotFoundError:
            raise InputError(
                f"nothing was handed over at {self._place}: is it what `airlock hand-over` was given?"
            ) from None
        except Exception as error:
            raise InputError(f"{self._place} cannot be read ({_words(error)})") from None


def check_history(file: Path, note: Note) -> None:
    """Raises BoundaryError where the bundle is not the one that was signed."""
    if sha256_path(file) != note.history:
        raise BoundaryError(
            f"{HISTORY} is not the one that the owner signed: ask the owner to hand over again"
        )


def _words(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
