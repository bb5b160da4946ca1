"""What DVC would do with a folder that it brings, looked at before it does it.

A folder is an object that lists its files: hash and name of each. DVC writes wherever a name leads, `../../.bashrc`
too, takes the hash for a part of a path as well, and does not compare such a list with its own hash. Whoever can write
to a place could so write to any file of who takes from it. So the lists are brought here, held to their hashes and to
plain names, and laid into DVC's cache, where it looks first.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from airlock.errors import BoundaryError
from airlock.files import parse_json, replace
from airlock.run.allowed import is_obeyed
from airlock.workspaces.handover import config
from airlock.workspaces.parcel import Store

HASH = re.compile(r"[0-9a-f]{32}")
ENDING = ".dir"


def bring(store: Store, cache: Path, objects: Iterable[tuple[str, Any]]) -> None:
    """Bring the lists of all folders among some outs.

    Args:
        store: where they are.
        cache: DVC's, for objects by MD5.
        objects: path and hash of each out, as dvc.lock has it.

    Raises:
        BoundaryError: a hash is none, or a list is not what its hash says, or has a name that leads elsewhere.
    """
    for out, name in objects:
        if not isinstance(name, str) or not HASH.fullmatch(name.removesuffix(ENDING)):
            raise BoundaryError(f"'{out}' has no hash in dvc.lock: ask the owner to hand over again")
        if name.endswith(ENDING):
            place, digest = cache / name[:2] / name[2:], name.removesuffix(ENDING)
            if place.is_file() and is_plain(place.read_bytes(), digest):
                continue
            data = store.read(f"files/md5/{name[:2]}/{name[2:]}")
            if not is_plain(data, digest):
                raise BoundaryError(f"'{out}' was changed at that place: ask the owner to hand over again")
            replace(place, data)


def cache_of(workspace: Path) -> Path:
    """Where DVC keeps objects by their MD5; one may have chosen another folder."""
    chosen = Path((config(workspace).get("cache") or {}).get("dir") or "cache")
    return workspace / ".dvc" / chosen / "files/md5"


def is_plain(data: bytes, digest: str) -> bool:
    """Whether this is the list of that hash, of files with plain names below the folder."""
    if hashlib.md5(data, usedforsecurity=False).hexdigest() != digest:
        return False
    try:
        listed = [(str(entry["md5"]), str(entry["relpath"])) for entry in parse_json(data)]
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
    return all(
        HASH.fullmatch(md5) and all(part and not is_obeyed(part) for part in name.split("/"))
        for md5, name in listed
    )
