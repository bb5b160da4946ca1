"""Source files of known data sets to Parquet, as a stream: the same files give the same bytes."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain, islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from airlock.datasets import behaviour
from airlock.datasets.catalog import Dataset, SourceFile
from airlock.datasets.sources import locate, open_contents
from airlock.errors import InputError
from airlock.records.schema import Schema
from airlock.records.schema_file import load_schema

ROWS = 4096
Batches = Iterator[pa.RecordBatch]
Reader = Callable[[Schema, Sequence[SourceFile], Path], Batches]


def convert(wanted: Dataset, folder: Path, target: Path, workspace: Path) -> None:
    """Write records.parquet, and holdout.parquet where there is one, into `target`."""
    schema = load_schema(workspace / f"data/schemas/{wanted.name}.yaml")
    for role, batches, expected in _parts(wanted, schema, folder):
        written = _write(target / f"{role}.parquet", batches)
        if written != expected:
            raise InputError(
                f"{wanted.name} has {written} {role} in its files instead of {expected}: get them anew"
            )


def _parts(wanted: Dataset, schema: Schema, folder: Path) -> Iterator[tuple[str, Batches, int]]:
    """Each role with its records, and how many there must be."""
    if wanted.simulated:
        found = behaviour.divide(wanted.name)
        yield from (
            (role, behaviour.batches(found[role]), getattr(wanted, role)) for role in ("records", "holdout")
        )
        return
    half = len(wanted.files) // 2 if wanted.holdout else len(wanted.files)
    parts = {
        "records": (wanted.files[:half], wanted.records),
        "holdout": (wanted.files[half:], wanted.holdout),
    }
    for role, (files, expected) in parts.items():
        if files:
            yield role, READERS[wanted.format](schema, files, folder), expected


def _write(path: Path, batches: Batches) -> int:
    first = next(batches)
    rows = 0
    with pq.ParquetWriter(path, first.schema, compression="zstd") as writer:
        for batch in chain([first], batches):
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def _idx(schema: Schema, files: Sequence[SourceFile], folder: Path) -> Batches:
    """IDX images and labels (LeCun): big-endian headers of 16 and 8 bytes, then one byte a value."""
    assert schema.image is not None
    width, classes = schema.image.size, pa.array(schema.label.classes)
    with ExitStack() as stack:
        images, labels = (stack.enter_context(open_contents(file, folder)) for file in files)
        images.read(16), labels.read(8)
        while pixels := images.read(ROWS * width):
            codes = np.frombuffer(labels.read(len(pixels) // width), dtype=np.uint8)
            column = pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(width), len(codes), [None, pa.py_buffer(pixels)]
            )
            yield _batch(image=column, label=classes.take(pa.array(codes)))


def _usps(schema: Schema, files: Sequence[SourceFile], folder: Path) -> Batches:
    """One line a record: the digit, then 256 grey values in [-1, 1]."""
    assert schema.image is not None
    with open_contents(files[0], folder) as stream:
        while lines := list(islice(stream, ROWS)):
            values = np.array([line.split() for line in lines], dtype=np.float32)
            labels = pa.array([str(int(code)) for code in values[:, 0]])
            yield _batch(
                image=pa.FixedSizeListArray.from_arrays(pa.array(values[:, 1:].ravel()), schema.image.size),
                label=labels,
            )


def _cifar10_jpeg(schema: Schema, files: Sequence[SourceFile], folder: Path) -> Batches:
    """Parquet already; only the class numbers become names."""
    classes, path = pa.array(schema.label.classes), locate(files[0], folder)
    assert path is not None
    for batch in pq.ParquetFile(path, pre_buffer=False).iter_batches(ROWS):
        yield _batch(image=batch.column("image_jpeg"), label=classes.take(batch.column("label")))


def _wdbc(schema: Schema, files: Sequence[SourceFile], folder: Path) -> Batches:
    """scikit-learn's CSV: a line of sizes and class names, then 30 features and the class number."""
    rows = list(_lines(files[0], folder))[1:]
    columns = [pa.array([float(row[place]) for row in rows]) for place in range(len(schema.columns))]
    labels = pa.array([schema.label.classes[int(row[-1])] for row in rows])
    yield _batch(
        **{column.name: values for column, values in zip(schema.columns, columns, strict=True)},
        **{schema.label.column: labels},
    )


def _dermatology(schema: Schema, files: Sequence[SourceFile], folder: Path) -> Batches:
    """UCI's CSV: 34 whole numbers, `?` where an age is missing, then the disease's number from 1."""
    rows = list(_lines(files[0], folder))
    columns = [
        pa.array([None if row[place] == "?" else int(row[place]) for row in rows], pa.int64())
        for place in range(len(schema.columns))
    ]
    labels = pa.array([schema.label.classes[int(row[-1]) - 1] for row in rows])
    yield _batch(
        **{column.name: values for column, values in zip(schema.columns, columns, strict=True)},
        **{schema.label.column: labels},
    )


def _lines(file: SourceFile, folder: Path) -> Iterator[list[str]]:
    with open_contents(file, folder) as stream:
        yield from csv.reader(io.TextIOWrapper(stream, encoding="ascii"))


def _batch(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


READERS: dict[str, Reader] = {
    "idx": _idx,
    "usps": _usps,
    "cifar10-jpeg": _cifar10_jpeg,
    "wdbc": _wdbc,
    "dermatology": _dermatology,
}
