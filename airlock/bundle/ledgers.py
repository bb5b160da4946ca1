"""Ledger arithmetic: the chain, the heads in signed receipts, the caps, and every guarantee again from its
events.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass

from airlock.bundle.contents import NAMES, Contents
from airlock.bundle.extract import Extract, HiddenEntry
from airlock.inside import manifest
from airlock.inside.digests import canonical_json
from airlock.inside.manifest import Manifest
from airlock.ledger import Entry, Release, chain, commitments, quotes, totals
from airlock.ledger.accounts import Book, read_book
from airlock.privacy.filter import ROUNDING
from airlock.privacy.guarantees import Guarantee


@dataclass(frozen=True)
class Recomputed:
    """One release: what it says is proven, and what its events give at the same delta."""

    out: str
    mechanism: str
    stated: Guarantee
    epsilon: float


@dataclass(frozen=True)
class Total:
    """All that a population has spent up to the bundled head, of
    which the bundle's own releases are a part.
    """

    population: str
    scratch: bool
    epsilon: float
    delta: float
    cap: float | None
    releases: int


def totals_of(contents: Contents) -> list[Total]:
    """The whole of each population, from the bundled ledger."""
    found = []
    for scratch, extract in contents.extracts.items():
        book = read_book(extract.visible)
        for population in book.populations:
            spent = quotes.spent(book.account(population))
            found.append(
                Total(
                    population,
                    scratch,
                    spent.epsilon,
                    spent.delta,
                    spent.cap_epsilon,
                    spent.releases,
                )
            )
    return found


def ledger_problems(contents: Contents) -> Iterator[str]:
    """What is wrong with the books, one line each."""
    heads: dict[bool, list[tuple[int | None, str]]] = {}
    for receipt in contents.evidence.receipts:
        if not receipt.problem and (entry := receipt.body.get("ledger")):
            heads.setdefault(bool(entry["scratch"]), []).append((int(entry["sequence"]), str(entry["head"])))
    for scratch, signed in heads.items():
        if scratch not in contents.extracts:
            yield f"ledger/{NAMES[scratch]} is missing, and receipts are signed with its head"
            continue
        extract = contents.extracts[scratch]
        found = chain.problems(extract.entries) + chain.lost(extract.entries, signed) + chain.forks(signed)
        if not found and (extract.entries[-1].sequence, extract.entries[-1].hash) not in signed:
            found = [f"its last entry {extract.entries[-1].sequence} is the head in no signed receipt"]
        found = found or [
            *_misplaced(extract),
            *read_book(extract.visible).problems,
            *_overspent(extract.visible),
        ]
        yield from (f"ledger/{NAMES[scratch]}: {line}" for line in found)


def _misplaced(extract: Extract) -> Iterator[str]:
    """Hidden entries that are of a population which the bundle shows, or that do not say whose they are
    although they could.
    """
    yield from commitments.problems(extract.visible)
    salts, began = commitments.salts(extract.visible), False
    for entry in extract.entries:
        began = began or entry.commitment is not None
        if not isinstance(entry, HiddenEntry):
            continue
        if entry.commitment is None and began:
            yield f"entry {entry.sequence} is hidden and does not say whose it is, although earlier ones do"
        for population, salt in salts.items():
            if entry.commitment and commitments.is_of(salt, population, entry.sequence, entry.commitment):
                yield f"entry {entry.sequence} is hidden, and is of '{population}': its charges must be shown"


def _overspent(entries: list[Entry]) -> Iterator[str]:
    """Every reservation against the cap that was in force when it was made."""
    for place, entry in enumerate(entries, start=1):
        if entry.kind in ("reserve", "disclosure"):
            account = read_book(entries[:place]).account(entry.population)
            release = account.releases[-1]
            if release.charged:
                spent = quotes.Quote(account, ())
                if not spent.fits and account.cap:
                    yield (
                        f"entry {entry.sequence} takes '{entry.population}' to epsilon "
                        f"{spent.before:.6g}, cap {account.cap.epsilon:g}"
                    )
            elif not release.public or (release.event and math.isfinite(_price(release))):
                yield (
                    f"entry {entry.sequence} releases '{release.mechanism}' of '{entry.population}' "
                    "without charging it"
                )


def _price(release: Release) -> float:
    from airlock.privacy.accounting import epsilon
    from airlock.privacy.events import from_json

    return epsilon(from_json(dict(release.event or {})), totals.DELTA)


def recompute(contents: Contents) -> list[Recomputed]:
    """The epsilon of every release from its events; where there are none, infinite, or 0 if no record of the
    population was read.
    """
    return [
        Recomputed(out, made.mechanism, made.proven, _epsilon(made))
        for out, made in contents.releases.items()
    ]


def _epsilon(made: Manifest) -> float:
    from airlock.privacy.accounting import epsilon
    from airlock.privacy.events import from_json

    stated = made.proven
    if not stated.event:
        return 0.0 if made.passes == 0 else math.inf
    return epsilon(from_json(dict(stated.event)), stated.delta, neighbours=stated.neighbours)


def guarantee_problems(contents: Contents) -> Iterator[str]:
    """Releases whose epsilon does not follow, or that the ledger does not know as they are."""
    book = Book()
    for extract in contents.extracts.values():
        book.releases |= read_book(extract.visible).releases
    for found in recompute(contents):
        # A figure above what follows is a promise that is kept all the more; one below it is not.
        if found.epsilon > found.stated.epsilon * (1 + ROUNDING):
            events = "it names no event" if math.isinf(found.epsilon) else f"which give {found.epsilon:.6g}"
            yield f"{found.out}: epsilon {found.stated.epsilon:.6g} does not follow from its events: {events}"
        yield from _booking_problems(
            found.out, contents, book.releases.get(contents.releases[found.out].release_id)
        )


def _booking_problems(out: str, contents: Contents, booked: Release | None) -> Iterator[str]:
    made = contents.releases[out]
    if booked is None:
        yield f"{out}: the ledger does not know this release"
        return
    if booked.manifest != manifest.digest(contents.root / out):
        yield f"{out}: the ledger committed other bytes under this release's id"
    if _terms(made, charged=booked.event is not None) != canonical_json(
        [booked.mechanism, booked.event, booked.unit, booked.neighbours, booked.passes]
    ):
        yield f"{out}: the ledger was charged for something else than what release.json says"
    if booked.event is None and not booked.public:
        yield f"{out}: it was released without a charge, and its records are not public"


def _terms(made: Manifest, *, charged: bool) -> bytes:
    event = json.loads(canonical_json(made.proven.event)) if charged else None
    return canonical_json([made.mechanism, event, made.unit, made.neighbours, made.passes])
