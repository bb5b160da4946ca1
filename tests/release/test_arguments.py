"""Every proven guarantee names its proof, and the proof is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from airlock.inside import manifest
from airlock.params import Params
from airlock.privacy.plan import Facts, Plan
from stages.mechanisms import MECHANISMS, Whole, mechanism
from stages.release import doors, evaluate_private, relevance
from stages.release.papers.adlm import options as adlm
from stages.release.papers.pcdbn import pcdbn
from tests.support.sealed_records import facts

TOP = Path(__file__).parents[2]
TABLE, PICTURES = facts(np.zeros((40, 11)), 2), facts(np.zeros((40, 16, 16, 1), np.uint8), 2)
WINDOWS = facts(np.zeros((40, 11)), 2, per_user=3, friends={"slots": 2, "appearances": 6})
KNOWN = {"behaviour": WINDOWS, "behaviour-published": WINDOWS, "pcdbn": PICTURES, "patch-moments": PICTURES}
SMALL = {"behaviour": {"days": 2, "height": 2}, "behaviour-published": {"days": 2, "height": 2}}
READINGS: list[tuple[str, Facts, dict[str, Any]]] = [
    *((name, KNOWN.get(name, TABLE), SMALL.get(name, {})) for name in MECHANISMS),
    *(("adlm", TABLE, {"preset": preset}) for preset in adlm.PRESETS),
    ("adlm", TABLE, {"network": "released", "pretraining_epochs": 1}),
    ("adlm", TABLE, {"allocation": "clamped"}),
    *(("pcdbn", PICTURES, {"preset": preset}) for preset in pcdbn.PRESETS),
    *(("optimized-noise", TABLE, {"solution": solution}) for solution in ("alternating", "frozen")),
    ("dp-sgd", PICTURES, {"model": "opacus-cnn", "lower": "raw"}),
    ("neuron-noise", TABLE, {"refresh": "step"}),
]


def heading(text: str) -> str:
    """As GitHub makes an anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")


def resolves(argument: str) -> bool:
    page, _, anchor = argument.partition("#")
    if not re.fullmatch(r"docs/proofs/[a-z-]+\.md", page) or not (TOP / page).exists():
        return False
    lines = (TOP / page).read_text().splitlines()
    return anchor in [heading(line.lstrip("#")) for line in lines if line.startswith("#")]


def test_headings_are_resolved_as_github_does() -> None:
    assert resolves("docs/proofs/coefficients.md#guarantee")
    assert not resolves("docs/proofs/coefficients.md#no-such-heading")
    assert not resolves("docs/proofs/no-such-page.md#guarantee")
    assert not resolves("docs/mechanism.md: Theorem 1")


def door_plans() -> list[Plan]:
    params = Params.model_validate({"evaluate": {"holdout": "private"}, "relevance": {"mode": "lrp"}})
    file = facts(np.zeros((40, 11)), 2, n_holdout=5, split={"holdout": {"kind": "public", "source": "file"}})
    records = facts(
        np.zeros((40, 11)), 2, n_holdout=5, split={"holdout": {"kind": "public", "source": "records"}}
    )
    return [
        *evaluate_private.plans(params, file).values(),
        *relevance.plans(params, file).values(),
        *relevance.plans(Params.model_validate({"relevance": {"mode": "statistics"}}), file).values(),
        doors.plan_holdout(params, file),
        doors.plan_holdout(params, records),
        doors.plan_reference(params, file),
        manifest.none_plan("no reason"),
    ]


@pytest.mark.parametrize(("name", "known", "options"), READINGS)
def test_the_proof_of_every_mechanism_and_reading_exists(
    name: str, known: Facts, options: dict[str, Any]
) -> None:
    params = Params.model_validate({"release": {"mechanism": name, "options": options}})
    for plan in Whole(mechanism(name)).plans(params, known):
        assert resolves(plan.proven.argument)


def test_the_proofs_of_the_doors_exist() -> None:
    for plan in door_plans():
        argument, reason = plan.proven.argument, plan.proven.reason
        assert resolves(argument) or (not argument and reason)


def test_a_network_trained_by_dp_sgd_makes_the_arithmetic_idealised() -> None:
    asked = {"mechanism": "adlm", "options": {"network": "released", "pretraining_epochs": 1}}
    released = Whole(mechanism("adlm")).plan(Params.model_validate({"release": asked}), TABLE).proven
    exact = mechanism("adlm").plan(Params.model_validate({"release": {"mechanism": "adlm"}}), TABLE).proven
    assert (released.arithmetic, exact.arithmetic) == ("idealised", "exact")


def test_every_link_to_a_proof_in_code_and_documents_exists() -> None:
    """Comments too: what is cited can be read."""
    files = [
        *TOP.glob("airlock/**/*.py"),
        *TOP.glob("stages/**/*.py"),
        *TOP.glob("docs/*.md"),
        *TOP.glob("docs/errata/*.md"),
    ]
    cited = {
        (file.name, one)
        for file in files
        for one in re.findall(r"docs/proofs/[\w-]+\.md#[\w-]+", file.read_text())
    }
    examples = {"docs/proofs/total.md#guarantee", "docs/proofs/PAGE.md#heading"}
    assert [(name, one) for name, one in sorted(cited) if one not in examples and not resolves(one)] == []
    assert len(cited) > 20
