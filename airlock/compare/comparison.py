"""One table for all mechanisms, made from results: bench/results/*.json hold accuracies and the findings of attacks.

A file of runs is a list of rows (or {"runs": rows}); {"attacks": [...]} is what `airlock attack --save` writes. An attack belongs to every
run of the same mechanism and epsilon that has all the options which were attacked. airlock/compare/papers.py lays the table out as a page,
and stages/open/report/published.json carries it to the report stage, which may not see bench/results.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from airlock.errors import InputError

HEADINGS = (
    "data set", "mechanism", "reading", "neighbours", "passes", "claimed", "proven, pure", "proven", "delta", "attacked", "accuracy",
    "paper's accuracy", "error", "paper's error", "records", "epochs", "seconds",
)  # fmt: skip
Findings = list[Mapping[str, Any]]


@dataclass(frozen=True)
class Row:
    """One run, beside what is claimed, proven and attacked of it. Infinity means that nothing finite is proven, None that nobody says.

    Attributes:
        epsilon: what was asked for.
        attacked: lower bound free of assumptions; attacked_by_law takes the form of the noise, but not its size, for granted.
        error: of autoencoders, the mean over test records of the squared error summed over pixels in [0, 1].
        simulated: the data set was made up by a program.
    """

    dataset: str
    mechanism: str
    reading: str = ""
    neighbours: str | None = None
    passes: int | None = None
    epsilon: float | None = None
    claimed: float | None = None
    proven_pure: float | None = None
    proven: float | None = None
    delta: float | None = None
    attacked: float | None = None
    attacked_by_law: float | None = None
    accuracy: float | None = None
    paper_accuracy: float | None = None
    error: float | None = None
    paper_error: float | None = None
    records: int | None = None
    epochs: float | None = None
    seconds: float | None = None
    simulated: bool = False
    reason: str = ""

    @property
    def place(self) -> str:
        """The data set, and whether it is a made-up one."""
        return (
            self.dataset
            if not self.simulated or "simulated" in self.dataset
            else f"{self.dataset} (simulated)"
        )

    def cells(self) -> list[str]:
        """As text, in the order of HEADINGS."""
        return [
            self.place,
            self.mechanism,
            self.reading,
            self.neighbours or "-",
            _text(self.passes, "d"),
            _text(self.claimed),
            _text(self.proven_pure),
            _text(self.proven),
            _text(self.delta),
            self._bound(),
            _percent(self.accuracy),
            _percent(self.paper_accuracy),
            _text(self.error),
            _text(self.paper_error),
            _text(self.records, "d"),
            _text(self.epochs, "g"),
            _text(self.seconds, ".0f"),
        ]

    def _bound(self) -> str:
        by_law = f"; by law {self.attacked_by_law:.3g}" if self.attacked_by_law is not None else ""
        return "-" if self.attacked is None else f"≥ {self.attacked:.3g}{by_law}"

    def to_json(self) -> dict[str, Any]:
        """As JSON; infinity is a word."""
        return {name: "infinity" if value == math.inf else value for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Row:
        """The inverse of `to_json`."""
        fields: dict[str, Any] = {
            name: math.inf if value == "infinity" else value for name, value in document.items()
        }
        return cls(**fields)


def load(folder: Path) -> list[Row]:
    """All rows of a results folder, in a fixed order.

    Raises:
        InputError: there are none, or a file cannot be read.
    """
    documents = _documents(folder)
    found = _attacks(documents)
    runs = [run for document in documents for run in _runs(document)]
    rows = sorted(
        (_row(run, found) for run in runs),
        key=lambda row: (row.place, row.mechanism, row.epsilon or 0.0, row.reading),
    )
    if not rows:
        raise InputError(
            f"{folder} holds no results yet: run `python -m bench.ablation` or `python -m bench.accuracy`"
        )
    return rows


def load_attacks(folder: Path) -> Findings:
    """The findings of all attacks in a results folder, without what nobody compares."""
    kept = ("mechanism", "epsilon", "options", "noise_factor")
    bounds = ("law", "epsilon", "by_law", "confidence")
    return [
        {
            **{key: one[key] for key in kept if key in one},
            "findings": [{key: two.get(key) for key in bounds} for two in one["findings"]],
        }
        for one in _attacks(_documents(folder))
    ]


def _documents(folder: Path) -> list[Any]:
    documents = []
    for path in sorted(folder.glob("*.json")):
        try:
            documents.append(json.loads(path.read_text()))
        except ValueError:
            raise InputError(f"{path} is not JSON: run its benchmark again") from None
    return documents


def _attacks(documents: list[Any]) -> Findings:
    return [
        one for document in documents if isinstance(document, dict) for one in document.get("attacks", [])
    ]


def _runs(document: Any) -> Iterable[Mapping[str, Any]]:
    rows = document.get("runs", []) if isinstance(document, dict) else document
    # Rows that measure cost alone (bench/scaling.py) are no comparison.
    return [
        row
        for row in rows
        if isinstance(row, dict) and "mechanism" in row and "dataset" in row and not row.get("cost")
    ]


def _row(run: Mapping[str, Any], found: Findings) -> Row:
    free, by_law = attacked(run, found)
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
        attacked=free,
        attacked_by_law=by_law,
        accuracy=run.get("accuracy", run.get("accuracy_mean")),
        paper_accuracy=run.get("paper_accuracy"),
        error=run.get("error", run.get("mean_squared_error")),
        paper_error=run.get("paper_error", run.get("paper_mean_squared_error")),
        records=run.get("records"),
        epochs=run.get("epochs"),
        seconds=run.get("seconds"),
        simulated=bool(run.get("simulated")),
        reason=run.get("reason") or "",
    )


def attacked(run: Mapping[str, Any], found: Findings) -> tuple[float | None, float | None]:
    """The largest lower bounds that attacks on this mechanism, with its own noise, reached; None if nobody attacked it.

    The first is free of assumptions; the second, where there is one, takes the form of the law for granted.
    """
    options = run.get("options") or {}
    findings = [
        finding
        for one in found
        if one["mechanism"] == run["mechanism"]
        and one["epsilon"] == run.get("epsilon")
        and one.get("noise_factor", 1.0) == 1.0
        if one.get("unit", "record") == run.get("unit", "record")
        if all(options.get(name) == value for name, value in one.get("options", {}).items())
        for finding in one["findings"]
    ]
    by_law = [float(finding["by_law"]) for finding in findings if finding.get("by_law") is not None]
    return max((float(finding["epsilon"]) for finding in findings), default=None), max(by_law, default=None)


def _number(value: Any) -> float | None:
    return None if value is None else math.inf if value == "infinity" else float(value)


def _text(value: float | None, form: str = ".3g") -> str:
    return "-" if value is None else "∞" if value == math.inf else format(value, form)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f} %"
