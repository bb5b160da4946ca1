"""A label that is a number, from the schema to its prediction: clipped to public bounds, summed exactly, judged with
errors in its own units.
"""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import airlock
from airlock.attack import attack, end_to_end, neighbours
from airlock.commands import export, predict
from airlock.errors import InputError, ParamsError, SchemaError
from airlock.inside.manifest import Manifest
from airlock.models import numbers
from airlock.models.features.rows import LIMIT
from airlock.models.features.softmax import BOUND
from airlock.models.model import Model
from airlock.models.numbers import HALF
from airlock.params import Params
from airlock.privacy import sensitivity
from airlock.records.drafting import Draft, draft
from airlock.records.encoding import encode, encoded_layout, pack
from airlock.records.filling import fill, open_columns, parse_bound
from airlock.records.guesses import Wishes
from airlock.records.schema import Schema
from airlock.records.schema_checks import require_complete
from airlock.records.schema_file import load_schema
from airlock.records.tables import open_table
from airlock.storage import load_model, save_model
from stages import attack_data
from stages.attack import target_of
from stages.mechanisms import mechanism
from stages.open.evaluate import judge
from stages.release import judged_numbers
from stages.release.doors import fit_reference
from stages.release.mechanisms.heads import Head
from stages.release.mechanisms.numbers import Gaps
from stages.release.passes import Chunk, Wanted
from tests.support.sealed_records import KEY, facts, seal

NUMBER = (10.0, 250.0)
LABEL = "price, k"
SCHEMA = Schema.model_validate(
    {
        "name": "houses",
        "kind": "tabular",
        "label": {"column": LABEL, "type": "number", "bounds": list(NUMBER)},
        "columns": [{"name": f"c{place}", "type": "number", "bounds": [0, 1]} for place in range(4)],
    }
)


def houses(n: int, seed: int = 0) -> pa.Table:
    random = np.random.default_rng(seed)
    x = random.random((n, 4))
    price = 60 + 90 * x[:, 0] + 60 * x[:, 1] * x[:, 2] + 5 * random.normal(size=n)
    return pa.table({**{f"c{place}": x[:, place] for place in range(4)}, LABEL: price})


def trained(folder: Path, n: int = 1500, **sections: Any) -> Model:
    """A model from a real release of sealed houses."""
    encoded = encode(houses(n), SCHEMA)
    layout = encoded_layout(SCHEMA)
    known = facts(encoded.x, 1, labels=SCHEMA.label.names, number=SCHEMA.label.number, layout=layout)
    asked = Params.model_validate({"relevance": {"mode": "off"}, **sections})
    half = mechanism(asked.release.mechanism)
    plan = half.plan(asked, known)
    with seal(folder, encoded.x, encoded.y, rows=256) as reader:
        tensors, details = half.make(asked, known, reader, key=KEY, release_id="id")
    data = {"kind": "tabular", "n": n, "shape": [4], "labels": list(known.labels), "schema": SCHEMA.sha256}
    made = Manifest(
        "p", half.NAME, plan.version, plan.parameters, "record", "zero-out", None, plan.proven, plan.passes,
        plan.interactive, "", {}, {"data": data, **details},
    )  # fmt: skip
    model = mechanism(half.NAME, "open").train(asked.train, made, tensors).model
    document = {"schema": SCHEMA.model_dump(mode="json"), "release": "id", "mechanism": half.NAME}
    return replace(model, document=document)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return trained(
        tmp_path_factory.mktemp("sealed"), release={"mechanism": "coefficients-iterated", "epsilon": 3}
    )


# --- The schema


@pytest.mark.parametrize(
    ("label", "problem"),
    [
        ({"type": "number"}, "label 'y' has no bounds: give the lowest and highest value"),
        ({"type": "number", "bounds": [3, 3]}, "bounds must be [low, high]"),
        ({"type": "number", "bounds": [0, 3], "classes": ["a", "b"]}, "is a number and has no classes"),
        ({"bounds": [0, 3]}, "write `type: number` beside them"),
        ({}, "needs at least two classes"),
    ],
)
def test_a_label_has_classes_or_bounds(label: dict[str, Any], problem: str) -> None:
    document = {**SCHEMA.model_dump(mode="json"), "label": {"column": "y", **label}}
    with pytest.raises(SchemaError) as refused:
        require_complete(Schema.model_validate(document), "x.yaml")
    assert problem in str(refused.value) and "\n" not in str(refused.value)


def test_pictures_have_classes_only() -> None:
    document = {
        **SCHEMA.model_dump(mode="json"),
        "kind": "image",
        "columns": [],
        "image": {"height": 1, "width": 1, "column": "p", "bounds": [0, 1]},
    }
    with pytest.raises(SchemaError, match="which is for tables"):
        require_complete(Schema.model_validate(document), "x.yaml")


def test_bounds_are_in_the_hash_and_reasons_are_not() -> None:
    label = SCHEMA.label
    other = SCHEMA.model_copy(update={"label": label.model_copy(update={"bounds": (10.0, 251.0)})})
    same = SCHEMA.model_copy(update={"label": label.model_copy(update={"why": "the land register"})})
    assert other.sha256 != SCHEMA.sha256 == same.sha256


def drafted(folder: Path, regression: bool, values: int = 300) -> Draft:
    lines = [f"{row % 17},{row % values + 0.5}" for row in range(600)]
    (folder / "x.csv").write_text("\n".join(["size,price", *lines]) + "\n")
    return draft(open_table(folder / "x.csv"), "x", Wishes(label="price", regression=regression))


@pytest.mark.parametrize(("regression", "values", "why"), [(True, 5, "as you said"), (False, 300, "100")])
def test_a_number_is_drafted_without_bounds_and_said(
    tmp_path: Path, regression: bool, values: int, why: str
) -> None:
    made = drafted(tmp_path, regression, values)
    found = yaml.safe_load(made.text)
    assert found["label"] == {"column": "price", "type": "number", "bounds": None, "why": ""}
    assert made.number and any("a number to predict" in note and why in note for note in made.notes)
    assert [column["name"] for column in open_columns(made.text)] == ["size", "price"]
    (tmp_path / "x.yaml").write_text(made.text)
    with pytest.raises(SchemaError, match="label 'price' has no bounds"):
        load_schema(tmp_path / "x.yaml")
    text, filled = fill(made.text, {"price": parse_bound("0,400", "a form"), "size": parse_bound("0,20")})
    assert filled == ["price", "size"]
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(SchemaError, match="not confirmed"):
        load_schema(tmp_path / "x.yaml")
    assert load_schema(tmp_path / "x.yaml", draft=True).label.number == (0.0, 400.0)


def test_few_numbers_are_classes_unless_asked_otherwise(tmp_path: Path) -> None:
    made = drafted(tmp_path, regression=False, values=5)
    assert len(yaml.safe_load(made.text)["label"]["classes"]) == 5 and not made.number


def test_texts_are_no_numbers(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n" + "".join(f"{row},{'xy'[row % 2]}\n" for row in range(20)))
    with pytest.raises(InputError, match="leave out --regression"):
        draft(open_table(tmp_path / "x.csv"), "x", Wishes(label="b", regression=True))


# --- Records and sums


def test_labels_are_clipped_and_counted_and_missing_ones_are_null() -> None:
    wanted = SCHEMA.model_copy(update={"label": SCHEMA.label.model_copy(update={"missing": "drop"})})
    prices = pa.array([10.0, 250.0, 130.0, -5.0, 900.0, None])
    table = houses(6).set_column(4, LABEL, prices)
    encoded = encode(table, wanted)
    assert encoded.y.tolist() == [0, 2 * HALF, HALF, 0, 2 * HALF, -1]
    assert encoded.counts[f"clipped in '{LABEL}'"] == 2 and encoded.valid.tolist() == [1] * 5 + [0]
    assert np.allclose(numbers.of_grid(encoded.y[:3], NUMBER), [10.0, 250.0, 130.0])


integers = st.integers(min_value=-1, max_value=2 * HALF)


@given(
    st.lists(st.tuples(st.integers(-LIMIT, LIMIT), integers), min_size=1, max_size=6),
    st.integers(-HALF, HALF),
    st.floats(1e-3, 2.0),
    st.floats(-3.0, 3.0),
)
@settings(max_examples=150, deadline=None)
def test_sums_are_the_slow_oracles_and_no_neighbour_moves_them_further(
    records: list[tuple[int, int]], level: int, clip: float, weight: float
) -> None:
    """Rows of one column, written again in plain Python."""
    head = Head.of_number(np.array([[weight]]))

    def asked(given: list[tuple[int, int]]) -> dict[str, Any]:
        rows = np.array([[float(row) if label >= 0 else 0.0] for row, label in given])
        labels = np.array([label for _, label in given], np.int32)
        chunk = Chunk(rows, labels, (labels >= 0).astype(np.uint8))
        plain = Wanted({"level": "level", "cross": "number"}, 1, level)(chunk)
        return {name: int(value.sum()) for name, value in {**plain, **Gaps(head, clip, level)(chunk)}.items()}

    slow = dict.fromkeys(("level", "cross", "residuals", "spread"), 0)
    for row, label in records:
        if label < 0:
            continue
        target = max(-HALF, min(HALF, label - HALF - level))
        gap = target / HALF - row * int(head.integers[0, 0]) * (head.unit / LIMIT)
        step = int(max(-clip, min(clip, gap)) * (BOUND / clip))
        slow["level"] += label - HALF
        slow["cross"] += row * target
        slow["residuals"] += row * step
        slow["spread"] += step * step
    found = asked(records)
    assert found == slow
    for near, other in (
        ("zero-out", (0, -1)),
        ("replace-one", (-records[0][0], 2 * HALF)),
        ("replace-one", (LIMIT, 0)),
    ):
        moved = asked([other, *records[1:]])
        reach = {
            "level": sensitivity.mean(HALF, neighbours=near),  # type: ignore[arg-type]
            "cross": sensitivity.bounded_cross(LIMIT, HALF, neighbours=near),  # type: ignore[arg-type]
            "residuals": sensitivity.bounded_cross(LIMIT, BOUND, neighbours=near),  # type: ignore[arg-type]
            "spread": BOUND**2,
        }
        assert all(abs(moved[name] - found[name]) <= reach[name] for name in reach)


def test_the_bounds_of_the_sums_are_reached() -> None:
    head = Head.of_number(np.zeros((1, 1)))
    ends = [np.array([[sign * float(LIMIT)]]) for sign in (1, -1)]
    sums = []
    for rows in ends:
        chunk = Chunk(rows, np.array([2 * HALF], np.int32), np.ones(1, np.uint8))
        sums.append({**Wanted({"cross": "number"}, 1)(chunk), **Gaps(head, 0.5)(chunk)})
    assert abs(int(sums[0]["cross"][0, 0]) - int(sums[1]["cross"][0, 0])) == 2 * LIMIT * HALF
    assert abs(int(sums[0]["residuals"][0, 0]) - int(sums[1]["residuals"][0, 0])) == 2 * LIMIT * BOUND
    assert int(sums[0]["spread"][0]) == BOUND**2


@pytest.mark.parametrize("total", [-(10**9), -500, 0, 40, 10**9])
def test_a_level_that_noise_could_have_made_is_none(total: int) -> None:
    found = numbers.level_of(total, 100, 1000.0)
    assert found == (0 if abs(total) < 1000 else np.sign(total) * HALF)


# --- Training, judging, predicting


@pytest.mark.parametrize("asked", ["coefficients", "coefficients-iterated"])
def test_a_number_is_learned(tmp_path: Path, asked: str) -> None:
    model = trained(tmp_path, release={"mechanism": asked, "epsilon": 3})
    other = encode(houses(400, seed=1), SCHEMA)
    found = numbers.measures(model.expected(other.x), numbers.of_grid(other.y, NUMBER))  # type: ignore[arg-type]
    assert (
        found["r2"] is not None and found["r2"] > {"coefficients": 0.8, "coefficients-iterated": 0.9}[asked]
    )
    assert model.expected(other.x).min() >= NUMBER[0]  # type: ignore[union-attr]


def test_generous_bounds_of_a_number_cost_little(tmp_path: Path) -> None:
    """Forty times too wide: gaps are cut where they are, not where they could be."""
    wide = SCHEMA.model_copy(update={"label": SCHEMA.label.model_copy(update={"bounds": (10.0, 9610.0)})})
    encoded = encode(houses(3000), wide)
    known = facts(encoded.x, 1, labels=(LABEL,), number=(10.0, 9610.0), layout="nx4")
    asked = Params.model_validate(
        {"relevance": {"mode": "off"}, "release": {"mechanism": "coefficients-iterated", "epsilon": 3}}
    )
    with seal(tmp_path, encoded.x, encoded.y, rows=1024) as reader:
        _, details = mechanism("coefficients-iterated").make(asked, known, reader, key=KEY, release_id="id")
    assert details["level"] < -0.95 * HALF
    assert details["residuals"][-1] < 0.15 * details["residuals"][0]


def test_what_draws_samples_of_classes_is_refused(tmp_path: Path) -> None:
    for train in ({"method": "sgd"}, {"method": "sgd", "head": "mlp"}):
        with pytest.raises(ParamsError, match="train.method to closed-form"):
            trained(tmp_path, 64, release={"mechanism": "coefficients-iterated"}, train=train)


def test_a_model_of_a_number_is_saved_loaded_and_looked_at(model: Model, tmp_path: Path) -> None:
    save_model(model, tmp_path / "model")
    again = load_model(tmp_path / "model")
    x = encode(houses(30, seed=2), SCHEMA).x
    assert again.number == NUMBER and np.array_equal(again.expected(x), model.expected(x))  # type: ignore[arg-type]
    document = json.loads((tmp_path / "model/model.json").read_text())
    for bad in ([3, 1], [1], ["a", "b"], [0, float("inf")]):
        (tmp_path / "model/model.json").write_text(json.dumps({**document, "number": bad}))
        with pytest.raises(InputError, match="damaged model"):
            load_model(tmp_path / "model")


def test_the_public_judgement_is_the_plain_formula(model: Model, tmp_path: Path) -> None:
    encoded = encode(houses(200, seed=3), SCHEMA)
    pq.write_table(pa.Table.from_batches([pack(encoded)]), tmp_path / "holdout.parquet")
    found, confusion = judge(model, tmp_path / "holdout.parquet")
    actual, predicted = numbers.of_grid(encoded.y, NUMBER), model.expected(encoded.x)
    assert found["accuracy"] is None and found["records"] == 200 and not confusion.any()
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean((predicted - actual) ** 2)))
    assert found["r2"] == pytest.approx(1 - found["rmse"] ** 2 / np.var(actual))
    assert found["mae"] == pytest.approx(np.mean(np.abs(predicted - actual)))


def test_the_reference_is_a_ridge_regression(tmp_path: Path) -> None:
    encoded = encode(houses(500), SCHEMA)
    known = facts(encoded.x, 1, labels=(LABEL,), number=NUMBER)
    made = fit_reference(seal(tmp_path, encoded.x, encoded.y), "tabular-2", known)
    made.check()
    found = numbers.measures(made.expected(encoded.x), numbers.of_grid(encoded.y, NUMBER))  # type: ignore[arg-type]
    assert found["r2"] is not None and found["r2"] > 0.75


def test_prediction_gives_numbers(model: Model, tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(predict.command)
    save_model(model, tmp_path / "model")
    rows = houses(5, seed=4).drop_columns([LABEL])
    with (tmp_path / "new.csv").open("w", newline="") as file:
        csv.writer(file).writerows([rows.column_names, *zip(*rows.to_pydict().values(), strict=True)])
    given = [str(tmp_path / "model"), str(tmp_path / "new.csv")]
    said = CliRunner().invoke(app, given, catch_exceptions=False).stdout
    lines = list(csv.DictReader(said.splitlines()))
    assert list(lines[0]) == ["row", LABEL] and len(lines) == 5
    values = [float(line[LABEL]) for line in lines]
    wanted = model.expected(encode(rows, SCHEMA, with_labels=False).x)
    assert np.allclose(values, wanted, rtol=1e-5)  # type: ignore[arg-type]
    again = CliRunner().invoke(app, [*given, "--json"], catch_exceptions=False).stdout
    assert json.loads(again) == values
    with pytest.raises(InputError, match="leave out --probabilities"):
        CliRunner().invoke(app, [*given, "--probabilities"], catch_exceptions=False)
    loaded = airlock.Model.load(tmp_path / "model")
    assert np.allclose(loaded.predict(rows.to_pydict()), wanted)  # type: ignore[arg-type]
    assert loaded.__sklearn_tags__().estimator_type == "regressor"
    assert loaded.score(rows, wanted) == pytest.approx(1.0)
    with pytest.raises(InputError, match="use predict"):
        loaded.predict_proba(rows)


def test_the_card_speaks_of_a_number_and_other_forms_are_refused(model: Model, tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(export.command)
    save_model(model, tmp_path / "model")
    given = [str(tmp_path / "model"), "--output", str(tmp_path / "out")]
    CliRunner().invoke(app, [*given, "--sklearn"], catch_exceptions=False)
    card = (tmp_path / "out/README.md").read_text()
    assert "a number from 10 to 250" in card and "**R^2**" in card and "class" not in card
    linear = replace(model, features="tabular-2")
    save_model(linear, tmp_path / "linear")
    for form in ("--onnx", "--torch"):
        with pytest.raises(InputError):
            CliRunner().invoke(
                app, [str(tmp_path / "model"), "--output", str(tmp_path / "no"), form], catch_exceptions=False
            )
        assert not (tmp_path / "no").exists()


# --- The private evaluation, and the attack


def test_what_a_record_adds_to_the_errors_has_the_priced_norm() -> None:
    random = np.random.default_rng(0)
    scores = np.concatenate([random.uniform(-100, 400, 60), [10.0, 250.0, np.nan, np.inf]])[:, None]
    actual = np.concatenate([random.integers(0, 2 * HALF + 1, 60), [2 * HALF, 0, 0, HALF]])
    (asked,) = judged_numbers.queries()
    single = [
        judged_numbers.sums_of(scores[at : at + 1], actual[at : at + 1], np.ones(1, bool), NUMBER)["errors"]
        for at in range(64)
    ]
    added = np.stack(single)
    assert added.min() >= 0 and added.max() == judged_numbers.UNIT
    assert added[60, 0] == judged_numbers.UNIT == added[62, 0]  # as wrong as can be, and no answer at all
    apart = np.linalg.norm(added[:, None] - added[None], axis=2)
    assert max(apart.max(), np.linalg.norm(added, axis=1).max()) <= asked.sensitivity
    known = np.arange(64) % 3 > 0
    together = judged_numbers.sums_of(scores, actual, known, NUMBER)["errors"]
    assert np.array_equal(together, added[known].sum(axis=0))


def test_figures_of_a_private_evaluation_are_near_the_exact_ones(model: Model) -> None:
    encoded = encode(houses(800, seed=5), SCHEMA)
    y = encoded.y.astype(np.int64)
    exact = judged_numbers.sums_of(model.scores_alone(encoded.x), y, encoded.valid > 0, NUMBER)["errors"]
    wanted = numbers.measures(model.expected(encoded.x), numbers.of_grid(y, NUMBER))  # type: ignore[arg-type]
    said = {"records": 800, **judged_numbers.figures(exact + 500, 1000.0, NUMBER)}
    found = numbers.of_noisy_sums(said)
    assert found["r2"] == pytest.approx(wanted["r2"], abs=0.01)
    assert found["r2_low"] < wanted["r2"] < found["r2_high"]
    assert found["rmse"] == pytest.approx(wanted["rmse"], rel=0.05)
    assert numbers.of_noisy_sums({**said, "noise_of_errors": 1e9})["r2"] is None
    drowned = numbers.of_noisy_sums({**said, "errors": [-1.0, -1.0, *said["errors"][2:]]})
    least = 2 * said["noise_of_errors"] / (said["unit"] * said["records"])
    width = said["high"] - said["low"]
    assert drowned["rmse"] == pytest.approx(np.sqrt(least) * width), "no error below its noise is told"
    assert drowned["mae"] == pytest.approx(least * width)


@pytest.mark.parametrize("what", ["release", "evaluation"])
def test_the_attack_on_numbers_stays_within_the_proof(what: str) -> None:
    known = replace(attack_data.TABLE, labels=("price",), number=(0.0, 9.0))
    release = {"mechanism": "coefficients", "epsilon": 8.0}
    evaluate = {"epsilon": 8.0, "holdout": "private"}
    params = Params.model_validate({"release": release, "relevance": {"mode": "off"}, "evaluate": evaluate})
    pairs = list(neighbours.pairs(known, "zero-out"))[::4]
    quick = end_to_end.Effort(spread=40, direction=2, choice=30)
    target = target_of(what, params, seed=0, facts=known, pairs=pairs, effort=quick)
    found = attack.attack(
        target, trials=40, confidence=0.995, seed=0, sampler="numpy", tick=lambda done, total: None
    )
    assert found.word == "within the proof"
    assert 0.3 * found.target.proven < found.finding.best <= found.target.proven
