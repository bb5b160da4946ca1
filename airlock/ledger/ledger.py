"""The ledger: what every release has cost, and whether another one may be made.

Spending is reserve -> release -> commit. The reservation comes before any record is read and is never taken
back.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import Connection

from airlock.errors import BudgetRefused, InputError, LedgerError, LedgerMoved, ReleaseError
from airlock.ledger import accounts, chain, commitments, refusals, tables, totals
from airlock.ledger.accounts import Book, Cap, Release, read_book
from airlock.ledger.chain import Entry, Head
from airlock.ledger.commitments import link_of
from airlock.ledger.store import Row, Store
from airlock.ledger.totals import Quote, Spent
from airlock.ledger.verified import Verified

# How often a reservation is priced again because another one came between, before it is priced under the
# lock.
TRIES = 20
Status = Literal["new", "taken-over", "committed"]


@dataclass(frozen=True)
class Reservation:
    """The right to make one release.

    Attributes:
        status: "new" (charged now), "taken-over" (charged by an earlier run that did not commit) or
            "committed" (replay it).
        manifest: SHA-256 of the committed release.json, None before.
        charged: it counts in the population's total.
    """

    release_id: str
    status: Status
    manifest: str | None = None
    charged: bool = True


class Ledger:
    """An append-only, hash-chained book of events. State is derived from its entries at every question."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._verified = Verified()

    @classmethod
    def open(cls, url: str, *, create: bool, scratch: bool = False) -> Ledger:
        """Open a ledger, bringing its tables to the newest revision.

        Args:
            url: an SQLite or PostgreSQL database.
            create: start a new one if there is none; only `airlock add` and `airlock data fetch` do, for a
                project's first data.
            scratch: a new ledger takes public data only.

        Raises:
            LedgerError: if it is missing, written by a newer Airlock, or cannot be reached.
        """
        store = Store(url)
        if not store.exists():
            if not create:
                raise LedgerError(refusals.missing(str(store)))
            store.touch()
        with store.reading() as connection:
            current = store.revision(connection) == tables.REVISION
        if not current:
            _bring_up(store, create=create, scratch=scratch)
        return cls(store)

    def __str__(self) -> str:
        return str(self._store)

    @property
    def scratch(self) -> bool:
        """Whether it takes public data only."""
        return self._look().scratch

    def set_cap(
        self,
        population: str,
        epsilon: float,
        delta: float,
        *,
        who: str,
        why: str,
        pure: float | None = None,
        slack: float | None = None,
        odometer: bool = False,
    ) -> None:
        """Set what a population may spend; earlier caps stay in the history.

        Args:
            population: whose budget.
            epsilon, delta: the cap.
            who, why: kept in the ledger.
            pure: the part of epsilon for pure charges (Laplace noise); the first release decides where
                neither part is named.
            slack: the part of delta for what is not Gaussian (sampled steps).
            odometer: raise a cap although results were seen, knowing that nothing is then promised about the
                whole.

        Raises:
            InputError: if the cap is impossible, or nobody or no reason is named.
            BudgetRefused: if it is raised after results were seen, and `odometer` was not said.
        """
        if not (0 <= epsilon < math.inf and 0 < delta < 1):
            raise InputError(
                f"a cap needs a finite epsilon of at least 0 and a delta between 0 and 1, got {epsilon:g} "
                f"and {delta:g}"
            )
        if not (0 <= (pure or 0) <= epsilon and 0 <= (slack or 0) <= delta / 2):
            raise InputError(
                "a cap needs --pure between 0 and its epsilon, and --slack between 0 and half its delta, "
                f"got {pure} and {slack}"
            )
        if not (population.strip() and who.strip() and why.strip()):
            raise InputError(
                "a cap needs a population, a name (--who) and a reason (--why), which are kept in the ledger"
            )
        cap = Cap(float(epsilon), float(delta), who, why, _now(), pure=pure, slack=slack)
        with self._writing() as (connection, known):
            account = known.book.account(population)
            if totals.passes_promise(account, cap):
                if not odometer:
                    raise BudgetRefused(refusals.raising(population, totals.promise(account) or cap))
                cap = replace(cap, odometer=True)
            self._append(connection, known, "cap", population, cap.terms())

    def cap(self, population: str) -> Cap | None:
        """The cap in force."""
        return self._look().book.account(population).cap

    def populations(self) -> list[str]:
        """Every population that has a cap or a release."""
        return self._look().book.populations

    def reserve(
        self,
        population: str,
        *,
        release_id: str,
        mechanism: str,
        event: Mapping[str, Any] | None,
        neighbours: str,
        unit: str,
        passes: int,
        public: bool,
        horizon: Mapping[str, Any] | None = None,
    ) -> Reservation:
        """Charge a release before any record is read, in one transaction that no other process shares.

        Args:
            population: whose budget pays.
            release_id: hash of everything that shapes the release.
            mechanism: its name, for the history.
            event: the DpEvent as JSON (airlock/privacy/events.py); None where nothing is proven.
            neighbours, unit: the relation that the event's multipliers are about.
            passes: how often records will be read; a release of no passes and no event is free.
            public: the owner declared the data public, so that nothing need be proven.
            horizon: of a night that is paid together with others, see `Release`; the first night is charged.

        Raises:
            BudgetRefused: if it does not fit; the message holds the arithmetic and nothing was written.
            ReleaseError: if this id was reserved on other terms.
        """
        asked = _with_charge(
            Release(
                release_id,
                population,
                mechanism,
                event or None,
                unit,
                neighbours,
                passes,
                public,
                horizon=horizon,
            )
        )
        for patience in reversed(range(TRIES)):
            # Priced before the lock is taken: sums of loss distributions take seconds, which other writers
            # need not wait for.
            before = self._look()
            head, quote = before.last.hash, Quote(before.book.account(population), (asked,))
            fits = release_id in before.book.releases or not asked.charged or quote.fits
            with self._store.writing() as connection:
                now = self._newest(connection)
                if known := now.book.releases.get(release_id):
                    return self._resume(connection, now, known, asked)
                if now.last.hash != head:
                    if patience and now.book.account(population) != quote.account:
                        continue  # somebody else was faster: price again, outside
                    quote = Quote(now.book.account(population), (asked,))
                    fits = not asked.charged or quote.fits
                refusals.check_terms(asked, quote.account, scratch=now.scratch)
                if fits:
                    kind = "night" if asked.later_night else "reserve" if asked.charged else "disclosure"
                    self._write(connection, now, kind, asked, _reserved_terms(asked, quote))
                    return Reservation(release_id, "new", charged=asked.charged)
            break
        # Out of the transaction: the message takes further sums, and nobody should wait for them.
        raise BudgetRefused(refusals.beyond_cap(quote))

    def commit(self, release_id: str, manifest_sha256: str) -> None:
        """Say that a reserved release was made, with which bytes. Saying it again changes nothing.

        Raises:
            LedgerError: if it was never reserved.
            ReleaseError: if it was committed with other bytes; nothing is written.
        """
        with self._writing() as (connection, now):
            known = now.book.releases.get(release_id)
            if known is None:
                raise LedgerError(
                    f"release {release_id[:12]} was never reserved: run it through `airlock run`"
                )
            if known.manifest not in (None, manifest_sha256):
                raise ReleaseError(refusals.other_bytes(known))
            if known.manifest is None:
                self._write(connection, now, "commit", known, {"manifest": manifest_sha256})

    def start(self, release_id: str) -> None:
        """Say that a reserved release's stage will now be let near records: from here on it cannot be given
        back.

        Raises:
            LedgerError: if it is not reserved (any more).
        """
        with self._writing() as (connection, now):
            known = now.book.releases.get(release_id)
            if known is None or known.lost:
                raise LedgerError(
                    f"release {release_id[:12]} is not reserved any more: "
                    "run `dvc repro` again, which reserves it"
                )
            if known.started is False:
                self._write(connection, now, "start", known, {})

    def give_up(self, release_id: str, *, who: str, why: str) -> None:
        """Book a reservation as lost: it stays spent, and is not made any more.

        Raises:
            InputError: if it is not an open reservation.
        """
        with self._writing() as (connection, now):
            known = _open_reservation(now.book, release_id)
            self._write(connection, now, "lost", known, {"who": who, "why": why})

    def give_back(self, release_id: str, *, who: str, why: str) -> None:
        """Undo a reservation whose stage provably never started: the chain has no `start` after it.

        Raises:
            InputError: if it is not an open reservation.
            BudgetRefused: if its stage started, or nobody wrote down whether it did.
        """
        with self._writing() as (connection, now):
            known = _open_reservation(now.book, release_id)
            if known.started is not False:
                raise BudgetRefused(
                    f"release {release_id[:12]} cannot be given back: "
                    f"{'its stage started' if known.started else 'whether its stage started is not known'}, "
                    "and may have read records; make it again with `dvc "
                    "repro`, or book it as lost with --lost"
                )
            self._write(connection, now, "return", known, {"who": who, "why": why})

    def retire(self, population: str, *, who: str, why: str) -> None:
        """Let a population release nothing more, for ever; what is committed is still replayed."""
        if not (who.strip() and why.strip()):
            raise InputError("to retire a population say who decided it and why: --who, --why")
        with self._writing() as (connection, known):
            if population not in known.book.populations:
                raise InputError(f"no population '{population}' in this ledger: see `airlock budget show`")
            details = {"who": who, "why": why, "at": _now()}
            self._append(connection, known, "retire", population, details)

    def recover(
        self, found: Mapping[str, tuple[Release, str]], heads: Iterable[Head], *, who: str, why: str
    ) -> list[str]:
        """Charge again what an older ledger put back has forgotten, whatever the caps say, and accept that
        its heads are gone. What it has reserved, and others know as published, is committed.

        Args:
            found: releases by id, each with the SHA-256 of its release.json.
            heads: signed heads that are not in the chain.

        Returns:
            The ids that were charged.
        """
        charged, committed = list[str](), list[str]()
        with self._writing() as (connection, known):
            for release_id, (release, manifest) in sorted(found.items(), key=_night_by_night):
                reserved = known.book.releases.get(release_id)
                if reserved is not None:
                    if reserved.manifest is None and not reserved.lost:
                        told = {"manifest": manifest, "recovered": True}
                        self._write(connection, known, "commit", reserved, told)
                        known = self._newest(connection)
                        committed.append(release_id)
                    continue
                priced = _with_charge(release)
                if release.later_night and accounts.night_problem(
                    release, known.book.account(release.population)
                ):
                    # Its first night is not here, or this one comes too late for its place: it is charged by itself.
                    release = replace(release, horizon=None)
                    priced = _with_charge(release)
                kind = "night" if release.later_night else "reserve" if priced.charged else "disclosure"
                terms = {**release.terms(), "recovered": True}
                self._write(connection, known, kind, release, terms)
                known = self._newest(connection)
                self._write(connection, known, "commit", release, {"manifest": manifest})
                known = self._newest(connection)
                charged.append(release_id)
            there = {entry.hash for entry in known.entries} | chain.accepted_heads(known.entries)
            gone = sorted({head for head in heads if head[1] not in there}, key=str)
            if gone or charged or committed:
                details = {
                    "heads": gone,
                    "releases": [*charged, *committed],
                    "who": who,
                    "why": why,
                    "at": _now(),
                }
                self._store.append(connection, chain.link(known.last, "recover", details=details))
        return charged

    def move_to(self, url: str) -> int:
        """Copy every entry, as it is, into an empty database of either kind. From then on the copy is the
        ledger, and this one answers nothing but where it went.

        An SQLite file that this ledger was moved away from before is put aside for it; a copy that an earlier move
        left behind when it was killed is completed.

        Returns:
            How many entries there are.

        Raises:
            InputError: if there is a ledger already.
        """
        target = Store(url)
        self._make_place(target)
        target.touch()
        with self._writing() as (connection, known), target.writing() as other:
            there = target.rows(other) if target.revision(other) is not None else []
            if there != known.rows[: len(there)]:
                raise InputError(f"{target} holds a ledger already: name an empty database")
            target.upgrade(other)
            for entry in known.entries[len(there) :]:
                target.append(other, entry)
            if target.rows(other) != known.rows:
                raise LedgerError(f"the copy in {target} is not the ledger: nothing was kept")
            # Written last: the copy is complete when this one stops.
            details = {"to": str(target), "at": _now()}
            self._store.append(connection, chain.link(known.last, "moved", details=details))
        return len(known.entries)

    def _make_place(self, target: Store) -> None:
        if target.kind != "sqlite" or not target.exists():
            return
        path = Path(str(target.url.database))
        if self._store.kind == "sqlite" and path.samefile(str(self._store.url.database)):
            raise InputError(f"{target} is where the ledger is kept: name another database")
        if not path.stat().st_size:
            return  # an earlier move died here
        with target.reading() as connection:
            there = target.entries(connection) if target.revision(connection) else []
        mine = self._look().entries
        if there and there == mine[: len(there)]:
            return  # an earlier move died after the copy was written
        if not there or there[-1].kind != "moved" or there[:-1] != mine[: len(there) - 1]:
            raise InputError(f"{target} exists already: name a new file")
        path.rename(path.with_name(f"{path.name}.moved-{there[-1].sequence}"))

    def snapshot(self, populations: Iterable[str] | None = None) -> tuple[dict[str, Any], list[Spent]]:
        """The head, and what populations have spent, all from one state of the ledger."""
        known = self._look()
        everyone = known.book.accounts()
        wanted = everyone if populations is None else populations
        found = [totals.spent(everyone.get(name) or known.book.account(name)) for name in wanted]
        return self._receipt(known), found

    def quote(self, population: str, releases: Iterable[Release]) -> Quote:
        """Price further releases without reserving them; those that are known already cost nothing and are
        left out.
        """
        book = self._look().book
        fresh = (_with_charge(release) for release in releases if release.release_id not in book.releases)
        return Quote(book.account(population), tuple(fresh))

    def objection(self, quote: Quote) -> str | None:
        """Why `reserve` would refuse what was quoted, or None if it would not."""
        return refusals.objection(quote, scratch=self.scratch)

    def spent(self, population: str) -> Spent:
        """The total of everything reserved or committed, and what is left."""
        return totals.spent(self._look().book.account(population))

    def nights(self, population: str, horizon: str) -> list[Release]:
        """The releases of one horizon, in order."""
        return self._look().book.account(population).nights(horizon)

    def release(self, release_id: str) -> Release | None:
        """A release as the ledger knows it."""
        return self._look().book.releases.get(release_id)

    def history(self, population: str | None = None) -> list[Entry]:
        """All entries, or those of one population."""
        return [entry for entry in self._look().entries if population in (None, entry.population)]

    def head(self) -> str:
        """Hash of the last entry, which holds all before it."""
        return self._look().last.hash

    def receipt(self) -> dict[str, Any]:
        """What a signed receipt keeps of the ledger, so that cutting or rewriting it later is found."""
        return self._receipt(self._look())

    def _receipt(self, known: Verified) -> dict[str, Any]:
        return {
            "url_kind": self._store.kind,
            "scratch": known.scratch,
            "sequence": known.last.sequence,
            "head": known.last.hash,
        }

    def verify(self, heads: Iterable[str | Head] = ()) -> list[str]:
        """Everything that is wrong, one line each.

        Args:
            heads: hashes, or (sequence, hash), from signed receipts: they find a cut tail and a rewritten
                ledger.
        """
        heads = list(heads)
        try:
            known = self._look()
        except LedgerError:
            with self._store.reading() as connection:
                entries = self._store.entries(connection)
            found = chain.problems(entries) or self._book_problems(entries)
            return found + chain.lost(entries, heads)
        return commitments.problems(known.entries) + chain.lost(known.entries, heads)

    def _book_problems(self, entries: Sequence[Entry]) -> list[str]:
        book = read_book(entries)
        gone = [] if book.moved is None else [refusals.moved(str(self), book.moved)]
        return book.problems or gone

    def _resume(self, connection: Connection, now: Verified, known: Release, asked: Release) -> Reservation:
        if not known.same_terms(asked):
            raise ReleaseError(refusals.other_terms(known))
        if known.committed:
            return Reservation(known.release_id, "committed", known.manifest, known.charged)
        if known.lost:
            raise BudgetRefused(refusals.given_up(known))
        self._write(connection, now, "take-over", known, {})
        return Reservation(known.release_id, "taken-over", charged=known.charged)

    def _write(
        self, connection: Connection, now: Verified, kind: str, release: Release, details: Mapping[str, Any]
    ) -> None:
        terms = {**details, "at": _now()}
        self._append(connection, now, kind, release.population, terms, release_id=release.release_id)

    def _append(
        self,
        connection: Connection,
        now: Verified,
        kind: str,
        population: str,
        details: Mapping[str, Any],
        *,
        release_id: str = "",
    ) -> None:
        entry = link_of(
            now.last,
            kind,
            population=population,
            salt=now.salts.get(population),
            release_id=release_id,
            details=details,
        )
        self._store.append(connection, entry)

    @contextmanager
    def _writing(self) -> Iterator[tuple[Connection, Verified]]:
        """A transaction that no other writer shares, and the ledger as it stands in it.

        All rows are compared before the lock is taken and only the newest under it, so that nobody waits for
        the length of the history.
        """
        self._look()
        with self._store.writing() as connection:
            yield connection, self._newest(connection)

    def _look(self) -> Verified:
        """The ledger as it stands, every row of it compared with what was verified.

        Nothing is answered, let alone spent, from a ledger that was changed.
        """
        with self._store.reading() as connection:
            rows = self._store.rows(connection)
        return self._compared(rows)

    def _newest(self, connection: Connection) -> Verified:
        """What was verified, and what came since."""
        if self._verified.rows:
            rows = self._store.rows(connection, self._verified.last.sequence)
            if self._verified.follows(rows):
                return self._grown(rows[1:])
        return self._compared(self._store.rows(connection))

    def _compared(self, rows: Sequence[Row]) -> Verified:
        if not self._verified.begins(rows):
            self._verified = Verified()
        return self._grown(rows[len(self._verified.rows) :])

    def _grown(self, rows: Sequence[Row]) -> Verified:
        found, known = self._verified.grow(rows), self._verified
        if found:
            self._verified = Verified()
            raise LedgerError(
                f"the ledger {self} was changed: {found[0]}; run `airlock budget verify` and restore a backup"
            )
        if known.book.moved is not None:
            raise LedgerMoved(refusals.moved(str(self), known.book.moved))
        return known


def _bring_up(store: Store, *, create: bool, scratch: bool) -> None:
    with store.writing() as connection:
        fresh = store.revision(connection) is None
        if fresh and not create:
            raise LedgerError(refusals.missing(str(store)))
        store.upgrade(connection)
        if fresh:
            # A random name makes every ledger's chain its own: a new one can never pass for an old one.
            details = {"ledger": uuid.uuid4().hex, "scratch": scratch, "at": _now()}
            store.append(connection, chain.link(None, "open", details=details))


def _open_reservation(book: Book, release_id: str) -> Release:
    """A reservation by its id, or the beginning of it.

    Raises:
        InputError: if there is none, or more than one, or it is not open.
    """
    found = [release for each, release in book.releases.items() if release_id and each.startswith(release_id)]
    if len(found) != 1 or found[0].committed or found[0].lost:
        raise InputError(f"'{release_id[:12]}' is not an open reservation: `airlock budget show` lists them")
    return found[0]


def _reserved_terms(asked: Release, quote: Quote) -> dict[str, Any]:
    """What is written of a reservation; the charge of what is not Gaussian is fixed now, for later software
    may find a smaller one.
    """
    terms = {**asked.terms(), "started": False}
    if asked.charged and quote.box and totals.kind(asked) != "gaussian":
        found = totals.charge_of(asked, quote.box)
        assert found is not None
        terms["charge"] = found.to_json()
    return terms


def _night_by_night(item: tuple[str, tuple[Release, str]]) -> tuple[int, str]:
    release_id, (release, _) = item
    return int(release.horizon["night"]) if release.horizon else 0, release_id


def _with_charge(asked: Release) -> Release:
    """Decide whether a release counts: it has an event, the event has a finite price, and no other release was
    charged for it.
    """
    if asked.event is None or asked.later_night:
        return replace(asked, charged=False)
    try:
        return replace(asked, charged=math.isfinite(totals.total([asked], totals.DELTA)))
    except ValueError as error:
        raise ReleaseError(f"release {asked.release_id[:12]} cannot be priced: {error}") from None


def _now() -> str:
    """To the minute, like receipts: entries are published in bundles, and how long a stage read records is
    not.
    """
    return datetime.now(UTC).isoformat(timespec="minutes")
