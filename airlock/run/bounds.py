"""`airlock bounds`: run the release stage with the mechanism `bounds`, put params.yaml back, and draft a schema
with what was found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from airlock.errors import InputError, RefusedError
from airlock.files import replace
from airlock.inside import manifest
from airlock.owner.home import Project
from airlock.params import Params, check, load_params
from airlock.records.schema import Schema
from airlock.records.schema_file import load_schema
from airlock.run import dvc, param_changes

RELEASE = "data/released/release"
Found = dict[str, tuple[float, float]]


def find(workspace: Path, project: Project, columns: Sequence[str], epsilon: float) -> tuple[Found, Path]:
    """Bounds of the columns, and the draft that has them.

    Raises:
        InputError: a column is no number of the schema.
        RefusedError: the release was not made; DVC's last lines say why.
    """
    params = load_params(workspace / "params.yaml")
    schema = load_schema(workspace / f"data/schemas/{params.dataset}.yaml")
    numbers = {column.name for column in schema.columns if column.type == "number"}
    if unknown := [name for name in columns if name not in numbers]:
        raise InputError(
            f"column '{unknown[0]}' is no number of schema '{schema.name}', which is the data set of params.yaml "
            "(`airlock data use NAME` changes it)"
        )
    release = {"mechanism": "bounds", "epsilon": epsilon, "options": {"columns": sorted(set(columns))}}
    with asked(workspace, {**release, "passes": "auto", "features": "auto"}):
        done = dvc.run(workspace, "repro", "release")
        if done.returncode != 0:
            raise RefusedError("`dvc repro release` failed: its last lines above say why")
        made = manifest.load(workspace / RELEASE)
    found = bounds_in(made, columns)
    draft = project.drafts / f"{schema.name}.yaml"
    draft.parent.mkdir(parents=True, exist_ok=True)
    replace(draft, drafted(schema, found, made))
    return found, draft


@contextmanager
def asked(workspace: Path, release: Mapping[str, Any]) -> Iterator[None]:
    """params.yaml with another section `release`, as long as this lasts; every byte is put back, also by the next
    command if this one is killed.
    """
    document = yaml.safe_load((workspace / param_changes.FILE).read_text()) or {}
    document["release"] = {**(document.get("release") or {}), **release}
    document["relevance"] = {**(document.get("relevance") or {}), "mode": "auto"}
    check(Params, document, "airlock bounds")
    after = yaml.safe_dump(document, sort_keys=False)
    try:
        with param_changes.turn(workspace, wait=False), param_changes.changed(workspace, after, stays=False):
            yield
    except BlockingIOError:
        raise RefusedError("another run is changing params.yaml here: wait for its end") from None


def bounds_in(made: manifest.Manifest, columns: Sequence[str]) -> Found:
    """What a release of `bounds` says of the columns.

    Raises:
        InputError: it is another release.
    """
    details = made.details
    if made.mechanism != "bounds":
        raise InputError(f"data/released/release is one of '{made.mechanism}': run `airlock bounds` again")
    names = [str(one["name"]) for one in details["columns"]]
    found = dict(zip(names, zip(details["low"], details["high"], strict=True), strict=True))
    return {name: (float(found[name][0]), float(found[name][1])) for name in columns}


def drafted(schema: Schema, found: Found, made: manifest.Manifest) -> str:
    """The schema with the found bounds, unconfirmed; each says that it was released, not known."""
    document = schema.model_copy(update={"confirmed": False}).model_dump(mode="json", exclude_defaults=True)
    document = {"name": schema.name, "kind": schema.kind, "confirmed": False, **document}
    for column in document["columns"]:
        if column["name"] in found:
            column["bounds"] = list(found[column["name"]])
            column["why"] = (
                f"released, not known: airlock bounds, epsilon {made.proven.epsilon:.4g} at delta "
                f"{made.proven.delta:g}, release {made.release_id[:12]}"
            )
    head = "# Bounds that say `released` were found by `airlock bounds`: look at them, then confirm this draft.\n"
    return head + yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
