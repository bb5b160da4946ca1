"""The row of a paper's table that a bundle stands behind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from airlock.bundle.contents import Contents
from airlock.files import parse_json
from airlock.inside.manifest import Manifest, total_epsilon
from airlock.params import load_params

RELEVANCE, RELEASE = "data/released/relevance", "data/released/release"
EVALUATION = "data/metrics/evaluate.json"
HEADINGS = (
    "data",
    "mechanism",
    "options",
    "claimed ε",
    "proven ε",
    "δ",
    "passes",
    "accuracy",
    "without privacy",
    "records",
    "commit",
)


@dataclass(frozen=True)
class Result:
    """What was released and how good the model is; None where nothing is known.

    `accuracy` is what the bundle states, `recomputed` what its model had when evaluate was run again here.
    """

    data: str
    mechanism: str
    options: str
    claimed: float | None
    proven: float
    delta: float
    passes: int
    accuracy: float | None
    reference: float | None
    records: int | None
    commit: str
    recomputed: float | None = None

    def cells(self) -> list[str]:
        """As text, under `HEADINGS`."""
        figures = [f"{value:.4f}" if value is not None else "-" for value in (self.accuracy, self.reference)]
        claimed = f"{self.claimed:.4g}" if self.claimed is not None else "-"
        promise = [claimed, f"{self.proven:.4g}", f"{self.delta:g}", str(self.passes)]
        return [
            self.data,
            self.mechanism,
            self.options,
            *promise,
            *figures,
            str(self.records or "-"),
            self.commit[:12],
        ]


def result(contents: Contents, commit: str) -> Result | None:
    """The bundle's row, or None where no release was made."""
    made: Manifest | None = contents.releases.get(RELEASE)
    if made is None:
        return None
    file = contents.root / EVALUATION
    found = parse_json(file.read_text()) if file.exists() else {}
    params = load_params(contents.root / "params.yaml")
    earlier = contents.releases.get(RELEVANCE)
    together = [*([earlier] if earlier and earlier.applies else []), made]
    return Result(
        data=params.dataset,
        mechanism=made.mechanism,
        options=", ".join(f"{name}: {value}" for name, value in sorted(params.release.options.items()))
        or "-",
        claimed=made.claimed.epsilon if made.claimed else None,
        proven=total_epsilon(together),
        delta=made.proven.delta,
        passes=sum(one.passes for one in together),
        accuracy=_figure(found, "accuracy"),
        reference=_figure(found, "reference_accuracy"),
        records=None if found.get("records") is None else int(found["records"]),
        commit=commit,
    )


def recompute(contents: Contents, stated: Result) -> Result:
    """The row after evaluate was run again: what lies in its place was made here and now."""
    file = contents.root / EVALUATION
    found = parse_json(file.read_text()) if file.exists() else {}
    return replace(stated, recomputed=_figure(found, "accuracy"))


def _figure(found: Mapping[str, Any], name: str) -> float | None:
    """A figure that a stage has written; what is no number is an error, and never printed."""
    return None if found.get(name) is None else float(found[name])


def markdown(results: Iterable[Result]) -> str:
    """The table as a paper's repository would show it."""
    rows = [HEADINGS, ["---"] * len(HEADINGS), *(one.cells() for one in results)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
