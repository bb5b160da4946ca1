"""Guarantees as values: what is claimed, what is proven, what an attack measured.

The three are distinct kinds and are never merged. Infinity is a legal epsilon, with a reason.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Kind = Literal["claimed", "proven", "attacked"]
Unit = Literal["record", "user"]
Neighbours = Literal["zero-out", "replace-one"]


@dataclass(frozen=True)
class Guarantee:
    """One statement about privacy.

    Attributes:
        kind: who says it: the paper, a proof about exactly these bytes, or an attack (then a lower bound).
        unit: what a neighbour differs in.
        neighbours: the relation; zero-out replaces one unit by a null one, n being public.
        epsilon, delta: the statement itself.
        event: the DpEvent behind it as JSON (see `privacy.events`), or None where there is none.
        sensitivity: in words and figures, for example "L2 1.0 per query".
        argument: of a proven guarantee docs/proofs/PAGE.md#heading; of others the paper or the attack.
        reason: why epsilon is infinite; empty otherwise.
        arithmetic: "exact" (integers and grid noise) or "idealised" (floating point used as if it were real).
        confidence: of an attacked guarantee's lower bound.
    """

    kind: Kind
    unit: Unit
    neighbours: Neighbours
    epsilon: float
    delta: float
    event: Mapping[str, Any] | None = None
    sensitivity: str = ""
    argument: str = ""
    reason: str = ""
    arithmetic: Literal["exact", "idealised"] = "exact"
    confidence: float | None = None

    def __post_init__(self) -> None:
        if not self.epsilon >= 0 or not 0 <= self.delta <= 1:
            raise ValueError(
                f"epsilon must be at least 0 and delta in [0, 1], got {self.epsilon}, {self.delta}"
            )
        if math.isinf(self.epsilon) and not self.reason:
            raise ValueError("an infinite epsilon needs a reason")

    def to_json(self) -> dict[str, Any]:
        """As JSON; infinity is written as the string "infinity", which every JSON reader takes."""
        document = asdict(self)
        document["epsilon"] = "infinity" if math.isinf(self.epsilon) else self.epsilon
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Guarantee:
        """The inverse of `to_json`."""
        fields = dict(document)
        fields["epsilon"] = math.inf if fields["epsilon"] == "infinity" else float(fields["epsilon"])
        return cls(**fields)
