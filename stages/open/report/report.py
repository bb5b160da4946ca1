"""The report stage: one HTML page that needs nothing but itself.

It never sees a record. Whatever is missing becomes a sentence that says so; the same inputs give the same bytes.
"""

from __future__ import annotations

from pathlib import Path

from markupsafe import Markup

from airlock.inside.room import Room
from airlock.storage import write_json
from stages.open.report import sections
from stages.open.report.charts import number
from stages.open.report.compared import ablated, compared
from stages.open.report.findings import Findings, gather

HERE = Path(__file__).parent
PAGE, SUMMARY = "report.html", "summary.json"


def main(room: Room) -> None:
    """Write data/report/report.html from whatever exists, and its figures beside it."""
    folder = room.path("data/report")
    folder.mkdir(parents=True, exist_ok=True)
    findings = gather(room)
    (folder / PAGE).write_text(render(findings), encoding="utf-8")
    write_json(folder / SUMMARY, sections.summary(findings))


def render(findings: Findings) -> str:
    """The page as text."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined)
    environment.trim_blocks = environment.lstrip_blocks = True
    environment.filters |= {"number": number, "percent": percent}
    return environment.get_template(PAGE).render(
        style=Markup((HERE / "report.css").read_text()),
        dataset=findings.params.dataset,
        result=sections.result(findings),
        privacy=sections.privacy(findings),
        budget=sections.budget(findings),
        boundary=sections.boundary(findings),
        relevance=sections.relevance(findings),
        curve=sections.curve(findings),
        comparison=compared(findings),
        ablation=ablated(findings),
        parameters=list(sections.parameters(findings)),
        files=findings.files,
    )


def percent(share: float, places: int = 1) -> str:
    """A share as people write it."""
    return f"{100 * share:.{places}f} %"
