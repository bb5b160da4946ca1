"""`bounds`: private bounds on a public grid, and what becomes of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from airlock.errors import InputError, ParamsError
from airlock.inside.manifest import Manifest
from airlock.params import Params, load_params
from airlock.privacy.noise import add_noise
from airlock.records.schema import Schema
from airlock.run import bounds as run
from stages.open.mechanisms import bounds as opened
from stages.release.mechanisms import bounds
from tests.support.sealed_records import KEY, facts, seal

WIDE = (-1e9, 1e9)
SCHEMA = Schema.model_validate(
    {
        "name": "pay",
        "kind": "tabular",
        "confirmed": True,
        "label": {"column": "ok", "classes": ["no", "yes"]},
        "columns": [
            {"name": name, "type": "number", "bounds": WIDE, "why": "wide"}
            for name in ("income", "debt", "idle")
        ],
    }
)


def asked(**release: Any) -> Params:
    return Params.model_validate({"release": {"mechanism": "bounds", "epsilon": 0.05, **release}})


def known(n: int) -> Any:
    columns = [
        {"name": name, "type": "number", "width": 1, "missing": False, "bounds": list(WIDE)}
        for name in ("income", "debt", "idle")
    ]
    return replace(facts(np.zeros((1, 3)), 2, columns=columns), n=n)


def made(folder: Path, n: int = 20_000, **release: Any) -> tuple[dict[str, Any], dict[str, Any], Any]:
    random = np.random.default_rng(0)
    values = np.column_stack(
        [random.lognormal(7, 0.5, n), -random.uniform(3, 900, n), random.uniform(-1e8, 1e8, n)]
    )
    x = (values - WIDE[0]) / (WIDE[1] - WIDE[0])
    with seal(folder, x, np.zeros(n, np.int32), rows=4096) as reader:
        tensors, details = bounds.make(asked(**release), known(n), reader, key=KEY, release_id="id")
    return tensors, details, values


def test_released_bounds_hold_nearly_all_records(tmp_path: Path) -> None:
    _, details, values = made(tmp_path, options={"columns": ["income", "debt"]})
    for place, (low, high) in enumerate(zip(details["low"], details["high"], strict=True)):
        inside = (values[:, place] >= low) & (values[:, place] <= high)
        assert inside.mean() > 0.97
        # A factor of two on each side is the grid's; far from the wide bounds.
        assert high - low < 20 * np.ptp(np.quantile(values[:, place], [0.01, 0.99]))


def test_counts_are_what_the_slow_oracle_says(tmp_path: Path) -> None:
    tensors, details, values = made(tmp_path, 300, options={"columns": ["debt"]})
    ends = [WIDE[0] + (WIDE[1] - WIDE[0]) * edge for edge in details["edges"][0]]
    counts = [0] * (len(ends) + 1)
    for value in values[:, 1]:
        place = (value - WIDE[0]) / (WIDE[1] - WIDE[0])
        counts[sum(edge <= place for edge in details["edges"][0])] += 1
    told = details["sums"]["histograms"]
    wanted = add_noise(
        np.array(counts, np.int64), key=KEY, release_id="id", release_pass=1, purpose="histograms",
        scale=told["scale"],
    )  # fmt: skip
    assert np.array_equal(tensors["histograms"], wanted) and told["sensitivity"] == 1.0


def test_the_grid_is_zero_and_powers_of_two() -> None:
    edges = [-16 + 48 * edge for edge in bounds.power_edges(-16, 32)]
    assert {0.0, 1.0, 16.0, -8.0} <= {round(edge, 9) for edge in edges}
    assert all(0 < edge < 1 for edge in bounds.power_edges(-1e12, 1e12))


def test_nothing_seen_leaves_the_bounds_as_they_were(tmp_path: Path) -> None:
    _, details, _ = made(tmp_path, 20, epsilon=0.001, options={"columns": ["income"]})
    assert details["low"] == [WIDE[0]] and details["high"] == [WIDE[1]]


def test_what_is_not_offered_is_refused() -> None:
    for params, words in (
        (asked(options={"columns": ["incom"]}), "did you mean 'income'"),
        (asked(passes=2), "reads once"),
        (asked(features="tabular-2"), "reads once"),
    ):
        with pytest.raises(ParamsError, match=words):
            bounds.plan(params, known(10))
    with pytest.raises(ParamsError, match="no model"):
        opened.train(Params().train, None, {})  # type: ignore[arg-type]


def test_a_draft_says_that_bounds_were_released(tmp_path: Path) -> None:
    plan = bounds.plan(asked(), known(100))
    details = {
        "columns": [{"name": "income"}, {"name": "debt"}], "low": [0.0, -1024.0], "high": [8192.0, -2.0],
    }  # fmt: skip
    release = Manifest(
        "0123456789abcdef", "bounds", 1, {}, "record", "zero-out", None, plan.proven, 1, False, "f", {}, details,
    )  # fmt: skip
    found = run.bounds_in(release, ["debt"])
    assert found == {"debt": (-1024.0, -2.0)}
    draft = Schema.model_validate(yaml.safe_load(run.drafted(SCHEMA, found, release)))
    assert not draft.confirmed and draft.columns[1].bounds == (-1024.0, -2.0)
    assert draft.columns[1].why.startswith("released, not known") and draft.columns[0].why == "wide"
    with pytest.raises(InputError, match="another|one of"):
        run.bounds_in(replace(release, mechanism="inputs"), ["debt"])


def test_params_come_back_byte_for_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRLOCK_HOME", str(tmp_path / "home"))
    work = tmp_path / "work"
    path = work / "params.yaml"
    (work / "data").mkdir(parents=True)
    (work / "data/project.json").write_text('{"id": "pay"}')
    text = "dataset: pay   # a comment\nrelease: {epsilon: 1.0}\n"
    path.write_text(text)
    with pytest.raises(RuntimeError), run.asked(work, {"mechanism": "bounds", "epsilon": 0.05}):
        assert load_params(path).release.mechanism == "bounds"
        assert load_params(path).release.epsilon == 0.05
        raise RuntimeError
    assert path.read_text() == text
