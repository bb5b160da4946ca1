"""The comparison on the report page: this run as a row of `airlock compare`, above what others reached on the
same data set.
"""

from __future__ import annotations

import math
from typing import Any

from airlock.compare.comparison import ATTACK, CHECK, HEADINGS, Bounds, ComparisonRow, attacked
from airlock.inside.manifest import Manifest, total_epsilon
from stages.open.report.findings import Findings

RELEVANCE, RELEASE = "relevance", "release"
ABLATION = "coefficients, relevance "
UNSAID = {"optimized-noise": {"calibration": "published"}}
"""Options that parameters leave out where they are so, for ids from before there was a choice."""


def compared(findings: Findings) -> dict[str, Any] | None:
    """Headings and rows, the run's own first; None where there is no release."""
    if RELEASE not in findings.priced:
        return None
    others = [row for row in findings.published.rows if row.dataset == findings.params.dataset]
    rows = [
        {"cells": _own(findings, others).cells(), "own": True},
        *({"cells": row.cells(), "own": False} for row in others),
    ]
    return {"headings": HEADINGS, "rows": rows, "others": len(others)}


def ablated(findings: Findings) -> list[tuple[str, float, str, float]]:
    """Whether relevance helped where it was tried: (data set, epsilon, way to spend that epsilon, accuracy),
    this data set's if any.
    """
    rows = [row for row in findings.published.rows if row.mechanism.startswith(ABLATION)]
    own = [row for row in rows if row.dataset == findings.params.dataset]
    return [
        (row.place, row.epsilon, row.mechanism.removeprefix(ABLATION), row.accuracy)
        for row in own or rows
        if row.epsilon is not None and row.accuracy is not None
    ]


def attacked_before(findings: Findings, name: str, kinds: tuple[str, ...] = ATTACK) -> Bounds:
    """What published attacks on the same mechanism, with no less noise, reached, for a release of this run."""
    made, asked = findings.priced[name], findings.params
    epsilon = asked.evaluate.epsilon if name == "evaluation" else asked.release.epsilon
    # What was not given is what the mechanism made of it: a preset is one, named or not.
    options = {**UNSAID.get(made.mechanism, {}), **made.parameters} if name == RELEASE else {}
    proven = total_epsilon(together(findings)) if name == RELEASE else made.proven.epsilon
    claimed = made.claimed.epsilon if made.claimed else None
    run = {"mechanism": made.mechanism, "epsilon": epsilon, "options": options, "unit": made.unit}
    run |= {"proven": proven, "claimed": claimed}
    return attacked(run, findings.published.attacks, kinds)


def together(findings: Findings) -> list[Manifest]:
    """Releases whose total is `release.epsilon`."""
    return [findings.priced[name] for name in (RELEVANCE, RELEASE) if name in findings.priced]


def _own(findings: Findings, others: list[ComparisonRow]) -> ComparisonRow:
    made, asked, found = findings.priced[RELEASE], findings.params.release, findings.evaluate
    both = together(findings)
    free, by_law, reached = attacked_before(findings, RELEASE)
    checked, checked_by_law, _ = attacked_before(findings, RELEASE, kinds=(CHECK,))
    measured = findings.attacked.get(RELEASE)
    alike = [
        row.paper_accuracy
        for row in others
        if (row.mechanism, row.epsilon) == (made.mechanism, asked.epsilon)
    ]
    options = [f"{name} {value}" for name, value in sorted(asked.options.items()) if isinstance(value, str)]
    return ComparisonRow(
        dataset=findings.params.dataset,
        mechanism=made.mechanism,
        reading=", ".join(["this run", *options]),
        neighbours=made.neighbours,
        passes=sum(one.passes for one in both),
        epsilon=asked.epsilon,
        claimed=made.claimed.epsilon if made.claimed else None,
        proven_pure=sum(_pure(one.proven.event) for one in both),
        proven=total_epsilon(both),
        delta=made.proven.delta,
        attacked=measured.epsilon if measured else free,
        attacked_by_law=None if measured else by_law,
        reached=None if measured else reached,
        checked=checked,
        checked_by_law=checked_by_law,
        accuracy=found.get("accuracy"),
        paper_accuracy=next((accuracy for accuracy in alike if accuracy is not None), None),
        records=(made.details.get("data") or {}).get("n"),
        # None were needed, or they are steps of the release: passes.
        epochs=findings.train.get("epochs") or None,
    )


def _pure(event: Any) -> float:
    """Epsilon at delta 0; infinite for Gaussian noise and where nothing is proven."""
    if event is None:
        return math.inf
    from airlock.privacy import accounting
    from airlock.privacy.events import from_json

    return accounting.epsilon(from_json(event), 0.0)
