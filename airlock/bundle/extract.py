"""The ledger as a bundle shows it: every entry up to the last head that a bundled receipt is signed with.

Entries of other populations are there as hashes only, so that the chain can be followed and nothing is told
about them but that they are of others.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from airlock.errors import BundleError
from airlock.files import parse_json
from airlock.ledger import Entry

VERSION = 1


@dataclass(frozen=True)
class HiddenEntry(Entry):
    """An entry of another population: where it stands in the chain, and that it is of another one, without
    whose.

    Attributes:
        stated: its commitment to a population (`ledger.commitments`); None for entries of an older Airlock,
            whose hash is taken as it stands and of which nobody can tell whose they are.
        rest: hash of what it says.
    """

    stated: str | None = None
    rest: str = ""

    @property
    def commitment(self) -> str | None:
        return self.stated

    def body(self) -> str:
        return self.rest

    def digest(self) -> str:
        return self.hash if self.stated is None else super().digest()


@dataclass(frozen=True)
class Extract:
    """One ledger, up to a signed head."""

    scratch: bool
    entries: tuple[Entry, ...]

    @property
    def visible(self) -> list[Entry]:
        """What can be read."""
        return [entry for entry in self.entries if not isinstance(entry, HiddenEntry)]

    @property
    def hidden(self) -> list[Entry]:
        """What is there as a hash."""
        return [entry for entry in self.entries if isinstance(entry, HiddenEntry)]

    @property
    def unknown(self) -> list[Entry]:
        """Hidden entries of which nobody but the owner can tell whose they are."""
        return [entry for entry in self.hidden if entry.commitment is None]


def take(history: Sequence[Entry], *, scratch: bool, head: int, populations: Iterable[str]) -> Extract:
    """The first `head` entries, showing only `populations` and what concerns the ledger as a whole."""
    shown = {"", *populations}
    return Extract(
        scratch, tuple(entry if entry.population in shown else _hide(entry) for entry in history[:head])
    )


def _hide(entry: Entry) -> HiddenEntry:
    rest = "" if entry.commitment is None else entry.body()
    return HiddenEntry(
        entry.sequence, "hidden", "", "", "{}", entry.previous, entry.hash, entry.commitment, rest
    )


def write(extract: Extract, path: Path) -> None:
    """As readable JSON, an entry a line."""
    lines = [json.dumps(_to_json(entry), sort_keys=True, ensure_ascii=False) for entry in extract.entries]
    head = f'{{"version": {VERSION}, "scratch": {json.dumps(extract.scratch)}, "entries": [\n'
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(head + ",\n".join(lines) + "\n]}\n")


def _to_json(entry: Entry) -> dict[str, Any]:
    if isinstance(entry, HiddenEntry):
        shown = {"sequence": entry.sequence, "hidden": True, "previous": entry.previous, "hash": entry.hash}
        return shown if entry.stated is None else {**shown, "commitment": entry.stated, "body": entry.rest}
    return asdict(entry)


def read(path: Path) -> Extract:
    """The inverse of `write`.

    Raises:
        BundleError: it is not such a document.
    """
    try:
        document = parse_json(path.read_text())
        return Extract(bool(document["scratch"]), tuple(_from_json(entry) for entry in document["entries"]))
    except (ValueError, KeyError, TypeError):
        raise BundleError(f"ledger/{path.name} is not a ledger of this version") from None


def _from_json(document: dict[str, Any]) -> Entry:
    if document.get("hidden"):
        place = document["sequence"], "hidden", "", "", "{}", document["previous"], document["hash"]
        return HiddenEntry(*place, document.get("commitment"), str(document.get("body", "")))
    return Entry(**document)
