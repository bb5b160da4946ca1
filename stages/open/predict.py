"""Prediction on new records: a model folder and a CSV or Parquet file give one label a record. Nothing is learned from them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stages.errors import InputError
from stages.models.encoding import encode
from stages.models.model import Model, model_of
from stages.schema import Schema
from stages.tables import open_table


def load_model(folder: Path) -> Model:
    """Read a model folder.

    Raises:
        InputError: it is not one.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        document = json.loads((folder / "model.json").read_text())
        return model_of(document, load_file(folder / "model.safetensors"))
    except FileNotFoundError:
        raise InputError(f"{folder} is not a model folder: give the one that `dvc repro train` made (data/model)") from None
    except (ValueError, KeyError, TypeError, SafetensorError):
        raise InputError(f"{folder} holds a damaged model: run `dvc repro train` or `dvc pull` again") from None


def predict(model: Model, file: Path) -> Iterator[tuple[NDArray[np.int64], NDArray[np.uint8]]]:
    """Class index and valid flag of each record, batch by batch. A record that the schema drops is not valid.

    Raises:
        RecordError, SchemaError: the file does not follow the model's schema.
    """
    schema = Schema.model_validate(model.document["schema"])
    row = 0
    for batch in open_table(file).batches(list(schema.sources)):
        encoded = encode(batch, schema, first_row=row, with_labels=False)
        row += batch.num_rows
        yield model.predict(encoded.x), encoded.valid
