"""Nights that are due, made up in their order: new parts are added, each night is released and trained on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from airlock.errors import BudgetRefused, InputError, StageFailed
from airlock.owner.add import add
from airlock.owner.home import Project, project
from airlock.owner.nights import Growth
from airlock.owner.registry import load_registry
from airlock.params import load_params
from airlock.records import handles
from airlock.run import budget, leftovers, nights, param_changes

SUFFIXES = (".csv", ".parquet")
Tell = Callable[[str], None]


def run(workspace: Path, parts: Path | None = None, *, tell: Tell) -> Iterator[int]:
    """Add new parts and release what is due, night by night; a night that fails ends it, and comes first next time.

    Yields:
        Every night that was released.

    Raises:
        InputError: a part is no batch, or params.yaml asks for no horizon.
        StageFailed: a night was not released.
    """
    if parts:
        add_parts(workspace, parts, tell)
    for night in due(workspace):
        release(workspace, night)
        yield night


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
    here = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    with param_changes.turn(workspace), param_changes.changed(workspace, after, stays=True):
        done = subprocess.run(
            [sys.executable, "-P", "-m", "dvc", "repro"],
            cwd=workspace,
            env={**os.environ, "PATH": here},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            lines = [
                line for line in (done.stdout + done.stderr).splitlines() if line.startswith("airlock: ")
            ]
            words = lines[-1].removeprefix("airlock: ") if lines else "`dvc repro` shows why"
            raise StageFailed(f"night {night} was not released: {words}")


def add_parts(workspace: Path, folder: Path, tell: Tell) -> list[int]:
    """Add every file of a folder that was never added, in the order of names, each as a night.

    Raises:
        InputError: the folder is none, or a part cannot be added; those before it stay added.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder: --parts names one in which every file is a night")
    place, name = project(workspace), load_params(workspace / "params.yaml").dataset
    known = _places(place, name)
    added = []
    for path in sorted(one.absolute() for one in folder.iterdir() if one.suffix.lower() in SUFFIXES):
        if str(path) in known:
            continue
        handle = add(place, workspace, path, name=name, growth=Growth()).handle
        tell(f"night {handle.night}: {handle.n:,} records added from {path.name}")
        added.append(handle.night or 1)
    return added


def _places(place: Project, name: str) -> set[str]:
    entry = load_registry(place).populations.get(name, {})
    nightly = [one.get("place") or one.get("was") for one in entry.get("nights", {}).values()]
    return {str(one) for one in (entry.get("records"), *nightly) if one}


def renew(workspace: Path) -> str:
    """Set params.yaml to a horizon that begins with the newest batch, if the ledger would pay for it; the line that
    says what it costs.

    Raises:
        BudgetRefused: it does not fit.
        InputError: there is no batch that is not in the present horizon.
    """
    params = load_params(workspace / "params.yaml")
    newest = nights.batches(project(workspace), workspace, params)[-1]
    if newest.status in ("released", "forgotten", "given up"):
        raise InputError(
            f"night {newest.night} is {newest.status}: a new horizon begins with records that are in no release; add "
            "them with `airlock add FILE --append`"
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
