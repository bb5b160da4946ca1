"""docs/papers.md: the table of airlock/compare/comparison.py as a page, with one picture a data set.

Nothing in it is written by hand.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from airlock.compare import adlm_figures, figures, headline
from airlock.compare.ceiling import Ceilings
from airlock.compare.comparison import HEADINGS, ComparisonRow

INTRODUCTION = """# The mechanisms side by side

Made by `airlock compare --markdown docs/papers.md` from bench/results; do not edit.

`claimed` is the paper's epsilon; `proven, pure` and `proven` (at `delta`) are what follows for the \
released bytes. `attacked` is a lower
bound that an attack reached on the same mechanism at the same epsilon: on the release itself, run on \
made-up records (docs/attacks.md), or on
inputs that the mechanism's paper names. One on a release of which more is proven, which has less noise, is left \
out; of a paper's release those with no less noise count then, whatever epsilon they were asked for. \
`by law` is the same if the form of the noise is taken for \
granted, but not its size; `reached` if its size is too.
`accounting check` draws the priced noise alone; it tests accounting and sampler, and would not notice a \
wrong sensitivity. Each bound holds
with the confidence that bench/results/attacks.json states for it (95 % or more). ∞: nothing finite is
proven. `error` is of autoencoders: the mean over test records of the squared error summed over pixels in [0, 1]
(DP-MAC's paper may have halves of it: docs/errata/dp-mac.md).
Accuracies of AdLM and ILM with `label_noise coefficients` were measured before predictions used stored ends
(docs/errata/adlm.md) and were not measured again: they are too high for a model that answers each record by itself.
Pictures: accuracy against proven epsilon; on the dotted line those of which nothing finite is proven; \
crosses are the papers' figures, at
the epsilon that they claim.
"""
COLOURS = (
    "#1d5fae",
    "#c2410c",
    "#15803d",
    "#7e22ce",
    "#b91c1c",
    "#0e7490",
    "#a16207",
    "#be185d",
    "#4d7c0f",
    "#334155",
)
MARKS = "osD^vP*X<>"
LEAST_POINTS = 2


FIGURES = """## The papers' figures

Of MNIST. Against epsilon: crosses are the papers' figures at the epsilon that they claim, rings what was reproduced
of the same mechanism here (as in the table above: AdLM's by the statistics of the whole test set), the line is ours
at a proven epsilon. Against epochs: lines are accuracy as the authors' programs predict, by the statistics of the
whole test set, dots by those of training (what a model that answers each record by itself has), crosses where the
paper ends. Against the amount of data: [behaviour.md](behaviour.md). How far each curve came and what stopped it:
[errata/adlm.md](errata/adlm.md), [errata/pcdbn.md](errata/pcdbn.md).
"""

ADLM = """AdLM's own figures against epochs, at one claimed epsilon each: lines are accuracy as its programs predict,
crosses what the paper's text says (of 4c it says no figure, of CIFAR-10 a mean over epsilons), the triangle is DP-SGD
and the level line ours, both at that epsilon *proven*. "every step": raw records were read and noise was drawn anew in
every step. Its Figs. 1 and 3: [errata/adlm.md](errata/adlm.md#relevance-of-digits).
"""


def page(
    rows: list[ComparisonRow],
    folder: str,
    curves: Sequence[figures.Curve] = (),
    ceilings: Sequence[Ceilings] | None = None,
) -> str:
    """The page; `folder` is where its pictures are, seen from it."""
    lines = [INTRODUCTION, *headline.section(rows, folder, ceilings or ({}, {}))]
    if curves:
        lines += [FIGURES, f"![Accuracy against epsilon, MNIST]({folder}/{figures.EPSILONS})", ""]
        lines += [f"![Accuracy against epochs, MNIST]({folder}/{figures.EPOCHS})", ""]
    if adlm_figures.shown(curves):
        lines += [ADLM, f"![AdLM's Figs. 4b, 4c and 5b]({folder}/{adlm_figures.PICTURE})", ""]
    for place, group in _by_place(rows).items():
        lines += [f"## {place}", ""]
        if len(_points(group)) >= LEAST_POINTS:
            lines += [f"![Accuracy against proven epsilon, {place}]({folder}/{_file(place)})", ""]
        lines += ["| " + " | ".join(HEADINGS) + " |", "|" + "---|" * len(HEADINGS)]
        lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row.cells()) + " |" for row in group]
        lines.append("")
    reasons = sorted({(row.mechanism, row.reading, row.reason) for row in rows if row.reason})
    lines += ["## Where nothing finite is proven", ""] if reasons else []
    lines += [f"- {name} ({reading}): {reason}." for name, reading, reason in reasons]
    return "\n".join(lines).rstrip() + "\n"


def draw_all(
    rows: list[ComparisonRow],
    folder: Path,
    curves: Sequence[figures.Curve] = (),
    ceilings: Sequence[Ceilings] = (),
) -> None:
    """One SVG a data set, and the papers' figures; the same rows give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    headline.draw(rows, folder / headline.PICTURE, ceilings)
    if curves:
        figures.draw_epsilons(rows, folder / figures.EPSILONS)
        figures.draw_epochs(curves, folder / figures.EPOCHS)
        adlm_figures.draw(rows, curves, folder / adlm_figures.PICTURE)
        figures.draw_degrees(curves, folder / figures.DEGREES)
    for place, group in _by_place(rows).items():
        if len(_points(group)) >= LEAST_POINTS:
            draw(place, group, folder / _file(place))


def draw(place: str, rows: list[ComparisonRow], target: Path) -> None:
    """Accuracy against proven epsilon, a colour a mechanism."""
    figure, axes = canvas()
    finite = [row.proven for row in _points(rows) if row.proven is not None and math.isfinite(row.proven)]
    beyond = 4 * max([*finite, *(row.claimed or 0.0 for row in rows), 1.0])
    names = sorted({row.mechanism for row in _points(rows)})
    for index, name in enumerate(names):
        own = [row for row in _points(rows) if row.mechanism == name]
        look = {
            "color": COLOURS[index % len(COLOURS)],
            "marker": MARKS[index % len(MARKS)],
            "linestyle": "none",
        }
        places = [beyond if row.proven is None or math.isinf(row.proven) else row.proven for row in own]
        axes.plot(places, [row.accuracy for row in own], label=name, alpha=0.85, **look)
        papers = [
            (row.claimed or row.epsilon, row.paper_accuracy) for row in own if row.paper_accuracy is not None
        ]
        if papers:
            axes.plot(*zip(*sorted(set(papers)), strict=True), "x", color=look["color"], markersize=9)
    axes.axvline(beyond, color="#94a3b8", linestyle=":", linewidth=1)
    axes.set(
        xscale="log",
        xlabel="proven epsilon (right edge: nothing finite is proven)",
        ylabel="accuracy",
        title=place,
    )
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    keep(figure, target)


def canvas(size: tuple[float, float] = (8, 4)) -> tuple[Any, Any]:
    """An empty picture whose bytes do not depend on the machine or the day."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "airlock", "svg.fonttype": "none", "font.size": 10})
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=size, layout="constrained")
    axes.grid(alpha=0.3)
    return figure, axes


def keep(figure: Any, target: Path) -> None:
    """Write the picture and let go of it."""
    import matplotlib.pyplot as plt

    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(figure)


def _points(rows: list[ComparisonRow]) -> list[ComparisonRow]:
    """The runs that have a place in the picture: an accuracy, and something that was asked for or proven."""
    return [row for row in rows if row.accuracy is not None and row.proven is not None]


def _by_place(rows: list[ComparisonRow]) -> dict[str, list[ComparisonRow]]:
    found: dict[str, list[ComparisonRow]] = defaultdict(list)
    for row in rows:
        found[row.place].append(row)
    return dict(sorted(found.items()))


def _file(place: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in place).strip("-") + ".svg"
