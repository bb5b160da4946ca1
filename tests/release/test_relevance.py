"""The relevance release: what it costs, what it finds, and that weights never stretch a row."""

from __future__ import annotations

from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airlock.errors import ParamsError, ReleaseError
from airlock.inside import manifest
from airlock.inside.room import Room
from airlock.models.features.features import feature_map
from airlock.models.features.projection import centre, whiten
from airlock.models.features.rows import LIMIT
from airlock.params import Params
from airlock.privacy.calibration import gaussian_mu
from airlock.privacy.plan import Facts
from airlock.storage import load_tensors, save_tensors
from stages.mechanisms import MECHANISMS, Whole, mechanism
from stages.release import perturb, relevance
from stages.release.mechanisms import coefficients
from stages.release.passes import chunk_of
from tests.support.sealed_records import KEY, facts, pictures, seal, table


def parameters(mode: str, **release: Any) -> Params:
    return Params.model_validate(
        {"relevance": {"mode": mode, "share": 0.2}, "release": {"epsilon": 8.0, **release}}
    )


@pytest.mark.parametrize("mode", ["statistics", "lrp"])
@pytest.mark.parametrize("epsilon", [0.001, 0.05, 8.0])
def test_weights_are_positive_and_finite_at_any_noise_level(
    tmp_path: Path, mode: str, epsilon: float
) -> None:
    found = run(tmp_path, *informative(300), mode, 2, epsilon)
    assert np.isfinite(found["weights"]).all()
    assert found["weights"].min() > 0


def informative(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Five columns, of which only the second tells the class."""
    random = np.random.default_rng(0)
    y = random.integers(2, size=n).astype(np.int32)
    x = random.uniform(0.3, 0.7, (n, 5))
    x[:, 1] = 0.25 + 0.5 * y + random.uniform(-0.1, 0.1, n)
    return x, y


def run(
    folder: Path, x: np.ndarray, y: np.ndarray, mode: str, classes: int, epsilon: float = 8.0
) -> dict[str, np.ndarray]:
    known, params = facts(x, classes), parameters(mode, epsilon=epsilon)
    (folder / "sealed").mkdir()
    seal(folder / "sealed", x, y, rows=256)
    room = Room(
        stage="relevance",
        params=params,
        facts={"facts": asdict(known), "releases": {relevance.RELEVANCE: {"id": "id"}}},
        keys={f"noise:{relevance.RELEVANCE}": b"n" * 32, "seal:train": KEY},
        paths={relevance.RELEVANCE: folder / "relevance", "data/sealed": folder / "sealed"},
    )
    relevance.main(room)
    assert manifest.load(folder / "relevance").passes == 1
    return load_tensors(folder / "relevance/relevance.safetensors")


@pytest.mark.parametrize("mode", ["statistics", "lrp"])
def test_the_column_that_tells_the_class_is_found(tmp_path: Path, mode: str) -> None:
    found = run(tmp_path, *informative(2000), mode, 2)
    assert found["relevance"].argmax() == 1
    assert found["weights"].argmax() == 1
    assert found["weights"].min() > 0


@pytest.mark.parametrize("mode", ["statistics", "lrp"])
def test_images_get_a_picture_and_a_weight_for_every_feature(tmp_path: Path, mode: str) -> None:
    x, y = pictures(200, 2)
    found = run(tmp_path, x, y, mode, 2)
    assert found["relevance"].shape == (6, 6)
    assert found["weights"].shape == (feature_map("hog-1", "image", (12, 12, 1)).width,)


@pytest.mark.parametrize("mode", ["statistics", "lrp"])
@pytest.mark.parametrize("neighbours", ["zero-out", "replace-one"])
def test_relevance_and_release_together_cost_what_was_asked(mode: str, neighbours: str) -> None:
    from airlock.privacy import accounting, events

    x, _ = table(40, 5, 3)
    params, known = parameters(mode, neighbours=neighbours), facts(x, 3)
    plans = [relevance.plans(params, known)[relevance.RELEVANCE], coefficients.plan(params, known)]
    together = events.compose(events.from_json(plan.proven.event) for plan in plans)
    total = accounting.epsilon(together, 1e-5, neighbours=neighbours)
    assert 0.999999 * 8.0 <= total <= 8.0


MNIST = facts(np.zeros((1, 28, 28, 1), np.uint8), 10, n=60_000)
WDBC = facts(np.zeros((1, 30)), 2, n=455)
ASKS_FIRST = (
    "coefficients",
    "coefficients-iterated",
    "neuron-allocation",
    "patch-moments",
    "adlm",
    "neuron-noise",
)


def asked(name: str, first: dict[str, Any] | None = None, **release: Any) -> Params:
    given = {"mechanism": name, "epsilon": 1.0, **release}
    return Params.model_validate({"relevance": {"mode": "auto", **(first or {})}, "release": given})


def first_id(params: Params, known: Facts) -> str:
    return manifest.release_id(relevance.plans(params, known)[relevance.RELEVANCE], known)


def test_the_default_releases_the_geometry() -> None:
    for known, passes, multipliers in ((WDBC, 1, {"mean"}), (MNIST, 2, {"mean", "whitening"})):
        plan = relevance.plans(Params(), known)[relevance.RELEVANCE]
        assert (plan.mechanism, plan.passes) == ("geometry", passes)
        assert set(plan.parameters["multipliers"]) == multipliers
    assert relevance.plans(Params(), MNIST)[relevance.RELEVANCE].passes == 2


@pytest.mark.parametrize("name", sorted(MECHANISMS))
def test_every_mechanism_says_what_it_asks_first(name: str) -> None:
    known = MNIST if name in ("patch-moments", "pcdbn") else WDBC
    if name.startswith("behaviour"):
        known = facts(np.zeros((1, 11)), 2, n=400, per_user=3, friends={"slots": 2, "appearances": 6})
    options = {"days": 2, "height": 2} if name.startswith("behaviour") else {}
    plan = mechanism(name).relevance(asked(name, options=options), known)
    assert (plan is not None) == (name in ASKS_FIRST)
    assert (
        mechanism(name).relevance(
            Params.model_validate(
                {"relevance": {"mode": "off"}, "release": {"mechanism": name, "options": options}}
            ),
            known,
        )
        is None
    )


@pytest.mark.parametrize(
    ("name", "known", "changed"),
    [
        ("coefficients", MNIST, {"options": {"gram_share": 0.2, "whitening_ridge": 0.1}}),
        ("coefficients", MNIST, {"engine": "dask"}),
        ("coefficients-iterated", MNIST, {"passes": 9}),
        ("coefficients-iterated", MNIST, {"options": {"cross_share": 0.2, "step": 1.0}}),
        ("coefficients-iterated", WDBC, {"options": {"gram_share": 0.3}}),
        ("neuron-allocation", WDBC, {"options": {"direction": "equal", "gram_share": 0.1}}),
        ("patch-moments", MNIST, {"options": {"gram_share": 0.2}}),
        ("adlm", WDBC, {"options": {"budget": [0.25, 0.5, 0.25], "clip": 2.0}}),
        ("neuron-noise", WDBC, {"options": {"proportion": "inverse", "epochs": 9}}),
    ],
)
def test_what_comes_later_does_not_touch_what_was_asked_first(
    name: str, known: Facts, changed: dict[str, Any]
) -> None:
    assert first_id(asked(name), known) == first_id(asked(name, **changed), known)
    # The control: its own price does, and so does what it is made of.
    if name != "neuron-noise":
        assert first_id(asked(name), known) != first_id(asked(name, epsilon=1.1), known)


@pytest.mark.parametrize("name", ["coefficients", "coefficients-iterated", "adlm"])
def test_a_price_of_its_own_outlives_another_total(name: str) -> None:
    own = {"epsilon": 0.3}
    ids = {first_id(asked(name, own, epsilon=total), WDBC) for total in (0.5, 1.0, 3.0)}
    assert len(ids) == 1
    for total in (0.5, 3.0):
        params = asked(name, own, epsilon=total)
        whole = Whole(mechanism(name)).plan(params, WDBC)
        assert 0.9 * total <= whole.proven.epsilon <= total
        first = mechanism(name).relevance(params, WDBC)
        assert first is not None
        assert 0.29 < first.proven.epsilon <= 0.3
    with pytest.raises(ParamsError, match="leaves nothing of release.epsilon"):
        mechanism(name).plan(asked(name, {"epsilon": 1.0}), WDBC)
    with pytest.raises(ParamsError, match="not both"):
        relevance.plans(asked(name, {"epsilon": 0.3, "share": 0.2}), WDBC)


def test_one_geometry_serves_two_mechanisms() -> None:
    """At a price of its own; what `auto` gives it differs from one to the other."""
    one, other = (asked(name, {"epsilon": 0.3}) for name in ("coefficients", "coefficients-iterated"))
    assert first_id(one, MNIST) == first_id(other, MNIST)


@settings(max_examples=30)
@given(
    st.sampled_from(["coefficients", "coefficients-iterated", "neuron-allocation", "patch-moments"]),
    st.floats(0.01, 20),
    st.none() | st.floats(0.01, 0.99),
    st.sampled_from(["zero-out", "replace-one"]),
)
def test_the_two_releases_never_pass_the_total_by_a_bit(
    name: str, epsilon: float, share: float | None, near: str
) -> None:
    """In exact fractions: sum of 1/z^2 over both stages, against mu^2."""
    params = asked(name, {"share": share or "auto"}, epsilon=epsilon, neighbours=near)
    plans = Whole(mechanism(name)).plans(params, MNIST)
    spent = [
        sum(1 / Fraction(one["noise_multiplier"]) ** 2 for one in plan.proven.event["events"])
        for plan in plans
    ]
    budget = Fraction(gaussian_mu(epsilon, 1e-5)) ** 2
    assert sum(spent) <= budget
    assert sum(spent) > budget * (1 - Fraction(1, 10**12))
    if share:
        assert float(spent[0] / budget) == pytest.approx(share)


@pytest.mark.parametrize("data", [table(90, 4, 3), pictures(60, 3)])
@pytest.mark.parametrize("name", ["coefficients", "coefficients-iterated"])
def test_two_stages_have_the_noise_of_one(name: str, data: Any) -> None:
    """Today's default, divided in two: the same noise on every sum, to the last bits, and as many passes."""
    known = facts(data[0], 3)
    (alone,) = Whole(mechanism(name)).plans(
        Params.model_validate({"relevance": {"mode": "off"}, "release": {"mechanism": name}}), known
    )
    both = Whole(mechanism(name)).plans(asked(name), known)
    levels = [[one["noise_multiplier"] for one in plan.proven.event["events"]] for plan in (alone, *both)]
    assert [*levels[1], *levels[2]] == pytest.approx(levels[0], rel=1e-14)
    assert sum(plan.passes for plan in both) == alone.passes


@pytest.mark.parametrize("data", [table(90, 4, 3), pictures(60, 3)])
def test_the_release_is_made_in_the_geometry_that_was_released(tmp_path: Path, data: Any) -> None:
    x, y = data
    known, params = facts(x, 3), asked("coefficients")
    with seal(tmp_path, x, y) as reader:
        first = coefficients.make_relevance(params, known, reader, key=KEY, release_id="first")
        made, details = coefficients.make(params, known, reader, key=KEY, release_id="id", relevance=first)
    told, said = first
    assert np.array_equal(made["centre"], centre(told["mean"], known.n, bias=details["bias"]).centre)
    if "whitening" in told:
        expected = whiten(told["whitening"], said["sums"]["whitening"]["scale"], 0.3)
        assert np.array_equal(made["whitening"], expected.matrix)
    assert set(details["sums"]) == {"gram", "cross"}
    # What is said of the first depends on its own price alone.
    assert not any("share" in one for one in said["sums"].values())


def test_a_release_on_another_geometry_is_not_made(tmp_path: Path) -> None:
    """Parameters changed, and the relevance stage was not run again."""
    x, y = table(90, 4, 3)
    known = facts(x, 3)
    (tmp_path / "sealed").mkdir()
    seal(tmp_path / "sealed", x, y)
    outs = (relevance.RELEVANCE, perturb.RELEASE)

    def room(out: str, epsilon: float) -> Room:
        told = {"facts": asdict(known), "releases": {out: {"id": "id"}}}
        keys = {"seal:train": KEY, f"noise:{out}": KEY}
        paths = {"data/sealed": tmp_path / "sealed", **{one: tmp_path / one for one in outs}}
        return Room("release", asked("coefficients", epsilon=epsilon), told, keys, paths)

    relevance.main(room(relevance.RELEVANCE, 1.0))
    with pytest.raises(ReleaseError, match="dvc repro relevance"):
        perturb.main(room(perturb.RELEASE, 2.0))
    perturb.main(room(perturb.RELEASE, 1.0))


def test_weights_in_a_folder_that_says_it_is_no_release_are_not_used(tmp_path: Path) -> None:
    """The ledger knows nothing of what does not apply."""
    x, _ = table(90, 4, 3)
    folder = tmp_path / relevance.RELEVANCE
    folder.mkdir(parents=True)
    save_tensors(folder / perturb.RELEVANCE_TENSORS, {"weights": np.ones(4)})
    manifest.write(folder, plan=manifest.none_plan("off"), facts=facts(x, 3), release_id="0" * 64)
    params = Params.model_validate({"relevance": {"mode": "statistics"}})
    room = Room("release", params, paths={relevance.RELEVANCE: folder})
    with pytest.raises(ReleaseError, match="dvc repro relevance"):
        perturb.released_weights(room)


@pytest.mark.parametrize("mode", ["statistics", "lrp"])
@pytest.mark.parametrize("name", ["adlm", "ilm", "dp-sgd", "dp-mac", "patch-moments"])
def test_weights_that_nobody_would_use_are_refused(mode: str, name: str) -> None:
    known = MNIST if name == "patch-moments" else WDBC
    params = Params.model_validate({"relevance": {"mode": mode}, "release": {"mechanism": name}})
    with pytest.raises(ParamsError, match="set relevance.mode to auto"):
        relevance.plans(params, known)
    relevance.plans(Params.model_validate({"relevance": {"mode": mode}}), known)


def test_off_releases_nothing() -> None:
    plan = relevance.plans(
        Params.model_validate({"relevance": {"mode": "off"}}), facts(table(40, 5, 3)[0], 3)
    )[relevance.RELEVANCE]
    assert (plan.mechanism, plan.passes) == ("none", 0)


numbers = st.lists(st.floats(0, 1), min_size=4, max_size=4)


@given(numbers, numbers, st.integers(0, 2), st.integers(0, 2))
def test_no_neighbour_moves_a_statistic_by_more_than_its_sensitivity(
    one: list[float], other: list[float], label: int, other_label: int
) -> None:
    from airlock.records.encoding import Encoded, pack

    made = feature_map("tabular-2", "tabular", (4,))

    def sums(record: list[float], its_label: int, valid: int) -> dict[str, np.ndarray]:
        batch = pack(
            Encoded(np.array([record]) * valid, np.array([its_label], np.int32), np.array([valid], np.uint8))
        )
        return dict(relevance.statistics(chunk_of(batch, made, (4,)), 3))

    x = np.array([one])
    worlds = {"zero-out": sums([0.0] * 4, -1, 0), "replace-one": sums(other, other_label, 1)}
    here = sums(one, label, 1)
    for neighbours, there in worlds.items():
        params = parameters("statistics", neighbours=neighbours)
        for query in relevance.queries(params, facts(x, 3)):
            moved = here[query.purpose].astype(object) - there[query.purpose].astype(object)
            assert sum(int(value) ** 2 for value in moved.ravel()) <= query.sensitivity**2
    assert not any(value.any() for value in worlds["zero-out"].values())


@given(st.lists(st.floats(1e-3, 1e3), min_size=4, max_size=4), numbers)
def test_weights_never_make_a_row_longer_than_the_limit(weights: list[float], record: list[float]) -> None:
    made, valid = feature_map("tabular-2", "tabular", (4,)), np.ones(1, np.uint8)
    step = centre(np.array([5, -7, 100, 0]), 3, bias=made.bias, weights=np.array(weights))
    row = step(made(np.array([record]), valid), valid)[0]
    assert sum(int(value) ** 2 for value in row) <= LIMIT**2
