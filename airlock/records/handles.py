"""Handles: what git and DVC know of raw files.

Name, number of records and a keyed fingerprint; never a path or a value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from airlock.errors import InputError
from airlock.files import replace
from airlock.params import Params
from airlock.privacy.plan import Facts
from airlock.records.schema import Schema, load_schema

FOLDER = "data/handles"
SCHEMAS = "data/schemas"
VERSION = 1
MOST_DESCRIBED = 1024
"""Of wider tables the facts do not describe the columns: no mechanism asks for them."""
Role = Literal["records", "holdout"]


@dataclass(frozen=True)
class Handle:
    """One raw file, as the public sees it.

    `users` stands in older handles: how many there are is not told any more.
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

    def to_json(self) -> str:
        """As it stands in data/handles."""
        return json.dumps(asdict(self), indent=1, sort_keys=True) + "\n"


def of(workspace: Path, name: str) -> dict[Role, Handle]:
    """The handles of a data set, by role; empty where it was never added."""
    return read_folder(workspace / FOLDER / name)


def objection(workspace: Path, name: str) -> str | None:
    """Why a data set cannot be used here, in one line that says how it could; None if its records were added."""
    if "records" in of(workspace, name):
        return None
    here = sorted(folder.name for folder in (workspace / FOLDER).glob("*/") if of(workspace, folder.name))
    return (
        f"no data set '{name}' was added here ({', '.join(here) or 'none was'}): run `airlock add FILE --name "
        f"{name}`, or `airlock data fetch {name}` for a public one, or choose with `airlock data use NAME`"
    )


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
        raise InputError(
            f"{FOLDER}/{path.parent.name}/{path.name} is not a handle of "
            "this version: run `airlock add` again"
        )
    return handle


def write(workspace: Path, handle: Handle) -> Path:
    """Put a handle under data/handles; the same handle twice changes nothing."""
    path = workspace / FOLDER / handle.name / f"{handle.role}.json"
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
    return facts_of(of(workspace, params.dataset), schema, params)


def facts_of(found: Mapping[Role, Handle], schema: Schema, params: Params) -> Facts:
    """The public facts of a data set: from handles, schema and parameters, never from records."""
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
        features=schema.features,
        friends={"slots": friends.slots, "appearances": friends.appearances} if friends else None,
        columns=described_columns(schema) if 0 < len(schema.columns) <= MOST_DESCRIBED else None,
        label=schema.label.column,
        layout=encoded_layout(schema),
        number=schema.label.number,
    )
