"""What `auto` means: from public facts alone, the same for the same facts, and nothing for facts of before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airlock.models.features.choice import choose, clip_for, settle, signal
from airlock.params import Params, load_params
from airlock.privacy.plan import Facts

TABLE = Facts("t", False, "tabular", 8000, 0, (16,), ("a", "b"), "s", "f", layout="nx16")
PICTURES = Facts("p", True, "image", 100, 0, (8, 8, 1), ("a", "b"), "s", "f")


def asked(**release: object) -> Params:
    return Params.model_validate({"release": {"mechanism": "auto", **release}})


@pytest.mark.parametrize(
    ("n", "epsilon", "width"), [(100, 2.0, 32), (455, 1.0, 42), (8000, 1.0, 283), (10**6, 1.0, 384)]
)
def test_cosines_grow_with_the_signal(n: int, epsilon: float, width: int) -> None:
    chosen = choose(asked(epsilon=epsilon).release, replace(TABLE, n=n))
    assert chosen.features == f"hybrid-{width}-1@nx16"
    assert str(width) in chosen.reason
    assert f"{n:,} records" in chosen.reason


@given(
    st.integers(1, 10**9),
    st.floats(0.01, 20),
    st.sampled_from(("zero-out", "replace-one")),
    st.integers(2, 99),
)
def test_the_rule_never_leaves_its_range(n: int, epsilon: float, near: str, classes: int) -> None:
    known = replace(TABLE, n=n, labels=tuple(str(number) for number in range(classes)))
    release = asked(epsilon=epsilon, neighbours=near).release
    chosen, scarce = choose(release, known), signal(release, known) < 4 / 3 * 16 * classes
    assert (chosen.features == "tabular-2") == scarce
    assert scarce or 32 <= int(chosen.features.split("-")[1]) <= 384
    assert 0 < clip_for(classes) <= 0.4


@pytest.mark.parametrize(
    ("n", "features", "rounds"),
    [(100, "tabular-2", 5), (455, "hybrid-42-1@nx16", 7), (8000, "hybrid-283-1@nx16", None)],
)
def test_small_tables_have_options_of_their_own(n: int, features: str, rounds: int | None) -> None:
    known = replace(TABLE, n=n)
    settled = settle(asked(epsilon=1.0), known).release
    assert (settled.features, settled.options.get("rounds")) == (features, rounds)
    assert ("shrunk_centre" in settled.options) == (rounds is not None)
    assert settled.options["sureness_share"] == 0.02
    assert settle(asked(features="tabular-2"), known).release.options == {}
    number = replace(known, number=(0.0, 1.0), labels=("price",))
    assert settle(asked(), number).release.options == {}
    named = settle(asked(options={"rounds": 3, "sureness_share": 0.0}), known).release.options
    assert (named["rounds"], named["sureness_share"]) == (3, 0.0)


def test_why_a_table_gets_no_cosines_is_said() -> None:
    reason = choose(asked().release, replace(TABLE, n=100)).reason
    assert "(100 records at this epsilon and delta) is scarce for 16 encoded columns and 2 classes" in reason


def test_a_unit_of_many_records_has_less_signal() -> None:
    users = replace(TABLE, per_user=10)
    one, ten = (choose(asked(unit=unit).release, users).features for unit in ("record", "user"))
    assert (one, ten) == ("hybrid-283-1@nx16", "hybrid-61-1@nx16")


def test_nothing_but_public_facts_is_looked_at() -> None:
    """Neither fingerprint nor names of classes nor population: what could depend on a record changes nothing."""
    other = replace(TABLE, fingerprint="g", population="u", labels=("c", "d"), split={"train": {"fold": 1}})
    assert choose(asked().release, TABLE) == choose(asked().release, other)


def test_codes_are_told_apart_only_where_signal_is_left_for_each_value() -> None:
    """30 codes of four values are 120 columns: at least 360 of signal, else they are numbers."""
    codes = replace(TABLE, shape=(31,), layout="g3x30.c2")
    few, many = (choose(asked().release, replace(codes, n=n)).features for n in (1000, 1400))
    assert (few, many) == ("hybrid-71-1@nx30.c2", "hybrid-88-1@g3x30.c2")
    assert (
        settle(asked(features="hybrid-9-1"), replace(codes, n=1000)).release.features == "hybrid-9-1@nx30.c2"
    )


def test_what_is_named_stays() -> None:
    assert settle(asked(features="tabular-2"), TABLE).release.features == "tabular-2"
    assert settle(asked(features="hybrid-7-1"), TABLE).release.features == "hybrid-7-1@nx16"
    assert settle(asked(), replace(TABLE, features="cosine-9-1")).release.features == "cosine-9-1"
    assert settle(asked(mechanism="dp-sgd"), TABLE).release.mechanism == "dp-sgd"
    assert settle(settle(asked(), TABLE), TABLE) == settle(asked(), TABLE)


@pytest.mark.parametrize("mechanism", ["coefficients", "coefficients-iterated"])
def test_facts_of_before_mean_what_they_meant(mechanism: str) -> None:
    assert choose(asked(mechanism=mechanism).release, replace(TABLE, layout=None)).features == "tabular-2"
    assert choose(asked(mechanism="coefficients").release, TABLE).features == "tabular-2"


def test_the_shipped_parameters_say_auto() -> None:
    shipped = load_params(Path(__file__).parents[3] / "params.yaml").release
    assert (shipped.mechanism, shipped.features, shipped.passes) == ("auto", "auto", "auto")


def test_auto_is_rounds_for_tables_and_the_closed_form_for_images() -> None:
    assert choose(asked().release, TABLE).mechanism == "coefficients-iterated"
    assert choose(asked().release, PICTURES).mechanism == "coefficients"
    assert choose(asked().release, PICTURES).features == "hog-2"
    assert choose(asked().release, replace(PICTURES, features="gabor-1")).features == "gabor-1"


def test_auto_is_rounds_on_learned_features_for_colour_pictures_alone() -> None:
    colour = replace(PICTURES, shape=(32, 32, 3))
    found = choose(asked().release, colour)
    assert (found.mechanism, found.features) == ("coefficients-iterated", "prior-1")
    for kept in (
        choose(asked(features="hog-2").release, colour),
        choose(asked().release, replace(colour, features="hog-2")),
    ):
        assert (kept.mechanism, kept.features) == ("coefficients", "hog-2")
    assert choose(asked(mechanism="coefficients").release, colour).features == "hog-2"
