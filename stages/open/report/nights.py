"""The section on nights: accuracy, epsilon and change over time, of a population that grows."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from airlock.models import drift
from stages.open.report.charts import line_chart
from stages.open.report.findings import Findings

SHOWN = 10
"""Nights in the table: the last ones."""


def nights(findings: Findings) -> dict[str, Any] | None:
    """What every night told, and whether records change; None without a horizon."""
    found = findings.nights
    if not found:
        return None
    rows = found["rows"]
    points = [(float(row["night"]), 100 * float(row["accuracy"])) for row in rows if "accuracy" in row]
    chart = ""
    if len(points) > 1:  # without a public holdout no night has a figure
        chart = line_chart(points, title="Accuracy by night", x_label="night", y_label="accuracy, %")
    changes = drift.changes(drift.told_of(rows), found["names"], found["columns"], found["nights"])
    return {
        "rows": rows[-SHOWN:],
        "horizon": found["nights"],
        "drawing": Markup(chart) if chart else None,
        "changes": changes,
        "alarms": [change.name for change in changes if change.alarm],
        "rate": drift.ALARMS,
    } | _stretches(rows)


def _stretches(rows: list[dict[str, Any]]) -> dict[str, Any]:
    middle = len(rows) // 2
    return {
        "earlier": f"nights {rows[0]['night']} to {rows[middle - 1]['night']}" if middle else "",
        "later": f"nights {rows[middle]['night']} to {rows[-1]['night']}",
    }
