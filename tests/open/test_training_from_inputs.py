"""From one release of `inputs`: a model of any column, which loads, predicts and is judged like any other."""

from __future__ import annotations

import json
import sys
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from airlock.errors import InputError, ParamsError
from airlock.inside.manifest import Manifest
from airlock.models import descent
from airlock.models.binned import BinnedModel
from airlock.models.distribution import distribution_of
from airlock.models.predict import predict
from airlock.params import Params, TrainParams
from airlock.privacy.plan import Facts
from airlock.records.encoding import Encoded, described_columns, encode, encoded_shape, pack
from airlock.records.schema import Schema, retargeted
from airlock.storage import load_model, save_model
from stages.open.evaluate import judge
from stages.open.mechanisms import inputs as opened
from stages.release.mechanisms import inputs
from tests.conformance.suite import Reader

SCHEMA = Schema.model_validate(
    {
        "name": "people",
        "kind": "tabular",
        "confirmed": True,
        "label": {"column": "ill", "classes": ["no", "yes"]},
        "columns": [
            {"name": "age", "type": "number", "bounds": [0, 100], "whole": True},
            {"name": "dose", "type": "number", "bounds": [0, 10], "missing": "impute"},
            {"name": "ward", "type": "category", "categories": ["a", "b", "c"]},
        ],
    }
)
N = 4000


@lru_cache
def people(seed: int = 0) -> pa.Table:
    """The dose follows the age, the ward too, and who is old and gets much is ill."""
    random = np.random.default_rng(seed)
    age = random.integers(0, 101, N)
    dose = np.clip(age / 12 + random.normal(0, 0.7, N), 0, 10)
    ward = np.array(list("abc"))[np.clip((age + random.normal(0, 10, N)) // 34, 0, 2).astype(int)]
    ill = np.where(age + 5 * dose + random.normal(0, 12, N) > 75, "yes", "no")
    return pa.table(
        {"age": age, "dose": pa.array(dose, mask=random.random(N) < 0.05), "ward": ward, "ill": ill}
    )


@lru_cache
def released(epsilon: float = 4.0, passes: int = 2) -> tuple[Manifest, dict[str, Any]]:
    encoded = encode(people(), SCHEMA)
    known = Facts(
        "people", True, "tabular", N, 0, encoded_shape(SCHEMA), ("no", "yes"), "s", "f",
        columns=described_columns(SCHEMA), label="ill",
    )  # fmt: skip
    params = Params.model_validate({"release": {"mechanism": "inputs", "epsilon": epsilon, "passes": passes}})
    reader = Reader([pack(Encoded(encoded.x, encoded.y, encoded.valid))])
    tensors, details = inputs.make(params, known, reader, key=b"n" * 32, release_id="id")
    plan = inputs.plan(params, known)
    data = {"kind": "tabular", "n": N, "shape": list(known.shape), "labels": ["no", "yes"], "schema": "s"}
    given = {"data": data, **json.loads(json.dumps(details))}
    return Manifest(
        "id", "inputs", 1, plan.parameters, "record", "zero-out", None, plan.proven, plan.passes, False, "f",
        {}, given,
    ), tensors  # fmt: skip


def trained(target: str | None = None, **changes: Any) -> BinnedModel:
    model = opened.train(TrainParams.model_validate({"target": target, **changes}), *released()).model
    assert isinstance(model, BinnedModel)
    return model


def holdout(folder: Path) -> Path:
    encoded = encode(people(1), SCHEMA)
    pq.write_table(pa.Table.from_batches([pack(encoded)]), folder / "holdout.parquet")
    return folder / "holdout.parquet"


@pytest.mark.parametrize(("target", "least"), [(None, 0.85), ("ward", 0.6), ("age", 0.1), ("dose", 0.1)])
def test_any_column_is_a_target(target: str | None, least: float, tmp_path: Path) -> None:
    model = trained(target)
    save_model(model, tmp_path / "model")
    again = load_model(tmp_path / "model")
    figures, confusion = judge(again, holdout(tmp_path))
    chance = confusion.sum(axis=1).max() / N
    assert figures["accuracy"] > max(least, chance + 0.03)
    assert figures["records"] == N


def test_a_number_is_a_regression_on_bins() -> None:
    model, encoded = trained("dose"), encode(people(1), SCHEMA)
    x, _ = model.judged(encoded.x, encoded.y)
    known = encoded.x[:, 2] == 0
    error = model.expected(x)[known] - 10 * encoded.x[known, 1]
    assert np.sqrt(np.mean(error**2)) < 1.2 < np.std(10 * encoded.x[known, 1])
    assert trained().expected(encoded.x) is None


def test_new_records_are_predicted_without_the_target(tmp_path: Path) -> None:
    """The label is a column like the others then."""
    from dataclasses import replace

    model = trained("ward")
    schema = retargeted(SCHEMA, "ward", model.labels).model_dump(mode="json")
    save_model(replace(model, document={"schema": schema}), tmp_path / "model")
    pq.write_table(people(1).drop_columns(["ward"]), tmp_path / "new.parquet")
    scores = np.concatenate(
        [part for part, _ in predict(load_model(tmp_path / "model"), tmp_path / "new.parquet")]
    )
    found = scores.argmax(axis=1)
    assert np.mean(np.array(model.labels)[found] == people(1)["ward"].to_numpy()) > 0.6


def test_scores_are_logarithms_of_shares_that_can_be_believed() -> None:
    from airlock.models.features.softmax import softmax
    from airlock.models.measures import calibration_error

    model, encoded = trained(), encode(people(1), SCHEMA)
    assert calibration_error(softmax(model.logits(encoded.x)), encoded.y) < 0.12


def test_the_command_gives_the_expected_number(tmp_path: Path) -> None:
    from dataclasses import replace

    from airlock.commands import predict as command

    model = trained("dose")
    schema = retargeted(SCHEMA, "dose", model.labels).model_dump(mode="json")
    save_model(replace(model, document={"schema": schema}), tmp_path / "model")
    pq.write_table(people(1).drop_columns(["dose"]).slice(0, 50), tmp_path / "new.parquet")
    command.command(
        tmp_path / "model", tmp_path / "new.parquet", tmp_path / "out.csv", probabilities=False, as_json=False
    )
    head, *lines = (tmp_path / "out.csv").read_text().splitlines()
    assert head == "row,dose,expected" and len(lines) == 50
    assert all(0 <= float(line.rsplit(",", 1)[1]) <= 10 for line in lines)


def test_a_record_alone_is_predicted_as_in_a_batch() -> None:
    model, encoded = trained(), encode(people(1), SCHEMA)
    assert np.array_equal(model.predict(encoded.x[:300]), model.predict_alone(encoded.x[:300]))


@pytest.mark.parametrize("passes", [1, 2])
def test_the_tables_are_near_the_true_ones(passes: int) -> None:
    made, tensors = released(passes=passes)
    known = distribution_of(made.details, tensors)
    encoded = encode(people(), SCHEMA)
    found = known.bins.of(encoded.x, encoded.y)
    for (i, j), table in known.tables.pairs.items():
        wanted = np.zeros(table.shape)
        np.add.at(wanted, (found[:, i], found[:, j]), 1)
        assert np.abs(table - wanted).max() < 6 * known.tables.deviation
    assert set(known.fine) == ({0, 1} if passes == 2 else set())


def test_a_target_that_is_no_column_is_refused() -> None:
    with pytest.raises(ParamsError, match="did you mean 'ward'"):
        trained("wards")


@pytest.mark.parametrize("fault", ["edges", "weight", "source", "places"])
def test_a_damaged_model_is_refused_before_a_record_is_read(fault: str, tmp_path: Path) -> None:
    from dataclasses import replace

    from airlock.models.binned import Source
    from airlock.models.bins import Binned, Bins

    model = trained("ward")
    first, *rest = model.bins.columns
    broken = {
        "edges": replace(model, bins=Bins((Binned(first.column, first.edges[::-1]), *rest))),
        "weight": replace(model, weight=model.weight * np.inf),
        "source": replace(model, source=Source((6,), 40, 3)),
        "places": replace(model, bins=Bins(tuple(rest))),
    }[fault]
    save_model(broken, tmp_path / "model")
    with pytest.raises(InputError, match="damaged model"):
        load_model(tmp_path / "model")


# --- Networks on synthetic records
# --------------------------------------------------------------------------------------------------


class Mine(torch.nn.Sequential):
    """A network as somebody would write one."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__(
            torch.nn.Linear(width, 12),
            torch.nn.BatchNorm1d(12),
            torch.nn.ReLU(),
            torch.nn.Linear(12, classes),
        )


def on_synthetic_records(checkpoint: Path | None = None, **changes: Any) -> Any:
    params = TrainParams.model_validate({"method": "sgd", "batch": 256, **changes})
    return opened.train(params, *released(), checkpoint=checkpoint, schema=SCHEMA)


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch) -> str:
    """Its name in params.yaml."""
    module = ModuleType("stages.open.mine")
    module.Mine = Mine  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "stages.open.mine", module)
    return "stages.open.mine:Mine"


def test_any_network_trains_on_synthetic_records_and_predicts_real_ones(mine: str, tmp_path: Path) -> None:
    found = on_synthetic_records(network=mine, epochs=16)
    save_model(found.model, tmp_path / "model")
    figures, _ = judge(load_model(tmp_path / "model"), holdout(tmp_path))
    assert figures["accuracy"] > 0.88
    assert found.metrics["synthetic_records"] == 16 * 4 * 256 and len(found.curve) == 16
    assert found.curve[-1][1] < found.curve[0][1]


def test_no_synthetic_record_comes_twice_and_the_same_training_is_the_same_bytes(tmp_path: Path) -> None:
    """Also where it was stopped in between."""
    rows = opened.SyntheticRows(distribution_of(released()[0].details, released()[1]), SCHEMA, (6,), "cpu")
    seen = [
        rows.draw(256, torch.Generator().manual_seed(epoch))[0].numpy().tobytes()
        for epoch in (0, 1, 2, 3, 4, 2)
        for _ in range(4)
    ]
    assert len(set(seen[:20])) == 20 and seen[20:] == seen[8:12]
    whole = on_synthetic_records(epochs=6).model
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(descent, "CHECKPOINT_EPOCHS", 3)
        on_synthetic_records(tmp_path, epochs=3)
        again = on_synthetic_records(tmp_path, epochs=6).model
    for one, other in zip(whole.layers, again.layers, strict=True):
        assert all(a.tobytes() == b.tobytes() for a, b in zip(one, other, strict=True))


def test_what_a_network_on_synthetic_records_cannot_do_is_refused() -> None:
    with pytest.raises(ParamsError, match=r"set train\.target to null"):
        on_synthetic_records(target="ward")
    with pytest.raises(ParamsError, match="no closed form"):
        opened.train(TrainParams.model_validate({"head": "mlp"}), *released())
