"""The results part of docs/behaviour.md, and its pictures, from bench/results/behaviour.json.

Everything in it is about simulated data.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.papers.behaviour import DAYS, EPSILONS, PAPER, READINGS, results

PAGE = Path(__file__).parents[2] / "docs/behaviour.md"
PICTURES = {
    "epsilon": "behaviour-epsilon.svg",
    "classes": "behaviour-classes.svg",
    "size": "behaviour-size.svg",
}
QUESTIONS = {
    "prediction": "does a user exercise more tomorrow?",
    "classification": "did a user walk farther than last week?",
}
START, END = "<!-- made by", "<!-- end -->"
NAMES = {
    "window": "behaviour, window",
    "machine": "behaviour, machine",
    "tabular": "coefficients, all columns",
    "published": "as published: epsilon *claimed*, nothing proven",
}
NOTE = (
    "The paper's figures for classification on the real YesiWell data (Fig. 4) are "
    + ", ".join(
        f"{100 * value:.0f} % at a claimed epsilon of {epsilon:g}" for epsilon, value in PAPER.items()
    )
    + ". They are **not comparable**: other data, and a claim whose proof does not hold "
    "(docs/errata/pcdbn.md)."
)
Row = dict[str, Any]


def write() -> None:
    """Pictures, and the page around them."""
    rows = results()
    draw_epsilon(rows, "prediction", PAGE.parent / PICTURES["epsilon"])
    draw_epsilon(rows, "classification", PAGE.parent / PICTURES["classes"])
    draw_size(rows, PAGE.parent / PICTURES["size"])
    PAGE.write_text(page(PAGE.read_text(), rows))


def page(text: str, rows: list[Row]) -> str:
    """The page with its results part made anew."""
    head, rest = text.split(START, 1)
    first, tail = rest.split("\n", 1)[0], rest.split(END, 1)[1]
    return f"{head}{START}{first}\n{body(rows)}\n{END}{tail}"


def body(rows: list[Row]) -> str:
    """Tables of both tasks."""
    parts = []
    for task, title in (
        ("prediction", "Prediction (simulated days)"),
        ("classification", "Classification (simulated weeks)"),
    ):
        own = [row for row in rows if row["task"] == task]
        whole = max((row["days"] for row in own), default=0)
        parts += [
            f"### {title}",
            "",
            _baselines(own),
            "",
            _table([row for row in own if row["days"] == whole]),
            "",
        ]
    sizes = [
        row
        for row in rows
        if row["task"] == "prediction" and row.get("epsilon") == 1.0 and row["features"] != "tabular"
    ]
    parts += [
        f"![Simulated: {task} against epsilon]({PICTURES[name]})"
        for task, name in (("prediction", "epsilon"), ("classification", "classes"))
    ]
    parts += ["", NOTE, ""]
    parts += ["### Prediction against data size (simulated, epsilon 1)", "", _size_table(sizes), ""]
    parts += [f"![Simulated: accuracy against training days]({PICTURES['size']})", ""]
    return "\n".join(parts)


def _baselines(rows: list[Row]) -> str:
    figures = [f"{row['baseline']} {_percent(row['accuracy_mean'])}" for row in rows if "baseline" in row]
    return "Without privacy: " + "; ".join(figures) + "."


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _table(rows: list[Row]) -> str:
    """Accuracy by reading and unit (down) and epsilon (across),
    mean and standard deviation over noise keys.
    """
    epsilons = [epsilon for epsilon in EPSILONS if any(row.get("epsilon") == epsilon for row in rows)]
    lines = [
        "| simulated; accuracy at proven epsilon | unit | "
        + " | ".join(f"{epsilon:g}" for epsilon in epsilons)
        + " |"
    ]
    lines.append("|---|---|" + "---:|" * len(epsilons))
    for reading in READINGS:
        for unit in ("record", "user"):
            found = {
                row["epsilon"]: row
                for row in rows
                if row.get("features") == reading and row.get("unit") == unit
            }
            if found:
                lines.append(
                    f"| {NAMES[reading]} | {unit} | "
                    + " | ".join(_cell(found.get(epsilon)) for epsilon in epsilons)
                    + " |"
                )
    return "\n".join(lines)


def _size_table(rows: list[Row]) -> str:
    lines = [
        "| simulated; accuracy by training days | unit | " + " | ".join(str(days) for days in DAYS) + " |"
    ]
    lines.append("|---|---|" + "---:|" * len(DAYS))
    for reading in ("window", "machine"):
        for unit in ("record", "user"):
            found = {row["days"]: row for row in rows if row["features"] == reading and row["unit"] == unit}
            if found:
                lines.append(
                    f"| {NAMES[reading]} | {unit} | "
                    + " | ".join(_cell(found.get(days)) for days in DAYS)
                    + " |"
                )
    return "\n".join(lines)


def _cell(row: Row | None) -> str:
    return "" if row is None else f"{100 * row['accuracy_mean']:.1f} ± {100 * row['accuracy_std']:.1f}"


def draw_epsilon(rows: list[Row], task: str, target: Path) -> None:
    """Accuracy against epsilon."""
    own = [row for row in rows if row["task"] == task]
    whole = [row for row in own if row["days"] == max(row["days"] for row in own)]
    _draw([row for row in whole if "epsilon" in row], whole, "epsilon", target, "epsilon (delta 1e-5)")


def draw_size(rows: list[Row], target: Path) -> None:
    """Prediction against the number of training days."""
    own = [row for row in rows if row["task"] == "prediction"]
    points = [row for row in own if row.get("epsilon") == 1.0 and row["features"] != "tabular"]
    _draw(points, own, "days", target, "training days, at epsilon 1")


def _draw(points: list[Row], rows: list[Row], across: str, target: Path, label: str) -> None:
    """A line for every reading and unit, and the baselines dashed. The same rows give the same bytes."""
    from airlock.compare.papers import COLOURS, canvas, keep

    figure, axes = canvas()
    lines = sorted({(row["features"], row["unit"]) for row in points}, reverse=True)
    for index, (reading, unit) in enumerate(lines):
        own = sorted(
            (row for row in points if (row["features"], row["unit"]) == (reading, unit)),
            key=lambda row: float(row[across]),
        )
        values = [row["accuracy_mean"] for row in own]
        style = "o-" if unit == "record" else "s--"
        axes.plot(
            [row[across] for row in own],
            values,
            style,
            color=COLOURS[index],
            label=f"{NAMES[reading].replace('*', '')}, per {unit}",
        )
    for row in rows:
        if row.get("baseline") in (
            "majority",
            "last value",
            "law of the simulation",
            "not private: window and influence",
        ):
            axes.axhline(row["accuracy_mean"], color="#94a3b8", linewidth=1, linestyle=":")
            axes.annotate(
                row["baseline"],
                (1.0, row["accuracy_mean"]),
                xycoords=("axes fraction", "data"),
                fontsize=7,
                ha="right",
                va="bottom",
            )
    task = rows[0]["task"]
    if task == "classification":
        axes.plot(
            [*PAPER],
            [*PAPER.values()],
            "x",
            color="#64748b",
            label="paper, real data, claimed: not comparable",
        )
    axes.set(
        xscale="log",
        xlabel=label,
        ylabel="accuracy on the holdout",
        title=f"SIMULATED data: {QUESTIONS[task]}",
    )
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    keep(figure, target)
