"""AdLM's Figs. 4b, 4c and 5b, accuracy against epochs at one claimed epsilon, with what was measured here: AdLM and
even noise (ILM), drawn once or in every step, DP-SGD, and ours at a proven epsilon.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airlock.compare import figures
from airlock.compare.comparison import ComparisonRow
from airlock.compare.headline import CELLS, HeadlineCell

PICTURE = "adlm-figures.svg"
COLOURS = {"adlm": "#c2410c", "ilm": "#7e22ce"}
STYLES = ("-", "--", ":", "-.")


@dataclass(frozen=True)
class Panel:
    """One figure of the paper; `told` are accuracies that its text has, by what they are of and after so many
    epochs.
    """

    figure: str
    dataset: str
    claimed: float
    told: tuple[tuple[str, int, float], ...] = ()


def _cells(dataset: str, claimed: float) -> tuple[tuple[str, int, float], ...]:
    own = (cell for cell in CELLS if (cell.dataset, cell.claimed) == (dataset, claimed))
    return tuple((cell.mechanism, 500, cell.accuracy) for cell in own if cell.mechanism in COLOURS)


PANELS = (
    Panel("Fig. 4b: MNIST", "mnist", 0.5, _cells("mnist", 0.5)),
    Panel("Fig. 4c: MNIST", "mnist", 2.0),
    # The text has a mean over all epsilons, and 800 epochs for this one.
    Panel("Fig. 5b: CIFAR-10", "cifar10-jpeg", 2.5, (("adlm, mean over epsilons", 800, 0.77),)),
)


def shown(curves: Sequence[figures.Curve]) -> list[Panel]:
    """The figures of which something was measured."""
    return [panel for panel in PANELS if _own(panel, curves)]


def draw(rows: Sequence[ComparisonRow], curves: Sequence[figures.Curve], target: Path) -> None:
    """One panel a figure: lines as the program predicts, crosses what the paper's text says."""
    from airlock.compare.papers import keep

    panels = shown(curves)
    if not panels:
        return
    figure, axes = figures.panels_of(len(panels), height=5.2)
    for panel, place in zip(panels, axes, strict=True):
        _draw_one(panel, rows, _own(panel, curves), place)
    axes[0].set(ylabel="accuracy, %")
    keep(figure, target)


def _own(panel: Panel, curves: Sequence[figures.Curve]) -> list[figures.Curve]:
    wanted = (panel.dataset, panel.claimed)
    found = [one for one in curves if (one.dataset, one.claimed) == wanted and one.mechanism in COLOURS]
    return [one for one in found if not one.stored and len(one.points) > 1]


def _draw_one(
    panel: Panel, rows: Sequence[ComparisonRow], curves: Sequence[figures.Curve], place: Any
) -> None:
    styles = dict(zip(sorted({curve.read for curve in curves}), STYLES, strict=False))
    for curve in curves:
        label, colour = f"{curve.mechanism}, {curve.read}", COLOURS[curve.mechanism]
        up = [(epoch, 100 * value) for epoch, value in curve.points]
        place.plot(*figures.columns(up), linestyle=styles.get(curve.read, "-"), color=colour, label=label)
    for name, epochs, value in panel.told:
        colour = COLOURS[name.partition(",")[0]]
        place.plot([epochs], [100 * value], "x", color=colour, label=f"paper: {name}")
    for row in _dp_sgd(panel, rows):
        place.plot([row.epochs], [100 * (row.accuracy or 0)], "^", color="#15803d", label="DP-SGD, proven")
    ours = HeadlineCell("", panel.dataset, "", panel.claimed, 0.0).ours(rows)
    if ours:
        place.axhline(100 * (ours.accuracy or 0), color=figures.OURS, linewidth=1, label="ours, proven")
    place.set(
        xscale="log", xlabel="epochs", ylim=(0, 100), title=f"{panel.figure}, claimed {panel.claimed:g}"
    )
    figures.legend_below(place)


def _dp_sgd(panel: Panel, rows: Sequence[ComparisonRow]) -> list[ComparisonRow]:
    """The best run at that epsilon, on all records."""
    found = [
        row
        for row in rows
        if (row.dataset, row.mechanism, row.epsilon) == (panel.dataset, "dp-sgd", panel.claimed)
        and row.epochs
        and row.accuracy is not None
    ]
    best = max(found, key=lambda row: (row.records or 0, row.accuracy or 0), default=None)
    return [best] if best else []
