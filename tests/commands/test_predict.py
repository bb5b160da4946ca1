"""`airlock predict` on new records, with the schema that travels inside the model."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from airlock.commands.predict import command
from airlock.errors import InputError, SchemaError
from airlock.models.model import Model
from airlock.records.schema_file import load_schema
from airlock.storage import save_model

ROOT = Path(__file__).parents[2]
app = typer.Typer()
app.command()(command)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model of WDBC that looks at the first column only: large nuclei are malignant."""
    schema = load_schema(ROOT / "data/schemas/wdbc.yaml")
    weights = np.zeros((30, 2))
    weights[0] = [1.0, -1.0]
    made = Model(
        "tabular-2",
        "tabular",
        (30,),
        schema.label.classes,
        [],
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
        writer = csv.writer(sink)
        writer.writerow(names)
        writer.writerows(
            [radius if name == "radius_mean" else middle[name] for name in names] for radius in radii
        )
    return path


def test_every_record_gets_a_label_in_order(model: Path, tmp_path: Path) -> None:
    file = records(tmp_path / "new.csv", [34.0, 6.0, 30.0])
    done = CliRunner().invoke(app, [str(model), str(file), "--json"], catch_exceptions=False)
    assert json.loads(done.stdout) == ["malignant", "benign", "malignant"]


def test_labels_go_to_a_file(model: Path, tmp_path: Path) -> None:
    file = records(tmp_path / "new.csv", [34.0, 6.0])
    CliRunner().invoke(
        app, [str(model), str(file), "--output", str(tmp_path / "labels.csv")], catch_exceptions=False
    )
    assert (tmp_path / "labels.csv").read_text() == "row,diagnosis\n1,malignant\n2,benign\n"


def test_a_missing_column_is_named(model: Path, tmp_path: Path) -> None:
    file = records(tmp_path / "new.csv", [34.0], without="area_worst")
    with pytest.raises(SchemaError, match="area_worst"):
        CliRunner().invoke(app, [str(model), str(file)], catch_exceptions=False)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    file = records(tmp_path / "new.csv", [34.0])
    with pytest.raises(InputError, match="is not a model folder"):
        CliRunner().invoke(app, [str(tmp_path), str(file)], catch_exceptions=False)


def test_probabilities_stand_beside_the_label_and_sum_to_one(model: Path, tmp_path: Path) -> None:
    file = records(tmp_path / "new.csv", [34.0, 6.0])
    done = CliRunner().invoke(
        app, [str(model), str(file), "--probabilities", "--json"], catch_exceptions=False
    )
    found = json.loads(done.stdout)
    assert [one["label"] for one in found] == ["malignant", "benign"]
    assert all(max(one["probabilities"], key=one["probabilities"].get) == one["label"] for one in found)
    assert all(sum(one["probabilities"].values()) == pytest.approx(1.0, abs=1e-5) for one in found)
    plain = CliRunner().invoke(app, [str(model), str(file), "--probabilities"], catch_exceptions=False).stdout
    header = plain.splitlines()[0].split(",")
    assert [name for name in header if name.startswith("probability of ")] == [
        f"probability of {label}" for label in load_schema(ROOT / "data/schemas/wdbc.yaml").label.classes
    ]
