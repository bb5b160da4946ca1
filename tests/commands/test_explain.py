"""`airlock explain`: for a release as a whole, and for single records."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from airlock.commands.explain import command
from airlock.errors import InputError, SchemaError
from airlock.models.explained import Explanation
from airlock.models.features.projection import Centre
from airlock.models.model import Model
from airlock.records.schema_file import load_schema
from airlock.storage import save_model
from stages.open import explanation

ROOT = Path(__file__).parents[2]
app = typer.Typer()
app.command()(command)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model of WDBC that looks at the first column only: large nuclei are malignant."""
    schema = load_schema(ROOT / "data/schemas/wdbc.yaml")
    weights = np.zeros((31, 2))
    weights[0] = [1.0, -1.0]
    made = Model(
        "tabular-2",
        "tabular",
        (30,),
        schema.label.classes,
        [Centre(np.zeros(30, np.int64), 2000)],
        [(weights, np.zeros(2))],
        {"schema": schema.model_dump(mode="json")},
    )
    save_model(made, tmp_path / "model")
    return tmp_path / "model"


def records(path: Path, radii: list[float], without: str = "") -> Path:
    schema = load_schema(ROOT / "data/schemas/wdbc.yaml")
    names = [column.name for column in schema.columns if column.name != without]
    middle = {column.name: sum(column.bounds or (0, 1)) / 2 for column in schema.columns}
    with path.open("w", newline="") as sink:
        writer = csv.DictWriter(sink, names)
        writer.writeheader()
        for radius in radii:
            writer.writerow({name: radius if name == names[0] else middle[name] for name in names})
    return path


def printed(*arguments: Any) -> list[dict[str, str]]:
    done = CliRunner().invoke(app, [str(one) for one in arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return list(csv.DictReader(io.StringIO(done.stdout)))


def test_a_record_is_told_by_the_column_that_the_model_looks_at(model: Path, tmp_path: Path) -> None:
    found = printed(model, records(tmp_path / "new.csv", [28.0, 5.0]), "--most", "2")
    first = [row for row in found if row["row"] == "1"]
    assert len(found) == 4
    assert first[0]["input"] == load_schema(ROOT / "data/schemas/wdbc.yaml").columns[0].name
    assert float(first[0]["relevance"]) > 0
    assert {row["relevance"] for row in found if row["input"] != first[0]["input"]} == {"0.0"}


def test_a_release_is_told_class_by_class_with_its_interval(model: Path, tmp_path: Path) -> None:
    shape = (3, 2)
    found = Explanation(
        ("a", "b", "c"),
        None,
        ("no", "yes"),
        np.array([[0.1, 0.1], [-0.5, 0.4], [0.0, 0.2]]),
        np.full(shape, -1.0),
        np.ones(shape),
        np.sign(np.array([[1, -1], [-1, 1], [0, 0]], float)),
        np.ones(3),
    )
    explanation.write(found, model / explanation.FILE)
    rows = printed(model, "--most", "2")
    assert [(row["class"], row["input"], row["larger"]) for row in rows] == [
        ("no", "b", "against"),
        ("no", "a", "for"),
        ("yes", "b", "for"),
        ("yes", "c", ""),
    ]
    done = CliRunner().invoke(app, [str(model), "--json"], catch_exceptions=False)
    assert json.loads(done.stdout)[0]["relevance"] == -0.5


def test_bad_input_is_one_line(model: Path, tmp_path: Path) -> None:
    run = CliRunner()
    with pytest.raises(InputError, match="give a FILE of records"):
        run.invoke(app, [str(model)], catch_exceptions=False)
    with pytest.raises(InputError, match="not a model folder"):
        run.invoke(app, [str(tmp_path)], catch_exceptions=False)
    name = load_schema(ROOT / "data/schemas/wdbc.yaml").columns[0].name
    with pytest.raises(SchemaError, match="not in short.csv"):
        run.invoke(
            app,
            [str(model), str(records(tmp_path / "short.csv", [9.0], without=name))],
            catch_exceptions=False,
        )
