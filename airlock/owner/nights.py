"""Populations that grow night by night: tonight's batch, and batches that are forgotten.

Every batch has its own handle, its own keyed fingerprint and, beside the project's keys, a random secret that
its sealed records need. Earlier batches are not read again. Destroying the secret makes every copy of the
sealed records unreadable, wherever it lies; what was released of them stays released.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from airlock.errors import InputError
from airlock.inside.sealed import META
from airlock.owner import keys, registry, seen
from airlock.owner.home import Project
from airlock.owner.keys import Keyring
from airlock.owner.registry import Registry, changing_registry, load_registry
from airlock.records import handles
from airlock.records.handles import FOLDER, SCHEMAS, Handle
from airlock.records.schema import Schema
from airlock.records.schema_file import load_schema
from airlock.records.tables import Table, open_table

MOST_PARTICIPATIONS = 1000


@dataclass(frozen=True)
class Growth:
    """How a population grows, as the owner says it with its first batch.

    Attributes:
        identity: the column that names a record; None: by all that the schema reads of it.
        participations: on how many nights one record may come; None: on one.
    """

    identity: str | None = None
    participations: int | None = None

    def __post_init__(self) -> None:
        if self.participations is not None and not 1 <= self.participations <= MOST_PARTICIPATIONS:
            raise InputError(f"--participations is a number from 1 to {MOST_PARTICIPATIONS}")


@dataclass(frozen=True)
class Tonight:
    """One batch, counted, in which ways, and how its records are known again; and the batches that an older Airlock
    counted, which did not say how.
    """

    batch: seen.Batch
    identity: str
    participations: int
    ways: Mapping[seen.Kind, str]
    first: seen.Batch | None = None
    older: tuple[str, ...] = ()


def of(
    project: Project, workspace: Path, table: Table, schema: Schema, handle: Handle, growth: Growth
) -> tuple[Handle, Tonight]:
    """The handle of tonight's batch, and what is counted of it.

    A file that is a batch already is that batch again; one without records is a new night.

    Raises:
        InputError: the owner says other things of the population than with its first batch.
    """
    entry = load_registry(project).populations.get(handle.population, {})
    known = handles.batches(workspace / FOLDER / handle.name)
    identity, participations = _settle(handle.name, entry if known else {}, growth, fresh=not known)
    same = [one for one in known if one.fingerprint == handle.fingerprint and handle.n]
    night = (same[0].night or 1) if same else len(known) + 1
    key = Keyring.load(project).row_key()
    handle = replace(handle, night=night, participations=participations if participations > 1 else None)
    first = None
    older = "identity" in entry and "counted" not in entry
    if night > 1 and not older and known[0].fingerprint not in entry.get("counted", {}):
        # The first batch was added before anybody said that more would come, or replaced since it was counted: its
        # records are counted once, now.
        path = registry.check(project, Keyring.load(project), known[0])
        before = open_table(path, header=schema.header)
        first = seen.look(before, schema, key, known[0].fingerprint, identity)
    batch = seen.look(table, schema, key, handle.fingerprint, identity)
    believed = tuple(one.fingerprint for one in known) if older else ()
    return handle, Tonight(batch, identity, participations, seen.ways(schema, identity), first, believed)


def _settle(name: str, entry: dict[str, object], growth: Growth, *, fresh: bool) -> tuple[str, int]:
    fixed = not fresh and ("identity" in entry)
    identity = str(entry["identity"]) if fixed else growth.identity or seen.ROW
    participations = int(str(entry.get("participations", 1))) if not fresh else growth.participations or 1
    if (growth.identity or identity) != identity or (
        growth.participations or participations
    ) != participations:
        raise InputError(
            f"how records of '{name}' are known again was fixed before ({_said(identity, participations)}): leave --id "
            "and --participations out, or use another name"
        )
    return identity, participations


def _said(identity: str, participations: int) -> str:
    by = "by their whole row" if identity == seen.ROW else f"by column '{identity}'"
    return f"{by}, on {participations} night{'s' if participations > 1 else ''} at most"


def check(
    project: Project, entries: Registry, handle: Handle, tonight: Tonight, schema: Schema, *, distinct: bool
) -> None:
    """Refuse a batch that another clone has added otherwise, and records or users that come too often.

    Args:
        distinct: rows that look like known ones are other people's; where a column names records, it decides.

    Raises:
        InputError: with how many records or users, and what to do.
    """
    found = entries.populations.get(handle.population, {}).get("nights", {}).get(str(handle.night), {})
    if found and found.get("fingerprint") != handle.fingerprint:
        raise InputError(
            f"night {handle.night} of '{handle.name}' was added from another clone: bring its handles here first "
            "(git pull)"
        )
    if found.get("forgotten"):
        raise InputError(f"night {handle.night} of '{handle.name}' was forgotten, and does not come back")
    if found.get("aside"):
        raise InputError(
            f"these very records are night {handle.night} of '{handle.name}', which was set aside as they break the "
            "schema: mend the file first"
        )
    batch = tonight.batch
    if distinct and tonight.identity == seen.ROW:
        batch = replace(batch, records={})
    seen.check(
        project,
        handle.population,
        batch,
        participations=tonight.participations,
        schema=schema,
        first=tonight.first,
        replaced=_replaced(entries, handle, tonight),
    )


def _replaced(entries: Registry, handle: Handle, tonight: Tonight) -> str:
    """The first batch that was counted, where another one is counted now in its place; or nothing."""
    nights = entries.populations.get(handle.population, {}).get("nights", {})
    known = str(nights.get("1", {}).get("fingerprint", ""))
    return known if tonight.first and known != tonight.first.fingerprint else ""


def enter(project: Project, entries: Registry, handle: Handle, tonight: Tonight, place: str) -> None:
    """Remember a batch, where it is, and its secret."""
    seen.enter(project, handle.population, tonight.batch)
    keys.make_batch_secret(project, handle.fingerprint)
    entry = entries.populations[handle.population]
    entry |= {"identity": tonight.identity, "participations": tonight.participations}
    counted = entry.setdefault("counted", {one: {} for one in tonight.older})
    if tonight.first and (replaced := _replaced(entries, handle, tonight)):
        seen.remove(project, handle.population, replaced)
        counted.pop(replaced, None)
        entry["nights"]["1"]["fingerprint"] = tonight.first.fingerprint
    for one in filter(None, (tonight.first, tonight.batch)):
        counted[one.fingerprint] = dict(tonight.ways)
    entry.setdefault("nights", {})[str(handle.night)] = {
        "place": place if (handle.night or 1) > 1 else None,
        "fingerprint": handle.fingerprint,
    }


def check_counted(project: Project, known: Sequence[Handle], schema: Schema, kind: seen.Kind) -> None:
    """Refuse nights whose records or users were counted by another schema, or never: bounds over all nights were held
    by those counts, and say nothing about what this schema keeps. What an older Airlock counted is believed.

    Args:
        known: the batches of a horizon that release something.
        kind: the unit of the release.

    Raises:
        InputError: with the nights to count again.
    """
    entry = load_registry(project).populations.get(known[0].population, {})
    wanted = seen.ways(schema, str(entry.get("identity", seen.ROW)))[kind]
    counted = entry.get("counted", {})
    believed = {} if counted else dict.fromkeys((one.fingerprint for one in known), wanted)
    believed |= {one: ways.get(kind, wanted) for one, ways in counted.items()}
    others = [one for one in known if believed.get(one.fingerprint) != wanted]
    if others:
        nights = ", ".join(str(one.night or 1) for one in others)
        raise InputError(
            f"night {nights} of '{known[0].name}' was counted by another schema, or never, and how often a {kind} "
            f"comes is not known by it: add the same file again (airlock add FILE --name {known[0].name} --append)"
        )


def set_aside(project: Project, workspace: Path, name: str, night: int) -> None:
    """Pass over a batch whose records break the schema, for good: it was never sealed nor released, and its records may
    come again in another one.

    Raises:
        InputError: there is no such batch, or it is the first one, without which there is no horizon.
    """
    known = {one.night or 1: one for one in handles.batches(workspace / FOLDER / name)}
    if night not in known or night == 1:
        raise InputError(f"night {night} of '{name}' cannot be set aside: mend its file")
    handle = known[night]
    with changing_registry(project) as entries:
        entries.populations[handle.population]["nights"][str(night)]["aside"] = datetime.now(UTC).isoformat()
        seen.remove(project, handle.population, handle.fingerprint)


@dataclass(frozen=True)
class Forgotten:
    """What was done to forget a batch.

    Attributes:
        handle: of the batch.
        sealed: the workspace held its sealed records, and they are gone.
        place: where the owner's own file is.
    """

    handle: Handle
    sealed: bool
    place: str | None


def forget(project: Project, workspace: Path, name: str, night: int) -> Forgotten:
    """Destroy the secret of a batch and remove its sealed records from this workspace.

    Raises:
        InputError: there is no such batch, or it has no secret of its own.
    """
    load_schema(workspace / SCHEMAS / f"{name}.yaml")
    known = {one.night or 1: one for one in handles.batches(workspace / FOLDER / name)}
    if night not in known:
        raise InputError(f"'{name}' has no night {night}: it has {len(known)}")
    handle = known[night]
    with changing_registry(project) as entries:
        entry = entries.populations.get(handle.population, {})
        found = entry.setdefault("nights", {}).setdefault(str(night), {"fingerprint": handle.fingerprint})
        if found.get("forgotten"):
            raise InputError(f"night {night} of '{name}' was forgotten already, on {found['forgotten'][:10]}")
        if not keys.has_batch_secret(project, handle.fingerprint):
            raise InputError(
                f"night {night} of '{name}' has no secret of its own, for it was added without --append: it cannot be "
                "forgotten by itself; remove its file and data/sealed, and `airlock keys rotate`"
            )
        when = datetime.now(UTC).isoformat(timespec="seconds")
        place = entry.pop("records", None) if night == 1 else found.get("place")
        found |= {"place": None, "was": place, "forgotten": when}
        keys.destroy_batch_secret(project, handle.fingerprint, when)
    return Forgotten(handle, _remove_sealed(workspace, handle), place)


def _remove_sealed(workspace: Path, handle: Handle) -> bool:
    meta = workspace / "data/sealed" / META
    if not meta.exists() or handle.fingerprint not in meta.read_text():
        return False
    shutil.rmtree(workspace / "data/sealed")
    return True
