"""Handles: what git and DVC know of raw files.

Name, number of records and a keyed fingerprint; never a path or a value.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from airlock.errors import InputError
from airlock.files import parse_json, read_plain, replace
from airlock.params import Params
from airlock.privacy.plan import Facts
from airlock.records.schema import Schema
from airlock.records.schema_file import load_schema

FOLDER = "data/handles"
SCHEMAS = "data/schemas"
VERSION = 1
MOST_DESCRIBED = 1024
"""Of wider tables the facts do not describe the columns: no mechanism asks for them."""
Role = Literal["records", "holdout"]
LATER = ("night", "participations")
"""Fields that handles have only where they say something."""


@dataclass(frozen=True)
class Handle:
    """One raw file, as the public sees it.

    Attributes:
        users: stands in older handles; how many there are is not told any more.
        night: which batch of its population it is, where that grows night by night.
        participations: on how many nights one record may come.
    """

    name: str
    population: str
    role: Role
    format: str
    fingerprint: str
    n: int
    public: bool
    users: int | None = None
    version: int = VERSION
    night: int | None = None
    participations: int | None = None

    @property
    def file(self) -> str:
        """What it is called in its data set's folder."""
        return f"{self.role}.json" if (self.night or 1) == 1 else night_file(self.night or 1)

    def to_json(self) -> str:
        """As it stands in data/handles; what nobody said is left out, as it was before it could be said."""
        said = asdict(self)
        plain = {name: said[name] for name in said if name not in LATER or said[name] is not None}
        return json.dumps(plain, indent=1, sort_keys=True) + "\n"


def night_file(night: int) -> str:
    """The handle of a batch after the first."""
    return f"night-{night:05d}.json"


def of(workspace: Path, name: str, night: int = 1) -> dict[Role, Handle]:
    """The handles of a data set, by role; empty where it was never added."""
    return read_folder(workspace / FOLDER / name, night)


def objection(workspace: Path, name: str) -> str | None:
    """Why a data set cannot be used here, in one line that says how it could; None if its records were added."""
    if "records" in of(workspace, name):
        return None
    here = sorted(folder.name for folder in (workspace / FOLDER).glob("*/") if of(workspace, folder.name))
    return (
        f"no data set '{name}' was added here ({', '.join(here) or 'none was'}): run `airlock add FILE --name "
        f"{name}`, or `airlock data fetch {name}` for a public one, or choose with `airlock data use NAME`"
    )


def read_folder(folder: Path, night: int = 1) -> dict[Role, Handle]:
    """The handles in one data set's folder, with the records of one night.

    Raises:
        InputError: a handle was cut or is of another version, or there is no such night.
    """
    if folder.is_symlink():
        raise InputError(f"{FOLDER}/{folder.name} is a link: replace it by the folder itself")
    roles: tuple[Role, ...] = ("records", "holdout")
    found = {role: _read(folder / f"{role}.json") for role in roles if (folder / f"{role}.json").exists()}
    if night > 1:
        if not (folder / night_file(night)).exists():
            raise InputError(
                f"'{folder.name}' has no night {night}: it has {len(nights(folder))}; set ingest.night, or add "
                f"tonight's records with `airlock add FILE --name {folder.name} --append`"
            )
        found["records"] = _read(folder / night_file(night))
    return found


def nights(folder: Path) -> list[int]:
    """The batches of a population, in order."""
    first = [1] if (folder / "records.json").exists() else []
    return first + sorted(int(path.stem.removeprefix("night-")) for path in folder.glob("night-[0-9]*.json"))


def batches(folder: Path, upto: int | None = None) -> list[Handle]:
    """The records' handles of the nights up to one, in order.

    Raises:
        InputError: one is missing in between.
    """
    wanted = [night for night in nights(folder) if upto is None or night <= upto]
    if wanted != list(range(1, len(wanted) + 1)):
        raise InputError(f"{FOLDER}/{folder.name} lacks a night between others: restore it with git")
    return [read_folder(folder, night)["records"] for night in wanted]


def _read(path: Path) -> Handle:
    try:
        handle = Handle(**parse_json(read_plain(path)))
    except (ValueError, TypeError, OSError):
        handle = None
    if handle is None or handle.version != VERSION or handle.file != path.name:
        raise InputError(
            f"{FOLDER}/{path.parent.name}/{path.name} is not a handle of "
            "this version: run `airlock add` again"
        )
    return handle


def write(workspace: Path, handle: Handle) -> Path:
    """Put a handle under data/handles; the same handle twice changes nothing."""
    path = workspace / FOLDER / handle.name / handle.file
    if path.exists() and path.read_text() == handle.to_json():
        return path
    replace(path, handle.to_json())
    return path


def public_facts(workspace: Path, params: Params) -> Facts:
    """The facts that ingest will write, known before it runs.

    Raises:
        InputError: there is no handle or no usable schema for the data set.
    """
    if not (workspace / SCHEMAS / f"{params.dataset}.yaml").exists() and (
        wrong := objection(workspace, params.dataset)
    ):
        raise InputError(wrong)
    schema = load_schema(workspace / SCHEMAS / f"{params.dataset}.yaml")
    return facts_in(workspace / FOLDER / params.dataset, schema, params)


def facts_in(folder: Path, schema: Schema, params: Params) -> Facts:
    """The public facts of the night that the parameters name, and of those before it."""
    number = params.ingest.night
    facts = facts_of(read_folder(folder, number), schema, params)
    start = params.ingest.start
    if number == start:
        return facts
    if number < start:
        raise InputError(
            f"params.yaml: ingest.night {number} lies before ingest.start {start}, from which nights are counted"
        )
    earlier = batches(folder, number - 1)[start - 1 :]
    night = {
        "number": number - start + 1,
        "before": sum(one.n for one in earlier),
        "history": hashlib.sha256(" ".join(one.fingerprint for one in earlier).encode()).hexdigest(),
        "first": {"n": earlier[0].n, "fingerprint": earlier[0].fingerprint},
    }
    return dataclasses.replace(facts, night=night)


def facts_of(found: Mapping[Role, Handle], schema: Schema, params: Params) -> Facts:
    """The public facts of records that stand alone: from handles, schema and parameters, never from records."""
    # Here, because stages that need no facts must not wait for pyarrow and NumPy.
    from airlock.records.encoding import described_columns, encoded_layout, encoded_shape
    from airlock.records.splits import plan_split

    records, holdout = found.get("records"), found.get("holdout")
    if records is None:
        raise InputError(
            f"'{params.dataset}' has no records: run `airlock add FILE --name {params.dataset}` or `airlock "
            f"data fetch {params.dataset}`"
        )
    if records.public != schema.public:
        raise InputError(
            f"schema '{schema.name}' and its handle disagree on `public`: a population stays what it was "
            "added as; use another name"
        )
    split = plan_split(params, schema, n=records.n, n_file=holdout.n if holdout else None)
    if params.release.horizon is not None and split.source == "records":
        raise InputError(
            "params.yaml: with release.horizon nothing is held out of a night: set evaluate.holdout to none, or add a "
            f"public holdout (airlock add FILE --name {schema.name} --holdout --public)"
        )
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
        labels=schema.label.names,
        schema=schema.sha256,
        fingerprint=records.fingerprint,
        # Apart, so that a holdout file which comes or changes later does not make the release another one.
        split={"train": dict(split.shape), "holdout": held_out},
        per_user=schema.user.per_user if schema.user else None,
        features=schema.map,
        friends={"slots": friends.slots, "appearances": friends.appearances} if friends else None,
        columns=described_columns(schema) if 0 < len(schema.columns) <= MOST_DESCRIBED else None,
        label=schema.label.column,
        layout=encoded_layout(schema),
        number=schema.label.number,
        participations=records.participations or 1,
    )
