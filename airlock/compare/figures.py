"""The papers' two kinds of figures with ours over theirs: accuracy against epsilon, and against epochs.

Of MNIST, on which every one of them reports: what the paper claims, what its mechanism reaches here, and what ours
proves. airlock/compare/adlm_figures.py has AdLM's own. Accuracy against the amount of data is in
docs/behaviour-size.svg.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airlock.compare.comparison import FRESH, UNIT_PIXELS, ComparisonRow, load_runs
from airlock.compare.headline import CELLS, HeadlineCell, part_of_batches

EPSILONS, EPOCHS, DEGREES = "epsilons.svg", "epochs.svg", "pcdbn-degrees.svg"
DATASET = "mnist"
CLAIMED, REACHED, OURS = "#b91c1c", "#c2410c", "#1d5fae"
LARGEST = 10.0
"""Epsilon that is drawn: no paper claims more, and ours has no need to."""
LENGTHS = {"adlm": 500, "ilm": 500, "pcdbn": 2400}
"""Epochs after which a paper reports."""
AFTER = (10, 100, 600, 2400)
"""Epochs at which degrees are compared."""
SHADES = ("#c2410c", "#7e22ce", "#15803d", "#0e7490", "#a16207", "#334155")


@dataclass(frozen=True)
class Curve:
    """Accuracy after some epochs of one training; `stored`: by the statistics of training, or else by those of the
    test set.
    """

    mechanism: str
    claimed: float
    reading: str
    stored: bool
    points: tuple[tuple[int, float], ...]
    dataset: str = DATASET

    @property
    def read(self) -> str:
        """What part of a batch a step read, whether that were raw records, and whether its pixels were in [0, 1]."""
        part = part_of_batches(self.reading) or "whole batches"
        unit = ", in [0, 1]" * (UNIT_PIXELS in self.reading)
        return part + ", every step" * (FRESH in self.reading) + unit


def load_curves(folder: Path) -> list[Curve]:
    """All curves of a results folder, by claimed epsilon; of several keys the first."""
    found = []
    for run in load_runs(folder):
        if run.get("claimed") and run.get("curves"):
            curves: Mapping[str, Any] = run["curves"]
            kept = curves if "batch" in curves else curves[min(curves, key=int)]
            for name in ("batch", "stored"):
                points = tuple(sorted((int(epoch), value) for epoch, value in kept[name].items()))
                reading = str(run.get("reading", ""))
                about = (run["mechanism"], run["claimed"], reading, name == "stored")
                found.append(Curve(*about, points, run["dataset"]))
    return sorted(found, key=lambda one: (one.dataset, one.mechanism, one.claimed, one.reading, one.stored))


def draw_epsilons(rows: Sequence[ComparisonRow], target: Path) -> None:
    """One panel a paper: crosses are its own figures, rings its mechanism here, the line is ours."""
    shown = [row for row in rows if row.dataset == DATASET]
    names = [cell.mechanism for cell in CELLS if cell.dataset == DATASET and cell.mechanism != "ilm"]
    panels = [name for name in dict.fromkeys(names) if any(row.mechanism == name for row in shown)]
    if not panels:
        return
    figure, axes = panels_of(len(panels))
    ours = sorted(
        {
            (row.epsilon, 100 * row.accuracy)
            for row in shown
            for cell in CELLS
            if row is cell.ours(shown) and row.epsilon and row.accuracy
        }
    )
    for name, panel in zip(panels, axes, strict=True):
        cells = [cell for cell in CELLS if (cell.dataset, cell.mechanism) == (DATASET, name)]
        theirs = [(cell.claimed, 100 * cell.accuracy) for cell in cells]
        # Over the marks of ours, which are filled.
        panel.plot(*columns(theirs), "x", color=CLAIMED, zorder=4)
        panel.plot(*columns(_reached(name, shown)), "o", color=REACHED, fillstyle="none", zorder=4)
        if ours:
            panel.plot(*columns(ours), "D-", color=OURS, markersize=4)
        panel.set(xscale="log", xlabel="epsilon", title=cells[0].paper)
    axes[0].set(ylabel="accuracy on MNIST, %")
    marks = (("x", CLAIMED, "claimed"), ("o", REACHED, "the same, here"), ("D", OURS, "ours, proven"))
    for mark, colour, label in marks:
        axes[-1].plot([], [], mark, color=colour, fillstyle="none" if mark == "o" else "full", label=label)
    axes[-1].legend(fontsize=8, frameon=False, loc="lower right")
    _keep(figure, target)


def _reached(name: str, rows: Sequence[ComparisonRow]) -> list[tuple[float, float]]:
    """The longest run of a paper's mechanism at each epsilon that it claims."""
    claims = {row.claimed for row in rows if row.mechanism == name and row.claimed}
    longest = [
        HeadlineCell("", DATASET, name, claimed, 0.0).reproduced(rows)
        for claimed in sorted(claims)
        if claimed <= LARGEST
    ]
    return [
        (row.claimed, 100 * row.accuracy)
        for row in longest
        if row and row.claimed and row.accuracy is not None
    ]


def draw_epochs(curves: Sequence[Curve], target: Path) -> None:
    """One panel a mechanism whose paper has such a figure: lines as its program predicts, dots by the statistics of
    training, a cross where the paper ends. Pixels in [0, 1] only where the program itself was not run; other degrees
    have a picture of their own.
    """
    curves = [curve for curve in curves if curve.dataset == DATASET and "chebyshev-" not in curve.reading]
    panels = [name for name in LENGTHS if any(curve.mechanism == name for curve in curves)]
    if not panels:
        return
    figure, axes = panels_of(len(panels), height=5.6)
    for name, panel in zip(panels, axes, strict=True):
        own = [curve for curve in curves if curve.mechanism == name]
        there = {curve.claimed for curve in own if UNIT_PIXELS not in curve.reading}
        own = [curve for curve in own if UNIT_PIXELS not in curve.reading or curve.claimed not in there]
        labels = list(dict.fromkeys(_label(curve) for curve in own))
        for curve in own:
            colour = SHADES[labels.index(_label(curve)) % len(SHADES)]
            up = [(epoch, 100 * value) for epoch, value in curve.points]
            look = {"linestyle": "none", "marker": "."} if curve.stored else {"linestyle": "-"}
            panel.plot(*columns(up), color=colour, label=None if curve.stored else _label(curve), **look)
        for cell in CELLS:
            if (cell.dataset, cell.mechanism) == (DATASET, name):
                # In the colour of the first curve at that epsilon: crosses of two epsilons are told apart.
                alike = (at for at, one in enumerate(labels) if one.startswith(f"claimed {cell.claimed:g},"))
                place = next(alike, None)
                colour = CLAIMED if place is None else SHADES[place % len(SHADES)]
                label = f"paper, {cell.claimed:g}"
                panel.plot([LENGTHS[name]], [100 * cell.accuracy], "x", color=colour, label=label, zorder=4)
        panel.set(xscale="log", xlabel="epochs", title=name, ylim=(0, 100))
        legend_below(panel)
    axes[0].set(ylabel="accuracy on MNIST, %")
    _keep(figure, target)


def draw_degrees(curves: Sequence[Curve], target: Path) -> None:
    """pCDBN's Fig. 6: accuracy against the degree of Chebyshev's series at a claimed 0.5, as the program predicts,
    after some epochs; dashes are the published polynomial, the cross is the paper's figure for it.
    """
    from airlock.compare.papers import canvas

    cell = next(one for one in CELLS if (one.dataset, one.mechanism) == (DATASET, "pcdbn"))
    own = [
        one for one in curves if (one.mechanism, one.claimed, one.stored) == ("pcdbn", cell.claimed, False)
    ]
    degrees = {
        int(found[1]): dict(one.points)
        for one in own
        if (found := re.search(r"chebyshev-(\d+)", one.reading))
    }
    theirs = next((dict(one.points) for one in own if "published-7" in one.reading), {})
    if not degrees:
        return
    figure, axes = canvas((6, 4))
    for epoch, colour in zip(AFTER, SHADES, strict=False):
        up = sorted((degree, 100 * points[epoch]) for degree, points in degrees.items() if epoch in points)
        axes.plot(*columns(up), "o-", color=colour, label=f"after {epoch:,} epochs")
        if epoch in theirs:
            axes.axhline(100 * theirs[epoch], color=colour, linestyle="--", linewidth=1)
    axes.plot([7], [100 * cell.accuracy], "x", color=CLAIMED, label=f"paper, {LENGTHS['pcdbn']:,} epochs")
    axes.set(xlabel="degree L", ylabel="accuracy on MNIST, %", xticks=sorted(degrees), title="pCDBN")
    axes.legend(fontsize=8, frameon=False, loc="best")
    _keep(figure, target)


def _label(curve: Curve) -> str:
    """Claimed epsilon, and what part of a batch was read."""
    return f"claimed {curve.claimed:g}, {curve.read}"


def legend_below(panel: Any) -> None:
    """Where no line runs through it."""
    panel.legend(fontsize=7, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.16))


def panels_of(count: int, height: float = 3.6) -> tuple[Any, Any]:
    """Panels side by side, one scale of accuracy."""
    from airlock.compare.papers import canvas

    figure, first = canvas((2.9 * count + 0.6, height))
    first.remove()
    axes = figure.subplots(1, count, sharey=True, squeeze=False)[0]
    for one in axes:
        one.grid(alpha=0.3)
    return figure, axes


def columns(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Across and up."""
    return [across for across, _ in points], [up for _, up in points]


def _keep(figure: Any, target: Path) -> None:
    from airlock.compare.papers import keep

    keep(figure, target)
