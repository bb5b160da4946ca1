"""Every pair of records of a small schema, one in the place of the other: none is farther apart than
replace-one is priced at.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from airlock.attack import replay
from airlock.attack.attack import InMemory
from airlock.params import Params
from airlock.privacy import accounting, events, sensitivity
from airlock.records.encoding import Encoded, pack
from stages import attack_data
from stages.mechanisms import Whole, mechanism

FACTS = replace(attack_data.MIXED, n=4)
AGES = ((0.0, 0.0), (0.5, 0.0), (1.0, 0.0), (0.0, 1.0))
"""Lowest, middle, highest, missing."""
SITES = ((1.0, 0.0, 0.0), (0.0, 0.0, 1.0))
RECORDS = [
    (np.array([*age, visits, *site]), label)
    for age, visits, site, label in itertools.product(AGES, (0.0, 1.0), SITES, (0, 1))
]
NULL = (np.zeros(6), -1)
OTHERS = [RECORDS[5], RECORDS[26], NULL]


def released(params: Params, record: tuple[Any, int], script: Any = None) -> Any:
    """The noisy sums of a release with this record among others."""
    rows = [record, *OTHERS]
    x, y = np.stack([one for one, _ in rows]), np.array([label for _, label in rows], np.int32)
    reader = InMemory([pack(Encoded(x, y, (y >= 0).astype(np.uint8)))])
    with replay.writing(replay.Transcript(script=script)) as written:
        whole = Whole(mechanism(params.release.mechanism))
        whole.make(params, FACTS, reader, key=bytes(32), release_id="id")
    return written.answers


def farthest(name: str) -> float:
    """The part of the price that the two records take that are farthest apart."""
    params = Params.model_validate(
        {"release": {"mechanism": name, "neighbours": "replace-one", "delta": 1e-3, "passes": 1}}
    )
    proven, most = Whole(mechanism(name)).plan(params, FACTS).proven, replay.Distance(0.0)
    # With one pass no sum depends on the noise of another: one transcript serves all pairs.
    script = released(params, NULL)
    found = [released(params, record, script) for record in (NULL, *RECORDS)]
    for one, other in itertools.combinations(found, 2):
        most = max(most, replay.distance(one, other), key=lambda apart: apart.size)
    assert proven.event is not None
    priced = accounting.epsilon(events.from_json(proven.event), proven.delta, neighbours="replace-one")
    return most.epsilon(proven.delta) / priced


@pytest.mark.parametrize(("name", "least"), [("coefficients", 0.5), ("inputs", 0.99), ("bounds", 0.99)])
def test_no_two_records_are_farther_apart_than_replace_one_is_priced_at(name: str, least: float) -> None:
    assert least <= farthest(name) <= 1 + 1e-6


@pytest.mark.parametrize("name", ["inputs", "bounds"])
def test_a_price_of_zero_out_would_be_passed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control."""
    for which in ("marginals", "histograms"):
        right = getattr(sensitivity, which)
        cheaper = lambda *given, right=right, **how: right(*given, **{**how, "neighbours": "zero-out"})  # noqa: E731
        monkeypatch.setattr(sensitivity, which, cheaper)
    assert farthest(name) > 1.05
