"""Prediction on new records: a model folder and a CSV or Parquet file give one label a record. Nothing is learned from them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from airlock.errors import SchemaError
from airlock.models.model import Model
from airlock.records.encoding import encode
from airlock.records.schema import Schema
from airlock.records.tables import open_table


def predict(model: Model, file: Path) -> Iterator[tuple[NDArray[np.int64], NDArray[np.uint8]]]:
    """Class index and valid flag of each record, batch by batch. A record that the schema drops is not valid.

    Raises:
        RecordError, SchemaError: the file does not follow the model's schema.
    """
    schema = Schema.model_validate(model.document["schema"])
    table = open_table(file, header=schema.header)
    missing = [name for name in schema.sources if name not in table.columns]
    if missing:
        raise SchemaError(f"column '{missing[0]}' of the model's schema is not in {file.name}")
    row = 0
    for batch in table.batches(list(schema.sources)):
        encoded = encode(batch, schema, first_row=row, with_labels=False)
        row += batch.num_rows
        yield model.predict(encoded.x), encoded.valid
