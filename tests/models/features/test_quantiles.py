"""Numbers through their private quantiles: a step that looks at one record, made of noisy counts alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from airlock.errors import InputError, ParamsError
from airlock.models.features import quantiles
from airlock.models.features.quantiles import BINS, ENDS, UNIT, Quantiles, bins_of, counts
from airlock.models.model import Model
from airlock.params import Params
from airlock.storage import load_model, save_model, save_tensors
from stages.mechanisms import MECHANISMS, NUMBERS
from stages.release import perturb
from tests.support.sealed_records import KEY, facts, seal

COLUMNS = np.array([0, 2], np.int64)


def narrow(n: int = 4000, seed: int = 0) -> Any:
    """Values that fill a hundredth of their bounds, and a column that fills all of them."""
    random = np.random.default_rng(seed)
    return np.column_stack([0.01 * random.random(n), random.random(n), 0.4 + 0.02 * random.random(n)])


def step(records: Any) -> Quantiles:
    exact = counts(records, np.ones(len(records), np.uint8), COLUMNS)
    return quantiles.quantiles(exact, COLUMNS, len(records), 1.0)


def test_the_grid_goes_from_bound_to_bound_in_exact_numbers() -> None:
    assert ENDS[0] == 0 and ENDS[-1] == 1 and (np.diff(ENDS) > 0).all()
    assert (np.rint(ENDS * 2.0**20) == ENDS * 2.0**20).all()


def test_counts_are_one_bin_a_column_and_nulls_are_nowhere() -> None:
    records, valid = narrow(50), (np.arange(50) % 5 > 0).astype(np.uint8)
    found = counts(records, valid, COLUMNS)
    assert found.shape == (2, BINS) and (found.sum(axis=1) == valid.sum()).all()
    slow = np.zeros((2, BINS), int)
    for record, known in zip(records, valid, strict=True):
        for place, column in enumerate(COLUMNS):
            slow[place, max(at for at in range(BINS) if ENDS[at] <= record[column])] += known
    assert np.array_equal(found, slow)
    assert bins_of(np.array([0.0, 1.0])).tolist() == [0, BINS - 1]


def test_what_filled_little_of_its_bounds_fills_them_afterwards() -> None:
    records = narrow()
    changed = np.sqrt(step(records)(records))
    assert changed[:, 0].std() > 0.25
    assert changed[:, 2].std() > 10 * np.sqrt(records[:, 2]).std()
    assert np.array_equal(step(records)(records)[:, 1], records[:, 1])
    for column in COLUMNS:
        order = np.argsort(records[:, column])
        assert (np.diff(changed[order, column]) >= 0).all()


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e9])
def test_any_noise_makes_a_step_that_rises_from_bound_to_bound(scale: float) -> None:
    noisy = np.rint(scale * np.random.default_rng(0).normal(size=(2, BINS))).astype(np.int64)
    made = quantiles.quantiles(noisy, COLUMNS, 100, scale)
    made.check(3)
    assert (np.diff(made(np.repeat(ENDS[:, None], 3, axis=1))[:, 0]) > 0).all()


def test_what_is_likely_of_counts_is_nearer_to_the_truth_than_they_are() -> None:
    """Few records: a place and a width are told where bins are drowned. Many: counts are what they are."""
    random = np.random.default_rng(3)
    for n, gain in ((300, 0.5), (10**6, 1.001)):
        values = np.clip(0.06 + 0.02 * random.standard_normal((n, 1)), 0, 1)
        exact = counts(values, np.ones(n, np.uint8), np.array([0]))[0].astype(float)
        errors = []
        for _ in range(20):
            noisy = exact + 50.0 * random.standard_normal(BINS)
            found = quantiles.likely(noisy, n, 50.0)
            errors.append(np.linalg.norm(found - exact) / np.linalg.norm(noisy - exact))
        assert np.mean(errors) < gain


def test_shapes_are_distributions() -> None:
    known = quantiles.shapes()
    assert known.shape[1] == BINS
    assert (known >= 0).all()
    assert np.allclose(known.sum(axis=1), 1.0)


def test_quantiles_of_a_record_depend_on_it_alone() -> None:
    records, made = narrow(300), step(narrow())
    whole = made(records)
    alone = np.concatenate([made(records[place : place + 1]) for place in range(300)])
    turned = made(records[::-1])[::-1]
    assert whole.tobytes() == alone.tobytes() == np.ascontiguousarray(turned).tobytes()
    extreme = made(np.array([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]))
    assert extreme.min() >= 0 and extreme.max() <= 1


@pytest.mark.parametrize("fault", ["falls", "ends", "column", "shape"])
def test_a_model_with_other_quantiles_is_refused(fault: str, tmp_path: Path) -> None:
    made = step(narrow())
    model = Model(
        "tabular-2", "tabular", (3,), ("a", "b"), [], [(np.zeros((3, 2)), np.zeros(2))], before=made
    )
    save_model(model, tmp_path / "model")
    again = load_model(tmp_path / "model")
    records = narrow(20, seed=1)
    assert again.logits(records).tobytes() == model.logits(records).tobytes()
    tensors = {name: np.array(value) for name, value in model.tensors().items()}
    if fault == "falls":
        tensors["quantiles"][0, 5] = UNIT
    elif fault == "ends":
        tensors["quantiles"][0, -1] = UNIT - 1
    elif fault == "column":
        tensors["quantiles.columns"][0] = 3
    else:
        tensors["quantiles"] = tensors["quantiles"][:, :-1]
    save_tensors(tmp_path / "model/model.safetensors", tensors)
    with pytest.raises(InputError, match="damaged model"):
        load_model(tmp_path / "model")


def test_generous_bounds_are_made_good_for(tmp_path: Path) -> None:
    """Two classes that differ in numbers which fill a hundredth of their bounds; without quantiles they are lost."""
    from airlock.inside.manifest import Manifest
    from stages.mechanisms import mechanism

    records = narrow(1500)
    labels = (records[:, 0] > 0.005).astype(np.int32)
    right = []
    for asked in (True, False):
        params = Params.model_validate(
            {
                "release": {"mechanism": "coefficients", "epsilon": 1.0},
                "relevance": {"mode": "off", "quantiles": asked},
            }
        )
        known, half = facts(records, 2), mechanism("coefficients")
        plan = half.plan(params, known)
        with seal(tmp_path, records, labels, rows=256) as reader:
            tensors, details = half.make(params, known, reader, key=KEY, release_id="id")
        data = {"kind": "tabular", "n": len(labels), "shape": [3], "labels": ["a", "b"], "schema": ""}
        made = Manifest(
            "p", "coefficients", 2, plan.parameters, "record", "zero-out", None, plan.proven, plan.passes,
            False, "", {}, {"data": data, **details},
        )  # fmt: skip
        model = mechanism("coefficients", "open").train(params.train, made, tensors).model
        right.append(float((model.predict(records) == labels).mean()))
        assert plan.passes == 2 + asked
    assert right[0] > 0.9 > right[1] + 0.05


def test_others_refuse_quantiles_and_ids_without_them_are_as_before() -> None:
    known = facts(np.zeros((24, 4)), 2)
    for name in MECHANISMS:
        asked = Params.model_validate({"release": {"mechanism": name}, "relevance": {"quantiles": True}})
        if name in NUMBERS:
            plans = perturb.plans(asked, known)
            assert plans[perturb.RELEASE].parameters["quantiles"] == [0, 1, 2, 3]
        else:
            with pytest.raises(ParamsError, match="would not use it: set it to false"):
                perturb.plans(asked, known)
    plain = perturb.plans(Params.model_validate({"release": {"mechanism": "coefficients"}}), known)
    assert "quantiles" not in plain[perturb.RELEASE].parameters
