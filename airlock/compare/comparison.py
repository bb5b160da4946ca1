"""One table for all mechanisms, made from results: bench/results/*.json hold accuracies and the findings of
attacks.

A file of runs is a list of rows (or {"runs": rows}); {"attacks": [...]} is what `airlock attack --save`
writes. An attack belongs to every run of the same mechanism and epsilon that has all the options which were
attacked. airlock/compare/papers.py lays the table out as a page, and airlock/compare/published.py carries it
to the report stage, which may not see bench/results.
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
    "data set",
    "mechanism",
    "reading",
    "neighbours",
    "passes",
    "claimed",
    "proven, pure",
    "proven",
    "delta",
    "attacked",
    "accounting check",
    "accuracy",
    "paper's accuracy",
    "error",
    "paper's error",
    "records",
    "epochs",
    "seconds",
)
Findings = list[Mapping[str, Any]]
NOT_REPRODUCED = "not a reproduction"
Bounds = tuple[float | None, float | None, float | None]
ATTACK, CHECK = ("attack", "simulated attack", "canaries"), "accounting check"
"""Kinds of findings (attack/targets.py): those of which a release or a mechanism was attacked, and the one
that checks accounting alone.
"""
SAME_NOISE = 1.01
"""Proven epsilons of releases that were calibrated to the same one are as near as this."""
FRESH = "noise drawn anew in each step"
"""In the reading of what was trained from raw records, not from a release."""
UNIT_PIXELS = "pixels unit"
"""In the reading of AdLM's program over pixels in [0, 1], which its authors do not have."""
MIXED = "label_noise coefficients"
"""In the reading of AdLM's network under its program's noise: neither the paper nor the program, and few epochs."""


@dataclass(frozen=True)
class ComparisonRow:
    """One run, beside what is claimed, proven and attacked of it. Infinity means that nothing finite is
    proven, None that nobody says.

    Attributes:
        epsilon: what was asked for.
        attacked: lower bound of attacks, free of assumptions; attacked_by_law takes the form of the noise,
            but not its size, for granted, and reached its size too: the distance between exact sums.
        checked, checked_by_law: the same of the accounting check, which draws the priced noise and does not
            run the release.
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
    reached: float | None = None
    checked: float | None = None
    checked_by_law: float | None = None
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
            _bound(self.attacked, self.attacked_by_law, self.reached),
            _bound(self.checked, self.checked_by_law),
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

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> ComparisonRow:
        """The inverse of `to_json`."""
        fields: dict[str, Any] = {
            name: math.inf if value == "infinity" else value for name, value in document.items()
        }
        return cls(**fields)


def load(folder: Path) -> list[ComparisonRow]:
    """All rows of a results folder, in a fixed order.

    Raises:
        InputError: there are none, or a file cannot be read.
    """
    found = _attacks(_documents(folder))
    rows = sorted(
        (_row(run, found) for run in load_runs(folder)),
        key=lambda row: (row.place, row.mechanism, row.epsilon or 0.0, row.reading),
    )
    if not rows:
        raise InputError(
            f"{folder} holds no results yet: run `python -m bench.papers.ablation` or `python -m "
            "bench.flagship.accuracy`"
        )
    return rows


def load_runs(folder: Path) -> list[Mapping[str, Any]]:
    """What was measured, as it was written."""
    return [run for document in _documents(folder) for run in _runs(document)]


def load_attacks(folder: Path) -> Findings:
    """The findings of all attacks in a results folder, without what nobody compares."""
    kept = ("kind", "mechanism", "epsilon", "neighbours", "unit", "options", "noise_factor")
    bounds = ("kind", "law", "epsilon", "by_law", "reached", "proven", "confidence")
    return [
        {
            **{key: one[key] for key in kept if key in one},
            "findings": [{key: two.get(key) for key in bounds} for two in one["findings"]],
        }
        for one in _attacks(_documents(folder))
    ]


def with_kind(one: Mapping[str, Any]) -> dict[str, Any]:
    """A saved attack with the kind of each finding, which those saved before there were kinds do not say."""
    findings = [
        {**found, "kind": found.get("kind") or _kind(found.get("law", ""))} for found in one["findings"]
    ]
    return {
        **one,
        "kind": one.get("kind") or (findings[0]["kind"] if findings else CHECK),
        "findings": findings,
    }


def _kind(law: str) -> str:
    if law.startswith("canaries"):
        return "canaries"
    if law == "the release itself":
        return "attack"
    return CHECK if law in ("", "all noisy sums", "all steps") else "simulated attack"


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
        with_kind(one)
        for document in documents
        if isinstance(document, dict)
        for one in document.get("attacks", [])
    ]


def _runs(document: Any) -> Iterable[Mapping[str, Any]]:
    rows = document.get("runs", []) if isinstance(document, dict) else document
    # Rows that measure cost alone (bench/scale/scaling.py) are no comparison.
    return [
        row
        for row in rows
        if isinstance(row, dict) and "mechanism" in row and "dataset" in row and not row.get("cost")
    ]


def _row(run: Mapping[str, Any], found: Findings) -> ComparisonRow:
    free, by_law, reached = attacked(run, found)
    checked, checked_by_law, _ = attacked(run, found, kinds=(CHECK,))
    # The pure epsilon of Gaussian noise is infinite; a run that does not say has that kind.
    return ComparisonRow(
        dataset=run["dataset"],
        mechanism=run["mechanism"],
        reading=_reading(run),
        neighbours=run.get("neighbours"),
        passes=run.get("passes"),
        epsilon=run.get("epsilon"),
        claimed=_number(run.get("claimed")),
        proven_pure=_number(run.get("proven_pure", "infinity")) if run["mechanism"] != "none" else None,
        proven=_proven(run),
        delta=run.get("delta"),
        attacked=free,
        attacked_by_law=by_law,
        reached=reached,
        checked=checked,
        checked_by_law=checked_by_law,
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


def _reading(run: Mapping[str, Any]) -> str:
    """How the run reads its paper. No row on CIFAR-10 has a paper's images, network and epochs: it says so."""
    reading = str(run.get("reading") or run.get("features") or "")
    if run["dataset"].startswith("cifar10") and run.get("paper_accuracy") is not None:
        return f"{reading}, {NOT_REPRODUCED}".removeprefix(", ")
    return reading


def attacked(
    run: Mapping[str, Any], found: Iterable[Mapping[str, Any]], kinds: tuple[str, ...] = ATTACK
) -> Bounds:
    """The largest lower bounds that attacks on this mechanism, with its own noise, reached; None if nobody
    attacked it.

    The first is free of assumptions; the second, where there is one, takes the form of the law for granted;
    the third its size too. An attack on a release is none on a training that reads raw records in every step,
    nor on one with more noise than was attacked. Of a paper's release, whose noise is not what its claim needs,
    one that was attacked at another epsilon counts too if it has no less noise and none at its own has.
    """
    if FRESH in str(run.get("reading")):
        return None, None, None
    options = run.get("options") or {}
    noisy = [
        (one["epsilon"], finding)
        for one in found
        if one["mechanism"] == run["mechanism"]
        and one.get("noise_factor", 1.0) == 1.0
        and one.get("unit", "record") == run.get("unit", "record")
        and all(options.get(name) == value for name, value in one.get("options", {}).items())
        for finding in one["findings"]
        if finding.get("kind", CHECK) in kinds and _no_less_noise(finding, run)
    ]
    findings = [finding for epsilon, finding in noisy if epsilon == run.get("epsilon")]
    if not findings and run.get("claimed") is not None and _finite(_proven(run)):
        findings = [finding for _, finding in noisy if _finite(_number(finding.get("proven")))]
    free, by_law, reached = (
        max((float(one[name]) for one in findings if one.get(name) is not None), default=None)
        for name in ("epsilon", "by_law", "reached")
    )
    return free, by_law, reached


def _no_less_noise(finding: Mapping[str, Any], run: Mapping[str, Any]) -> bool:
    """Whether no more is proven of what was attacked than of the run."""
    attacked, proven = _number(finding.get("proven")), _proven(run)
    return attacked is None or proven is None or attacked <= SAME_NOISE * proven


def _proven(run: Mapping[str, Any]) -> float | None:
    return _number(run.get("proven", run.get("proven_epsilon")))


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _number(value: Any) -> float | None:
    return None if value is None else math.inf if value == "infinity" else float(value)


def _bound(free: float | None, by_law: float | None, reached: float | None = None) -> str:
    family = f"; by law {by_law:.3g}" if by_law is not None else ""
    distance = f"; reached {reached:.3g}" if reached is not None else ""
    return "-" if free is None else f"≥ {free:.3g}{family}{distance}"


def _text(value: float | None, form: str = ".3g") -> str:
    return "-" if value is None else "∞" if value == math.inf else format(value, form)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f} %"
