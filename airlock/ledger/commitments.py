"""Whose an entry is, provable without naming anybody: every entry commits to its population.

    commitment = SHA-256(canonical JSON of [salt of the population, population, sequence])

The salt is random and stands in the payload of the population's first entry that has one, so whoever is shown
a population's entries has its salt, and nobody else. With it, each hidden entry is known to be of that
population or not: none of the hidden ones may match. Without it a commitment says nothing, not even which
entries belong together. Entries of an older Airlock have none: nobody can tell.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from typing import Any

from airlock.inside.digests import sha256_json
from airlock.ledger.chain import Entry, link


def commitment(salt: str, population: str, sequence: int) -> str:
    """What entry `sequence` says about whose it is."""
    return sha256_json([salt, population, sequence])


def salts(entries: Iterable[Entry]) -> dict[str, str]:
    """The salt of each population that can be seen."""
    found: dict[str, str] = {}
    for entry in entries:
        if "salt" in entry.details:
            found.setdefault(entry.population, entry.details["salt"])
    return found


def link_of(
    last: Entry,
    kind: str,
    *,
    population: str,
    salt: str | None,
    release_id: str = "",
    details: Mapping[str, Any],
) -> Entry:
    """The entry of a population that follows `last`, with its commitment; `salt` is None for its first."""
    fresh = {"salt": secrets.token_hex(32)} if salt is None else {}
    committed = {
        "commitment": commitment(salt or fresh["salt"], population, last.sequence + 1),
        "nonce": secrets.token_hex(16),
    }
    return link(
        last, kind, population=population, release_id=release_id, details={**details, **fresh, **committed}
    )


def problems(entries: Iterable[Entry]) -> list[str]:
    """Entries that do not commit to the population they name, and populations with two salts."""
    known: dict[str, str] = {}
    found, began = [], False
    for entry in entries:
        if (
            "salt" in entry.details
            and known.setdefault(entry.population, entry.details["salt"]) != entry.details["salt"]
        ):
            found.append(f"entry {entry.sequence} gives '{entry.population}' a second salt")
        if entry.commitment is None:
            if began and entry.population:
                found.append(f"entry {entry.sequence} does not say whose it is, although earlier ones do")
            continue
        began = True
        if entry.commitment != commitment(known.get(entry.population, ""), entry.population, entry.sequence):
            found.append(
                f"entry {entry.sequence} names '{entry.population}' but commits to another population"
            )
    return found


def is_of(salt: str, population: str, sequence: int, found: str) -> bool:
    """Whether a hidden entry's commitment is of a population whose salt is known."""
    return commitment(salt, population, sequence) == found
