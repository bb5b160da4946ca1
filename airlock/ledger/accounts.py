"""What the entries mean: caps and releases of each population, read from the rows and never stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

from airlock.inside.digests import canonical_json
from airlock.ledger.chain import Entry

TERMS = ("mechanism", "event", "unit", "neighbours", "passes", "public")


@dataclass(frozen=True)
class Cap:
    """The most that a population may spend, and who said so.

    Attributes:
        pure, slack: the split that makes it a filter (docs/proofs/filter.md); None where the first release
            decides.
        odometer: the owner raised it although results had been seen, and was told what that means.
        seen: whether anything had been charged when it was set; read from the entries, never written.
    """

    epsilon: float
    delta: float
    who: str
    why: str
    at: str
    pure: float | None = None
    slack: float | None = None
    odometer: bool = False
    seen: bool = False

    def terms(self) -> dict[str, Any]:
        """What is written into its entry."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.name != "seen"}


@dataclass(frozen=True)
class Release:
    """One release as the ledger knows it.

    Attributes:
        charged: it counts in the total; false for disclosures of public data.
        event: the DpEvent as JSON, None where nothing is proven or nothing is read.
        at: when it was reserved.
        manifest: SHA-256 of release.json once committed. Until then its process crashed or is still running,
            and it stays spent.
        taken_over: how often it was run again after it was reserved.
        charge: what it takes of the box's three sums, fixed when it was reserved; None where the event alone
            tells (Gaussians), or where nobody wrote it down yet (ledgers of an older Airlock).
        started: whether its stage was let near records; None where an older Airlock did not write that down.
        lost: the owner gave up on it: it stays spent, and is not made any more.
        horizon: where it is one of many nights that were paid together (docs/nights.md): `id` of the first
            night's release, which is charged for all, which `night` this is, and of how many `nights`.
    """

    release_id: str
    population: str
    mechanism: str
    event: Mapping[str, Any] | None
    unit: str
    neighbours: str
    passes: int
    public: bool
    charged: bool = True
    at: str = ""
    manifest: str | None = None
    taken_over: int = 0
    charge: Mapping[str, float] | None = None
    started: bool | None = None
    lost: bool = False
    horizon: Mapping[str, Any] | None = None

    @property
    def later_night(self) -> bool:
        """Whether another release is charged for it."""
        return self.horizon is not None and self.horizon["id"] != self.release_id

    @property
    def committed(self) -> bool:
        """Its bytes are in the archive and it will be replayed."""
        return self.manifest is not None

    @property
    def relation(self) -> tuple[str, str]:
        """What a neighbour is: unit and neighbour relation."""
        return self.unit, self.neighbours

    def terms(self) -> dict[str, Any]:
        """What is written into the entry that reserves it."""
        horizon = {"horizon": dict(self.horizon)} if self.horizon else {}
        return {name: getattr(self, name) for name in TERMS} | horizon

    def same_terms(self, other: Release) -> bool:
        """Whether both are the same release at the same price."""
        return self.population == other.population and canonical_json(self.terms()) == canonical_json(
            other.terms()
        )


@dataclass(frozen=True)
class Account:
    """One population: its caps and its releases in order; `retired` says why it releases nothing more.

    Attributes:
        first: the release that came first, which may decide the split of a cap; also one that was given back
            since, if others were charged meanwhile: the split must not change after they were seen.
    """

    population: str
    caps: tuple[Cap, ...] = ()
    releases: tuple[Release, ...] = ()
    retired: str | None = None
    first: Release | None = None

    @property
    def cap(self) -> Cap | None:
        """The cap in force."""
        return self.caps[-1] if self.caps else None

    def nights(self, horizon: str) -> list[Release]:
        """The releases of one horizon, in order."""
        return [one for one in self.releases if one.horizon and one.horizon["id"] == horizon]

    @cached_property
    def charged(self) -> tuple[Release, ...]:
        """What counts: committed releases and reservations alike."""
        return tuple(release for release in self.releases if release.charged)


@dataclass
class Book:
    """All accounts, filled from the entries; `moved` says where the ledger is kept now, if not here."""

    caps: dict[str, tuple[Cap, ...]] = field(default_factory=dict)
    releases: dict[str, Release] = field(default_factory=dict)
    retired: dict[str, str] = field(default_factory=dict)
    firsts: dict[str, Release] = field(default_factory=dict)
    moved: str | None = None
    problems: list[str] = field(default_factory=list)

    @property
    def populations(self) -> list[str]:
        """Every population with a cap or a release."""
        return sorted({*self.caps, *(release.population for release in self.releases.values())})

    def account(self, population: str) -> Account:
        """The account of a population, empty if nothing is known about it."""
        mine = tuple(release for release in self.releases.values() if release.population == population)
        return self._account(population, mine)

    def accounts(self) -> dict[str, Account]:
        """Every account, read in one go."""
        mine: dict[str, list[Release]] = {population: [] for population in sorted(self.caps)}
        for release in self.releases.values():
            mine.setdefault(release.population, []).append(release)
        return {population: self._account(population, tuple(mine[population])) for population in sorted(mine)}

    def _account(self, population: str, releases: tuple[Release, ...]) -> Account:
        caps, retired = self.caps.get(population, ()), self.retired.get(population)
        return Account(population, caps, releases, retired, self.firsts.get(population))


def read_book(entries: Iterable[Entry]) -> Book:
    """Fold the entries, noting whatever makes no sense."""
    book = Book()
    add(book, entries)
    return book


def add(book: Book, entries: Iterable[Entry]) -> None:
    """Fold further entries into a book."""
    for entry in entries:
        if problem := _add(book, entry):
            book.problems.append(f"entry {entry.sequence} ({entry.kind}) {problem}")


def _add(book: Book, entry: Entry) -> str | None:
    known, details = book.releases.get(entry.release_id), entry.details
    if book.moved is not None:
        return f"was written after the ledger had been moved to {book.moved}"
    match entry.kind:
        case "open" | "recover":
            return None
        case "moved":
            book.moved = str(details["to"])
        case "retire":
            book.retired[entry.population] = details["why"]
        case "cap":
            seen = any(
                release.charged
                for release in book.releases.values()
                if release.population == entry.population
            )
            book.caps[entry.population] = (
                *book.caps.get(entry.population, ()),
                Cap(
                    **{name: details[name] for name in Cap.__dataclass_fields__ if name in details}
                    | {"seen": seen}
                ),
            )
        case "reserve" | "disclosure" | "night" if known is None:
            terms = {name: details[name] for name in TERMS}
            charged = entry.kind == "reserve"
            asked = Release(
                entry.release_id,
                entry.population,
                **terms,
                charged=charged,
                at=details["at"],
                charge=details.get("charge"),
                started=details.get("started"),
                horizon=details.get("horizon"),
            )
            if entry.kind == "night" and (problem := night_problem(asked, book.account(entry.population))):
                return problem
            book.releases[entry.release_id] = asked
            if charged:
                book.firsts.setdefault(entry.population, book.releases[entry.release_id])
        case "start" if known and not known.committed:
            book.releases[entry.release_id] = replace(known, started=True)
        case "lost" if known and not known.committed:
            book.releases[entry.release_id] = replace(known, lost=True)
        case "return" if known and not known.committed and known.started is False:
            del book.releases[entry.release_id]
            if not book.account(entry.population).charged:
                book.firsts.pop(entry.population, None)
        case "take-over" if known and not known.committed:
            book.releases[entry.release_id] = replace(known, taken_over=known.taken_over + 1)
        case "commit" if known and not known.committed:
            book.releases[entry.release_id] = replace(known, manifest=details["manifest"])
        case _:
            return f"does not belong here: release {entry.release_id[:12]} is {_state(known)}"
    return None


def night_problem(asked: Release, account: Account) -> str | None:
    """Why a night is not covered by what was paid with the first one; None if it is."""
    horizon = asked.horizon or {}
    nights = {release.release_id: release for release in account.nights(str(horizon.get("id")))}
    first = nights.get(str(horizon.get("id")))
    if first is None or first.lost or not first.charged:
        return "is of a horizon whose first night was not charged"
    other = [first.relation != asked.relation, first.mechanism != asked.mechanism]
    if any(other) or canonical_json(first.event) != canonical_json(asked.event):
        return "has another price than the first night of its horizon"
    assert first.horizon is not None
    number, last = (
        int(horizon["night"]),
        max(int(one.horizon["night"]) for one in nights.values() if one.horizon),
    )
    if horizon["nights"] != first.horizon["nights"] or not 1 < number <= int(first.horizon["nights"]):
        return "lies beyond its horizon"
    if number <= last:
        return f"comes after night {last}: a night has one release, and earlier ones are over"
    return None


def _state(release: Release | None) -> str:
    if release is None:
        return "not reserved"
    return "committed" if release.committed else "reserved"
