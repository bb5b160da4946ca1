"""The sections of the report page as plain values; the template only lays them out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from airlock.compare.comparison import ATTACK, CHECK, Bounds
from airlock.inside.manifest import Manifest, total_epsilon
from airlock.params import Params
from stages.open.report.charts import line_chart, number
from stages.open.report.compared import RELEASE, RELEVANCE, attacked_before, together
from stages.open.report.findings import DOORS, Findings

Section = dict[str, Any]
MEASURES = {
    "balanced_accuracy": "Balanced accuracy: recall, every class counting alike",
    "f1": "F1: precision and recall together, every class counting alike",
    "auc": "AUC: how often a record of a class scores above one of the rest",
    "brier": "Brier score: squared error of the probabilities, from 0 (best) to 2",
    "calibration_error": "Calibration error: how far confidence and accuracy are apart",
}
"""What is read beside accuracy (airlock/models/measures.py)."""


def result(findings: Findings) -> Section:
    """How good the model is, and on what that is known."""
    found, model = findings.evaluate, findings.model
    accuracy, n = found.get("accuracy"), found.get("records") or 0
    holdout = str(found.get("holdout") or "none")
    table = found.get("confusion") or []
    labels = [str(label) for label in model.get("labels") or range(len(table))]
    # A private evaluation is noisy: counts derived from it would look more certain than they are.
    exact = accuracy if holdout == "public" and n else None
    largest = max(map(sum, table)) / n if exact is not None and table else None
    return {
        "accuracy": accuracy,
        "number": number_judged(found),
        "predicts_number": bool(model.get("number")),
        # Of an autoencoder: it returns its inputs and knows no classes.
        "error": found.get("mean_squared_error"),
        "reference": found.get("reference_accuracy"),
        "holdout": holdout,
        "records": n,
        "interval": wilson(exact, n) if exact is not None else found.get("interval"),
        "measures": [
            (name, text, found[name]) for name, text in MEASURES.items() if found.get(name) is not None
        ],
        "largest_class": largest,
        # Counts of one test set are compared: a hundredth of a record is rounding.
        "guesses": largest is not None and exact is not None and exact * n <= largest * n + 0.01,
        "confusion": confusion(table, labels),
        "labels": labels,
        "neurons": findings.neurons,
        "model": {"layers": len(model["layers"]), "features": model["features"]}
        if {"layers", "features"} <= model.keys()
        else None,
        "encoder": (model.get("schema") or {}).get("encoder"),
    }


def number_judged(found: Mapping[str, Any]) -> Section | None:
    """Of a model of a number: R^2, errors in its own units, and the reference's R^2; None of classes."""
    if found.get("rmse") is None:
        return None
    return {name: found.get(name) for name in ("r2", "r2_low", "r2_high", "rmse", "mae", "reference_r2")}


def wilson(share: float, n: int) -> tuple[float, float]:
    """95 % confidence interval of a share seen in n trials (Wilson 1927)."""
    z = 1.959963984540054
    centre, spread = share + z * z / (2 * n), z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return (centre - spread) / (1 + z * z / n), (centre + spread) / (1 + z * z / n)


def confusion(table: Sequence[Sequence[float]], labels: Sequence[str]) -> list[Section]:
    """Rows of the confusion matrix; each cell with its share of the row, which shades it."""
    rows = []
    for index, row in enumerate(table):
        total = sum(row)
        shares = [max(value / total, 0.0) if total > 0 else 0.0 for value in row]
        rows.append(
            {"label": labels[index], "cells": list(zip(row, shares, strict=True)), "found": shares[index]}
        )
    return rows


def privacy(findings: Findings) -> Section:
    """What is claimed, proven and measured, for each release and for all of them together."""
    priced, releases = findings.priced, findings.releases
    return {
        "total": total(priced, findings.params.release.delta),
        "rows": [
            {
                "name": name,
                "made": found,
                "attacked": findings.attacked.get(name),
                "before": _before(findings, name),
            }
            for name, found in priced.items()
        ],
        "passes": sum(found.passes for found in priced.values()),
        "interactive": any(found.interactive for found in priced.values()),
        "trained_inside": trained_inside(findings),
        "asked": findings.params.release.epsilon,
        "beyond": beyond(findings),
        "claimed": [found.claimed.epsilon for found in priced.values() if found.claimed],
        "passed": [name for name in DOORS if name in releases and releases[name].applies],
    }


def trained_inside(findings: Findings) -> bool:
    """Whether the release is a trained model, so that training again reads the records again."""
    made = findings.priced.get(RELEASE)
    if made is None:
        return False
    told = {"curve", "losses"} & made.details.keys()
    return bool(told) or (made.interactive and not findings.curve)


def beyond(findings: Findings) -> float | None:
    """What is proven of the release and what it builds on, where that is more than `release.epsilon` asks for: as a
    mechanism was published, epsilon is what its paper claims. None where it is not, or where nothing is proven.
    """
    made = together(findings)
    proven = total_epsilon(made) if made else 0.0
    asked = findings.params.release.epsilon
    return proven if math.isfinite(proven) and proven > asked * (1 + 1e-6) else None


ASSUMED = (
    "",
    "if the form of the noise is taken for granted",
    "if form and size of the noise are taken for granted (how far apart the exact sums were)",
)
"""What each bound of an attack rests on (airlock/compare/comparison.py), beside the attack."""
Assumed = list[tuple[float, str]]


def _before(findings: Findings, name: str) -> Section:
    """What published attacks and accounting checks of the same mechanism reached, and on what that rests."""
    attacked, checked = (attacked_before(findings, name, kinds) for kinds in (ATTACK, (CHECK,)))
    # What was published is of the whole mechanism, whose first half is the relevance release.
    both = name == RELEASE and RELEVANCE in findings.priced
    return {"attacked": _assumed(attacked), "checked": _assumed(checked), "together": both}


def _assumed(bounds: Bounds) -> Assumed:
    """Bounds with what each takes for granted; one that takes more and says no more is left out."""
    told: Assumed = []
    for bound, assumed in zip(bounds, ASSUMED, strict=True):
        if bound is not None and all(bound > less for less, _ in told):
            told.append((bound, assumed))
    return told


def total(priced: Mapping[str, Manifest], delta: float) -> Section | None:
    """The proven guarantee of all releases together, and what it means for one guess about one record.

    Of two equally likely worlds, one with the record and one without, the right one is guessed with
    probability (e^epsilon + delta) / (1 + e^epsilon) at most (Kairouz, Oh and Viswanath 2015).
    """
    if not priced:
        return None
    proven = [found.proven for found in priced.values()]
    events = [one.event for one in proven if one.event is not None]
    if len(proven) == 1:
        epsilon, delta = proven[0].epsilon, proven[0].delta
    elif len(events) == len(proven):
        from airlock.privacy import accounting
        from airlock.privacy.events import from_json

        epsilon = accounting.total_epsilon(map(from_json, events), delta, neighbours=proven[0].neighbours)
    else:
        epsilon, delta = sum(one.epsilon for one in proven), sum(one.delta for one in proven)
    odds = math.exp(-epsilon)
    return {
        "epsilon": epsilon,
        "delta": delta,
        "finite": math.isfinite(epsilon),
        "guess": min((1 + delta * odds) / (1 + odds), 1.0),
        "unit": proven[0].unit,
        "reasons": [one.reason for one in proven if one.reason],
    }


def budget(findings: Findings) -> Section | None:
    """What the ledger says about the population, and how much of the bar is full."""
    if not findings.budget:
        return None
    spent, cap = findings.budget.get("epsilon"), findings.budget.get("cap_epsilon")
    share = (
        min(max(spent / cap, 0.0), 1.0)
        if isinstance(spent, int | float) and isinstance(cap, int | float) and cap > 0
        else None
    )
    return {
        "population": "",
        "epsilon": "unknown",
        "cap_epsilon": None,
        "delta": None,
        "left": None,
        "scratch": False,
        **findings.budget,
        "share": share,
    }


def boundary(findings: Findings) -> Section:
    """The picture of the rooms and the audit's table."""
    rows = [
        {
            "name": row.get("name", "?"),
            "zone": row.get("zone") or "none",
            "raw": _yes_or_no(row.get("could_read_raw")),
            "sealed": _yes_or_no(row.get("could_read_sealed")),
            "did": row.get("answer") or "unknown",
            "passes": row.get("passes"),
            "walls": _walls(row.get("enforcement")),
        }
        for row in findings.audit
    ]
    readers = [row for row in rows if "yes" in (row["raw"], row["sealed"])]
    return {
        "picture": Markup(findings.picture) if findings.picture else None,
        "rows": rows,
        "readers": [row["name"] for row in readers],
        "breaches": [row["name"] for row in readers if row["zone"] not in ("sensitive", "release")],
    }


def _yes_or_no(fact: Any) -> str:
    return "yes" if fact else "no"


def _walls(found: Any) -> str:
    if not found:
        return "not recorded"
    if isinstance(found, str):
        return found
    return "all five layers" if len(found) == 5 else ", ".join(map(str, found))


AGAIN = "Training again, or for longer, reads no records and costs no privacy."


def curve(findings: Findings) -> Section:
    """The learning curve: loss over epochs, along the path of ridges to a closed form, what residual rounds had
    left, or how a network came to be that was trained where the records are.
    """
    drawing, method = None, findings.params.train.method
    made = findings.priced.get(RELEASE)
    x_label, y_label, caption = _axes(findings, made.details if made is not None else {})
    if len(findings.curve) > 1:
        drawing = Markup(line_chart(findings.curve, title="Learning curve", x_label=x_label, y_label=y_label))
    ready = trained_inside(findings)
    return {"drawing": drawing, "method": method, "caption": caption, "ready": ready}


def _axes(findings: Findings, details: Mapping[str, Any]) -> tuple[str, str, str]:
    """What the curve is of, by the release that was trained from."""
    if "curve" in details:
        return (
            "step",
            "change of the training loss",
            (
                "How far the training loss has come, as the noisy gradients of the release tell it: each one times the "
                f"move before it, added up. Noise alone moves the last point by {details['curve']['noise']:.2g} "
                "(one standard deviation). Another curve would read the records again."
            ),
        )
    if "losses" in details:
        return (
            "epoch",
            "training loss",
            (
                "Loss with the mechanism's own noise in it, epoch by epoch, as the network was trained where the "
                "records are. Another curve would read the records again."
            ),
        )
    solved = findings.params.train.method != "sgd" and not findings.train.get("epochs")
    if solved and len(details.get("residuals", [])) > 1:
        told = "What was left unexplained before each round, by the noisy sums of the rounds."
        return "round", "noisy residual", f"{told} {AGAIN}"
    if solved:
        last = "that the rounds began with" if "head_unit" in details else "taken"
        told = (
            f"Loss on the released coefficients, from a head held near zero to the one {last}, each step with a "
            "smaller ridge."
        )
        return "step of the path", "training loss", f"{told} {AGAIN}"
    return "epoch", "training loss", f"Loss on what was released, epoch by epoch. {AGAIN}"


def summary(findings: Findings) -> Section:
    """The page in a few figures, for `airlock report` and other programs."""
    found, guarantee, readers = result(findings), privacy(findings), boundary(findings)
    proven = guarantee["total"] or {}
    return {
        "dataset": findings.params.dataset,
        "accuracy": found["accuracy"],
        "reference_accuracy": found["reference"],
        **(found["number"] or {}),
        **({} if found["error"] is None else {"mean_squared_error": found["error"]}),
        "records": found["records"],
        "holdout": found["holdout"],
        "interval": found["interval"],
        "largest_class": found["largest_class"],
        "epsilon": _json(proven["epsilon"]) if proven else None,
        "delta": proven.get("delta"),
        "unit": proven.get("unit"),
        "asked": guarantee["asked"],
        "beyond": guarantee["beyond"],
        "claimed": [_json(epsilon) for epsilon in guarantee["claimed"]],
        "passes": guarantee["passes"],
        "interactive": guarantee["interactive"],
        "could_read_records": readers["readers"],
        "breaches": readers["breaches"],
        "budget": findings.budget,
    }


def _json(epsilon: float) -> float | str:
    return epsilon if math.isfinite(epsilon) else "infinity"


def parameters(findings: Findings) -> Iterator[tuple[str, str, str, bool]]:
    """(section, key, value, is the default) for everything in params.yaml."""
    defaults = Params.model_validate({}).model_dump(mode="json")
    for section, values in findings.params.model_dump(mode="json").items():
        entries = values.items() if isinstance(values, dict) else [(section, values)]
        for key, value in entries:
            default = defaults[section][key] if isinstance(values, dict) else defaults[section]
            yield section if isinstance(values, dict) else "", key, _plain(value), value == default


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return number(value, 12)
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_plain(item)}" for key, item in sorted(value.items())) or "none"
    return "none" if value is None else str(value)
