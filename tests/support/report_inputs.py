"""What the other stages leave for the report stage, made small for tests."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from airlock.evidence.audit import AuditRow
from airlock.evidence.page import page_facts
from airlock.evidence.revisions import load_graph
from airlock.inside import manifest
from airlock.inside.room import Room
from airlock.params import Params
from airlock.privacy.guarantees import Guarantee
from airlock.privacy.plan import Facts, Plan
from stages.open.report import report

ROOT = Path(__file__).parents[2]
PROJECT = (
    "dvc.yaml",
    "owner/dvc.yaml",
    "params.yaml",
    "stages/open/report/published.csv",
    "stages/open/report/attacks.csv",
)
FACTS = Facts("wdbc", True, "tabular", 455, 114, (30,), ("malignant", "benign"), "5c", "f1")
EVENT = {"kind": "gaussian", "noise_multiplier": 3.73}
PROVEN = Guarantee(
    "proven",
    "record",
    "zero-out",
    1.0,
    1e-5,
    event=EVENT,
    sensitivity="L2 1.0 per query",
    argument="exact Gaussian",
)
OPEN_DOOR = Guarantee("proven", "record", "zero-out", math.inf, 0.0, reason="public records pass unchanged")
LAYERS = ["capabilities", "landlock", "namespaces", "root", "seccomp"]
COLUMNS = ("name", "zone", "could_read_raw", "could_read_sealed", "did_read_records", "passes")
AUDIT: list[dict[str, Any]] = [
    {**dict(zip(COLUMNS, row, strict=True)), "enforcement": LAYERS}
    for row in [
        ("ingest", "sensitive", True, False, "yes", 1),
        ("relevance", "release", False, True, "yes", 1),
        ("release", "release", False, True, "yes", 3),
        ("train", "open", False, False, "no", 0),
        ("evaluate", "open", False, False, "unknown", 0),
        ("report", "open", False, False, "not run", 0),
        ("evaluate-private", "release", False, True, "not run", 0),
    ]
]
BUDGET = {
    "population": "wdbc",
    "epsilon": 1.7,
    "delta": 1e-5,
    "cap_epsilon": 8.0,
    "left": 6.3,
    "scratch": True,
}
LABELS = ["malignant", "benign"]
EVALUATE = {
    "accuracy": 0.9561,
    "records": 114,
    "reference_accuracy": 0.9737,
    "holdout": "public",
    "confusion": [[39, 3], [2, 70]],
}
CURVE = [(epoch, 0.2 + 0.5 * math.exp(-epoch / 30)) for epoch in range(200)]
DEPS = [
    "metrics/evaluate.json",
    "metrics/train.json",
    "model",
    "plots/confusion.csv",
    "plots/learning_curve.csv",
]
DEPS += [f"released/{name}" for name in ("holdout", "reference", "relevance", "release")]


@dataclass(frozen=True)
class Inputs:
    """A folder with what the other stages leave, and the room that shows it to the report stage."""

    root: Path

    def write(self, path: str, content: Any) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content))

    def release(
        self,
        name: str,
        *,
        mechanism: str = "coefficients",
        proven: Guarantee = PROVEN,
        passes: int = 1,
        **more: Any,
    ) -> None:
        details = more.pop("details", {})
        plan = Plan(mechanism, 1, {"share": 0.1}, passes, proven, **more)
        release_id = hashlib.sha256(name.encode()).hexdigest()
        manifest.write(
            self.root / "data/released" / name, plan=plan, facts=FACTS, release_id=release_id, details=details
        )

    def relevance(self, values: NDArray[np.float64], **details: Any) -> None:
        folder = self.root / "data/released/relevance"
        folder.mkdir(parents=True, exist_ok=True)
        save_file({"relevance": values}, folder / "relevance.safetensors")
        self.release("relevance", mechanism="relevance", proven=replace(PROVEN, epsilon=0.3), details=details)

    def room(self, facts: dict[str, Any] | None = None, **params: Any) -> Room:
        paths = {f"data/{dep}": self.root / "data" / dep for dep in DEPS} | {
            name: self.root / name for name in PROJECT
        }
        paths["data/report"] = self.root / "data/report"
        known = told() if facts is None else facts
        return Room("report", Params.model_validate(params), facts=known, paths=paths)

    def page(self, facts: dict[str, Any] | None = None, **params: Any) -> str:
        report.main(self.room(facts, **params))
        return (self.root / "data/report/report.html").read_text()


def told() -> dict[str, Any]:
    """What the runner tells the stage about boundary and budget."""
    rows = [AuditRow(**row, releases=[], when="") for row in AUDIT]
    return page_facts(rows, load_graph(ROOT), BUDGET)


def fill(folder: Path) -> Inputs:
    """Everything that a full run leaves."""
    made = Inputs(folder)
    for name in PROJECT:
        made.write(name, (ROOT / name).read_text())
    made.write("data/metrics/evaluate.json", EVALUATE)
    made.write("data/metrics/train.json", {"epochs": 200, "loss": 0.21})
    made.write(
        "data/model/model.json",
        {"kind": "tabular", "features": "linear", "layers": [[30, 2]], "labels": LABELS},
    )
    made.write("data/plots/confusion.csv", "actual,predicted\nmalignant,benign\n")
    made.write(
        "data/plots/learning_curve.csv",
        "epoch,loss\n" + "".join(f"{epoch},{loss:.6f}\n" for epoch, loss in CURVE),
    )
    made.relevance(np.linspace(1, 0.1, 30), columns=[f"mean {index}" for index in range(30)])
    made.release("release", passes=3, claimed=replace(PROVEN, kind="claimed", argument="the paper"))
    for name in ("holdout", "reference"):
        made.release(name, mechanism="public", proven=OPEN_DOOR, public_only=True)
    return made
