"""What the nights of a horizon have told, in one small file of AIRLOCK_HOME: for the report, and for a page of the
schedule.

Averages are read from the archive, night by night, once. Accuracy is what `evaluate` wrote when the night was
trained on; anyone who works on the code can write it, so that only a number is taken from there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from airlock.errors import AirlockError
from airlock.inside import manifest
from airlock.ledger import Ledger
from airlock.owner.home import Project, write_private
from airlock.params import Params
from airlock.records import handles
from airlock.records.encoding import encoded_columns
from airlock.records.schema_file import load_schema

RELEASE, METRICS = "data/released/release", "data/metrics/evaluate.json"
AVERAGES = "averages"


def tonight(
    project: Project, workspace: Path, params: Params, ledger: Ledger, *, judged: bool = False
) -> dict[str, Any] | None:
    """All nights of the horizon that the workspace's release belongs to; None where it is of no horizon, or of one
    without averages.

    Args:
        judged: tonight's model was just evaluated: its accuracy is taken note of.
    """
    try:
        made = manifest.load(workspace / RELEASE)
    except (AirlockError, OSError, ValueError):
        return None
    told = made.details.get("horizon")
    if told is None or AVERAGES not in made.details or not (project.archive / made.release_id).is_dir():
        return None
    known = _load(project, told["id"])
    for one in ledger.nights(params.dataset, told["id"]):
        if one.committed and one.release_id not in known["nights"]:
            known["nights"][one.release_id] = _row(project, one.release_id)
    if made.release_id not in known["nights"]:
        return None
    if judged:
        known["nights"][made.release_id] |= _accuracy(workspace)
    write_private(_file(project, told["id"]), json.dumps(known).encode())
    rows = sorted(known["nights"].values(), key=lambda row: int(row["night"]))
    rows = [row for row in rows if row["night"] <= told["night"]]
    return {**_names(workspace, params, len(rows[-1]["values"])), "nights": told["nights"], "rows": rows}


def _row(project: Project, release_id: str) -> dict[str, Any]:
    from safetensors import safe_open

    folder = project.archive / release_id
    made = json.loads((folder / manifest.NAME).read_text())
    with safe_open(folder / "release.safetensors", "numpy") as tensors:
        values = [int(value) for value in tensors.get_tensor(AVERAGES)]
    said = made["details"][AVERAGES]
    return {
        **{name: said[name] for name in ("night", "records", "weight", "scale")},
        "values": values,
        "total": made["details"]["data"]["n"],
        "epsilon": made["proven"]["epsilon"],
    }


def _accuracy(workspace: Path) -> dict[str, float]:
    try:
        found = json.loads((workspace / METRICS).read_text()).get("accuracy")
    except (OSError, ValueError, AttributeError):
        return {}
    return {"accuracy": float(found)} if isinstance(found, int | float) and 0 <= found <= 1 else {}


def _names(workspace: Path, params: Params, width: int) -> dict[str, Any]:
    schema = load_schema(workspace / handles.SCHEMAS / f"{params.dataset}.yaml")
    classes = [f"class {label}" for label in schema.label.classes]
    columns = encoded_columns(schema) if width > len(classes) else []
    return {"names": [*columns, *classes], "columns": len(columns)}


def _file(project: Project, horizon: str) -> Path:
    folder = project.folder / "nights"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder / f"{horizon}.json"


def _load(project: Project, horizon: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(_file(project, horizon).read_text())
    except (OSError, ValueError):
        found = {"nights": {}}
    return found
