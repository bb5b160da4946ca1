"""The nights of a horizon, as the broker sees them: which one this is, what it builds on, what it leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airlock.errors import BudgetRefused, InputError, LedgerError, ReleaseError
from airlock.inside import manifest
from airlock.inside.nights import MISSING, file_of
from airlock.ledger import Ledger, Release
from airlock.owner import registry
from airlock.owner.home import Project
from airlock.owner.keys import Keyring
from airlock.params import Params
from airlock.privacy.plan import Facts, Plan
from airlock.records import handles
from airlock.run.outs import remove

RELEVANCE = "relevance"
KEPT = 2
"""Of how many nights the memory is kept: of the last one, and of the one before it, with which it can be made
again."""


def facts_for(stage: str, params: Params, facts: Facts) -> Facts:
    """The facts that a stage's releases are keyed by: what is released first is the first night's, for all."""
    return facts.first if params.release.horizon and stage == RELEVANCE else facts


def horizon_of(plan: Plan, facts: Facts, upstream: list[str], params: Params) -> dict[str, Any] | None:
    """Which night of which horizon a plan is for, in the ledger's words; None for a release that stands alone.

    A horizon is known by the id of its first night's release.

    Raises:
        ReleaseError: the stage priced another horizon than params.yaml asks for.
    """
    priced = plan.parameters.get("horizon")
    if priced is None:
        return None
    if not isinstance(priced, Mapping) or priced.get("nights") != params.release.horizon:
        raise ReleaseError(
            "the release was priced for another horizon than params.yaml says: look at its `plans`"
        )
    first = manifest.release_id(plan, facts.first, upstream)
    return {"id": first, "night": facts.night_number, "nights": params.release.horizon}


def check_place(params: Params, facts: Facts) -> None:
    """Refuse a night beyond the horizon, with what a next one costs.

    Raises:
        BudgetRefused: the horizon is over.
    """
    horizon = params.release.horizon
    if horizon is not None and facts.night_number > horizon:
        raise BudgetRefused(
            f"the horizon of {horizon} nights is used up: this is night {facts.night_number}; a next one begins with "
            f"`ingest.start: {params.ingest.night}`, for epsilon {params.release.epsilon:g} at delta "
            f"{params.release.delta:g} once more (airlock budget plan)"
        )


def check_first(stage: str, params: Params, facts: Facts) -> None:
    """Refuse to make on a later night what the first one releases.

    Raises:
        InputError: the first night comes first.
    """
    if params.release.horizon and stage == RELEVANCE and facts.night_number > 1:
        raise InputError(
            f"what all nights build on is released on the first one: set ingest.night to {params.ingest.start}, run "
            "`dvc repro`, and come back"
        )


def check_participations(project: Project, facts: Facts) -> None:
    """Refuse facts that allow a record fewer nights than the owner counts.

    Raises:
        InputError: data/sealed or a handle was edited.
    """
    entry = registry.load_registry(project).populations.get(facts.population, {})
    if int(entry.get("participations", 1)) != facts.participations:
        raise InputError(
            "data/sealed does not say how often a record may come: run `dvc repro --force ingest`"
        )


@dataclass(frozen=True)
class Visit:
    """What one night is given beside the records.

    Attributes:
        told: for the stage, and for release.json.
        key: of the memory.
        folder: where it is.
    """

    told: dict[str, Any]
    key: bytes
    folder: Path


def visit(project: Project, keyring: Keyring, told: dict[str, Any]) -> Visit:
    """What a night is given: its folder is made where it is missing."""
    folder = folder_of(project, told["id"])
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Visit(told, keyring.nights_key(told["id"]), folder)


def prepare(
    project: Project,
    workspace: Path,
    params: Params,
    facts: Facts,
    ledger: Ledger,
    horizon: Mapping[str, Any],
) -> dict[str, Any]:
    """What tonight builds on, from the ledger; checked before anything is reserved.

    Raises:
        InputError: an earlier night comes first.
        ReleaseError: what the night before left is gone.
    """
    if params.ingest.night in registry.set_aside(project, facts.population):
        raise InputError(
            f"night {params.ingest.night} was set aside, and its records may have come on another one: go on with "
            "`airlock nights run`"
        )
    known = ledger.nights(facts.population, horizon["id"])
    _check_counted(project, workspace, params, facts, known)
    _check_begun(project, facts, ledger, horizon, known)
    done = {_night(one): one.release_id for one in known if one.committed and _night(one) < horizon["night"]}
    missing = [night for night in range(1, horizon["night"]) if night not in done]
    _check_missing(project, params, facts, missing, known)
    former = done[max(done)] if done else None
    if former and not file_of(folder_of(project, horizon["id"]), former).exists():
        raise ReleaseError(MISSING)
    without = sum(
        handles.of(workspace, params.dataset, night + params.ingest.start - 1)["records"].n
        for night in missing
    )
    return {**horizon, "former": former, "missing": missing, "records": facts.total - without}


def _check_counted(
    project: Project, workspace: Path, params: Params, facts: Facts, done: Sequence[Release]
) -> None:
    """A later night, beside others that were counted otherwise. What was released of a night counts, also where it was
    forgotten since.
    """
    # Here, because stages that stand alone must not wait for pyarrow and NumPy.
    from airlock.owner.nights import check_counted
    from airlock.records.schema_file import load_schema

    released = {_night(one) + params.ingest.start - 1 for one in done if one.committed}
    gone = passed_over(project, facts.population) - released
    found = handles.batches(workspace / handles.FOLDER / params.dataset, params.ingest.night)
    known = [one for one in found[params.ingest.start - 1 :] if (one.night or 1) not in gone]
    if facts.night_number > 1 and known:
        schema = load_schema(workspace / handles.SCHEMAS / f"{params.dataset}.yaml")
        check_counted(project, known, schema, params.release.unit)


def _check_begun(
    project: Project, facts: Facts, ledger: Ledger, horizon: Mapping[str, Any], known: list[Release]
) -> None:
    """A later night of a horizon that nobody began, where another one began with the same batch: it would be paid
    twice.
    """
    if (
        not known
        and horizon["night"] > 1
        and _paid(project, facts.population, facts.first.fingerprint, ledger)
    ):
        raise InputError(
            "a horizon was begun with the first of these nights, and params.yaml asks for another one (or this version "
            "of Airlock does: docs/nights.md says what horizons begun before go on with): ask for what the first night "
            "did, or begin a new one with `airlock nights renew`"
        )


def _paid(
    project: Project, population: str, fingerprint: str, ledger: Ledger
) -> list[tuple[str, int, manifest.Manifest]]:
    """Horizons that began with a batch, the newest first: id, nights, and the first night's release."""
    found = []
    for horizon, _, nights in reversed(ledger.spent(population).horizons):
        folder = project.archive / horizon
        made = manifest.load(folder) if folder.is_dir() else None
        if made is not None and made.fingerprint == fingerprint:
            found.append((horizon, nights, made))
    return found


def _check_missing(
    project: Project, params: Params, facts: Facts, missing: list[int], known: list[Release]
) -> None:
    gone = passed_over(project, facts.population)
    lost = {_night(one) for one in known if one.lost}
    for night in missing:
        batch = night + params.ingest.start - 1
        if batch not in gone and night not in lost:
            raise InputError(
                f"night {batch} comes before night {params.ingest.night}: set ingest.night to {batch} and run `dvc "
                "repro`, or let `airlock nights run` make up what is missing"
            )


def passed_over(project: Project, population: str) -> set[int]:
    """Nights without a release that later ones do not wait for."""
    return registry.forgotten(project, population) | registry.set_aside(project, population)


def _night(release: Release) -> int:
    return int((release.horizon or {})["night"])


def folder_of(project: Project, horizon: str) -> Path:
    """Where the memory of a horizon is kept."""
    return project.folder / "horizons" / horizon


def again(project: Project, folder: Path) -> dict[str, Any] | None:
    """What a release that was made began with, to make it once more; None where it stands alone.

    Raises:
        ReleaseError: what it began with is not kept any more.
    """
    told: dict[str, Any] | None = manifest.load(folder).details.get("horizon") if folder.is_dir() else None
    if told is None:
        return None
    if told["former"] and not file_of(folder_of(project, told["id"]), told["former"]).exists():
        raise ReleaseError(
            f"night {told['night']} cannot be made again: what it began with is kept until the night after it"
        )
    return dict(told)


def tidy(project: Project, told: Mapping[str, Any], release_id: str) -> None:
    """Remove what no later night needs."""
    keep = {file_of(Path(), one).name for one in (release_id, told["former"]) if one}
    with suppress(FileNotFoundError):
        for path in folder_of(project, told["id"]).iterdir():
            if path.name not in keep:
                remove(path)


@dataclass(frozen=True)
class Batch:
    """One night of a population, as `airlock nights` shows it."""

    night: int
    records: int
    status: str
    """"released", "due", "forgotten", "set aside", "given up", "before ingest.start" or "beyond the horizon"."""


def require_horizon(params: Params) -> int:
    """How many nights one price covers.

    Raises:
        InputError: params.yaml asks for no horizon.
    """
    if params.release.horizon is None:
        raise InputError(
            "params.yaml: release.horizon is null: say how many nights one price is to cover (docs/nights.md)"
        )
    return params.release.horizon


def batches(project: Project, workspace: Path, params: Params) -> list[Batch]:
    """Every batch of the data set, and what became of it in the horizon that params.yaml asks for.

    Raises:
        InputError: params.yaml asks for no horizon, or nothing was added.
    """
    horizon = require_horizon(params)
    known = handles.batches(workspace / handles.FOLDER / params.dataset)
    if len(known) < params.ingest.start:
        raise InputError(
            f"'{params.dataset}' has {len(known)} nights, and ingest.start is {params.ingest.start}: add more with "
            f"`airlock add FILE --name {params.dataset} --append`"
        )
    states = _states(project, params, known)
    gone, aside = (find(project, known[0].population) for find in (registry.forgotten, registry.set_aside))
    last = max(states, default=0)
    found = []
    for batch, handle in enumerate(known, start=1):
        number = batch - params.ingest.start + 1
        status = "due" if number > last else "given up"
        if number < 1:
            status = "before ingest.start"
        elif number in states:
            status = states[number]
        elif batch in gone:
            status = "forgotten"
        elif batch in aside:
            status = "set aside"
        elif number > horizon:
            status = "beyond the horizon"
        found.append(Batch(batch, handle.n, status))
    return found


def _states(project: Project, params: Params, known: Sequence[handles.Handle]) -> dict[int, str]:
    """What the ledger says of the nights of the horizon that these parameters ask for, by number."""
    first, release = known[params.ingest.start - 1], params.release
    try:
        ledger = Ledger.open(project.scratch_url if first.public else project.ledger_url, create=False)
    except LedgerError:
        return {}
    for horizon, nights, made in _paid(project, first.population, first.fingerprint, ledger):
        asked = (made.parameters.get("epsilon"), made.parameters.get("delta"), made.unit, made.neighbours)
        wanted = (release.epsilon, release.delta, release.unit, release.neighbours)
        if (nights, *asked) != (release.horizon, *wanted):
            continue
        listed = ledger.nights(first.population, horizon)
        return {
            _night(one): "released" if one.committed else "given up" if one.lost else "due" for one in listed
        }
    return {}
