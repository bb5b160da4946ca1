"""Prediction on new records: a model folder and a CSV or Parquet file give one label a record.

Nothing is learned from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from airlock.errors import SchemaError
from airlock.models.model import Model
from airlock.records.encoding import Encoded, encode
from airlock.records.schema import Schema
from airlock.records.schema_checks import columns_named, is_or_are
from airlock.records.tables import open_table


def predict(model: Model, file: Path) -> Iterator[tuple[NDArray[np.float64], NDArray[np.uint8]]]:
    """Scores of classes and valid flag of each record, batch by batch. A record that the schema drops is
    not valid.

    Raises:
        RecordError, SchemaError: the file does not follow the model's schema.
    """
    for encoded in encoded_batches(model, file):
        yield model.logits(encoded.x), encoded.valid


def encoded_batches(model: Model, file: Path) -> Iterator[Encoded]:
    """The records of a file as the model takes them; a column that
    the model does not know is not looked at.
    """
    schema = Schema.model_validate(model.document["schema"])
    table = open_table(file, header=schema.header)
    missing = [name for name in schema.sources if name not in table.columns]
    if missing:
        raise SchemaError(
            f"{columns_named(missing)} of the model's schema {is_or_are(missing)} not in {file.name}"
        )
    row = 0
    for batch in table.batches(list(schema.sources)):
        yield encode(batch, schema, first_row=row, with_labels=False)
        row += batch.num_rows
