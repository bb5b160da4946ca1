"""The registry in AIRLOCK_HOME: where raw files are, and whose each fingerprint is that was ever added."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from airlock.errors import InputError
from airlock.owner.home import Project, write_private
from airlock.owner.keys import Keyring
from airlock.records.handles import Handle
from airlock.records.places import Progress, fetch, is_remote


@dataclass
class Registry:
    """What the owner's machine knows: raw paths by population and role, and whose each fingerprint is."""

    populations: dict[str, dict[str, Any]] = field(default_factory=dict)
    fingerprints: dict[str, str] = field(default_factory=dict)


def check(
    project: Project,
    keyring: Keyring,
    handle: Handle,
    *,
    spool: Path | None = None,
    progress: Progress = lambda done, total: None,
) -> Path:
    """The raw file (or folder of parts) behind a handle, which must be the one that was added.

    Args:
        spool: where records from elsewhere are copied to, so that what is compared will be read; without it
            they are only compared.
        progress: how many parts of how many were copied.

    Raises:
        InputError: it is not known here, is gone, or was changed since.
    """
    entry = load_registry(project).populations.get(handle.population, {})
    again = (
        "run `airlock add FILE --name "
        f"{handle.name}{' --holdout --public' if handle.role == 'holdout' else ''}`"
    )
    place: str | None = entry.get(handle.role)
    if handle.role == "records":
        place, again = _place_of_night(entry, handle, again)
    if place is None:
        raise InputError(f"the {handle.role} of '{handle.name}' were never added on this machine: {again}")
    if entry["public"] != handle.public and handle.role == "records":
        raise InputError(
            f"the handle of '{handle.name}' was edited: the population was added as "
            f"{'public' if entry['public'] else 'private'}"
        )
    if handle.role == "records" and entry.get("participations", 1) != (handle.participations or 1):
        raise InputError(
            f"a handle of '{handle.name}' was edited: how often a record may come was fixed when it was added"
        )
    if not is_remote(place) and not Path(place).exists():
        raise InputError(
            f"the {handle.role} of '{handle.name}' are no longer where they were added from: {again}"
        )
    if spool and is_remote(place):
        place = str(fetch(place, spool / handle.role, progress))
    if keyring.fingerprint(place) != handle.fingerprint:
        raise InputError(f"the {handle.role} of '{handle.name}' changed since they were added: {again}")
    return Path(place)


def _place_of_night(entry: dict[str, Any], handle: Handle, again: str) -> tuple[str | None, str]:
    """Where the records of a night are, and what to do if they are not."""
    night = handle.night or 1
    found = entry.get("nights", {}).get(str(night), {})
    if found.get("forgotten"):
        raise InputError(f"night {night} of '{handle.name}' was forgotten: its records are not read again")
    if found.get("aside"):
        raise InputError(
            f"night {night} of '{handle.name}' was set aside, as its records break the schema: add them again, mended, "
            "with `airlock add FILE --append`"
        )
    if night == 1:
        return entry.get("records"), again
    return found.get("place"), "put that very file back, a night has one set of records"


def forgotten(project: Project, population: str) -> set[int]:
    """The nights of a population that were forgotten."""
    return _nights_with(project, population, "forgotten")


def set_aside(project: Project, population: str) -> set[int]:
    """The nights of a population whose records could not be read."""
    return _nights_with(project, population, "aside")


def _nights_with(project: Project, population: str, mark: str) -> set[int]:
    nights = load_registry(project).populations.get(population, {}).get("nights", {})
    return {int(night) for night, found in nights.items() if found.get(mark)}


def raw_paths(project: Project) -> list[Path]:
    """Every raw file or folder of this machine that was added."""
    entries = load_registry(project).populations.values()
    places = [entry[role] for entry in entries for role in ("records", "holdout") if role in entry]
    places += [
        night["place"] for entry in entries for night in entry.get("nights", {}).values() if night["place"]
    ]
    return [Path(place) for place in places if not is_remote(place)]


def load_registry(project: Project) -> Registry:
    """Read the registry; an absent one is empty."""
    try:
        return Registry(**json.loads(project.registry.read_text()))
    except FileNotFoundError:
        return Registry()
    except (ValueError, TypeError):
        raise InputError(
            f"{project.registry} is damaged: restore it from a backup, "
            "or add your data again after removing it"
        ) from None


@contextmanager
def changing_registry(project: Project) -> Iterator[Registry]:
    """The registry, written back when the block ends well; one process at a time."""
    with (project.folder / "registry.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        registry = load_registry(project)
        yield registry
        write_private(project.registry, json.dumps(asdict(registry), indent=1, sort_keys=True).encode())
