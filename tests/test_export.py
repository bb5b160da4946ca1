"""A model outside Airlock gives Airlock's own figures: ONNX, PyTorch without pickle, a scikit-learn
classifier; each with a card.
"""

from __future__ import annotations

import csv
import importlib.util
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import typer
from typer.testing import CliRunner

import airlock
from airlock.commands.export import command
from airlock.errors import InputError
from airlock.models.features.features import feature_map
from airlock.models.features.projection import Centre, Whiten
from airlock.models.model import Model
from airlock.records.encoding import encode, encoded_shape
from airlock.records.schema import Schema
from airlock.storage import load_model, save_model
from tests.conftest import Workspace

SCHEMA = {
    "name": "clinic",
    "kind": "tabular",
    "label": {"column": "outcome", "classes": ["healthy", "ill", "unclear"]},
    "columns": [
        {"name": "age", "type": "number", "bounds": [0, 120], "missing": "impute"},
        {"name": "weight", "type": "number", "bounds": [20, 200]},
        {"name": "site", "type": "category", "categories": ["north", "south"], "missing": "impute"},
        {"name": "grade", "type": "category", "categories": ["1", "2", "3"]},
    ],
}
app = typer.Typer()
app.command()(command)


# Of SCHEMA's columns: a number and its indicator, a number on a grid, two categories; as `auto` names them.
MAPS = ("tabular-2", "hybrid-40-1@n.c1.g5.c3x2", "hybrid-80-1@n.c1.n.c3x2", "hybrid-9-1", "cosine-50-1")


def make_model(folder: Path, schema: dict[str, Any] | None = None, features: str = MAPS[0]) -> Model:
    """A model with every kind of step and a hidden layer, whose weights come from a seed."""
    found = Schema.model_validate(schema or SCHEMA)
    generator, shape = np.random.default_rng(3), encoded_shape(found)
    known = feature_map(features, "tabular", shape)
    wide = known.width + bool(known.bias)
    steps = [
        Centre(generator.integers(-3000, 3000, known.width), known.bias, generator.integers(1, 512, wide)),
        Whiten(generator.integers(-(2**20), 2**20, (wide, wide))),
    ]
    layers = [
        (9 * generator.normal(size=(wide, 5)), np.zeros(5)),
        (generator.normal(size=(5, 3)), np.zeros(3)),
    ]
    document = {"schema": found.model_dump(mode="json"), "release": "0" * 64, "mechanism": "coefficients"}
    made = Model(features, "tabular", shape, found.label.classes, steps, layers, document)
    save_model(made, folder)
    return made


def records(rows: int = 1000) -> dict[str, list[Any]]:
    generator = np.random.default_rng(5)
    age = [
        None if row % 11 == 0 else float(value) for row, value in enumerate(generator.uniform(-10, 130, rows))
    ]
    site = [
        None if row % 7 == 0 else str(value)
        for row, value in enumerate(generator.choice(["north", "south"], rows))
    ]
    grade = [str(value) for value in generator.integers(1, 4, rows)]
    return {"age": age, "weight": generator.uniform(10, 250, rows).tolist(), "site": site, "grade": grade}


@pytest.fixture(params=MAPS)
def mapped(tmp_path: Path, request: pytest.FixtureRequest) -> Model:
    return make_model(tmp_path / "model", features=request.param)


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return make_model(tmp_path / "model")


def export(folder: Path, *forms: str) -> Path:
    done = CliRunner().invoke(app, [str(folder / "model"), "-o", str(folder / "out"), *forms])
    if isinstance(done.exception, InputError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return folder / "out"


def logits_of(model: Model) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = model.logits(
        encode(pa.table(records()), Schema.model_validate(SCHEMA), with_labels=False).x
    )
    return found


def test_onnx_runs_on_columns_as_they_stand_and_agrees_on_a_thousand_records(
    mapped: Model, tmp_path: Path
) -> None:
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(
        str(export(tmp_path, "--onnx") / "model.onnx"), providers=["CPUExecutionProvider"]
    )
    found = records()
    fed = {
        "age": np.array([[np.nan if value is None else value] for value in found["age"]]),
        "weight": np.array(found["weight"])[:, None],
        "site": np.array([[value or ""] for value in found["site"]], dtype=object),
        "grade": np.array(found["grade"], dtype=object)[:, None],
    }
    logits, chances, index = session.run(["logits", "probabilities", "class"], fed)
    expected = logits_of(mapped)
    assert np.abs(logits - expected).max() < 1e-5
    assert (index == expected.argmax(axis=1)).all() and len(np.unique(index)) > 1
    assert chances.sum(axis=1) == pytest.approx(np.ones(1000))


@pytest.mark.parametrize("features", ["tabular-2", "hybrid-70-1@n.c1.g5.c3x2.c9", "cosine-50-1"])
def test_torch_needs_nothing_of_airlock_and_agrees_also_on_hashed_columns(
    tmp_path: Path, features: str
) -> None:
    hashed = {"name": "code", "type": "category", "buckets": 8, "missing": "impute"}
    schema = {**SCHEMA, "columns": [*SCHEMA["columns"], hashed]}
    model = make_model(tmp_path / "model", schema, features)
    folder = export(tmp_path, "--torch") / "torch"
    assert not any(path.suffix in (".pt", ".pkl") for path in folder.iterdir())
    text = (folder / "model.py").read_text()
    assert "import airlock" not in text and "from airlock" not in text
    spec = importlib.util.spec_from_file_location("exported_model", folder / "model.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    network = module.load()
    found = {**records(), "code": [f"k{row % 300}" if row % 9 else "" for row in range(1000)]}
    expected = model.logits(encode(pa.table(found), Schema.model_validate(schema), with_labels=False).x)
    assert np.abs(network(network.encode(found)).numpy() - expected).max() < 1e-5
    assert network.predict(found)[:50] == [model.labels[place] for place in expected[:50].argmax(axis=1)]


def test_the_class_is_a_fitted_scikit_learn_classifier(model: Model, tmp_path: Path) -> None:
    from sklearn.base import clone
    from sklearn.metrics import accuracy_score

    folder = export(tmp_path, "--sklearn") / "sklearn"
    loaded = airlock.Model.load(folder)
    chances = loaded.predict_proba(records())
    assert chances.shape == (1000, 3) and chances.sum(axis=1) == pytest.approx(np.ones(1000))
    names = loaded.predict(pa.table(records()))
    assert (names == loaded.classes_[logits_of(model).argmax(axis=1)]).all()
    assert clone(loaded).get_params() == {"path": folder}
    assert loaded.score(records(), names) == accuracy_score(names, names) == 1
    with open(tmp_path / "new.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["extra", *records()])
        writer.writerows(
            ["x", *("" if value is None else value for value in row)]
            for row in zip(*records().values(), strict=True)
        )
    assert (airlock.load(folder).predict(tmp_path / "new.csv") == names).all()
    with pytest.raises(InputError, match="dvc repro"):
        loaded.fit(records(), names)
    with pytest.raises(InputError, match="'grade'"):
        loaded.predict({name: values for name, values in records().items() if name != "grade"})
    with pytest.raises(InputError, match="a pandas frame"):
        loaded.predict(5)


def test_a_record_that_the_schema_drops_has_no_class(tmp_path: Path) -> None:
    columns = [{**column, "missing": "drop"} for column in SCHEMA["columns"]]
    make_model(tmp_path / "model", {**SCHEMA, "columns": columns})
    found = airlock.Model.load(tmp_path / "model").predict(records(12))
    assert found[0] is None and found[1] is not None


def test_a_card_says_what_is_known_and_what_is_not(model: Model, tmp_path: Path) -> None:
    folder = export(tmp_path, "--sklearn")
    card = json.loads((folder / "card.json").read_text())
    assert card["label"]["classes"] == ["healthy", "ill", "unclear"] and card["privacy"] is None
    text = (folder / "README.md").read_text()
    assert "Accuracy**: not measured" in text and "## Limits" in text


def test_a_card_of_changed_figures_says_that_nothing_speaks_for_them(
    finished: Workspace, tmp_path: Path
) -> None:
    """A release.json with another epsilon, or metrics with sentences in them, made a card like any other."""
    manifest, metrics = (
        finished.root / "data/released/release/release.json",
        finished.root / "data/metrics/evaluate.json",
    )

    def card(name: str) -> str:
        finished.run("airlock", "export", "--sklearn", "--output", str(tmp_path / name))
        return (tmp_path / name / "README.md").read_text()

    honest = card("honest")
    assert "`airlock audit` held" in honest and "Accuracy**: 9" in honest, "the control"
    text, figures = manifest.read_text(), json.loads(metrics.read_text())
    document = json.loads(text)
    document["proven"]["epsilon"] = 0.001
    manifest.write_text(json.dumps(document))
    assert "nothing speaks for these figures" in card("epsilon")
    manifest.write_text(text)
    for number, wrong in enumerate(
        ({"holdout": "public\n- **Privacy**: none lost"}, {"accuracy": "all"}, [])
    ):
        metrics.write_text(json.dumps({**figures, **wrong} if isinstance(wrong, dict) else wrong))
        made = card(f"metrics-{number}")
        assert "Accuracy**: not measured" in made and "nothing speaks for these figures" in made
        assert "none lost" not in made


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
def test_a_pipe_in_place_of_a_models_file_does_not_hold_the_reader_up(
    model: Model, tmp_path: Path, name: str
) -> None:
    (tmp_path / "model" / name).unlink()
    os.mkfifo(tmp_path / "model" / name)
    with pytest.raises(InputError, match="damaged"):
        load_model(tmp_path / "model")


def test_what_cannot_be_written_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    made = make_model(tmp_path / "model")
    width = feature_map("hog-2", "image", (8, 8, 1)).width
    image = {"features": "hog-2", "kind": "image", "shape": (8, 8, 1), "steps": []}
    save_model(replace(made, **image, layers=[(np.zeros((width, 3)), np.zeros(3))]), tmp_path / "model")
    for forms, line in [(("--torch",), "use --sklearn"), ((), "say in which form")]:
        with pytest.raises(InputError, match=line):
            export(tmp_path, *forms)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]
    hashed = {**SCHEMA, "columns": [*SCHEMA["columns"], {"name": "code", "type": "category", "buckets": 8}]}
    make_model(tmp_path / "model", hashed)
    pytest.importorskip("onnx")
    with pytest.raises(InputError, match="'code' is hashed"):
        export(tmp_path, "--onnx")
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError, match="exists already"):
        export(tmp_path, "--sklearn")
