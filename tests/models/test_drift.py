"""Change between nights: how often it is called where there is none, and that it is found where there is."""

from __future__ import annotations

import numpy as np
import pytest

from airlock.models.drift import ALARMS, Told, changes
from airlock.privacy.weighing import weighing

NIGHTS, RECORDS, NAMES = 16, 60, ["age", "class ill"]


def told(seed: int, *, shift: float = 0.0, scale: float = 2000.0) -> list[Told]:
    """Nights of records that are 0 or 1 in their one column, the widest spread there can be; later more are 1."""
    source, weights = np.random.default_rng(seed), weighing(NIGHTS)
    total, found = np.zeros(2), []
    for night in range(1, NIGHTS + 1):
        more = shift if night > NIGHTS // 2 else 0.0
        column = source.random(RECORDS) < 0.5 + more
        ill = source.random(RECORDS) < 0.3
        sums = np.array([np.where(column, 127, -128).sum(), 128 * ill.sum()])
        total = total + weights.weights[night - 1] * sums
        noise = np.rint(source.normal(0, weights.scale(scale, night), 2))
        values = tuple(int(value) for value in total + noise)
        found.append(Told(night, RECORDS, weights.weights[night - 1], weights.scale(scale, night), values))
    return found


def alarms(nights: list[Told], until: int) -> bool:
    return any(change.alarm for change in changes(nights[:until], NAMES, 1, NIGHTS))


def test_false_alarms_over_all_nights_and_columns_are_as_rare_as_is_said() -> None:
    runs = 400
    called = sum(any(alarms(told(seed), night) for night in range(2, NIGHTS + 1)) for seed in range(runs))
    assert called / runs <= ALARMS + 3 * np.sqrt(ALARMS / runs)


def test_a_change_is_found_and_told_in_parts_of_the_range() -> None:
    nights = told(1, shift=0.4)
    assert alarms(nights, NIGHTS)
    age, ill = changes(nights, NAMES, 1, NIGHTS)
    assert age.alarm
    assert not ill.alarm
    assert age.difference == pytest.approx(0.4, abs=0.12)
    assert ill.mean == pytest.approx(0.3, abs=3 * ill.interval)
    assert changes(nights[:1], NAMES, 1, NIGHTS) == []


def test_the_noise_alone_explains_what_it_may() -> None:
    """With noise as large as the sums nothing is called, whatever changes: the threshold grows with it."""
    assert not alarms(told(2, shift=0.4, scale=1e7), NIGHTS)


def test_a_stretch_without_records_is_compared_with_nothing() -> None:
    empty = [Told(night, 0, 1, 1.0, (0, 0)) for night in (1, 2)]
    assert changes(empty, NAMES, 1, NIGHTS) == []
