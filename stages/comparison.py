"""One table for all mechanisms, made from results: bench/results/*.json hold accuracies and the findings of attacks.

A file of runs is a list of rows (or {"runs": rows}); {"attacks": [...]} is what `airlock attack --save` writes. An attack belongs to every
run of the same mechanism and epsilon that has all the options which were attacked.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stages.errors import InputError

HEADINGS = (
    "data set", "mechanism", "reading", "neighbours", "passes", "claimed", "proven, pure", "proven", "delta", "attacked", "accuracy",
    "paper's accuracy", "error", "paper's error", "records", "epochs", "seconds",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One run, beside what is claimed, proven and attacked of it. Infinity means that nothing finite is proven, None that nobody says."""

    dataset: str
    mechanism: str
    reading: str
    neighbours: str | None
    passes: int | None
    epsilon: float | None
    claimed: float | None
    proven_pure: float | None
    proven: float | None
    delta: float | None
    attacked: float | None
    accuracy: float | None
    paper_accuracy: float | None
    error: float | None
    paper_error: float | None
    records: int | None
    epochs: float | None
    seconds: float | None
    reason: str = ""

    def cells(self) -> list[str]:
        """As text, in the order of HEADINGS."""
        return [
            self.dataset,
            self.mechanism,
            self.reading,
            self.neighbours or "-",
            _text(self.passes, "d"),
            _text(self.claimed),
            _text(self.proven_pure),
            _text(self.proven),
            _text(self.delta),
            "-" if self.attacked is None else f"≥ {self.attacked:.3g}",
            _percent(self.accuracy),
            _percent(self.paper_accuracy),
            _text(self.error),
            _text(self.paper_error),
            _text(self.records, "d"),
            _text(self.epochs, "g"),
            _text(self.seconds, ".0f"),
        ]

    def to_json(self) -> dict[str, Any]:
        """As JSON; infinity is a word."""
        return {name: "infinity" if value == math.inf else value for name, value in asdict(self).items()}


def load(folder: Path) -> list[Row]:
    """All rows of a results folder, in a fixed order.

    Raises:
        InputError: there are none, or a file cannot be read.
    """
    documents = []
    for path in sorted(folder.glob("*.json")):
        try:
            documents.append(json.loads(path.read_text()))
        except ValueError:
            raise InputError(f"{path} is not JSON: run its benchmark again") from None
    found = [one for document in documents if isinstance(document, dict) for one in document.get("attacks", [])]
    runs = [run for document in documents for run in _runs(document)]
    rows = sorted((_row(run, found) for run in runs), key=lambda row: (row.dataset, row.mechanism, row.epsilon or 0.0, row.reading))
    if not rows:
        raise InputError(f"{folder} holds no results yet: run `python -m bench.adlm` or `python -m bench.accuracy`")
    return rows


def _runs(document: Any) -> Iterable[Mapping[str, Any]]:
    rows = document.get("runs", []) if isinstance(document, dict) else document
    return [row for row in rows if isinstance(row, dict) and "mechanism" in row and "dataset" in row]


def _row(run: Mapping[str, Any], found: list[Mapping[str, Any]]) -> Row:
    # The pure epsilon of Gaussian noise is infinite; a run that does not say has that kind.
    return Row(
        dataset=run["dataset"],
        mechanism=run["mechanism"],
        reading=run.get("reading") or run.get("features") or "",
        neighbours=run.get("neighbours"),
        passes=run.get("passes"),
        epsilon=run.get("epsilon"),
        claimed=_number(run.get("claimed")),
        proven_pure=_number(run.get("proven_pure", "infinity")) if run["mechanism"] != "none" else None,
        proven=_number(run.get("proven", run.get("proven_epsilon"))),
        delta=run.get("delta"),
        attacked=attacked(run, found),
        accuracy=run.get("accuracy", run.get("accuracy_mean")),
        paper_accuracy=run.get("paper_accuracy"),
        error=run.get("mean_squared_error"),
        paper_error=run.get("paper_mean_squared_error"),
        records=run.get("records"),
        epochs=run.get("epochs"),
        seconds=run.get("seconds"),
        reason=run.get("reason", ""),
    )


def attacked(run: Mapping[str, Any], found: list[Mapping[str, Any]]) -> float | None:
    """The largest lower bound that an attack on this mechanism, with its own noise, reached; None if nobody attacked it."""
    options = run.get("options", {})
    bounds = [
        float(finding["epsilon"])
        for one in found
        if one["mechanism"] == run["mechanism"] and one["epsilon"] == run.get("epsilon") and one.get("noise_factor", 1.0) == 1.0
        if all(options.get(name) == value for name, value in one.get("options", {}).items())
        for finding in one["findings"]
    ]
    return max(bounds, default=None)


INTRODUCTION = """# The mechanisms side by side

Made by `airlock compare --markdown docs/papers.md` from bench/results; do not edit.
"""
LEGEND = """
`claimed` is the paper's epsilon; `proven, pure` and `proven` (at `delta`) are what follows for the released bytes; `attacked` is a lower
bound at 95 % confidence that `airlock attack` reached on the release or on a part of it. ∞: nothing finite is proven. `error` is of
autoencoders: the mean over test records of the squared error summed over pixels in [0, 1].
"""


def markdown(rows: list[Row]) -> str:
    """The table as a page, with the reasons for every infinity."""
    lines = [INTRODUCTION, "| " + " | ".join(HEADINGS) + " |", "|" + "---|" * len(HEADINGS)]
    lines += ["| " + " | ".join(row.cells()) + " |" for row in rows]
    lines += [LEGEND]
    reasons = sorted({(row.mechanism, row.reading, row.reason) for row in rows if row.reason})
    lines += [f"- {name} ({reading}): {reason}." for name, reading, reason in reasons]
    return "\n".join(lines).rstrip() + "\n"


def _number(value: Any) -> float | None:
    return None if value is None else math.inf if value == "infinity" else float(value)


def _text(value: float | None, form: str = ".3g") -> str:
    return "-" if value is None else "∞" if value == math.inf else format(value, form)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f} %"
