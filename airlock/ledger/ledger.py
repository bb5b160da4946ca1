"""The ledger: what every release has cost, and whether another one may be made.

Spending is reserve -> release -> commit. The reservation comes before any record is read and is never taken
back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from sqlalchemy import Connection

from airlock.errors import BudgetRefused, InputError, LedgerError, ReleaseError
from airlock.ledger import refusals, totals
from airlock.ledger.accounts import Book, Cap, Release
from airlock.ledger.answers import Answers
from airlock.ledger.entries import this_minute
from airlock.ledger.quotes import Quote
from airlock.ledger.totals import with_charge
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


class Ledger(Answers):
    """A ledger that is written to: caps, reservations and what became of them."""

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
        cap = Cap(float(epsilon), float(delta), who, why, this_minute(), pure=pure, slack=slack)
        with self.writing() as (connection, known):
            account = known.book.account(population)
            if totals.passes_promise(account, cap):
                if not odometer:
                    raise BudgetRefused(refusals.raising(population, totals.promise(account) or cap))
                cap = replace(cap, odometer=True)
            self.append(connection, known, "cap", population, cap.terms())

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
        asked = with_charge(
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
            before = self.look()
            head, quote = before.last.hash, Quote(before.book.account(population), (asked,))
            fits = release_id in before.book.releases or not asked.charged or quote.fits
            with self.store.writing() as connection:
                now = self.newest(connection)
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
                    self.write(connection, now, kind, asked, _reserved_terms(asked, quote))
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
        with self.writing() as (connection, now):
            known = now.book.releases.get(release_id)
            if known is None:
                raise LedgerError(
                    f"release {release_id[:12]} was never reserved: run it through `airlock run`"
                )
            if known.manifest not in (None, manifest_sha256):
                raise ReleaseError(refusals.other_bytes(known))
            if known.manifest is None:
                self.write(connection, now, "commit", known, {"manifest": manifest_sha256})

    def start(self, release_id: str) -> None:
        """Say that a reserved release's stage will now be let near records: from here on it cannot be given
        back.

        Raises:
            LedgerError: if it is not reserved (any more).
        """
        with self.writing() as (connection, now):
            known = now.book.releases.get(release_id)
            if known is None or known.lost:
                raise LedgerError(
                    f"release {release_id[:12]} is not reserved any more: "
                    "run `dvc repro` again, which reserves it"
                )
            if known.started is False:
                self.write(connection, now, "start", known, {})

    def give_up(self, release_id: str, *, who: str, why: str) -> None:
        """Book a reservation as lost: it stays spent, and is not made any more.

        Raises:
            InputError: if it is not an open reservation.
        """
        with self.writing() as (connection, now):
            known = _open_reservation(now.book, release_id)
            self.write(connection, now, "lost", known, {"who": who, "why": why})

    def give_back(self, release_id: str, *, who: str, why: str) -> None:
        """Undo a reservation whose stage provably never started: the chain has no `start` after it.

        Raises:
            InputError: if it is not an open reservation.
            BudgetRefused: if its stage started, or nobody wrote down whether it did.
        """
        with self.writing() as (connection, now):
            known = _open_reservation(now.book, release_id)
            if known.started is not False:
                raise BudgetRefused(
                    f"release {release_id[:12]} cannot be given back: "
                    f"{'its stage started' if known.started else 'whether its stage started is not known'}, "
                    "and may have read records; make it again with `dvc "
                    "repro`, or book it as lost with --lost"
                )
            self.write(connection, now, "return", known, {"who": who, "why": why})

    def retire(self, population: str, *, who: str, why: str) -> None:
        """Let a population release nothing more, for ever; what is committed is still replayed."""
        if not (who.strip() and why.strip()):
            raise InputError("to retire a population say who decided it and why: --who, --why")
        with self.writing() as (connection, known):
            if population not in known.book.populations:
                raise InputError(f"no population '{population}' in this ledger: see `airlock budget show`")
            details = {"who": who, "why": why, "at": this_minute()}
            self.append(connection, known, "retire", population, details)

    def _resume(self, connection: Connection, now: Verified, known: Release, asked: Release) -> Reservation:
        if not known.same_terms(asked):
            raise ReleaseError(refusals.other_terms(known))
        if known.committed:
            return Reservation(known.release_id, "committed", known.manifest, known.charged)
        if known.lost:
            raise BudgetRefused(refusals.given_up(known))
        self.write(connection, now, "take-over", known, {})
        return Reservation(known.release_id, "taken-over", charged=known.charged)


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
