"""The relevance release: what it costs, what it finds, and that weights never stretch a row."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airlock.inside import manifest
from airlock.inside.room import Room
from airlock.models.features.features import feature_map
from airlock.models.features.rows import LIMIT
from airlock.params import Params
from airlock.storage import load_tensors
from stages.release import relevance
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


def test_off_releases_nothing() -> None:
    plan = relevance.plans(Params(), facts(table(40, 5, 3)[0], 3))[relevance.RELEVANCE]
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
    from airlock.models.features.projection import centre

    made, valid = feature_map("tabular-2", "tabular", (4,)), np.ones(1, np.uint8)
    step = centre(np.array([5, -7, 100, 0]), 3, bias=made.bias, weights=np.array(weights))
    row = step(made(np.array([record]), valid), valid)[0]
    assert sum(int(value) ** 2 for value in row) <= LIMIT**2
