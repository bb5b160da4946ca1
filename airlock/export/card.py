"""A model card: what the model is, on which data, with which guarantee, how good, and what it is not for.

Markdown and JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airlock import terminal
from airlock.errors import AirlockError, BoundaryError
from airlock.evidence.audit import audit
from airlock.evidence.evaluation import private_evaluation
from airlock.files import parse_json
from airlock.inside import manifest
from airlock.models.model import Model
from airlock.records.schema import Schema
from airlock.run.paths import read_text

RELEASES, METRICS = "data/released/release", "data/metrics/evaluate.json"
LIMITS = (
    "The guarantee is about the records that the model was made from. It says nothing about records that "
    "you put into it.",
    "Values outside the bounds are clipped, so the model knows nothing beyond them.",
    "Probabilities are a softmax of the model's scores. They order records; whether they are calibrated was "
    "not measured.",
    "Accuracy is of the holdout that is named here, or unknown. Rare classes may be predicted badly where "
    "the noise is large.",
)

NUMBER_LIMITS = (
    *LIMITS[:2],
    "An answer is the mean that a linear model of the features expects, within the label's bounds; how far a "
    "single record may lie from it is what the errors say.",
)


def card_of(model: Model, workspace: Path | None) -> dict[str, Any]:
    """The card as a document. The release and the metrics are read from a workspace, if they are those of
    this very model.
    """
    schema = Schema.model_validate(model.document["schema"])
    release = _release(model, workspace)
    return {
        "data": {
            "name": schema.name,
            "description": schema.description,
            "kind": schema.kind,
            "public": schema.public,
            "records": (release.details.get("data") or {}).get("n") if release else None,
            "columns": len(schema.sources),
        },
        "label": {
            "column": schema.label.column,
            **({"bounds": list(model.number)} if model.number else {"classes": list(model.labels)}),
        },
        "model": {
            "features": model.features,
            "mechanism": model.document.get("mechanism"),
            "training": model.document.get("training"),
        },
        "release": model.document.get("release"),
        "privacy": _privacy(release),
        "metrics": _metrics(workspace) if release else None,
        "evidence": _evidence(workspace) if release else None,
        "limits": list(NUMBER_LIMITS if model.number else LIMITS),
    }


def markdown(card: Mapping[str, Any]) -> str:
    """The card for people."""
    data, label, privacy, metrics = card["data"], card["label"], card["privacy"], card["metrics"]
    lines = [f"# Model card: {label['column']} of {data['name']}", ""]
    lines += [data["description"], ""] if data["description"] else []
    count = f"{data['records']:,} records" if data["records"] else "records"
    lines += [
        f"- **Data**: {data['name']}, {'public' if data['public'] else 'private'}, {count}, "
        f"{data['columns']} columns, {data['kind']}",
        f"- **Predicts**: {label['column']} ({_answers(label)})",
        f"- **Model**: features {card['model']['features']}, mechanism {card['model']['mechanism']}",
        f"- **Privacy**: {_words(privacy)}",
        f"- **{'R^2' if 'bounds' in label else 'Accuracy'}**: {_accuracy(metrics)}",
        f"- **Release**: {card['release']}",
        f"- **Evidence**: {_held(card['evidence'])}",
        "",
        "## Limits",
        "",
        *(f"- {line}" for line in card["limits"]),
    ]
    return "\n".join(map(terminal.line, lines)) + "\n"


def _evidence(workspace: Path | None) -> dict[str, Any] | None:
    """What the audit of the workspace says of the figures that are taken from it: their files may be anyone's."""
    if workspace is None:
        return None
    try:
        problems = list(audit(workspace).problems)
    except AirlockError as error:
        problems = [str(error)]
    return {"holds": not problems, "problem": problems[0] if problems else None}


def _held(evidence: Mapping[str, Any] | None) -> str:
    if evidence is None:
        return "not looked at"
    if evidence["holds"]:
        return "`airlock audit` held when this card was written"
    return f"`airlock audit` does not hold, so nothing speaks for these figures ({evidence['problem']})"


def _release(model: Model, workspace: Path | None) -> manifest.Manifest | None:
    if workspace is None or not (workspace / RELEASES / manifest.NAME).is_file():
        return None
    try:
        found = manifest.load(workspace / RELEASES)
    except AirlockError:
        return None
    return found if found.release_id == model.document.get("release") else None


def _privacy(release: manifest.Manifest | None) -> dict[str, Any] | None:
    if release is None:
        return None
    kept = ("epsilon", "delta", "unit", "neighbours", "argument", "arithmetic", "reason")
    proven = release.proven.to_json()
    return {
        "proven": {name: proven[name] for name in kept},
        "claimed": release.claimed.to_json() if release.claimed else None,
        "passes": release.passes,
        "interactive": release.interactive,
    }


def _metrics(workspace: Path | None) -> dict[str, Any] | None:
    if workspace is not None and (judged := private_evaluation(workspace)):
        return judged
    try:
        document = parse_json(read_text(workspace or Path(), METRICS) or "")
    except (BoundaryError, ValueError):
        return None
    if not _are_figures(document):
        return None
    named = ("r2", "rmse", "mae") if document.get("rmse") is not None else ("recall",)
    return {name: document.get(name) for name in ("holdout", "accuracy", "records", *named)}


def _are_figures(document: Any) -> bool:
    """Whether it is of the form that `evaluate` writes."""
    if not isinstance(document, dict) or document.get("holdout") not in ("public", "private", "none", None):
        return False
    numbers = (document.get(name) for name in ("accuracy", "records", "r2", "rmse", "mae"))
    return all(one is None or (isinstance(one, int | float) and abs(one) < 1e300) for one in numbers)


def _answers(label: Mapping[str, Any]) -> str:
    if "bounds" in label:
        low, high = label["bounds"]
        return f"a number from {low:g} to {high:g}"
    return ", ".join(label["classes"])


def _words(privacy: Mapping[str, Any] | None) -> str:
    if privacy is None:
        return "the release is not here; its id is below, and its release.json says what is proven"
    proven = privacy["proven"]
    epsilon = f"{proven['epsilon']:.4g}" if isinstance(proven["epsilon"], float) else str(proven["epsilon"])
    passes = f"{privacy['passes']} pass{'' if privacy['passes'] == 1 else 'es'} over the records"
    reason = f"; {proven['reason']}" if proven["reason"] else ""
    return (
        f"proven epsilon {epsilon}, delta {proven['delta']:g} per {proven['unit']} "
        f"({proven['neighbours']}), {passes}{reason}"
    )


def _accuracy(metrics: Mapping[str, Any] | None) -> str:
    if metrics and metrics.get("rmse") is not None:
        share = "not to be told" if metrics["r2"] is None else f"{metrics['r2']:.3f}"
        errors = f"errors {metrics['rmse']:.4g} (root mean square) and {metrics['mae']:.4g} (mean)"
        return f"{share}, {errors}, on {metrics['records']} {metrics['holdout']} records"
    if not metrics or metrics["accuracy"] is None:
        return "not measured"
    low, high = metrics.get("interval") or (None, None)
    between = "" if low is None else f" ({low:.1%} to {high:.1%})"
    return f"{metrics['accuracy']:.1%}{between} on {metrics['records']} {metrics['holdout']} records"
