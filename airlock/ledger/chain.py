"""Entries that hold each other: each carries the hash of the one before, so none can change unseen."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from airlock.inside.digests import canonical_json, sha256_json

START = "0" * 64
KINDS = (
    "open", "cap", "reserve", "disclosure", "take-over", "start", "commit", "lost", "return", "retire", "recover",
    "moved", "night",
)  # fmt: skip
Head = tuple[int | None, str]


@dataclass(frozen=True)
class Entry:
    """One row of the ledger.

    Attributes:
        sequence: 1 for the first entry, without gaps.
        kind: one of `KINDS`.
        population: whose budget it is about; empty for the ledger itself.
        release_id: the release it is about; empty for a cap.
        payload: canonical JSON, exactly as hashed.
        previous: hash of the entry before, `START` for the first.
        hash: SHA-256 of all of the above; where the payload has a commitment, in two steps, so that an entry
            whose population is hidden can still be followed (`commitments`).
    """

    sequence: int
    kind: str
    population: str
    release_id: str
    payload: str
    previous: str
    hash: str

    @cached_property
    def details(self) -> dict[str, Any]:
        """The payload as a document."""
        document: dict[str, Any] = json.loads(self.payload)
        return document

    @property
    def commitment(self) -> str | None:
        """To which population it belongs, without naming it; None for the ledger's own entries and those of
        an older Airlock.
        """
        try:
            found = self.details.get("commitment")
        except (ValueError, AttributeError):
            return None  # an edited payload: its hash tells
        return None if found is None else str(found)

    def body(self) -> str:
        """Hash of what the entry says.

        Its payload holds random bytes, so nobody can guess what was hashed.
        """
        return sha256_json([self.kind, self.population, self.release_id, self.payload])

    def digest(self) -> str:
        """What `hash` must be."""
        if self.commitment is not None:
            return sealed_digest(self.sequence, self.commitment, self.body(), self.previous)
        return sha256_json(
            [self.sequence, self.kind, self.population, self.release_id, self.payload, self.previous]
        )


def sealed_digest(sequence: int, commitment: str, body: str, previous: str) -> str:
    """The hash of an entry with a commitment, from what may be shown of it to anybody."""
    return sha256_json([sequence, commitment, body, previous])


def link(
    last: Entry | None, kind: str, *, population: str = "", release_id: str = "", details: Mapping[str, Any]
) -> Entry:
    """The entry that follows `last`."""
    sequence, previous = (last.sequence + 1, last.hash) if last else (1, START)
    payload = canonical_json(dict(details)).decode()
    unsigned = Entry(sequence, kind, population, release_id, payload, previous, "")
    return Entry(sequence, kind, population, release_id, payload, previous, unsigned.digest())


def problems(entries: Sequence[Entry], after: Entry | None = None) -> list[str]:
    """What is wrong with the chain itself: one line for each entry that was edited, removed or moved.

    Args:
        entries: all of them, or those that follow `after`.
        after: an entry that is known to be right, with all before it.
    """
    if not entries:
        return ["the ledger is empty: its first entry was removed"]
    found, last = [], after or Entry(0, "", "", "", "", "", START)
    for entry in entries:
        if entry.sequence != last.sequence + 1:
            found.append(f"entry {last.sequence + 1} is missing: the next one is {entry.sequence}")
        elif entry.previous != last.hash:
            found.append(
                f"entry {entry.sequence} does not follow entry {last.sequence}: one of them was changed, "
                "removed or moved"
            )
        if entry.hash != entry.digest():
            found.append(
                f"entry {entry.sequence} ({entry.kind}) was edited: its hash does not match its content"
            )
        last = entry
    return found


def lost(entries: Iterable[Entry], heads: Iterable[str | Head]) -> list[str]:
    """Heads that receipts were signed with and the ledger no longer has: it was cut or rewritten."""
    entries = list(entries)
    places = {entry.hash: entry.sequence for entry in entries}
    accepted = accepted_heads(entries)
    found = []
    for head in dict.fromkeys(heads):
        if (head if isinstance(head, str) else head[1]) in accepted:
            continue
        sequence, digest = (None, head) if isinstance(head, str) else head
        if digest not in places:
            where = f" of entry {sequence}" if sequence is not None else ""
            found.append(
                f"head {digest[:12]}{where} stands in a receipt but not in "
                "the ledger: it was cut or rewritten"
            )
        elif sequence is not None and places[digest] != sequence:
            found.append(
                f"head {digest[:12]} is entry {places[digest]} here but entry {sequence} in a receipt"
            )
    return found


def accepted_heads(entries: Iterable[Entry]) -> set[str]:
    """Heads of a lost part of the ledger, whose releases the owner has charged again (`airlock budget
    recover`).
    """
    return {head for entry in entries if entry.kind == "recover" for _, head in entry.details["heads"]}


def forks(heads: Iterable[Head]) -> list[str]:
    """Places that two heads claim: two copies of one ledger were both written to."""
    found: dict[int, set[str]] = {}
    for sequence, digest in heads:
        if sequence is not None:
            found.setdefault(sequence, set()).add(digest)
    return [
        f"entry {sequence} has {len(digests)} heads "
        f"({', '.join(sorted(each[:12] for each in digests))}): "
        f"two copies of the ledger were written to"
        for sequence, digests in sorted(found.items())
        if len(digests) > 1
    ]
