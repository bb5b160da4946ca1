"""What the report stage is audited about the boundary: the audit in words, and the picture.

It computes neither itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from airlock.evidence.audit import AuditRow
from airlock.evidence.edges import answer
from airlock.evidence.picture import picture
from airlock.evidence.zones import Graph

REPORT = "report"


def page_facts(
    rows: Iterable[AuditRow],
    graph: Graph,
    budget: Mapping[str, Any] | None,
    evaluation: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Facts for the page. The report's own receipt is signed after the page is written, so its row says
    "running".
    """
    audited = [asdict(row) for row in rows]
    for row in audited:
        if row["name"] == REPORT:
            row |= {"did_read_records": "running", "passes": 0, "enforcement": [], "releases": [], "when": ""}
        row["answer"] = answer(row["did_read_records"])
    facts = {"audit": audited, "budget": budget, "picture": picture(graph, audited)}
    return facts | ({"evaluation": evaluation} if evaluation else {})
