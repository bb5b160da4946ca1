"""release.json speaks for exactly the bytes beside it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from airlock.errors import ReleaseError
from airlock.inside import manifest
from airlock.privacy.guarantees import Guarantee
from airlock.privacy.plan import Facts, Plan

PROVEN = Guarantee(
    "proven",
    "record",
    "zero-out",
    1.0,
    1e-5,
    event={"type": "gaussian"},
    sensitivity="L2 1",
    argument="Theorem 1",
)
PLAN = Plan("coefficients", 1, {"epsilon": 1.0}, 3, PROVEN)
FACTS = Facts("wdbc", True, "tabular", 455, 114, (30,), ("malignant", "benign"), "5c", "f1", {"fold": 0})


@pytest.fixture
def release(tmp_path: Path) -> Path:
    folder = tmp_path / "release"
    folder.mkdir()
    (folder / "sums.safetensors").write_bytes(b"noisy")
    manifest.write(
        folder, plan=PLAN, facts=FACTS, release_id=manifest.release_id(PLAN, FACTS), details={"bits": 12}
    )
    return folder


def test_manifest_comes_back_as_written(release: Path) -> None:
    loaded = manifest.load(release)
    assert (loaded.mechanism, loaded.passes, loaded.proven, loaded.details) == (
        "coefficients",
        3,
        PROVEN,
        {"bits": 12},
    )
    assert loaded.release_id == manifest.release_id(PLAN, FACTS)


def test_infinity_and_its_reason_survive_json(tmp_path: Path) -> None:
    plan = replace(
        PLAN,
        proven=Guarantee("proven", "record", "zero-out", math.inf, 0.0, reason="noise shared by a batch"),
    )
    manifest.write(tmp_path / "release", plan=plan, facts=FACTS, release_id="0")
    assert manifest.load(tmp_path / "release").proven == plan.proven


def test_writing_again_gives_the_same_bytes(release: Path) -> None:
    before = (release / "release.json").read_bytes()
    manifest.write(
        release, plan=PLAN, facts=FACTS, release_id=manifest.release_id(PLAN, FACTS), details={"bits": 12}
    )
    assert (release / "release.json").read_bytes() == before


@pytest.mark.parametrize("damage", ["change", "add", "remove", "cut"])
def test_any_damage_is_found_and_named(release: Path, damage: str) -> None:
    if damage == "change":
        (release / "sums.safetensors").write_bytes(b"noisz")
    elif damage == "add":
        (release / "extra.csv").write_text("1")
    elif damage == "remove":
        (release / "sums.safetensors").unlink()
    else:
        (release / "release.json").write_text((release / "release.json").read_text()[:-9])
    with pytest.raises(ReleaseError, match="sums.safetensors|extra.csv|release.json"):
        manifest.load(release)


def test_a_release_that_two_readers_read_differently_is_none(release: Path) -> None:
    text = (release / manifest.NAME).read_text()
    (release / manifest.NAME).write_text(text.replace("{", '{"mechanism": "none",', 1))
    assert json.loads((release / manifest.NAME).read_text()) == json.loads(text), "the control"
    with pytest.raises(ReleaseError, match="cannot be read"):
        manifest.load(release)


@pytest.mark.parametrize(
    "facts",
    [
        replace(FACTS, fingerprint="f2"),
        replace(FACTS, schema="5d"),
        replace(FACTS, split={"fold": 1}),
        replace(FACTS, population="other"),
    ],
)
def test_whatever_shapes_the_statistic_changes_the_id(facts: Facts) -> None:
    assert manifest.release_id(PLAN, facts) != manifest.release_id(PLAN, FACTS)


@pytest.mark.parametrize(
    "plan",
    [
        replace(PLAN, version=2),
        replace(PLAN, parameters={"epsilon": 1.1}),
        replace(PLAN, mechanism="adlm"),
        replace(PLAN, proven=replace(PROVEN, neighbours="replace-one")),
    ],
)
def test_a_changed_plan_changes_the_id(plan: Plan) -> None:
    assert manifest.release_id(plan, FACTS) != manifest.release_id(PLAN, FACTS)
    assert manifest.release_id(PLAN, FACTS, ["upstream"]) != manifest.release_id(PLAN, FACTS)
