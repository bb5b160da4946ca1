"""What only the owner's machine can check: that raw files are still the ones that were added, and the ledger
whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from airlock.errors import AirlockError
from airlock.ledger import Ledger, Spent
from airlock.owner import keys, registry
from airlock.owner.home import Project, project
from airlock.owner.keys import Keyring
from airlock.params import load_params
from airlock.records import handles
from airlock.run import budget


def custody_problems(workspace: Path) -> list[str]:
    """Everything wrong with raw files and ledgers, one line each; nothing on a machine that holds neither."""
    place = project(workspace)
    if not keys.exist(place):
        return []
    return [*_changed_records(workspace, place), *budget.problems(place, workspace)]


def _changed_records(workspace: Path, place: Project) -> Iterator[str]:
    keyring = Keyring.load(place)
    for folder in sorted((workspace / "data/handles").glob("*")):
        gone = registry.forgotten(place, folder.name)
        records = [one for one in handles.batches(folder) if (one.night or 1) not in gone]
        held_out = [one for role, one in handles.read_folder(folder).items() if role == "holdout"]
        for handle in (*records, *held_out):
            try:
                registry.check(place, keyring, handle)
            except AirlockError as error:
                yield str(error)


def balance(workspace: Path) -> dict[str, Any] | None:
    """The population's total for the report page, or None on a machine without its ledger."""
    place = project(workspace)
    found = handles.of(workspace, load_params(workspace / "params.yaml").dataset)
    records = found.get("records")
    if records is None or not keys.exist(place):
        return None
    spent = Ledger.open(place.scratch_url if records.public else place.ledger_url, create=False).spent(
        records.population
    )
    return budget_of(spent, scratch=records.public)


def budget_of(spent: Spent, *, scratch: bool) -> dict[str, Any]:
    """A population's total in the words of the report page."""
    return {
        "population": spent.population,
        "epsilon": spent.epsilon if math.isfinite(spent.epsilon) else "infinity",
        "delta": spent.delta,
        "cap_epsilon": spent.cap_epsilon,
        "left": spent.left,
        "scratch": scratch,
    }
