"""The private evaluation of a model, if there is one of exactly this model: a released count, as accuracy
with its interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airlock.errors import AirlockError
from airlock.evidence import receipts
from airlock.files import parse_json
from airlock.inside import manifest
from airlock.inside.digests import sha256_path
from airlock.models.numbers import of_noisy_sums
from airlock.privacy.intervals import noisy_share

MEASURES = ("balanced_accuracy", "f1", "auc", "brier")
STAGE, FOLDER, MODEL = "evaluate-private", "data/released/evaluation", "data/model"


def private_evaluation(root: Path) -> dict[str, Any] | None:
    """The figures of data/released/evaluation, or None where a signed receipt does not say that they are of
    this model.

    The interval covers 95 % of two errors together: of the noise, whose size is known, and of the holdout as
    a sample.
    """
    folder = root / FOLDER
    if not (folder / manifest.NAME).is_file() or not (root / MODEL).is_dir() or not _is_of_this_model(root):
        return None
    try:
        made = manifest.load(folder)
        figures = parse_json((folder / "evaluation.json").read_text())
        if (records := int(figures["records"])) < 1:
            return None
        if "errors" in figures:
            return {**_said(made, records), "accuracy": None, **_errors(figures)}
        accuracy = float(figures["accuracy"])
        interval = list(noisy_share(accuracy, records, float(figures["noise_of_accuracy"])))
        return {**_said(made, records), "accuracy": accuracy, "interval": interval, **_measures(figures)}
    except (AirlockError, OSError, ValueError, KeyError, TypeError, ArithmeticError):
        return None


def _said(made: manifest.Manifest, records: int) -> dict[str, Any]:
    return {
        "holdout": "private",
        "records": records,
        "epsilon": made.proven.epsilon,
        "delta": made.proven.delta,
    }


def _errors(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Of a number: R^2 with the interval of its noise, and errors; refused where they are not finite."""
    found = of_noisy_sums(figures)
    if not all(value is None or math.isfinite(value) for value in found.values()):
        raise ValueError("errors of a number are finite")
    return found


def _measures(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Further measures, as far as they are numbers: whoever wrote the file ran behind the wall."""
    found = figures.get("measures")
    named = found.items() if isinstance(found, dict) else ()
    numbers = {name: value for name, value in named if name in MEASURES and type(value) is float}
    return {name: value for name, value in numbers.items() if math.isfinite(value)}


def _is_of_this_model(root: Path) -> bool:
    model, made = sha256_path(root / MODEL), sha256_path(root / FOLDER)
    return any(
        receipt.body["deps"].get(MODEL, {}).get("sha256") == model
        and receipt.body["outs"].get(FOLDER, {}).get("sha256") == made
        for receipt in receipts.in_workspace(root)
        if receipt.stage == STAGE and not receipt.problem
    )
