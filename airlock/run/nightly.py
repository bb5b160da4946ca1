"""Nights that are due, made up in their order: new parts are added, each night is released and trained on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from airlock.errors import AirlockError, BudgetRefused, InputError, StageFailed
from airlock.owner.add import add
from airlock.owner.home import Project, project
from airlock.owner.nights import Growth, set_aside
from airlock.owner.registry import changing_registry, load_registry
from airlock.params import load_params
from airlock.records import handles
from airlock.run import budget, dvc, failures, leftovers, nights, param_changes

SUFFIXES = (".csv", ".parquet")
BROKEN = ("RecordError", "SchemaError")
"""What ingest ends with where records break their schema."""
Tell = Callable[[str], None]


def run(workspace: Path, parts: Path | None = None, *, tell: Tell) -> Iterator[int]:
    """Add new parts and release what is due, night by night; a night that fails ends it, and comes first next time,
    unless its records break the schema: then it is set aside, and the next one goes on.

    Args:
        parts: the folder of parts; by default the one that `airlock nights watch` has named, if any.

    Yields:
        Every night that was released.

    Raises:
        InputError: a part is no batch, or params.yaml asks for no horizon.
        StageFailed: a night was not released.
    """
    refused = add_parts(workspace, parts, tell) if (parts := parts or watched(workspace)) else []
    for night in due(workspace):
        release(workspace, night)
        yield night
    if refused:
        raise refused[0].error


def due(workspace: Path) -> list[int]:
    """The nights to release, in order.

    Raises:
        BudgetRefused: the next one lies beyond the horizon.
    """
    params = load_params(workspace / "params.yaml")
    found = nights.batches(project(workspace), workspace, params)
    waiting = [one.night for one in found if one.status == "due"]
    beyond = [one.night for one in found if one.status == "beyond the horizon"]
    if beyond and not waiting:
        changed = budget.override(params, {"ingest.night": beyond[0]})
        nights.check_place(changed, handles.public_facts(workspace, changed))
    return waiting


def release(workspace: Path, night: int) -> None:
    """Bring the pipeline up to one night; `ingest.night` stays there if it ends well.

    Raises:
        StageFailed: it did not.
    """
    leftovers.sweep_workspace(workspace)
    after = param_changes.text_with(workspace, {"ingest.night": night})
    with param_changes.turn(workspace), param_changes.changed(workspace, after, stays=True):
        done = dvc.run(workspace, "repro", quiet=True)
        if done.returncode != 0:
            lines = [
                line for line in (done.stdout + done.stderr).splitlines() if line.startswith("airlock: ")
            ]
            words = lines[-1].removeprefix("airlock: ") if lines else "`dvc repro` shows why"
            if set_aside_if_broken(workspace, night):
                words += "; this night is set aside, and the next one goes on"
            raise StageFailed(f"night {night} was not released: {words}")


def set_aside_if_broken(workspace: Path, night: int) -> bool:
    """Pass over a night whose records break the schema, as ingest has just found, so that later ones go on; whether
    that is so. The first night is never passed over, nor one that the ledger knows.
    """
    params = load_params(workspace / "params.yaml")
    failed = next((one for one in failures.of_workspace(workspace) if one.stage == "ingest"), None)
    if failed is None or failed.error not in BROKEN or night == params.ingest.start:
        return False
    place = project(workspace)
    if any(one.night == night and one.status != "due" for one in nights.batches(place, workspace, params)):
        return False
    set_aside(place, workspace, params.dataset, night)
    return True


def watch(workspace: Path, folder: Path) -> Path:
    """Remember the folder in which every new file is a night: only the owner's machine knows it.

    Raises:
        InputError: it is none, or has more in it than parts.
    """
    folder = folder.absolute()
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder: name one in which every new file is a night")
    if any(
        place.resolve().is_relative_to(folder.resolve()) for place in (workspace, project(workspace).folder)
    ):
        raise InputError(f"{folder} holds the workspace or AIRLOCK_HOME: name a folder of parts alone")
    name = load_params(workspace / "params.yaml").dataset
    with changing_registry(project(workspace)) as entries:
        if name not in entries.populations:
            raise InputError(
                f"'{name}' was not added yet: airlock add FILE --name {name} --append, with the first batch"
            )
        entries.populations[name]["nightly_folder"] = str(folder)
    return folder


def watched(workspace: Path) -> Path | None:
    """The folder of parts that the owner has named."""
    name = load_params(workspace / "params.yaml").dataset
    found = load_registry(project(workspace)).populations.get(name, {}).get("nightly_folder")
    return Path(found) if found else None


@dataclass(frozen=True)
class Refused:
    """A part that is no batch, and why: words about records, for the owner alone."""

    path: Path
    error: AirlockError


def add_parts(workspace: Path, folder: Path, tell: Tell) -> list[Refused]:
    """Add every file of a folder that was never added, in the order of names, each as a night.

    Returns:
        Parts that cannot be added. They are not tried again until their file changes.

    Raises:
        InputError: the folder is none, or params.yaml asks for no horizon: nothing is added then.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder: --parts names one in which every file is a night")
    params = load_params(workspace / "params.yaml")
    nights.require_horizon(params)
    place, name = project(workspace), params.dataset
    refused = []
    for path in sorted(one.absolute() for one in folder.iterdir() if one.suffix.lower() in SUFFIXES):
        if _known(place, name, path):
            continue
        state = _state(path)
        try:
            handle = add(place, workspace, path, name=name, growth=Growth()).handle
            tell(f"night {handle.night}: {handle.n:,} records added from {path.name}")
        except InputError as error:
            refused.append(Refused(path, error))
        with changing_registry(place) as entries:
            entries.populations.setdefault(name, {}).setdefault("tried", {})[str(path)] = state
    return refused


def _known(place: Project, name: str, path: Path) -> bool:
    """Whether a part was added or tried, as it is now; one that was set aside comes again once it is changed."""
    entry = load_registry(place).populations.get(name, {})
    tried = entry.get("tried", {}).get(str(path))
    found = entry.get("nights", {}).values()
    aside = any(one.get("place") == str(path) and one.get("aside") for one in found)
    here = {one.get("place") or one.get("was") for one in found if not one.get("aside")} | {
        entry.get("records")
    }
    if str(path) in here:
        return True
    if aside and tried is None:
        return True
    return bool(tried == _state(path))


def _state(path: Path) -> str:
    found = path.stat()
    return f"{found.st_mtime_ns} {found.st_size}"


def renew(workspace: Path) -> str:
    """Set params.yaml to a horizon that begins with the first batch beyond the present one, or with the newest, if the
    ledger would pay for it; the line that says what it costs.

    Raises:
        BudgetRefused: it does not fit.
        InputError: there is no batch that is not in the present horizon, or one that is due would be left out.
    """
    params = load_params(workspace / "params.yaml")
    found = nights.batches(project(workspace), workspace, params)
    newest = next((one for one in found if one.status == "beyond the horizon"), found[-1])
    if newest.status in ("released", "forgotten", "given up", "set aside"):
        raise InputError(
            f"night {newest.night} is {newest.status}: a new horizon begins with records that are in no release; add "
            "them with `airlock add FILE --append`"
        )
    due = [str(one.night) for one in found if one.status == "due" and one.night < newest.night]
    if due or newest.night == params.ingest.start:
        raise InputError(
            f"night {', '.join(due) or newest.night} is due in the present horizon: `airlock nights run` releases it; "
            "to leave it out, set ingest.start by hand"
        )
    settings = {"ingest.start": newest.night, "ingest.night": newest.night}
    (point,) = budget.price(project(workspace), workspace, budget.override(params, settings))
    if point.objection:
        raise BudgetRefused(point.objection)
    param_changes.write(workspace, param_changes.text_with(workspace, settings))
    return (
        f"ingest.start: {newest.night}; a new horizon of {params.release.horizon} nights will cost epsilon "
        f"{params.release.epsilon:g} at delta {params.release.delta:g}: {point.quote.before:.4g} spent, "
        f"{point.quote.together:.4g} then. Next: airlock nights run"
    )
