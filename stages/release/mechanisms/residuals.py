"""The question of a residual round, whatever prepared the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from airlock.models import sureness
from airlock.models.features.softmax import BOUND, residuals, surplus
from airlock.privacy.sums import label_rows
from stages.release.mechanisms.heads import Head
from stages.release.passes import Chunk, Sendable, Sums, cross_of


@dataclass(frozen=True)
class Residuals(Sendable):
    """The question of a round: sum a r^T over a chunk, for the residuals r of a head that depends on earlier
    releases only; of the last one also how often it is right, less how sure.
    """

    head: Head
    clip: float
    last: bool = False
    kind: ClassVar[str] = "residuals"

    def __call__(self, chunk: Chunk) -> Sums:
        targets = label_rows(chunk.labels, self.head.integers.shape[1])
        scores = self.head.scores(chunk.rows)
        found = {"residuals": cross_of(chunk, residuals(scores, targets, self.clip), BOUND)}
        if self.last:
            found["sureness"] = surplus(scores, targets, sureness.FACTORS).sum(axis=0).astype(np.int64)
        return found

    def packed(self) -> tuple[dict[str, Any], Sums]:
        """Clip, unit and head: all made from earlier releases."""
        plain = {"clip": self.clip, "unit": self.head.unit, "last": self.last}
        return plain, {"head": self.head.integers}

    @classmethod
    def unpacked(cls, plain: Mapping[str, Any], tensors: Sums) -> Self:
        """The inverse of `packed`."""
        return cls(Head(tensors["head"], plain["unit"]), plain["clip"], plain["last"])
