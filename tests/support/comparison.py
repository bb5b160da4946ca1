"""Small public facts and sealed-like batches for the tests of compared mechanisms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from airlock.params import Params
from airlock.privacy.plan import Facts

KEY = bytes(range(32))


def facts(shape: tuple[int, ...], n: int, classes: int = 10) -> Facts:
    """Of a data set that does not exist."""
    kind = "image" if len(shape) == 3 else "tabular"
    labels = tuple(str(label) for label in range(classes))
    return Facts("made-up", True, kind, n, 0, shape, labels, schema="0" * 64, fingerprint="0" * 64)


MNIST = facts((28, 28, 1), 60_000)


def params(mechanism: str, *, epsilon: float = 1.0, neighbours: str = "zero-out", **options: Any) -> Params:
    """params.yaml with one mechanism, all of which is released by one stage."""
    release = {"mechanism": mechanism, "epsilon": epsilon, "neighbours": neighbours, "options": options}
    return Params.model_validate({"release": release, "relevance": {"mode": "off"}})


def batches(records: np.ndarray, labels: np.ndarray, rows: int = 64) -> list[pa.RecordBatch]:
    """As a sealed file gives them."""
    flat = records.reshape(len(records), -1)
    x: Any
    if records.dtype == np.uint8:
        x = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(flat.shape[1]), len(flat), [None, pa.py_buffer(flat.tobytes())]
        )
    else:
        x = pa.FixedSizeListArray.from_arrays(pa.array(flat.reshape(-1)), flat.shape[1])
    valid = (labels >= 0).astype(np.uint8)
    batch = pa.RecordBatch.from_arrays(
        [x, pa.array(labels.astype(np.int32)), pa.array(valid)], names=["x", "y", "valid"]
    )
    return [batch.slice(start, rows) for start in range(0, len(records), rows)]


def blobs(n: int, classes: int = 3, size: int = 12, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Well separated records of a table, in [0, 1]."""
    generator = np.random.default_rng(seed)
    centres, labels = np.random.default_rng(99).random((classes, size)), generator.integers(0, classes, n)
    return np.clip(centres[labels] + generator.normal(0, 0.08, (n, size)), 0, 1), labels
