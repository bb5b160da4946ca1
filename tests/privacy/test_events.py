"""Events survive JSON with every bit, and nothing that cannot be accounted for becomes an event."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from typing import Any

import pytest
from dp_accounting import dp_event
from hypothesis import given
from hypothesis import strategies as st

from airlock.privacy import events

MULTIPLIERS = st.floats(min_value=1e-6, max_value=1e12)
SINGLE = st.one_of(
    st.builds(dp_event.GaussianDpEvent, MULTIPLIERS),
    st.builds(dp_event.LaplaceDpEvent, MULTIPLIERS),
    st.builds(dp_event.DiscreteLaplaceDpEvent, MULTIPLIERS, st.integers(1, 9)),
    st.builds(dp_event.NoOpDpEvent),
    st.builds(dp_event.NonPrivateDpEvent),
    st.builds(
        dp_event.PoissonSampledDpEvent, st.floats(0, 1), st.builds(dp_event.GaussianDpEvent, MULTIPLIERS)
    ),
)
ANY = st.recursive(
    SINGLE,
    lambda inner: st.one_of(
        st.builds(dp_event.SelfComposedDpEvent, inner, st.integers(0, 10**6)),
        st.builds(dp_event.ComposedDpEvent, st.lists(inner, max_size=4)),
    ),
    max_leaves=8,
)


@given(ANY)
def test_an_event_survives_json_bit_for_bit(event: dp_event.DpEvent) -> None:
    document = events.to_json(event)
    assert events.from_json(json.loads(json.dumps(document, allow_nan=False))) == event


@given(ANY)
def test_leaves_count_what_nested_composition_repeats(event: dp_event.DpEvent) -> None:
    doubled = dp_event.ComposedDpEvent([event, dp_event.SelfComposedDpEvent(event, 3)])
    assert events.leaves(doubled) == {part: 4 * count for part, count in events.leaves(event).items()}


@pytest.mark.parametrize(
    "document",
    [
        {"kind": "gaussian"},
        {"kind": "gaussian", "noise_multiplier": 0.0},
        {"kind": "gaussian", "noise_multiplier": -1.0},
        {"kind": "gaussian", "noise_multiplier": math.nan},
        {"kind": "gaussian", "noise_multiplier": math.inf},
        {"kind": "gaussian", "noise_multiplier": True},
        {"kind": "gaussian", "noise_multiplier": "1"},
        {"kind": "gaussian", "noise_multiplier": 1.0, "comment": "x"},
        {
            "kind": "poisson-sampled",
            "sampling_probability": 1.5,
            "event": {"kind": "gaussian", "noise_multiplier": 1.0},
        },
        {"kind": "self-composed", "count": -1, "event": {"kind": "none"}},
        {"kind": "self-composed", "count": 1.5, "event": {"kind": "none"}},
        {"kind": "composed", "events": [{"kind": "exponential"}]},
        {"kind": "os.system"},
        {},
    ],
)
def test_what_is_not_an_event_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"event"):
        events.from_json(document)


@pytest.mark.parametrize(
    "event", [dp_event.UnsupportedDpEvent(), dp_event.ZCDpEvent(1.0), dp_event.GaussianDpEvent(0.0)]
)
def test_what_cannot_be_accounted_for_is_not_written(event: dp_event.DpEvent) -> None:
    with pytest.raises(ValueError, match=r"event"):
        events.to_json(event)


def test_a_sample_that_is_surely_everything_or_nothing_is_not_a_sample() -> None:
    gaussian = dp_event.GaussianDpEvent(2.0)
    assert events.leaves(dp_event.PoissonSampledDpEvent(1.0, gaussian)) == {gaussian: 1}
    assert events.leaves(dp_event.PoissonSampledDpEvent(0.0, gaussian)) == {}
    assert events.leaves(dp_event.SelfComposedDpEvent(gaussian, 0)) == {}


def test_a_sample_of_several_queries_must_be_written_as_one() -> None:
    several = dp_event.ComposedDpEvent([dp_event.GaussianDpEvent(2.0), dp_event.GaussianDpEvent(3.0)])
    with pytest.raises(ValueError, match="one Gaussian or Laplace"):
        events.leaves(dp_event.PoissonSampledDpEvent(0.1, several))


@pytest.mark.parametrize("first", ["airlock", "dp_accounting"])
def test_gaussians_are_priced_without_the_rest_of_the_library(first: str) -> None:
    """Every stage of a release prices in a process of its own; the classes are the library's, whoever is first."""
    code = f"""
import sys
if {first!r} == "dp_accounting":
    import dp_accounting
from airlock.privacy import accounting, events
event = events.from_json({{"kind": "composed", "events": [{{"kind": "gaussian", "noise_multiplier": 2.0}}]}})
accounting.epsilon(event, 1e-5)
assert ("scipy.signal" in sys.modules) == ({first!r} == "dp_accounting"), "a second in every process"
import dp_accounting
from dp_accounting.pld import PLDAccountant
assert dp_accounting.dp_event.ComposedDpEvent is dp_accounting.ComposedDpEvent is type(event)
assert PLDAccountant().compose(event).get_epsilon(1e-5) > 0
"""
    subprocess.run([sys.executable, "-c", code], check=True)
