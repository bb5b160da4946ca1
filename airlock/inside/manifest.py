"""release.json: what a release is, what it promises, and the hash of every byte in it.

It holds only what the release id determines; everything about one run is in the signed receipt.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airlock.errors import ReleaseError
from airlock.files import parse_json
from airlock.inside.digests import canonical_json, sha256_json, sha256_path, walk
from airlock.privacy.guarantees import Guarantee
from airlock.privacy.plan import Facts, Plan

NAME = "release.json"
NOT_FINITE = (
    "the release holds a number that is not finite and is not made: lower learning_rate, clip or "
    "scales in params.yaml"
)
VERSION = 1


@dataclass(frozen=True)
class Manifest:
    """A release.json that was read and whose files were checked."""

    release_id: str
    mechanism: str
    version: int
    parameters: Mapping[str, Any]
    unit: str
    neighbours: str
    claimed: Guarantee | None
    proven: Guarantee
    passes: int
    interactive: bool
    fingerprint: str
    files: Mapping[str, str]
    details: Mapping[str, Any]

    @property
    def applies(self) -> bool:
        """False for a door that was not opened (mechanism "none")."""
        return self.mechanism != "none"


def none_plan(reason: str) -> Plan:
    """The plan of an out that is not made: nothing is read and nothing is released."""
    nothing = Guarantee(
        "proven", "record", "zero-out", 0.0, 0.0, argument="docs/proofs/evaluation.md#closed-door"
    )
    return Plan(mechanism="none", version=1, parameters={"reason": reason}, passes=0, proven=nothing)


def release_id(plan: Plan, facts: Facts, upstream: Sequence[str] = ()) -> str:
    """Hash of everything that shapes the statistic: data, schema, split, mechanism, version, parameters,
    upstream.
    """
    # Of a later night: which, and after which records. A first night has the id of a release that stands alone.
    night = {name: facts.night[name] for name in ("number", "history")} if facts.night else None
    return sha256_json(
        {
            **({"night": night} if night else {}),
            "population": facts.population,
            "fingerprint": facts.fingerprint,
            "schema": facts.schema,
            # A holdout file that comes or changes later does not touch the training records, nor what is
            # released of them.
            "split": dict(facts.split.get("train", facts.split)),
            "mechanism": plan.mechanism,
            "version": plan.version,
            "parameters": dict(plan.parameters),
            "unit": plan.proven.unit,
            "neighbours": plan.proven.neighbours,
            "upstream": sorted(upstream),
        }
    )


def write(
    folder: Path, *, plan: Plan, facts: Facts, release_id: str, details: Mapping[str, Any] | None = None
) -> None:
    """Write release.json last, over the files that are already in `folder`.

    Raises:
        ReleaseError: a number in it is not finite.
    """
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "format": VERSION,
        "release_id": release_id,
        "mechanism": plan.mechanism,
        "version": plan.version,
        "parameters": dict(plan.parameters),
        "unit": plan.proven.unit,
        "neighbours": plan.proven.neighbours,
        "claimed": plan.claimed.to_json() if plan.claimed else None,
        "proven": plan.proven.to_json(),
        "passes": plan.passes,
        "interactive": plan.interactive,
        "population": facts.population,
        "n": facts.n,
        "fingerprint": facts.fingerprint,
        "files": {name: sha256_path(path) for name, path in walk(folder) if name != NAME},
        "details": dict(details or {}),
    }
    try:
        text = json.dumps(document, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False)
    except ValueError:
        raise ReleaseError(NOT_FINITE) from None
    (folder / NAME).write_text(text + "\n")


def load(folder: Path) -> Manifest:
    """Read release.json and check every file against it.

    Raises:
        ReleaseError: if the manifest is missing or unreadable, or a file was added, removed or changed.
    """
    try:
        document = parse_json((folder / NAME).read_text())
        manifest = Manifest(
            claimed=Guarantee.from_json(document["claimed"]) if document["claimed"] else None,
            proven=Guarantee.from_json(document["proven"]),
            **{
                name: document[name]
                for name in Manifest.__dataclass_fields__
                if name not in ("claimed", "proven")
            },
        )
    except FileNotFoundError:
        raise ReleaseError(f"{folder.name} is not a release: {NAME} is missing; run `dvc repro`") from None
    except (ValueError, KeyError, TypeError):
        raise ReleaseError(
            f"{folder.name}/{NAME} cannot be read: it was changed or cut; run `dvc repro` or `dvc pull`"
        ) from None
    found = {name: sha256_path(path) for name, path in walk(folder) if name != NAME}
    if found != dict(manifest.files):
        changed = sorted(set(found.items()) ^ set(manifest.files.items()))[0][0]
        raise ReleaseError(
            f"{folder.name}/{changed} is not what {NAME} says: it was added, removed or changed"
        )
    return manifest


def total_epsilon(made: Sequence[Manifest]) -> float:
    """What is proven of several releases of one population together, at the last one's delta."""
    from airlock.privacy import accounting, events

    proven = [one.proven for one in made if one.applies]
    if len(proven) == 1:
        return proven[0].epsilon
    if any(one.event is None for one in proven):
        return math.inf
    known = [events.from_json(one.event) for one in proven if one.event is not None]
    return accounting.total_epsilon(known, proven[-1].delta, neighbours=proven[-1].neighbours)


def digest(folder: Path) -> str:
    """SHA-256 of release.json, which itself names the hash of every file."""
    return hashlib.sha256((folder / NAME).read_bytes()).hexdigest()


def plan_json(plan: Plan) -> dict[str, Any]:
    """The parts of a plan that must stand in the manifest as priced."""
    proven, claimed = plan.proven.to_json(), plan.claimed.to_json() if plan.claimed else None
    promise = {
        "mechanism": plan.mechanism,
        "version": plan.version,
        "parameters": dict(plan.parameters),
        "passes": plan.passes,
        "interactive": plan.interactive,
        "proven": proven,
        "claimed": claimed,
    }
    as_read: dict[str, Any] = json.loads(canonical_json(promise))
    return as_read
