"""What every reader of a receipt relies on: a signature says who wrote it, and not that it is whole.

Anyone can sign a receipt of any form in a repository or a bundle of their own; whoever audits that gets an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ValidationError


class _Hashes(BaseModel):
    md5: str
    sha256: str


class _Proven(BaseModel):
    epsilon: float | Literal["infinity"]
    delta: float
    reason: str = ""


class _Release(BaseModel):
    out: str
    id: str
    manifest: str
    mechanism: str
    passes: int
    interactive: bool
    proven: _Proven


class _CouldRead(BaseModel):
    raw: bool
    sealed: bool


class _DidRead(BaseModel):
    records: str


class _Enforcement(BaseModel):
    layers: list[str]


class _Code(BaseModel):
    module: str | None = None
    default: str | None = None
    differs: list[str] = []


class _Ledger(BaseModel):
    scratch: bool
    sequence: int
    head: str


class _Body(BaseModel):
    when: str
    deps: dict[str, _Hashes]
    outs: dict[str, _Hashes]
    could_read: _CouldRead
    did_read: _DidRead
    enforcement: _Enforcement
    releases: list[_Release]
    changed: list[str] = []
    code: _Code | None = None
    ledger: _Ledger | None = None


def is_whole(body: Mapping[str, Any]) -> bool:
    """Whether a receipt's body has all that is asked of it, in its form."""
    try:
        _Body.model_validate(body, strict=True)
    except (ValidationError, RecursionError):
        return False
    return True
