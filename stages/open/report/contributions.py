"""The page's section on relevance: what was released first, what each input contributes, and the noise that it
carries.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from airlock.models.explained import Explanation
from stages.open.report.charts import bars, beside, heat_map, number
from stages.open.report.findings import Findings

Section = dict[str, Any]
MOST_INPUTS, MOST_CLASSES = 15, 12
"""Of a chart, and charts of the page."""


def relevance(findings: Findings) -> Section:
    """Which columns or pixels matter, as far as a release says so."""
    drawing = None
    if findings.relevance_grid:
        drawing = Markup(heat_map(findings.relevance_grid, title="Relevance of each pixel"))
    elif findings.relevance:
        drawing = Markup(bars(findings.relevance, title="Relevance of each column"))
    first = findings.priced.get("relevance")
    return {
        "drawing": drawing,
        "mode": findings.params.relevance.mode,
        "count": len(findings.relevance),
        "first": first.mechanism if first else None,
        "charts": contributions(findings.explanation) if findings.explanation else [],
        "carried": carried(findings.explanation) if findings.explanation else "",
    }


def contributions(found: Explanation) -> list[Section]:
    """Relevance for all classes and for each, and the noise that every input carries beside it."""
    drawn, mirrored = _with_noise(found), _mirrored(found)
    for place, label in enumerate(found.labels[: 1 if mirrored else MOST_CLASSES]):
        caption = f"For “{label}”: what its own records owe to each input."
        if found.grid is None:
            caption += " ↑: a larger value speaks for it, ↓: against it."
        if mirrored:
            caption += f" For “{found.labels[1]}” it is the same, turned round."
        drawn.append(_chart(found, found.relevance[:, place], label, caption, place=place))
    return drawn


def _mirrored(found: Explanation) -> bool:
    """Whether what one of two classes owes to each input is what the other owes to it."""
    if found.relevance.shape[1] != 2:
        return False
    one, other = found.relevance.T
    return bool(np.allclose(one, other, rtol=1e-6, atol=1e-12))


def _with_noise(found: Explanation) -> list[Section]:
    """All classes together, and the noise: of a table in one chart, of pictures as two heat maps."""
    whole = _chart(found, found.overall, "all classes", "How much each input contributes, over all classes.")
    if found.noise is None:
        return [whole]
    caption = "the noise that it carries after everything, in units of its own spread"
    if found.grid is not None:
        rows = found.noise.reshape(found.grid).tolist()
        picture = Markup(heat_map(rows, title="Noise of each input", from_least=True))
        told = f"Of each input, {caption}. The colour begins at the least noise, and not at 0."
        return [whole, {"drawing": picture, "caption": told}]
    ranked = np.argsort(-found.overall, kind="stable")[:MOST_INPUTS]
    pairs = [(found.names[one], float(found.overall[one]), float(found.noise[one])) for one in ranked]
    more = f" The first {MOST_INPUTS} of {len(found.names)}." if len(found.names) > MOST_INPUTS else ""
    drawing = beside(pairs, title="Relevance and noise of each input", names=("contributes", "noise"))
    said = (
        f"How much each input contributes, over all classes, and {caption}; largest contribution first.{more}"
    )
    return [{"drawing": Markup(drawing), "caption": said}]


def _chart(
    found: Explanation,
    values: NDArray[np.float64],
    title: str,
    caption: str,
    *,
    place: int | None = None,
) -> Section:
    title = f"Relevance, {title}"
    if found.grid is not None:
        rows = values.reshape(found.grid).tolist()
        return {"drawing": Markup(heat_map(rows, title=title)), "caption": caption}
    ranked = np.argsort(-np.abs(values), kind="stable")[:MOST_INPUTS]
    shown = [(_named(found, int(index), place), float(values[index])) for index in ranked]
    ends = None
    if place is not None:
        ends = [(float(found.low[index, place]), float(found.high[index, place])) for index in ranked]
    return {"drawing": Markup(bars(shown, title=title, intervals=ends)), "caption": caption}


def _named(found: Explanation, index: int, place: int | None) -> str:
    """An input, and which way it points."""
    if place is None:
        return found.names[index]
    arrow = {1.0: " ↑", -1.0: " ↓"}.get(float(found.direction[index, place]), "")
    return f"{found.names[index]}{arrow}"


def carried(found: Explanation) -> str:
    """Whether noise is where relevance is least, as a fact of this run."""
    if found.noise is None or len(found.noise) < 2:
        return ""
    order = np.argsort(-found.overall, kind="stable")
    half = len(order) // 2
    more, less = (float(found.noise[part].mean()) for part in (order[:half], order[half:]))
    if more <= 0 or less <= 0:
        return ""
    word = "less" if more < less else "more"
    return (
        f"the half of the inputs that contributes most carries {word} noise, in units of its own spread, than "
        f"the other half ({number(more, 3)} against {number(less, 3)}; over all inputs the orders of relevance "
        f"and noise correlate by {number(_together(found.overall, found.noise), 2)})"
    )


def _together(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Spearman's rank correlation, of values without ties; 0 where all are alike."""
    ranks = [np.argsort(np.argsort(values, kind="stable"), kind="stable") for values in (one, other)]
    spread = min(float(np.ptp(values)) for values in (one, other))
    return round(float(np.asarray(np.corrcoef(ranks))[0, 1]), 2) if spread > 0 else 0.0
