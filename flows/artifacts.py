"""What a run shows on the Prefect server, all of it public: boundary, releases, budget, metrics, report.

Metrics are written by code that anyone may edit, and shown on a page that holds the server's password: only
figures and plain words are passed on.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from prefect.artifacts import create_link_artifact, create_table_artifact

from airlock.errors import AirlockError
from airlock.evidence.audit import AuditRow, audit
from airlock.inside import manifest
from airlock.owner.home import project
from airlock.params import load_params
from airlock.run import budget
from flows.pages import REPORT, REPORT_URL

PLAIN_TEXT = re.compile(r"[A-Za-z0-9 _.:+-]{1,80}")
ALL_LAYERS = 5


def show_boundary(workspace: Path) -> None:
    """The audit, what was released at which price, and the budget; also of a run that failed."""
    found = audit(workspace)
    verdict = (
        "The boundary holds." if found.holds else "The boundary does not hold: " + "; ".join(found.problems)
    )
    create_table_artifact(table=[_row(row) for row in found.stages], key="boundary", description=verdict)
    create_table_artifact(
        table=_releases(workspace), key="releases", description="What each release has cost, as proven."
    )
    create_table_artifact(
        table=[_budget(workspace)],
        key="budget",
        description="Privacy budget of the population that this run reads.",
    )


def show_results(workspace: Path) -> None:
    """The metrics and a link to the report."""
    rows = [{"metric": name, "value": value} for name, value in _metrics(workspace / "data/metrics")]
    create_table_artifact(table=rows, key="metrics", description="Metrics of this run.")
    link = os.environ.get(REPORT_URL) or (workspace / REPORT).resolve().as_uri()
    create_link_artifact(
        link=link, link_text="report.html", key="report", description="The report of this run."
    )


def _row(row: AuditRow) -> dict[str, Any]:
    return {
        "stage": row.name,
        "zone": row.zone,
        "could read raw": "yes" if row.could_read_raw else "no",
        "could read sealed": "yes" if row.could_read_sealed else "no",
        "did read records": row.did_read_records,
        "passes": row.passes,
        # The server's page cuts long cells off.
        "layers": f"all {ALL_LAYERS}" if len(row.enforcement) == ALL_LAYERS else ", ".join(row.enforcement),
    }


def _releases(workspace: Path) -> list[dict[str, Any]]:
    rows = []
    for folder in sorted((workspace / "data/released").glob("*/")):
        try:
            made = manifest.load(folder)
        except (AirlockError, OSError, ValueError):
            continue  # a run that failed may leave one half made; the audit's table says so
        if made.applies:
            rows.append(
                {
                    "release": folder.name,
                    "mechanism": made.mechanism,
                    "epsilon": _figure(made.proven.epsilon),
                    "delta": made.proven.delta,
                    "unit": made.proven.unit,
                    "passes": made.passes,
                    "id": made.release_id[:16],
                }
            )
    return rows


def _budget(workspace: Path) -> dict[str, Any]:
    population = load_params(workspace / "params.yaml").dataset
    spent = budget.ledger_of(project(workspace), workspace, population).spent(population)
    return {
        "population": population,
        "epsilon spent": _figure(spent.epsilon),
        "at delta": spent.delta,
        "cap": "none (public data)" if spent.cap_epsilon is None else spent.cap_epsilon,
        "epsilon left": "no bound" if spent.left is None else _figure(spent.left),
        "releases": spent.releases,
    }


def _figure(value: float) -> str:
    return f"{value:.4g}"


def _metrics(folder: Path) -> Iterator[tuple[str, Any]]:
    for path in sorted(folder.glob("*.json")):
        yield from _flat(path.stem, json.loads(path.read_text()))


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(f"{name}.{key}", item)
    elif isinstance(value, int | float) or (isinstance(value, str) and PLAIN_TEXT.fullmatch(value)):
        yield "".join(PLAIN_TEXT.findall(name)), value
