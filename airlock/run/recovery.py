"""`airlock budget recover`: what archive, receipts and released folders know and the ledgers have forgotten."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from airlock.errors import AirlockError, LedgerError
from airlock.inside import manifest
from airlock.ledger import Release
from airlock.ledger.accounts import TERMS
from airlock.ledger.forgotten import charge_again
from airlock.owner.home import Project
from airlock.run import archive, reconcile, witness
from airlock.run.reconcile import Books, Witnesses


def recover(
    project: Project, workspace: Path, *, who: str, why: str, population: str | None = None
) -> tuple[list[str], list[str]]:
    """Charge again what archive, receipts and released folders know and the ledgers have forgotten, and accept
    that heads are gone. Bytes that are at hand go back into the archive.

    A release that the ledger has only reserved, and that was published all the same, is committed with the
    bytes that are out: made again, with keys that were put back too, it could get other noise.

    Args:
        who, why: kept in the ledger.
        population: whose the releases are that only a receipt remembers.

    Returns:
        The ids that were charged, and those of which too little is known to charge them; then no head is
        accepted.
    """
    archived = reconcile.archived_releases(project)
    books, charged = reconcile.open_books(project), list[str]()
    seen = reconcile.gather(project, workspace, books, archived)
    found, unclear = _forgotten(project, workspace, seen, books, population)
    # Bytes first: a recovery that is killed is then run again, and knows them.
    for folder in _published(workspace):
        one = manifest.load(folder).release_id
        known = one in found and found[one][1] == manifest.digest(folder)
        if known and not archive.holds(project.archive, one):
            archive.store(project.archive, one, folder)
    for scratch in reconcile.LABELS:
        mine = {
            one: (release, digest) for one, (release, digest) in found.items() if release.public == scratch
        }
        if mine or seen.heads[scratch]:
            ledger = reconcile.open_ledger(project, public=scratch)
            charged += charge_again(ledger, mine, [] if unclear else seen.heads[scratch], who=who, why=why)
            if not unclear:
                witness.note(project, ledger)
    return charged, unclear


def _forgotten(
    project: Project, workspace: Path, seen: Witnesses, books: Books, population: str | None
) -> tuple[dict[str, tuple[Release, str]], list[str]]:
    """Releases of which no ledger knows the bytes, each with the digest under which it was published; and those
    that no ledger has reserved either, and of which too little is known.
    """
    public, known = _public_populations(project), books.settled
    found: dict[str, tuple[Release, str]] = {}
    for one in seen.archived:
        if one not in known:
            found[one] = _from_folder(project.archive / one, public)
    for folder in _published(workspace):
        one = manifest.load(folder).release_id
        if one not in known and one not in found:
            found[one] = _from_folder(folder, public)
    unclear = []
    for receipt in seen.receipts:
        for stated in receipt.body.get("releases", []):
            one = str(stated["id"])
            if one in known or one in found:
                continue
            folder = workspace / str(stated["out"])
            if (folder / manifest.NAME).is_file() and manifest.digest(folder) == stated["manifest"]:
                found[one] = _from_folder(folder, public)
            elif population is not None or one in books.reserved:
                scratch = bool((receipt.body.get("ledger") or {}).get("scratch"))
                found[one] = (
                    _release(
                        one,
                        population or "",
                        stated["mechanism"],
                        stated["proven"],
                        stated["passes"],
                        scratch,
                    ),
                    str(stated["manifest"]),
                )
            else:
                unclear.append(one)
    for one, (release, digest) in _witnessed(seen, population).items():
        if one in known or one in found:
            continue
        if population is not None or one in books.reserved:
            found[one] = (release, digest)
        else:
            unclear.append(one)
    told = {one: digest for one, (_, digest) in _witnessed(seen, population).items()} | {
        str(stated["id"]): str(stated["manifest"])
        for receipt in seen.receipts
        for stated in receipt.body.get("releases", [])
    }
    # What a receipt says was published goes before what lies in an archive that may have been put back.
    found = {one: (release, told.get(one, digest)) for one, (release, digest) in found.items()}
    return found, sorted(set(unclear))


def _witnessed(seen: Witnesses, population: str | None) -> dict[str, tuple[Release, str]]:
    """What a witness elsewhere says was about to be published, with the digests.

    Raises:
        LedgerError: a line was edited.
    """
    try:
        return {
            str(made["id"]): (
                Release(
                    str(made["id"]),
                    population or "",
                    **{name: made[name] for name in TERMS},
                    horizon=made.get("horizon"),
                ),
                str(made["manifest"]),
            )
            for made in seen.made
        }
    except (KeyError, TypeError):
        raise LedgerError(
            "AIRLOCK_WITNESS has a line that is no release: it was edited; restore it"
        ) from None


def _published(workspace: Path) -> Iterator[Path]:
    """Whole releases in the workspace: a run that was killed may have left one there without a receipt."""
    for folder in sorted((workspace / "data/released").glob("*/")):
        with suppress(AirlockError, OSError, ValueError, KeyError, TypeError):
            if manifest.load(folder).applies:
                yield folder


def _from_folder(folder: Path, public: Mapping[str, bool]) -> tuple[Release, str]:
    document = json.loads((folder / manifest.NAME).read_text())
    name = str(document["population"])
    release = _release(
        str(document["release_id"]),
        name,
        document["mechanism"],
        document["proven"],
        document["passes"],
        public.get(name, False),
    )
    if horizon := document["details"].get("horizon"):
        release = replace(release, horizon={key: horizon[key] for key in ("id", "night", "nights")})
    return release, manifest.digest(folder)


def _release(
    release_id: str, population: str, mechanism: str, proven: Mapping[str, Any], passes: int, public: bool
) -> Release:
    event = None if proven["epsilon"] == "infinity" else proven.get("event")
    return Release(
        release_id, population, mechanism, event or None, proven["unit"], proven["neighbours"], passes, public
    )


def _public_populations(project: Project) -> dict[str, bool]:
    from airlock.owner.registry import load_registry

    return {name: bool(entry["public"]) for name, entry in load_registry(project).populations.items()}
