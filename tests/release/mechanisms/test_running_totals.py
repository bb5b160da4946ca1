"""Running totals over nights by the square-root strategy, through the mechanism's own functions: bytes, prices, what is
kept, what is refused. Weighted totals are tests/release/mechanisms/test_weighted_totals.py's.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from airlock.errors import ParamsError, ReleaseError
from airlock.inside import manifest
from airlock.inside.nights import Nights, file_of
from airlock.models.features.choice import choose
from airlock.models.features.features import feature_map
from airlock.models.features.projection import steps_of
from airlock.params import Params
from airlock.privacy import noise
from airlock.privacy.continual import strategy_of
from airlock.privacy.plan import Facts
from airlock.privacy.sums import label_rows
from stages.mechanisms import Released
from stages.release import perturb, relevance
from stages.release.mechanisms import coefficients, recipes
from tests.support.sealed_records import facts, seal, table

NOISE, SECRET = b"n" * 32, b"s" * 32
CLASSES, COLUMNS = 3, 4
SIZES = (30, 12, 0, 20)


def parameters(horizon: int | None = 6, **release: Any) -> Params:
    options = {"options": {"strategy": "square-root"}} if horizon else {}
    return Params.model_validate(
        {"release": {"mechanism": "coefficients", "horizon": horizon, **options, **release}}
    )


def night_facts(number: int, **changes: Any) -> Facts:
    """Public facts of a night, as handles.facts_in tells them."""
    x, _ = records(number)
    plain = facts(x, CLASSES, fingerprint=f"batch {number}", **changes)
    if number == 1:
        return plain
    before = {
        "number": number,
        "before": sum(SIZES[: number - 1]),
        "history": f"batches before {number}",
        "first": {"n": SIZES[0], "fingerprint": "batch 1"},
    }
    return replace(plain, night=before)


def records(number: int) -> tuple[Any, Any]:
    return table(SIZES[number - 1], COLUMNS, CLASSES, seed=number)


def released(
    folder: Path,
    number: int,
    *,
    rows: int = 16,
    horizon: int = 6,
    former: str | None = "",
    key: bytes = SECRET,
) -> Released:
    """One night, after what the first one released; `former` is the night before unless another is named."""
    params, known = parameters(horizon), night_facts(number)
    (folder / f"sealed-{number}").mkdir(exist_ok=True)
    (folder / "sealed-1").mkdir(exist_ok=True)
    first = seal(folder / "sealed-1", *records(1))
    geometry = coefficients.make_relevance(params, night_facts(1), first, key=NOISE, release_id="geometry")
    reader = seal(folder / f"sealed-{number}", *records(number), rows=rows)
    before = f"night {number - 1}" if number > 1 else None
    nights = Nights(
        "night 1",
        number,
        horizon,
        before if former == "" else former,
        f"night {number}",
        key,
        folder / "memory",
    )
    return coefficients.make(
        params, known, reader, key=NOISE, release_id=f"night {number}", relevance=geometry, nights=nights
    )


def test_every_night_is_what_the_slow_oracle_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums by loops over records; noise from the dense matrix, solved in Python's integers."""
    drawn: dict[str, list[Any]] = {"gram": [], "cross": []}
    added = noise.add_noise

    def watch(total: Any, **given: Any) -> Any:
        noisy = added(total, **given)
        if given["purpose"] in drawn:
            drawn[given["purpose"]].append((noisy - total).astype(object))
        return noisy

    monkeypatch.setattr(noise, "add_noise", watch)
    made = [released(tmp_path, number) for number in range(1, 5)]
    strategy = strategy_of("square-root", 6)
    rows_of_c = list(strategy.rows())
    name = choose(parameters().release, night_facts(1)).features
    rows = feature_map(name, "tabular", (COLUMNS,))
    exact = {"gram": 0, "cross": 0}
    given: dict[str, list[Any]] = {"gram": [], "cross": []}
    for number, (tensors, details) in enumerate(made, start=1):
        x, y = records(number)
        for place in range(len(y)):
            row = rows(x[place : place + 1], np.ones(1, np.uint8))
            for step in steps_of(tensors, details["bias"]):
                row = step(row, np.ones(1, np.uint8))
            row = row.astype(int).astype(object)
            label = label_rows(y[place : place + 1], CLASSES, centred=True).astype(int).astype(object)
            exact["gram"] = exact["gram"] + row.T @ row
            exact["cross"] = exact["cross"] + row.T @ label
        for purpose in given:
            rest = drawn[purpose][number - 1]
            for block, weight in rows_of_c[number - 1]:
                for earlier in range(block.start, block.start + block.length):
                    rest = rest - weight * given[purpose][earlier]
            given[purpose].append((rest + 128) // 256)
            total = exact[purpose] + sum(given[purpose])
            assert np.array_equal(tensors[purpose].astype(object), total)
            sums = details["sums"][purpose]
            assert sums["scale"] == pytest.approx(sums["fresh"] * strategy.deviation(number - 1))


def test_a_night_made_again_is_the_same_bytes_however_it_is_cut(tmp_path: Path) -> None:
    released(tmp_path, 1)
    whole = released(tmp_path, 2)
    memory = file_of(tmp_path / "memory", "night 2").read_bytes()
    again = released(tmp_path, 2, rows=5)
    assert all(whole[0][name].tobytes() == again[0][name].tobytes() for name in whole[0])
    assert file_of(tmp_path / "memory", "night 2").read_bytes() == memory
    assert whole[1] == again[1]


def test_what_is_kept_holds_no_sum_of_records_and_only_its_key_opens_it(tmp_path: Path) -> None:
    released(tmp_path, 1)
    kept = file_of(tmp_path / "memory", "night 1").read_bytes()
    assert b"gram" not in kept
    for wrong in ({"key": b"t" * 32}, {"former": "night 7"}):
        with pytest.raises(ReleaseError, match="restore it from a backup"):
            released(tmp_path, 2, **wrong)
    file_of(tmp_path / "memory", "night 1").write_bytes(kept[:-1] + b"\0")
    with pytest.raises(ReleaseError, match="restore it from a backup"):
        released(tmp_path, 2)


def test_a_night_that_was_given_up_leaves_the_others_right(tmp_path: Path) -> None:
    """Night 2 released nothing: night 3, without records, adds noise and no sum."""
    first, _ = released(tmp_path, 1)
    later, details = released(tmp_path, 3, former="night 1")
    assert not np.array_equal(first["gram"], later["gram"])
    assert np.abs(later["gram"] - first["gram"]).max() < 8 * details["sums"]["gram"]["scale"]


def test_all_nights_have_one_price_and_one_geometry_and_ids_of_their_own() -> None:
    plans = [coefficients.plan(parameters(), night_facts(number)) for number in (1, 2, 4)]
    assert plans[0] == plans[1] == plans[2]
    ids = {manifest.release_id(plans[0], night_facts(number), ["geometry"]) for number in (1, 2, 4)}
    assert len(ids) == 3
    assert manifest.release_id(plans[0], night_facts(4).first, ["geometry"]) in ids
    geometry = [coefficients.relevance(parameters(), night_facts(number)) for number in (1, 3)]
    assert geometry[0] == geometry[1] == coefficients.relevance(parameters(None), night_facts(1))
    assert relevance.plans(parameters(), night_facts(3))[relevance.RELEVANCE] == geometry[0]
    assert perturb.plans(parameters(), night_facts(3))[perturb.RELEASE] == plans[0]
    alone = coefficients.plan(parameters(None), night_facts(1))
    assert plans[0].proven.event == alone.proven.event
    assert plans[0].proven.epsilon == alone.proven.epsilon
    assert plans[0].proven.argument == "docs/proofs/continual.md#guarantee"


@pytest.mark.parametrize("neighbours", ["zero-out", "replace-one"])
def test_noise_covers_all_nights_and_participations_and_users(neighbours: str) -> None:
    def scales(horizon: int | None, known: Facts, **release: Any) -> list[float]:
        params = parameters(horizon, neighbours=neighbours, **release)
        asked = recipes.queries(recipes.resolve(params, known), params)
        return [query.sensitivity for query in asked if query.purpose in ("gram", "cross")]

    once, plain = scales(None, night_facts(1)), scales(6, night_facts(1))
    reach = strategy_of("square-root", 6).reach
    assert [many / one for one, many in zip(once, plain, strict=True)] == pytest.approx([reach, reach])
    often = scales(6, night_facts(1, participations=3))
    assert [many / one for one, many in zip(plain, often, strict=True)] == pytest.approx([3, 3])
    assert scales(None, night_facts(1, participations=3)) == once
    users = scales(6, night_facts(1, per_user=5), unit="user")
    assert [many / one for one, many in zip(plain, users, strict=True)] == pytest.approx([5, 5])


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"release": {"mechanism": "coefficients-iterated", "horizon": 4}},
            "has no running totals over nights",
        ),
        ({"release": {"mechanism": "inputs", "horizon": 4}}, "has no running totals over nights"),
        ({"release": {"horizon": 4}, "relevance": {"mode": "off"}}, "needs relevance.mode auto"),
        ({"release": {"horizon": 4, "passes": 1}, "relevance": {"mode": "lrp"}}, "needs relevance.mode auto"),
    ],
)
def test_what_cannot_be_proven_over_nights_is_refused(changes: dict[str, Any], line: str) -> None:
    params = Params.model_validate(changes)
    with pytest.raises(ParamsError, match=line):
        perturb.plans(params, night_facts(1))


def test_a_number_to_predict_has_no_horizon() -> None:
    with pytest.raises(ParamsError, match="labels that are classes"):
        coefficients.plan(parameters(), replace(night_facts(1), labels=("y",), number=(0.0, 1.0)))


def test_noise_that_the_grid_does_not_hold_is_refused_before_anything_is_read() -> None:
    params = parameters(4096, epsilon=1e-4, unit="user")
    with pytest.raises(ParamsError, match="passes the grid"):
        coefficients.plan(params, night_facts(1, per_user=1000))


def test_tables_have_running_totals_by_default() -> None:
    params = Params.model_validate({"release": {"mechanism": "auto", "horizon": 4}})
    assert perturb.plans(params, night_facts(1))[perturb.RELEASE].mechanism == "coefficients"
