"""Bytes and digests that are the same on every machine."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

CHUNK = 1 << 20
BYTECODE_FOLDER = "__pycache__"
"""Beside code it is not counted, and so not shown to a stage (run/paths.py)."""


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def canonical_json(document: Any) -> bytes:
    """JSON with sorted keys, no white space and no NaN: one document, one byte string."""
    return _CANONICAL.encode(document).encode()


def sha256_json(document: Any) -> str:
    """SHA-256 of a document's canonical JSON."""
    return hashlib.sha256(canonical_json(document)).hexdigest()


def walk(folder: Path, *, compiled: bool = True) -> Iterator[tuple[str, Path]]:
    """Everything below `folder` but folders, with its POSIX path relative to it, sorted. No name is skipped,
    and no link is followed.

    Args:
        folder: where.
        compiled: with False, without what Python puts beside its source: no stage is shown it, and no commit
            has it.
    """
    for name, path in sorted((path.relative_to(folder).as_posix(), path) for path in folder.rglob("*")):
        if (path.is_symlink() or not path.is_dir()) and (compiled or BYTECODE_FOLDER not in name.split("/")):
            yield name, path


def empty_folders(names: Iterable[str], folders: Iterable[str]) -> list[str]:
    """Those of `folders` that none of the files `names` lies in: only the folder's own name would tell of
    it.
    """
    filled = {name[:place] for name in names for place, mark in enumerate(name) if mark == "/"}
    return sorted(set(folders) - filled)


def sha256_path(path: Path, *, compiled: bool = True) -> str:
    """SHA-256 of a file, or of a folder's sorted list of (relative path, SHA-256).

    An empty folder has a name, which may say something: beside data it is counted like a file. (The runner
    publishes none, and starts no stage that would see one.)
    """
    if not path.is_dir():
        return _digest(path, "sha256")
    found = {name: _digest(file, "sha256") for name, file in walk(path, compiled=compiled)}
    if compiled:
        folders = [one.relative_to(path).as_posix() for one in path.rglob("*/")]
        found |= {f"{name}/": "" for name in empty_folders(found, folders)}
    return sha256_listing(found)


def sha256_listing(digests: Mapping[str, str]) -> str:
    """The SHA-256 of a folder, from those of its files by relative path."""
    return sha256_json([[name, digests[name]] for name in sorted(digests)])


def md5_path(path: Path, *, compiled: bool = True) -> str:
    """The hash that DVC writes into dvc.lock, so that receipts can be compared with it.

    Not a security property.
    """
    if not path.is_dir():
        return _digest(path, "md5")
    return md5_listing({name: _digest(file, "md5") for name, file in walk(path, compiled=compiled)})


def md5_listing(digests: Mapping[str, str]) -> str:
    """The MD5 that DVC gives a folder, from those of its files by relative path."""
    entries = [{"md5": digests[name], "relpath": name} for name in sorted(digests)]
    return (
        hashlib.md5(json.dumps(entries, sort_keys=True).encode(), usedforsecurity=False).hexdigest() + ".dir"
    )


def _digest(path: Path, algorithm: str) -> str:
    digest = hashlib.new(algorithm, usedforsecurity=algorithm != "md5")
    if path.is_symlink():  # what it names, never what is there
        digest.update(b"link:" + os.fsencode(os.readlink(path)))
        return digest.hexdigest()
    if not path.is_file():  # a pipe has no end, a device is no file: what it is, not what it gives
        digest.update(f"special:{stat.S_IFMT(path.stat().st_mode)}".encode())
        return digest.hexdigest()
    with path.open("rb") as file:
        while block := file.read(CHUNK):
            digest.update(block)
    return digest.hexdigest()
