"""The first table and picture of docs/papers.md: every headline figure of the five papers beside what its
mechanism reaches here, what an attack finds of it, and what a mechanism with a proof reaches at that epsilon.

Which of our mechanisms stands in a row is fixed by the kind of data, not by who came out best.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airlock.compare.ceiling import Ceilings
from airlock.compare.comparison import FRESH, MIXED, UNIT_PIXELS, ComparisonRow

PICTURE = "headline.svg"
OURS, MAPS = "coefficients-iterated", {"mnist": ("strokes-1",)}
"""One mechanism; of digits one map, of tables the one that `auto` takes."""
BEHAVIOUR = ("behaviour", "window, per record, 38 time points")
"""Ours of simulated behaviour, and its reading."""
WITHIN = 0.02
"""Two points: what counts as reproduced."""
HEADINGS = (
    "paper",
    "data set",
    "claimed epsilon",
    "the paper's accuracy",
    "reproduced",
    "attacked: epsilon at least",
    "proven of it",
    "ours, proven at that epsilon",
    "ours above the paper, points",
    "most that privacy allows, by kinds: any; Gaussian",
    "by rules: any; Gaussian",
)
LOOKS: tuple[dict[str, Any], ...] = (
    {"color": "#b91c1c", "zorder": 4, "label": "claimed by the paper"},
    {"color": "#c2410c", "zorder": 4, "fillstyle": "none", "label": "the same mechanism, here"},
    {"color": "#1d5fae", "label": "ours, proven at that epsilon"},
    {"color": "#334155", "markersize": 11, "label": "most that privacy allows, on average over such tables"},
)
"""Of what is claimed, reproduced and ours in the picture, and of the bound on all learners. Crosses and rings are drawn
over what is filled.
"""
SECTION = """## Claimed, reproduced, attacked, ours

Every headline figure of the five papers. `reproduced` is the paper's mechanism as published, at the epsilon that it
claims: of each preset (the paper's settings, its program's) the longest run on the most records, and of these the
most accurate; **bold** within two points of the paper or above it; "120 of each 1,800": a step read so many records
of a batch, for want of machine time. AdLM's and ILM's noise was drawn once; anew in each step, as in their program:
[errata/adlm.md](errata/adlm.md). Their accuracy is the program's own, by the statistics of the whole test set: a
model that answers each record by itself is near chance. The others' models answer each record by itself. `attacked`
is a lower bound on the true epsilon of that mechanism, `proven of it` an upper one. `ours` is `coefficients-iterated`
(digits: map `strokes-1`, tables: the map that `auto` takes; behaviour: `behaviour`, per record) at a *proven* epsilon
that is the claimed one, delta 1e-5, mean over noise keys and folds; **bold** at or above the paper. YesiWell, the
paper's data of behaviour, is not public: on simulated data in its likeness the paper's figure says nothing, and ours
is compared with the paper's mechanism there ([behaviour.md](behaviour.md)). The last two columns are bounds of
[proofs/small-tables.md](proofs/small-tables.md): what any learner with that guarantee, and any Gaussian one, can
reach on average over tables of these very records with other labels (of kinds of records; by other linear rules,
three standard errors added) that are as easy without privacy within two points. A single table may be easier than the
mean; **bold** below the paper; the picture has the lower of the two for any learner as a bar. Where ours is not bold
and these columns are empty, no bound says that it must be so. What was not reproduced, how far it came and what
stopped it: [errata/items.md](errata/items.md#mnist-figures-that-were-not-reached). AdLM's noise as its authors'
program has it, drawn once, gives back every digit of whole batches exactly ([errata/adlm.md](errata/adlm.md)).
"""


@dataclass(frozen=True)
class HeadlineCell:
    """One figure of a paper.

    Attributes:
        own_data: the paper's data set, which nobody else has; `dataset` is made up in its likeness, and what is
            measured there is compared with the paper's mechanism there.
    """

    paper: str
    dataset: str
    mechanism: str
    claimed: float
    accuracy: float
    own_data: str = ""

    def reproduced(self, rows: Sequence[ComparisonRow]) -> ComparisonRow | None:
        """The paper's mechanism, as published; pCDBN with the polynomial that its paper prints, not the best degree."""
        found = [
            row
            for row in rows
            if (row.dataset, row.mechanism, row.claimed) == (self.dataset, self.mechanism, self.claimed)
            and row.accuracy is not None
            and not any(other in row.reading for other in (FRESH, UNIT_PIXELS, MIXED, "chebyshev-"))
        ]
        longest: dict[str, ComparisonRow] = {}
        for row in sorted(found, key=_length):
            longest[_preset(row)] = row
        return max(longest.values(), key=_worth, default=None)

    def ours(self, rows: Sequence[ComparisonRow]) -> ComparisonRow | None:
        """Our mechanism, where what is proven is at most what the paper claims."""
        name, reading = BEHAVIOUR if self.own_data else (OURS, None)
        return next(
            (
                row
                for row in rows
                if (row.dataset, row.epsilon) == (self.dataset, self.claimed)
                and row.mechanism == name
                and row.reading in (MAPS.get(self.dataset, (row.reading,)) if reading is None else (reading,))
                and row.proven is not None
                and row.proven <= self.claimed * (1 + 1e-9)
                and row.accuracy is not None
            ),
            None,
        )


def _preset(row: ComparisonRow) -> str:
    """A paper's settings and its program's are two ways to reproduce it; what was changed in one is not a third."""
    found = re.search(r"\b(?:authors|paper)-[\w-]+", row.reading)
    return found.group() if found else row.reading


def _length(row: ComparisonRow) -> tuple[float, float, float]:
    return (row.records or 0, row.epochs or 0, row.accuracy or 0)


def _worth(row: ComparisonRow) -> tuple[float, float, float]:
    return (row.records or 0, row.accuracy or 0, row.epochs or 0)


CELLS = (
    HeadlineCell("AdLM", "mnist", "adlm", 0.25, 0.902),
    HeadlineCell("AdLM", "mnist", "adlm", 0.5, 0.9366),
    HeadlineCell("AdLM's even noise (ILM)", "mnist", "ilm", 0.25, 0.8846),
    HeadlineCell("AdLM's even noise (ILM)", "mnist", "ilm", 0.5, 0.9239),
    HeadlineCell("pCDBN", "mnist", "pcdbn", 0.5, 0.9308),
    *(
        HeadlineCell(
            "pCDBN",
            "behaviour-weekly-simulated",
            "behaviour-published",
            claimed,
            accuracy,
            own_data="YesiWell",
        )
        for claimed, accuracy in ((0.1, 0.88), (2.0, 0.92), (8.0, 0.94))
    ),
    HeadlineCell("DP-MAC", "mnist", "dp-mac", 0.5, 0.91),
    HeadlineCell("DP-MAC", "mnist", "dp-mac", 2.0, 0.95),
    HeadlineCell("optimized noise", "mnist", "optimized-noise", 0.05, 0.8519),
    HeadlineCell("optimized noise", "mnist", "optimized-noise", 0.3, 0.8855),
    HeadlineCell("optimized noise", "mnist", "optimized-noise", 1.0, 0.9469),
    HeadlineCell("neuron noise", "mnist", "neuron-noise", 0.1, 0.983),
    HeadlineCell("neuron noise", "mnist", "neuron-noise", 0.5, 0.989),
    HeadlineCell("neuron noise", "wdbc", "neuron-noise", 0.1, 0.96),
    HeadlineCell("neuron noise", "wdbc", "neuron-noise", 0.5, 0.982),
    HeadlineCell("neuron noise", "wdbc", "neuron-noise", 1.0, 0.99),
    HeadlineCell("neuron noise", "dermatology", "neuron-noise", 0.1, 0.956),
    HeadlineCell("neuron noise", "dermatology", "neuron-noise", 0.5, 0.96),
    HeadlineCell("neuron noise", "dermatology", "neuron-noise", 1.0, 0.986),
)


def section(rows: Sequence[ComparisonRow], folder: str, ceilings: Sequence[Ceilings]) -> list[str]:
    """Lines of the page; none where no figure of a paper was tried."""
    if not _shown(rows):
        return []
    lines = [SECTION, f"![Claimed, reproduced and ours]({folder}/{PICTURE})", ""]
    lines += ["| " + " | ".join(HEADINGS) + " |", "|" + "---|" * len(HEADINGS)]
    return [*lines, *("| " + " | ".join(_words(cell, rows, ceilings)) + " |" for cell in CELLS), ""]


def _shown(rows: Sequence[ComparisonRow]) -> bool:
    return any(cell.reproduced(rows) or cell.ours(rows) for cell in CELLS)


def _words(cell: HeadlineCell, rows: Sequence[ComparisonRow], ceilings: Sequence[Ceilings]) -> list[str]:
    theirs, ours = cell.reproduced(rows), cell.ours(rows)
    # On other data than the paper's: as the paper's mechanism does there.
    to_reach = cell.accuracy if not cell.own_data else None if theirs is None else _accuracy(theirs)
    above = "-" if ours is None or to_reach is None else f"{100 * (_accuracy(ours) - to_reach):+.1f}"
    return [
        cell.paper,
        cell.dataset,
        f"{cell.claimed:g}",
        f"{100 * cell.accuracy:.2f} %" + f" ({cell.own_data})" * bool(cell.own_data),
        "not run"
        if theirs is None
        else _bold(_accuracy(theirs), 1.0 if cell.own_data else cell.accuracy - WITHIN)
        + _length_words(theirs),
        "-" if theirs is None or theirs.attacked is None else f"{theirs.attacked:.3g}",
        "-"
        if theirs is None or theirs.proven is None
        else f"{theirs.proven:.3g}".replace("inf", "nothing finite"),
        "not run" if ours is None else _bold(_accuracy(ours), 1.0 if to_reach is None else to_reach),
        above,
        *(_most(one.get((cell.dataset, cell.claimed)), cell.accuracy) for one in ceilings),
    ]


def _most(bounds: tuple[float, float] | None, paper: float) -> str:
    words = (f"**{100 * one:.1f} %**" if one < paper else f"{100 * one:.1f} %" for one in bounds or ())
    return "; ".join(words) or "-"


def _accuracy(row: ComparisonRow) -> float:
    return row.accuracy or 0.0


def _bold(accuracy: float, least: float) -> str:
    words = f"{100 * accuracy:.2f} %"
    return f"**{words}**" if accuracy >= least else words


def _length_words(row: ComparisonRow) -> str:
    length = "" if row.epochs is None else f", {row.epochs:g} epoch{'' if row.epochs == 1 else 's'}"
    part = part_of_batches(row.reading)
    return f"{length}, {part}" if part else length


def part_of_batches(reading: str) -> str:
    """What was read of each batch, where that was not all of it: 120 of each 1,800."""
    found = re.search(r"\d+ of each [\d,]+\d", reading)
    return found.group() if found else ""


def draw(rows: Sequence[ComparisonRow], target: Path, ceilings: Sequence[Ceilings] = ()) -> None:
    """A line for each cell: claimed as a cross, reproduced as a ring, ours as a diamond, and a bar where privacy
    ends; at its right the attack's bound and what is proven of the paper's mechanism.
    """
    from airlock.compare.papers import canvas, keep

    if not _shown(rows):
        return
    figure, axes = canvas((10, 7.5))
    theirs, ours = [cell.reproduced(rows) for cell in CELLS], [cell.ours(rows) for cell in CELLS]
    told: tuple[list[float | None], ...] = (
        [cell.accuracy for cell in CELLS],
        *([None if row is None else row.accuracy for row in found] for found in (theirs, ours)),
        [_least_ceiling(cell, ceilings) for cell in CELLS],
    )
    for values, mark, look in zip(told, "xoD|", LOOKS, strict=True):
        known = [(100 * value, place) for place, value in enumerate(values) if value is not None]
        if known:
            axes.plot(*zip(*known, strict=True), mark, linestyle="none", **look)
    axes.set_yticks(range(len(CELLS)), [_name(cell) for cell in CELLS])
    axes.set(ylim=(len(CELLS) - 0.5, -0.5), xlabel="accuracy, %")
    axes.set_title("What five papers claim, and what can be proven")
    beside = axes.secondary_yaxis("right")
    beside.set_yticks(range(len(CELLS)), [_found_of(row) for row in theirs])
    for side in (axes.yaxis, beside.yaxis):
        side.set_tick_params(labelsize=8, length=0)
    # Below, where no mark can be taken for one of its own.
    axes.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.07), ncols=2)
    keep(figure, target)


def _least_ceiling(cell: HeadlineCell, ceilings: Sequence[Ceilings]) -> float | None:
    """The lowest bound on any private learner."""
    bounds = (one.get((cell.dataset, cell.claimed)) for one in ceilings)
    return min((found[0] for found in bounds if found), default=None)


def _name(cell: HeadlineCell) -> str:
    own = f" (cross: {cell.own_data})" if cell.own_data else ""
    return f"{cell.paper}, {cell.dataset.removesuffix('-weekly-simulated')}{own}, claimed {cell.claimed:g}"


def _found_of(row: ComparisonRow | None) -> str:
    if row is None:
        return ""
    attacked = "" if row.attacked is None else f"attacked ≥ {row.attacked:.3g}, "
    finite = row.proven is not None and math.isfinite(row.proven)
    return attacked + (f"proven {row.proven:.3g}" if finite else "nothing proven")
