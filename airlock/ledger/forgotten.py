"""What an older ledger that was put back has forgotten, charged again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from airlock.ledger import accounts, chain
from airlock.ledger.accounts import Release
from airlock.ledger.chain import Head
from airlock.ledger.entries import Entries, this_minute
from airlock.ledger.totals import with_charge


def charge_again(
    ledger: Entries, found: Mapping[str, tuple[Release, str]], heads: Iterable[Head], *, who: str, why: str
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
    with ledger.writing() as (connection, known):
        for release_id, (release, manifest) in sorted(found.items(), key=_night_by_night):
            reserved = known.book.releases.get(release_id)
            if reserved is not None:
                if reserved.manifest is None and not reserved.lost:
                    told = {"manifest": manifest, "recovered": True}
                    ledger.write(connection, known, "commit", reserved, told)
                    known = ledger.newest(connection)
                    committed.append(release_id)
                continue
            priced = with_charge(release)
            if release.later_night and accounts.night_problem(
                release, known.book.account(release.population)
            ):
                # Its first night is not here, or this one comes too late for its place: it is charged by itledger.
                release = replace(release, horizon=None)
                priced = with_charge(release)
            kind = "night" if release.later_night else "reserve" if priced.charged else "disclosure"
            terms = {**release.terms(), "recovered": True}
            ledger.write(connection, known, kind, release, terms)
            known = ledger.newest(connection)
            ledger.write(connection, known, "commit", release, {"manifest": manifest})
            known = ledger.newest(connection)
            charged.append(release_id)
        there = {entry.hash for entry in known.entries} | chain.accepted_heads(known.entries)
        gone = sorted({head for head in heads if head[1] not in there}, key=str)
        if gone or charged or committed:
            details = {
                "heads": gone,
                "releases": [*charged, *committed],
                "who": who,
                "why": why,
                "at": this_minute(),
            }
            ledger.store.append(connection, chain.link(known.last, "recover", details=details))
    return charged


def _night_by_night(item: tuple[str, tuple[Release, str]]) -> tuple[int, str]:
    release_id, (release, _) = item
    return int(release.horizon["night"]) if release.horizon else 0, release_id
