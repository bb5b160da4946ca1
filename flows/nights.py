"""Nights of a population that grows, in the scheduled pipeline: new parts are added, what is due is released and
trained on, night by night, and a page tells how it went.

Which folder the parts are in is the owner's word (`airlock nights watch`), never a server's.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from prefect import get_run_logger, task
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE

from airlock.errors import StageFailed
from airlock.models import drift
from airlock.owner.home import project
from airlock.params import load_params
from airlock.run import budget, history, nightly
from flows import overrides as parameters

Night = Callable[[int], None]
"""Releases a night and trains on it."""


@task(name="new parts", retries=0, cache_policy=NO_CACHE, persist_result=False)
def add_new_parts(workspace: Path) -> str:
    """Add parts that are new; the classes of errors of those that cannot be added, with no word about their records."""
    folder = nightly.watched(workspace)
    if folder is None:
        return ""
    refused = nightly.add_parts(workspace, folder, get_run_logger().info)
    log = project(workspace).log
    log.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(log / "flow.out", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(descriptor, "a") as owners:
        for one in refused:
            owners.write(f"part {one.path.name} was not added: {one.error}\n")
    return ", ".join(sorted({type(one.error).__name__ for one in refused}))


def make_nights(workspace: Path, night: Night) -> None:
    """Add new parts, then release every night that is due. A run that met broken records fails in the end, and the
    next one goes on with the next night.

    Raises:
        StageFailed: with the stage and the class of the error.
    """
    refused = add_new_parts(workspace)
    number = 0
    try:
        for number in nightly.due(workspace):
            night(number)
    except StageFailed:
        nightly.set_aside_if_broken(workspace, number)
        raise
    finally:
        show_nights(workspace)  # once a run: the page of its last night
    if refused:
        raise StageFailed(
            f"stage 'add' failed: {refused}; its output is in the owner's log, log/flow.out in AIRLOCK_HOME"
        )


def show_nights(workspace: Path) -> None:
    """Accuracy and epsilon of every night, and what has changed, on the server's page."""
    params, place = load_params(workspace / parameters.FILE), project(workspace)
    found = history.tonight(place, workspace, params, budget.ledger_of(place, workspace, params.dataset))
    if found is None:
        return
    create_table_artifact(
        table=[_row(row) for row in found["rows"]],
        key="nights",
        description=f"{found['rows'][-1]['night']} of {found['nights']} nights, for one price.",
    )
    create_markdown_artifact(
        markdown=_page(found), key="drift", description="What has changed between nights."
    )


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "night": row["night"],
        "records": row["records"],
        "records so far": row["total"],
        "accuracy": f"{100 * row['accuracy']:.1f} %" if "accuracy" in row else "not measured",
        "epsilon of all nights": f"{row['epsilon']:.4g}",
    }


def _page(found: Mapping[str, Any]) -> str:
    changes = drift.changes(drift.told_of(found["rows"]), found["names"], found["columns"], found["nights"])
    if not changes:
        return "Two nights with records are needed."
    alarms = [_plain(change.name) for change in changes if change.alarm]
    head = (
        "Earlier half of the nights beside the later one. False alarms over all columns and all nights: "
        f"{100 * drift.ALARMS:g} % at most. **{'Changed: ' + ', '.join(alarms) if alarms else 'No change.'}**"
    )
    names = ("column", "all nights (95 %)", "earlier", "later", "difference", "beyond", "changed")
    lines = [
        f"| {_plain(one.name)} | {one.mean:.3f} ± {one.interval:.3f} | {one.earlier:.3f} | {one.later:.3f} | "
        f"{one.difference:+.3f} | {one.threshold:.3f} | {'yes' if one.alarm else ''} |"
        for one in changes
    ]
    return "\n".join([head, "", "| " + " | ".join(names) + " |", "|---" * len(names) + "|", *lines])


def _plain(name: str) -> str:
    """A column's name, harmless on a page: names come from the schema."""
    return json.dumps(name)[1:-1].replace("|", "/").replace("<", "(").replace("`", "'")
