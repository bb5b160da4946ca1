"""The report stage: one HTML page that needs nothing but itself.

It never sees a record. Whatever is missing becomes a sentence that says so; the same inputs give the same
bytes. It has no script at all, and a policy by which a browser would run none.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

from markupsafe import Markup

from airlock.inside.room import Room
from airlock.storage import write_json
from stages.open.report import contributions, sections
from stages.open.report.charts import number
from stages.open.report.compared import ablated, compared
from stages.open.report.findings import Findings, gather
from stages.open.report.nights import nights
from stages.open.report.profile import write_profile

HERE = Path(__file__).parent
PAGE, SUMMARY = "report.html", "summary.json"
# Shares as classes: a `style` attribute would need a policy that allows inline style of anybody.
SHADES = "".join(f".share-{part} {{ --share: {part / 100:.2f}; }}\n" for part in range(101))


def main(room: Room) -> None:
    """Write data/report/report.html from whatever exists, and its figures beside it."""
    folder = room.path("data/report")
    folder.mkdir(parents=True, exist_ok=True)
    findings = gather(room)
    (folder / PAGE).write_text(render(findings, write_profile(room)), encoding="utf-8")
    write_json(folder / SUMMARY, sections.summary(findings))


def render(findings: Findings, profile: dict[str, Any] | None = None) -> str:
    """The page as text; `profile` is of a release of `inputs`."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined)
    environment.trim_blocks = environment.lstrip_blocks = True
    environment.filters |= {"number": number, "percent": percent, "shade": shade}
    style = (HERE / "report.css").read_text() + SHADES
    return environment.get_template(PAGE).render(
        policy=Markup(
            policy([style, *re.findall("<style>(.*?)</style>", findings.picture or "", re.DOTALL)])
        ),
        style=Markup(style),
        dataset=findings.params.dataset,
        result=sections.result(findings),
        privacy=sections.privacy(findings),
        budget=sections.budget(findings),
        nights=nights(findings),
        boundary=sections.boundary(findings),
        relevance=contributions.relevance(findings),
        profile=profile,
        curve=sections.curve(findings),
        comparison=compared(findings),
        ablation=ablated(findings),
        parameters=list(sections.parameters(findings)),
        files=findings.files,
    )


def policy(styles: Iterable[str]) -> str:
    """A Content-Security-Policy: nothing is loaded, run or sent, and no style counts but these texts."""
    hashes = " ".join(f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in styles)
    return f"default-src 'none'; style-src {hashes}; img-src data:; base-uri 'none'; form-action 'none'"


def shade(share: float) -> str:
    """The class of a share, to the nearest hundredth."""
    return f"share-{round(100 * min(max(share, 0.0), 1.0))}"


def percent(share: float, places: int = 1) -> str:
    """A share as people write it."""
    return f"{100 * share:.{places}f} %"
