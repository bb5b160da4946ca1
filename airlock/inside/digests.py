"""Bytes and digests that are the same on every machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHUNK = 1 << 20


def canonical_json(document: Any) -> bytes:
    """JSON with sorted keys, no white space and no NaN: one document, one byte string."""
    return json.dumps(
        document, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False
    ).encode()


def sha256_json(document: Any) -> str:
    """SHA-256 of a document's canonical JSON."""
    return hashlib.sha256(canonical_json(document)).hexdigest()


def walk(folder: Path) -> Iterator[tuple[str, Path]]:
    """Every file below `folder` with its POSIX path relative to it, sorted."""
    files = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    yield from sorted((path.relative_to(folder).as_posix(), path) for path in files)


def sha256_path(path: Path) -> str:
    """SHA-256 of a file, or of a folder's sorted list of (relative path, SHA-256)."""
    if path.is_dir():
        return sha256_json([[name, _digest(file, "sha256")] for name, file in walk(path)])
    return _digest(path, "sha256")


def md5_path(path: Path) -> str:
    """The hash that DVC writes into dvc.lock, so that receipts can be compared with it. Not a security property."""
    if not path.is_dir():
        return _digest(path, "md5")
    entries = [{"md5": _digest(file, "md5"), "relpath": name} for name, file in walk(path)]
    return (
        hashlib.md5(json.dumps(entries, sort_keys=True).encode(), usedforsecurity=False).hexdigest() + ".dir"
    )


def _digest(path: Path, algorithm: str) -> str:
    digest = hashlib.new(algorithm, usedforsecurity=algorithm != "md5")
    with path.open("rb") as file:
        while block := file.read(CHUNK):
            digest.update(block)
    return digest.hexdigest()
