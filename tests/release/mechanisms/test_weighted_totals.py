"""Weighted totals over nights through the mechanism's own functions: bytes, prices, what is kept, what is told."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from airlock.errors import ParamsError, ReleaseError
from airlock.inside import manifest
from airlock.inside.nights import Nights, file_of
from airlock.models.features import columns, public
from airlock.models.features.choice import choose
from airlock.models.features.features import feature_map
from airlock.models.features.projection import steps_of, tensors_of
from airlock.models.features.rows import LIMIT
from airlock.params import Params
from airlock.privacy import gaussian, noise
from airlock.privacy.plan import Facts
from airlock.privacy.sums import label_rows
from airlock.privacy.weighing import chapters, weighing
from stages.mechanisms import Released
from stages.release import perturb, relevance, weighted_totals
from stages.release.mechanisms import coefficients, nightly, recipes
from stages.release.nightly_prices import Place
from tests.release.mechanisms.test_running_totals import CLASSES, COLUMNS, NOISE, SECRET, night_facts, records
from tests.support.sealed_records import seal

HORIZON = 20


def parameters(horizon: int = HORIZON, features: str = "auto", **release: Any) -> Params:
    return Params.model_validate(
        {"release": {"mechanism": "coefficients", "horizon": horizon, "features": features, **release}}
    )


def released(
    folder: Path, number: int, *, rows: int = 16, former: int | None = None, key: bytes = SECRET, **asked: Any
) -> Released:
    """One night after another (`former`, by default the one before it)."""
    params = parameters(**asked)
    (folder / f"sealed-{number}").mkdir(exist_ok=True)
    reader = seal(folder / f"sealed-{number}", *records((number - 1) % 4 + 1), rows=rows)
    before = number - 1 if former is None else former
    horizon = params.release.horizon or 0
    nights = Nights(
        "night 1",
        number,
        horizon,
        f"night {before}" if before else None,
        f"night {number}",
        key,
        folder / "memory",
    )
    return coefficients.make(
        params, facts_of(number), reader, key=NOISE, release_id=f"night {number}", nights=nights
    )


def facts_of(number: int) -> Facts:
    """Of the four batches, again and again."""
    place = (number - 1) % 4 + 1
    if number < 5:
        return night_facts(number)
    sizes = [night_facts(one).n for one in range(1, 5)]
    before = sum(sizes[(one - 1) % 4] for one in range(1, number))
    night = {**(night_facts(2).night or {}), "number": number, "before": before, "history": f"{number}"}
    return replace(night_facts(place), fingerprint=f"batch {number}", night=night)


def test_every_night_is_what_the_slow_oracle_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums by loops over records in Python's integers; the estimate from its definition, night by night."""
    drawn: dict[str, list[Any]] = {"gram": [], "cross": [], "averages": []}
    added = noise.add_noise

    def watch(total: Any, **given: Any) -> Any:
        noisy = added(total, **given)
        if given["purpose"] in drawn:
            drawn[given["purpose"]].append(((noisy - total).astype(object), given["scale"]))
        return noisy

    monkeypatch.setattr(noise, "add_noise", watch)
    made = [released(tmp_path, number) for number in range(1, 5)]
    name = choose(parameters().release, night_facts(1)).features
    rows = feature_map(name, "tabular", (COLUMNS,))
    lengths = [(1, 1), *((HORIZON - 1, number) for number in (1, 2, 3))]
    top = dict.fromkeys(("gram", "cross"), 0.0)
    below = dict.fromkeys(("gram", "cross"), 0.0)
    averages, counted, records_so_far = 0, 0, 0
    for number, (tensors, details) in enumerate(made, start=1):
        x, y = records(number)
        length, place = lengths[number - 1]
        weight = weighing(length).weights[place - 1]
        if place == 1:
            total, counted = {"gram": 0, "cross": 0}, 0
        counted += weight * len(y)
        records_so_far += len(y)
        for one in range(len(y)):
            row = rows(x[one : one + 1], np.ones(1, np.uint8))
            for step in steps_of(tensors, details["bias"]):
                row = step(row, np.ones(1, np.uint8))
            row = row.astype(int).astype(object)
            label = label_rows(y[one : one + 1], CLASSES, centred=True).astype(int).astype(object)
            total["gram"] = total["gram"] + weight * (row.T @ row)
            total["cross"] = total["cross"] + weight * (row.T @ label)
            own = [int(np.rint(value * 255)) - 128 for value in x[one]] + [
                128 * (label == y[one]) for label in range(CLASSES)
            ]
            averages = averages + weighing(HORIZON).weights[number - 1] * np.array(own, dtype=object)
        for purpose in top:
            fresh, scale = drawn[purpose][number - 1]
            assert details["sums"][purpose]["fresh"] == scale
            top[purpose] = top[purpose] + (total[purpose] + fresh).astype(float) * (counted / scale**2)
            below[purpose] += (counted / scale) ** 2
            told = top[purpose] / below[purpose] * records_so_far
            assert np.abs(tensors[purpose] - told).max() <= 0.5 + 1e-9 * np.abs(told).max()
            assert details["sums"][purpose]["scale"] == pytest.approx(records_so_far * below[purpose] ** -0.5)
        assert np.array_equal(tensors["averages"], averages + drawn["averages"][number - 1][0])


def test_a_night_made_again_is_the_same_bytes_however_it_is_cut(tmp_path: Path) -> None:
    released(tmp_path, 1)
    whole = released(tmp_path, 2)
    memory = file_of(tmp_path / "memory", "night 2").read_bytes()
    again = released(tmp_path, 2, rows=5)
    assert all(whole[0][name].tobytes() == again[0][name].tobytes() for name in whole[0])
    assert file_of(tmp_path / "memory", "night 2").read_bytes() == memory
    assert whole[1] == again[1]
    with pytest.raises(ReleaseError, match="restore it from a backup"):
        released(tmp_path, 3, key=b"t" * 32)


def test_what_is_kept_is_noise_and_what_was_told(tmp_path: Path) -> None:
    """From the file alone, with its key, comes no sum of records that was not told with its noise."""
    tensors, _ = released(tmp_path, 1)
    kept = Nights("night 1", 2, HORIZON, "night 1", "night 2", SECRET, tmp_path / "memory").earlier()
    assert np.array_equal(kept["averages/total"], tensors["averages"])
    exact = kept["gram/total"] - kept["gram/noise"]
    assert np.abs(exact).max() > 0
    known = {name for name in kept if name.endswith(("/noise",))}
    assert known == {"gram/noise", "cross/noise", "averages/noise"}


def test_what_an_older_night_left_does_not_pass_for_a_newer_one(tmp_path: Path) -> None:
    """Its noise would be taken back twice, and the difference of two nights would tell a sum with too little of it."""
    for number in (1, 2):
        released(tmp_path, number)
    memory = tmp_path / "memory"
    file_of(memory, "night 2").write_bytes(file_of(memory, "night 1").read_bytes())
    with pytest.raises(ReleaseError, match="restore it from a backup"):
        released(tmp_path, 3)


def test_rows_are_whitened_anew_where_a_chapter_begins_and_missing_nights_keep_the_weights(
    tmp_path: Path,
) -> None:
    """Chapters of 20 nights: 1, to 5, to 20. Night 6 is missing: the third one begins with night 7. Geometry is of the
    first night's records, because three passes are asked for.
    """
    asked: dict[str, Any] = {"features": "hybrid-8-1", "epsilon": 50.0, "passes": 3}
    made = {number: released(tmp_path, number, **asked) for number in range(1, 6)}
    made[7] = released(tmp_path, 7, former=5, **asked)
    made[8] = released(tmp_path, 8, **asked)
    assert [made[number][1]["chapter"] for number in (1, 2, 5)] == [1, 1, 2]
    matrices = {number: made[number][0]["whitening"].tobytes() for number in made}
    assert matrices[1] == matrices[2] != matrices[5], "told once it is good enough"
    kept = Nights("night 1", 9, HORIZON, "night 8", "night 9", SECRET, tmp_path / "memory").earlier()
    assert kept["ends"].tolist() == [1, 5, 20]
    assert int(kept["begun"][0]) == 6
    weights = weighing(14).weights
    assert int(kept["counted"][0]) == weights[0] * facts_of(7).n + weights[1] * facts_of(8).n


@pytest.mark.parametrize(("epsilon", "turns"), [(50.0, True), (0.01, False)])
def test_rows_are_whitened_by_public_facts_until_the_last_chapter_begins(
    tmp_path: Path, epsilon: float, turns: bool
) -> None:
    """As horizons were released before columns were told, and as tables with categories are. The same chapters. Where
    noise says less about rows than public facts do, they stay as they are.
    """
    asked: dict[str, Any] = {
        "features": "hybrid-8-1",
        "epsilon": epsilon,
        "options": {"geometry": "public"},
    }
    made = {number: released(tmp_path, number, **asked) for number in range(1, HORIZON + 1)}
    name = choose(parameters(**asked).release, night_facts(1)).features
    first = tensors_of(public.preparation(name, night_facts(1).shape))
    for number in range(1, 6):
        assert all(np.array_equal(made[number][0][part], first[part]) for part in first), number
    assert (not np.array_equal(made[HORIZON][0]["whitening"], first["whitening"])) == turns
    assert np.array_equal(made[HORIZON][0]["centre"], first["centre"])
    noises = [made[number][1]["sums"]["gram"]["scale"] / facts_of(number).total for number in made]
    same_rows = noises if not turns else noises[:5]
    assert all(later < earlier for earlier, later in pairwise(same_rows)), "every night adds to one estimate"
    plan = coefficients.plan(parameters(**asked), night_facts(1))
    assert plan.passes == 1
    assert set(plan.parameters["shares"]) == {"gram", "cross", "averages"}
    assert plan.parameters["geometry"] == "public"


COLUMNS_TOLD: dict[str, Any] = {"features": "hybrid-8-1", "epsilon": 50.0, "horizon": 40}
"""Chapters of 40 nights: 1, to 3, to 40."""


def rows_told(made: Released, number: int) -> tuple[Any, Any]:
    """The rows of a night's records by the steps of a release, and their labels, one record after the other."""
    tensors, details = made
    x, y = records((number - 1) % 4 + 1)
    rows = feature_map(details["features"], "tabular", (COLUMNS,))
    found = np.zeros((0, len(tensors["gram"])))
    for one in range(len(y)):
        row = rows(x[one : one + 1], np.ones(1, np.uint8))
        for step in steps_of(tensors, details["bias"]):
            row = step(row, np.ones(1, np.uint8))
        found = np.vstack([found, row])
    return found, label_rows(y, CLASSES, centred=True)


def test_columns_are_told_until_rows_are_whitened_by_them(tmp_path: Path) -> None:
    """Nights 1 to 3 ask for the columns; what is kept of these is their estimate, by the definition; the rows of night
    4 are whitened by it, and later nights keep that.
    """
    made = {number: released(tmp_path, number, **COLUMNS_TOLD) for number in range(1, 9)}
    asked = {number: "columns" in made[number][1]["sums"] for number in made}
    assert asked == {number: number < 4 for number in made}
    name = choose(parameters(**COLUMNS_TOLD).release, night_facts(1)).features
    shape = night_facts(1).shape
    first = tensors_of(public.preparation(name, shape))
    for number in (1, 2, 3):
        assert np.array_equal(made[number][0]["whitening"], first["whitening"])
    kept = {
        number: Nights(
            "night 1", number + 1, 40, f"night {number}", "next", SECRET, tmp_path / "memory"
        ).earlier()
        for number in (7, 8)
    }
    assert kept[8]["ends"].tolist() == [1, 3, 40]
    top, below, counted, total = 0.0, 0.0, 0, 0.0
    for number, length, place in ((1, 1, 1), (2, 2, 1), (3, 2, 2)):
        x, y = records(number)
        weight, scale = weighing(length).weights[place - 1], made[number][1]["sums"]["columns"]["scale"]
        counted, total = (0, 0.0) if place == 1 else (counted, total)
        for one in range(len(y)):
            row = columns.rows_of(x[one : one + 1], np.ones(1, np.uint8)).astype(int).astype(object)
            total = total + weight * (row.T @ row)
        counted += weight * len(y)
        top, below = top + total * (counted / scale**2), below + (counted / scale) ** 2
    for number in kept:
        assert float(kept[number]["columns/precision"][0]) == pytest.approx(below)
        noise_only = kept[number]["columns/sum"] - np.asarray(top, float)
        assert np.abs(noise_only).max() < 6 * below**0.5, "its noise, weighed as it is"
    estimate, deviation = kept[7]["columns/sum"] / below / LIMIT**2, below**-0.5 / LIMIT**2
    level = _level_of_the_last_night(made[4])
    turned = columns.whitening(name, shape, estimate, deviation, weighted_totals.COLUMNS_RIDGE * level)
    assert np.array_equal(kept[8]["steps/whitening"], turned.matrix)
    assert np.array_equal(kept[8]["steps/centre"], first["centre"])
    assert not np.array_equal(turned.matrix, first["whitening"])


def _level_of_the_last_night(made: Released) -> float:
    """From its definition: one release's noise over as many records as tonight's on all nights of the chapter, times
    what the strategy adds.
    """
    weights, told = weighing(37, ends=True), made[1]["sums"]["gram"]
    alone = told["multiplier"] * LIMIT**2
    noise = alone * weights.error(37) / (37 * facts_of(4).n)
    size = len(made[0]["gram"])
    return float(np.sqrt(2 * size) * noise * size / LIMIT**2)


def test_without_noise_the_last_chapter_tells_the_moments_of_its_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every total is its sum then, and the estimate is a mean over records in which every night's weigh alike in all
    totals that they are in.
    """
    monkeypatch.setattr(noise, "add_noise", lambda total, **given: total)
    made = {number: released(tmp_path, number, **COLUMNS_TOLD) for number in range(1, 25)}
    last = made[24]
    assert last[1]["chapter"] == 3
    weights, scales = weighing(37, ends=True), [weighing(37, ends=True).widths[k] for k in range(21)]
    sums = {"gram": 0.0, "cross": 0.0}
    parts: dict[str, list[Any]] = {"gram": [], "cross": []}
    counted, counts = 0, []
    for place, number in enumerate(range(4, 25)):
        rows, labels = rows_told(last, number)
        weight = weights.weights[place]
        counted += weight * len(rows)
        counts.append(counted)
        for purpose, other in (("gram", rows), ("cross", labels)):
            sums[purpose] = sums[purpose] + weight * (rows.T @ other)
            parts[purpose].append(sums[purpose])
    for purpose in sums:
        told = sum(
            part * count / scale**2 for part, count, scale in zip(parts[purpose], counts, scales, strict=True)
        ) / sum((count / scale) ** 2 for count, scale in zip(counts, scales, strict=True))
        expected = told * facts_of(24).total
        assert np.abs(last[0][purpose] - expected).max() <= 0.5 + 1e-9 * np.abs(expected).max()


def test_a_large_first_batch_tells_the_columns_alone(tmp_path: Path) -> None:
    """It has a sixteenth of the records: the last chapter begins with the second night."""
    asked = {**COLUMNS_TOLD, "horizon": 20}
    made = [released(tmp_path, number, **asked) for number in (1, 2)]
    assert ["columns" in one[1]["sums"] for one in made] == [True, False]
    kept = Nights("night 1", 3, 20, "night 2", "night 3", SECRET, tmp_path / "memory").earlier()
    assert kept["ends"].tolist() == [1, 20]


def test_all_nights_have_one_price_and_ids_of_their_own() -> None:
    plans = [coefficients.plan(parameters(), night_facts(number)) for number in (1, 2, 4)]
    assert len({str(plan.parameters) for plan in plans}) == 1
    assert plans[0].proven == plans[1].proven == plans[2].proven
    assert [plan.passes for plan in plans] == [2, 1, 1]
    assert plans[0].proven.epsilon == pytest.approx(1.0, rel=1e-6)
    assert plans[0].proven.argument == "docs/proofs/continual.md#weighted-totals"
    ids = {manifest.release_id(plans[0], night_facts(number)) for number in (1, 2, 4)}
    assert len(ids) == 3
    assert manifest.release_id(plans[2], night_facts(4).first) in ids
    assert relevance.plans(parameters(), night_facts(3))[relevance.RELEVANCE].mechanism == "none"
    assert perturb.plans(parameters(), night_facts(3))[perturb.RELEASE] == plans[1]


@pytest.mark.parametrize("neighbours", ["zero-out", "replace-one"])
@pytest.mark.parametrize(
    ("features", "passes", "options"),
    [
        ("auto", "auto", {}),
        ("hybrid-8-1", "auto", {}),
        ("hybrid-8-1", "auto", {"geometry": "public"}),
        ("hybrid-8-1", 3, {}),
    ],
)
def test_no_record_pays_more_than_the_budget_on_whatever_night_it_comes(
    neighbours: str, features: str, passes: int | str, options: dict[str, Any]
) -> None:
    """What a record of any night moves on all nights that it reaches, over their noise: no longer than mu, and no
    record has much left.
    """
    params = parameters(40, features, neighbours=neighbours, delta=1e-5, passes=passes, options=options)
    recipe = recipes.resolve(params, night_facts(1))
    asked = nightly.prices(recipe, params)
    mu = gaussian.mu_at(1.0, 1e-5)
    for night in (1, 2):
        shifts = [1 / one.multiplier for one in asked.priced(night)]
        assert np.linalg.norm(shifts) <= mu * (1 + 1e-12)
        assert np.linalg.norm(shifts) == pytest.approx(mu, rel=1e-9)
    plain = {query.purpose: query.sensitivity for query in asked.queries}
    for one in asked.priced(2):
        nights = 40  # without a place: as if all nights were one chapter
        ends = bool(asked.columns) and one.query.purpose != "averages"
        weights = weighing(nights, ends)
        width = max(weights.widths) if one.query.purpose != "averages" else weights.widths[1]
        scale = one.scale / (width / 1024)
        assert one.query.sensitivity == pytest.approx(plain[one.query.purpose] * weights.reach)
        assert scale >= one.multiplier * one.query.sensitivity * (1 - 1e-12)
    if asked.columns:
        early = asked.priced(3, Place(1, 2, 2, 3))
        assert {one.query.purpose for one in early} == {"columns", "gram", "cross", "averages"}
        assert np.linalg.norm([1 / one.multiplier for one in early]) == pytest.approx(mu, rel=1e-9)
        for one in early:
            reach = weighing(40 if one.query.purpose == "averages" else 2).reach
            assert one.query.sensitivity == pytest.approx(plain[one.query.purpose] * reach)


@pytest.mark.parametrize("nights", [2, 3, 16, 40])
@pytest.mark.parametrize(
    ("features", "options"), [("auto", {}), ("hybrid-8-1", {}), ("hybrid-8-1", {"geometry": "public"})]
)
def test_no_night_has_more_noise_than_was_looked_at_before_the_first_is_charged(
    nights: int, features: str, options: dict[str, Any]
) -> None:
    """Where the end of a chapter is emphasised, its last night has not the most: by the last one's a horizon was
    charged whose nights before it passed the grid.
    """
    params = parameters(nights, features, delta=1e-5, passes="auto", options=options)
    recipe = recipes.resolve(params, night_facts(1))
    asked = nightly.prices(recipe, params)
    looked, begun = max(one.scale for one in asked.priced(nights)), 0
    for chapter, end in enumerate(chapters(nights, turned=asked.turned, columns=bool(asked.columns))):
        ending = bool(asked.columns) and chapter > 0 and end == nights
        for night in range(begun + 1, end + 1):
            place = Place(chapter, end - begun, night - begun, night, ending)
            assert max(one.scale for one in asked.priced(night, place)) <= looked
        begun = end


def test_a_price_for_what_is_asked_first_is_refused() -> None:
    params = Params.model_validate(
        {"release": {"mechanism": "coefficients", "horizon": 4}, "relevance": {"share": 0.3}}
    )
    with pytest.raises(ParamsError, match="divides the budget of its first night by itself"):
        coefficients.plan(params, night_facts(1))
