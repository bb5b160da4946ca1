"""What is said of a paper's mechanism: claimed by its authors, proven for floating-point noise that is priced
as if it were exact, or not proven at all.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

from airlock.params import ReleaseParams
from airlock.privacy import accounting, events
from airlock.privacy.guarantees import Guarantee, Neighbours

Arithmetic = Literal["exact", "idealised"]


def claimed(
    release: ReleaseParams, *, argument: str, delta: float = 0.0, neighbours: Neighbours | None = None
) -> Guarantee:
    """What the paper says of the epsilon that is asked for."""
    near = neighbours or release.neighbours
    return Guarantee("claimed", "record", near, release.epsilon, delta, argument=argument)


def proven(
    release: ReleaseParams,
    event: Mapping[str, Any],
    *,
    sensitivity: str,
    argument: str,
    arithmetic: Arithmetic = "idealised",
) -> Guarantee:
    """What the accountant makes of an event."""
    return Guarantee(
        "proven",
        "record",
        release.neighbours,
        price(event, release.delta, release.neighbours),
        release.delta,
        event=event,
        sensitivity=sensitivity,
        argument=argument,
        arithmetic=arithmetic,
    )


def unproven(
    release: ReleaseParams,
    *,
    argument: str,
    reason: str,
    sensitivity: str = "",
    arithmetic: Arithmetic = "idealised",
) -> Guarantee:
    """Nothing finite, and why."""
    return Guarantee(
        "proven",
        "record",
        release.neighbours,
        math.inf,
        0.0,
        sensitivity=sensitivity,
        argument=argument,
        reason=reason,
        arithmetic=arithmetic,
    )


def price(event: Mapping[str, Any], delta: float, neighbours: Neighbours) -> float:
    """Epsilon of an event; computed once, for plans are made several times a run."""
    return _price(json.dumps(event, sort_keys=True), delta, neighbours)


@lru_cache(maxsize=64)
def _price(event: str, delta: float, neighbours: Neighbours) -> float:
    return accounting.epsilon(events.from_json(json.loads(event)), delta, neighbours=neighbours)
