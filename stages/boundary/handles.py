"""Handles: what git and DVC know of raw files. Name, number of records and a keyed fingerprint; never a path or a value.

Where the files are is in the registry in AIRLOCK_HOME, together with every fingerprint that was ever added.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from stages.boundary.home import Project, write_private
from stages.boundary.keys import Keyring
from stages.errors import InputError
from stages.params import Params
from stages.privacy.plan import Facts
from stages.records.places import Told, fetch, is_remote
from stages.records.schema import Schema, load_schema
from stages.records.splits import plan_split

FOLDER = "data/handles"
SCHEMAS = "data/schemas"
VERSION = 1
Role = Literal["records", "holdout"]


@dataclass(frozen=True)
class Handle:
    """One raw file, as the public sees it."""

    name: str
    population: str
    role: Role
    format: str
    fingerprint: str
    n: int
    public: bool
    users: int | None = None
    version: int = VERSION

    def to_json(self) -> str:
        """As it stands in data/handles."""
        return json.dumps(asdict(self), indent=1, sort_keys=True) + "\n"


@dataclass
class Registry:
    """What the owner's machine knows: raw paths by population and role, and whose each fingerprint is."""

    populations: dict[str, dict[str, Any]] = field(default_factory=dict)
    fingerprints: dict[str, str] = field(default_factory=dict)


def of(workspace: Path, name: str) -> dict[Role, Handle]:
    """The handles of a data set, by role; empty where it was never added."""
    return read_folder(workspace / FOLDER / name)


def read_folder(folder: Path) -> dict[Role, Handle]:
    """The handles in one data set's folder.

    Raises:
        InputError: a handle was cut or is of another version.
    """
    roles: tuple[Role, ...] = ("records", "holdout")
    return {role: _read(folder / f"{role}.json") for role in roles if (folder / f"{role}.json").exists()}


def _read(path: Path) -> Handle:
    try:
        handle = Handle(**json.loads(path.read_text()))
    except (ValueError, TypeError):
        handle = None
    if handle is None or handle.version != VERSION or handle.role != path.stem:
        raise InputError(f"{FOLDER}/{path.parent.name}/{path.name} is not a handle of this version: run `airlock add` again")
    return handle


def write(workspace: Path, handle: Handle) -> Path:
    """Put a handle under data/handles; the same handle twice changes nothing."""
    path = workspace / FOLDER / handle.name / f"{handle.role}.json"
    if path.exists() and path.read_text() == handle.to_json():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}")
    temporary.write_text(handle.to_json())
    os.replace(temporary, path)
    return path


def check(project: Project, keyring: Keyring, handle: Handle, *, spool: Path | None = None, told: Told = lambda done, total: None) -> Path:
    """The raw file (or folder of parts) behind a handle, which must be the one that was added.

    Args:
        spool: where records from elsewhere are copied to, so that what is compared will be read; without it they are only compared.
        told: how many parts of how many were copied.

    Raises:
        InputError: it is not known here, is gone, or was changed since.
    """
    entry = load_registry(project).populations.get(handle.population, {})
    again = f"run `airlock add FILE --name {handle.name}{' --holdout --public' if handle.role == 'holdout' else ''}`"
    if handle.role not in entry:
        raise InputError(f"the {handle.role} of '{handle.name}' were never added on this machine: {again}")
    if entry["public"] != handle.public and handle.role == "records":
        raise InputError(
            f"the handle of '{handle.name}' was edited: the population was added as {'public' if entry['public'] else 'private'}"
        )
    place: str = entry[handle.role]
    if not is_remote(place) and not Path(place).exists():
        raise InputError(f"the {handle.role} of '{handle.name}' are no longer where they were added from: {again}")
    if spool and is_remote(place):
        place = str(fetch(place, spool / handle.role, told))
    if keyring.fingerprint(place) != handle.fingerprint:
        raise InputError(f"the {handle.role} of '{handle.name}' changed since they were added: {again}")
    return Path(place)


def public_facts(workspace: Path, params: Params) -> Facts:
    """The facts that ingest will write, known before it runs.

    Raises:
        InputError: there is no handle or no usable schema for the data set.
    """
    schema = load_schema(workspace / SCHEMAS / f"{params.dataset}.yaml")
    return facts_of(of(workspace, params.dataset), schema, params)


def facts_of(found: Mapping[Role, Handle], schema: Schema, params: Params) -> Facts:
    """The public facts of a data set: from handles, schema and parameters, never from records."""
    from stages.models.encoding import encoded_shape

    records, holdout = found.get("records"), found.get("holdout")
    if records is None:
        raise InputError(
            f"'{params.dataset}' has no records: run `airlock add FILE --name {params.dataset}` or `airlock data fetch {params.dataset}`"
        )
    if records.public != schema.public:
        raise InputError(
            f"schema '{schema.name}' and its handle disagree on `public`: a population stays what it was added as; use another name"
        )
    split = plan_split(params, schema, n=records.n, n_file=holdout.n if holdout else None)
    friends = schema.user.friends if schema.user else None
    held_out: dict[str, str] = {"kind": split.holdout, "source": split.source}
    if split.source == "file" and holdout:
        held_out["fingerprint"] = holdout.fingerprint
    return Facts(
        population=records.population,
        public=records.public,
        kind=schema.kind,
        n=split.n,
        n_holdout=split.n_holdout,
        shape=encoded_shape(schema),
        labels=schema.label.classes,
        schema=schema.sha256,
        fingerprint=records.fingerprint,
        # Apart, so that a holdout file which comes or changes later does not make the release another one.
        split={"train": dict(split.shape), "holdout": held_out},
        users=records.users,
        per_user=schema.user.per_user if schema.user else None,
        features=schema.features,
        friends={"slots": friends.slots, "appearances": friends.appearances} if friends else None,
    )


def raw_paths(project: Project) -> list[Path]:
    """Every raw file or folder of this machine that was added."""
    entries = load_registry(project).populations.values()
    places = [entry[role] for entry in entries for role in ("records", "holdout") if role in entry]
    return [Path(place) for place in places if not is_remote(place)]


def load_registry(project: Project) -> Registry:
    """Read the registry; an absent one is empty."""
    try:
        return Registry(**json.loads(project.registry.read_text()))
    except FileNotFoundError:
        return Registry()
    except (ValueError, TypeError):
        raise InputError(f"{project.registry} is damaged: restore it from a backup, or add your data again after removing it") from None


@contextmanager
def changing_registry(project: Project) -> Iterator[Registry]:
    """The registry, written back when the block ends well; one process at a time."""
    with (project.folder / "registry.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        registry = load_registry(project)
        yield registry
        write_private(project.registry, json.dumps(asdict(registry), indent=1, sort_keys=True).encode())
