"""`airlock add`: take note of raw records.

Counts them, fingerprints them, and opens their population's account.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airlock.errors import AirlockError, InputError, KeysError
from airlock.evidence import receipts
from airlock.ledger import Ledger, refusals
from airlock.owner import keys, nights, rows
from airlock.owner.home import Project, account
from airlock.owner.keys import Keyring
from airlock.owner.nights import Growth
from airlock.owner.registry import Registry, changing_registry, load_registry
from airlock.records import generation, handles
from airlock.records.handles import FOLDER, SCHEMAS, Handle, Role
from airlock.records.places import Progress, absolute, at_hand, is_remote
from airlock.records.schema import Schema
from airlock.records.schema_checks import check_columns
from airlock.records.schema_file import load_schema
from airlock.records.tables import Table, open_table
from airlock.run import dvc
from airlock.wall.grants import granted_to_all

SCRATCH_CAP = (10.0, 1e-5)
SCRATCH_WHY = "scratch default"


@dataclass(frozen=True)
class CapRequest:
    """What a population may spend, if the owner says so when adding it."""

    epsilon: float
    delta: float


@dataclass(frozen=True)
class Added:
    """What `add` did.

    `repeated`, the part of the records that repeat another one, tells about records: it is for the owner.
    """

    handle: Handle
    changed: bool
    has_cap: bool
    repeated: float = 0.0


def add(
    project: Project,
    workspace: Path,
    place: Path | str,
    *,
    name: str,
    role: Role = "records",
    cap: CapRequest | None = None,
    progress: Progress = lambda done, total: None,
    distinct: bool = False,
    growth: Growth | None = None,
) -> Added:
    """Add a raw file, a folder of Parquet parts or an address to a population, or take note that it changed.
    Its budget is never refilled.

    Args:
        distinct: the owner says that these are other people's records, although rows look the same.
        growth: these are tonight's records of a population that grows night by night.

    Raises:
        InputError: the file, the schema or the name cannot be used; nothing was written.
        LedgerError: a ledger that must exist is missing.
    """
    schema, place = load_schema(workspace / SCHEMAS / f"{name}.yaml"), absolute(str(place))
    if not schema.public and not is_remote(place) and _could_be_committed(workspace, Path(place)):
        raise InputError(
            f"{place} lies inside the repository, where one `git add` would publish it: move it outside, or "
            "under data/raw/"
        )
    if not is_remote(place) and (folder := granted_to_all(Path(place))):
        raise InputError(f"{place} lies in {folder}, which every stage may read: move it elsewhere")
    known = handles.of(workspace, name)
    _check_growth(workspace, name, role, growth)
    if role == "holdout" and "records" not in known:
        raise InputError(f"'{name}' has no records yet: add them first, then their holdout")
    with at_hand(place, project.spool, progress) as path:
        table = open_table(path, header=schema.header, empty=growth is not None and "records" in known)
        _refuse_made_up(table, place)
        check_columns(table.columns, schema)
        keyring = _keyring(project, workspace)
        handle, fingerprints = _look(table, schema, role, keyring)
        batch = None
        if growth:
            handle, batch = nights.of(project, workspace, table, schema, handle, growth)
            known = (
                handles.of(workspace, name, handle.night or 1)
                if handle.night in _nights(workspace, name)
                else {}
            )
        others = _sketches(project, name, role)
        seen = rows.Comparison()
        if others or not (schema.public or role == "holdout"):
            seen = rows.compare(table, schema, keyring.row_key(), others)
        _refuse_elsewhere(project, table, schema, distinct=distinct)
    if cap and role == "records" and not schema.public:
        refusals.check_small("the cap's --delta", cap.delta, handle.n)
    with changing_registry(project) as registry:
        _refuse_known(registry, handle, fingerprints, schema)
        if not distinct:
            _refuse_same_rows(handle, seen.shares)
        if batch:
            nights.check(project, registry, handle, batch, schema, distinct=distinct)
        has_cap = _open_account(project, workspace, schema, cap)
        _enter(registry, handle, fingerprints, place)
        if batch:
            nights.enter(project, registry, handle, batch, place)
        if role == "records" and not schema.public:
            _enter_rows(registry, name, seen)
        handles.write(workspace, handle)
    dvc.keep_notes(project, workspace)
    return Added(handle, known.get(role) != handle, has_cap, seen.repeated)


def _check_growth(workspace: Path, name: str, role: Role, growth: Growth | None) -> None:
    if growth and role == "holdout":
        raise InputError("a holdout is one file: add it without --append")
    if not growth and role == "records" and len(_nights(workspace, name)) > 1:
        raise InputError(
            f"'{name}' grows night by night: add tonight's records with --append, or use another name"
        )


def _nights(workspace: Path, name: str) -> list[int]:
    return handles.nights(workspace / FOLDER / name)


def _look(table: Table, schema: Schema, role: Role, keyring: Keyring) -> tuple[Handle, list[str]]:
    """The handle of raw records, and the fingerprints by which they and their parts are known again."""
    n = table.count()
    fingerprints = keyring.fingerprints(table.path)
    public = schema.public or role == "holdout"
    return Handle(schema.name, schema.name, role, table.format, fingerprints[0], n, public), fingerprints


def _refuse_made_up(table: Table, place: str) -> None:
    """Mock and synthetic records stand for no one: a budget spent on them would be a mistake."""
    kinds = {mark["kind"] for part in table.parts if (mark := generation.mark_of(table.path / part))}
    if generation.MOCK_COLUMN in table.columns or "mock" in kinds:
        raise InputError(
            f"{place} holds mock records, made by `airlock mock` from the schema alone: add the real ones"
        )
    if "synthetic" in kinds:
        raise InputError(
            f"{place} holds synthetic records, made by `airlock synthesize` from a release: add the real ones"
        )


def _could_be_committed(workspace: Path, path: Path) -> bool:
    """Whether a file is in the workspace but not in data/raw, which git ignores."""
    place, top = path.resolve(), workspace.resolve()
    return place.is_relative_to(top) and not place.is_relative_to(top / "data/raw")


def _keyring(project: Project, workspace: Path) -> Keyring:
    """Load the keys, or make them for a project's first data.

    Lost keys are not replaced behind the owner's back.
    """
    if keys.exist(project):
        return Keyring.load(project)
    if any(not handle.public for handle in _all_handles(workspace)):
        raise KeysError(
            "this project has private data but its keys are not on this machine: run `airlock keys restore "
            "FILE` with your backup"
        )
    return Keyring.create(project)


def _all_handles(workspace: Path) -> Iterator[Handle]:
    """One of each population and role is enough: a population is private or public as a whole."""
    for folder in sorted((workspace / FOLDER).glob("*/")):
        yield from handles.read_folder(folder).values()


def _open_account(project: Project, workspace: Path, schema: Schema, cap: CapRequest | None) -> bool:
    """Open the population's ledger and set its first cap; say whether it has one.

    A new ledger is a fresh start, so it is made only where no private population could have spent from a lost
    one; from then on this home knows it from any other.
    """
    from airlock.run import reconcile

    if schema.public:
        ledger = Ledger.open(project.scratch_url, create=True, scratch=True)
        if cap is None and ledger.cap(schema.name) is None:
            ledger.set_cap(schema.name, *SCRATCH_CAP, who="airlock", why=SCRATCH_WHY)
    else:
        ledger = Ledger.open(project.ledger_url, create=not _names_private_data(project, workspace))
    fresh = not schema.public and len(ledger.history()) == 1
    with reconcile.agreed(project, workspace, ledger) if cap or fresh else nullcontext():
        if cap is not None:
            ledger.set_cap(schema.name, cap.epsilon, cap.delta, who=account(), why="set by airlock add")
    return ledger.cap(schema.name) is not None


def _names_private_data(project: Project, workspace: Path) -> bool:
    """Whether a handle, the registry or a receipt names private data: then a ledger must exist already."""
    if any(not handle.public for handle in _all_handles(workspace)):
        return True
    if any(not entry["public"] for entry in load_registry(project).populations.values()):
        return True
    return any(_spent_real_budget(text) for _, text in receipts.files(workspace))


def _spent_real_budget(receipt: str) -> bool:
    try:
        ledger = json.loads(receipt)["body"].get("ledger")
        return bool(ledger) and not ledger.get("scratch")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False  # not a receipt: the audit tells


def _refuse_known(registry: Registry, handle: Handle, fingerprints: list[str], schema: Schema) -> None:
    owners = {registry.fingerprints[each] for each in fingerprints if each in registry.fingerprints}
    for owner in sorted(owners - {handle.population}):
        raise InputError(
            f"these records belong to population '{owner}' already: a second name would be a second budget"
        )
    entry = registry.populations.get(handle.population)
    if entry and entry["public"] != schema.public:
        was = "public" if entry["public"] else "private"
        raise InputError(
            f"population '{handle.population}' was added as {was} and stays so: use another name"
        )
    other = "holdout" if handle.role == "records" else "records"
    if not schema.public and entry and not set(fingerprints).isdisjoint(entry.get("seen", {}).get(other, [])):
        raise InputError(
            "private records and a public holdout cannot be the same "
            "file: a holdout is declared public as a whole"
        )


def _sketches(project: Project, name: str, role: Role) -> dict[str, rows.Known]:
    """Of every private population that these records could be taken from.

    Public ones have nothing to lose.
    """
    return {
        owner: rows.Known(rows.Sketch.from_json(entry["rows"]), _parts(entry))
        for owner, entry in load_registry(project).populations.items()
        if not entry["public"] and "rows" in entry and (owner != name or role == "holdout")
    }


def _refuse_same_rows(handle: Handle, shares: Mapping[str, float]) -> None:
    for owner, share in sorted(shares.items(), key=lambda item: -item[1]):
        if share < rows.SHARE:
            continue
        if owner == handle.population:
            raise InputError(
                f"{share:.0%} of this public holdout are private records of '{owner}': a holdout is "
                "declared public as a whole"
            )
        raise InputError(
            f"{share:.0%} of these records belong to population '{owner}' already, in another form: a "
            "second name would be a second "
            f"budget; add them with --name {owner}, or say --distinct "
            "if they are other people's and only look alike"
        )


def _refuse_elsewhere(project: Project, table: Table, schema: Schema, *, distinct: bool) -> None:
    """The owner's other projects, each by its own keys: a second workspace would be a second budget too."""
    for folder in sorted(project.folder.parent.iterdir()):
        other = Project(folder.name, folder)
        if other.id == project.id or not keys.exist(other):
            continue
        try:
            registry, keyring = load_registry(other), Keyring.load(other)
        except AirlockError:  # another project's damage is told there
            continue
        private = {name for name, entry in registry.populations.items() if not entry["public"]}
        found = {registry.fingerprints.get(each) for each in keyring.fingerprints(table.path)} & private
        if not found and not distinct:
            seen = rows.compare(table, schema, keyring.row_key(), _sketches(other, "", "records"))
            found = {name for name, share in seen.shares.items() if share >= rows.SHARE}
        for name in sorted(filter(None, found)):
            raise InputError(
                f"these records belong to population '{name}' of the project '{other.id}' already: a second "
                "workspace would be a second budget; work there, give this one its keys and ledger (airlock new "
                f"--id {other.id}), or say --distinct if they are other people's and only look alike"
            )


def _parts(entry: Mapping[str, Any]) -> rows.Sketch:
    """Of rows without one of their columns; nothing where an older Airlock did not keep that."""
    return rows.Sketch.from_json(entry["parts"]) if "parts" in entry else rows.Sketch()


def _enter_rows(registry: Registry, name: str, seen: rows.Comparison) -> None:
    entry = registry.populations[name]
    known = rows.Sketch.from_json(entry["rows"]) if "rows" in entry else rows.Sketch()
    known.merge(seen.sketch)
    if known.kept:
        entry["rows"] = known.to_json()
    parts = _parts(entry)
    parts.merge(seen.parts)
    if parts.kept:
        entry["parts"] = parts.to_json()


def _enter(registry: Registry, handle: Handle, fingerprints: list[str], place: str) -> None:
    public = handle.public if handle.role == "records" else registry.populations[handle.population]["public"]
    entry = registry.populations.setdefault(handle.population, {"public": public})
    if (handle.night or 1) == 1:
        entry[handle.role] = place
    seen = entry.setdefault("seen", {}).setdefault(handle.role, [])
    seen += [each for each in fingerprints if each not in seen]
    registry.fingerprints.update(dict.fromkeys(fingerprints, handle.population))
