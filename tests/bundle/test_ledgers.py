"""What follows from a release that names no event depends on whether records were read for it."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

import pytest

from airlock.bundle import ledgers
from airlock.privacy.guarantees import Guarantee


@pytest.mark.parametrize(("passes", "epsilon"), [(0, 0.0), (1, math.inf)])
def test_only_what_read_no_record_costs_nothing_without_an_event(passes: int, epsilon: float) -> None:
    stated = Guarantee("proven", "record", "zero-out", 0.0, 0.0, argument="a separate, public file")
    made = SimpleNamespace(proven=stated, passes=passes, mechanism="holdout")
    contents = SimpleNamespace(releases={"data/released/holdout": made})
    (found,) = ledgers.recompute(cast(Any, contents))
    assert found.epsilon == epsilon
