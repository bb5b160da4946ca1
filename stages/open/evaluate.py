"""The evaluate stage: judge the model on public holdout records, beside the non-private reference.

It costs nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.inside import manifest
from airlock.inside.room import Room
from airlock.models import numbers
from airlock.models.features import encoder
from airlock.models.measures import confuse, measures
from airlock.models.model import Model
from airlock.records.encoding import unpack
from airlock.storage import load_model, write_json, write_text

METRICS, CONFUSION = "data/metrics/evaluate.json", "data/plots/confusion.csv"


def main(room: Room) -> None:
    """Write accuracy, recall and confusion, or say plainly that there is nothing to judge on."""
    encoder.look_in(room.paths)
    holdout = room.path("data/released/holdout")
    door = manifest.load(holdout)
    model = load_model(room.path("data/model"))
    lines = ["actual,predicted"]
    if door.applies:
        metrics, confusion = judge(model, holdout / "holdout.parquet")
        metrics = {"holdout": "public", **metrics, **_reference(room, holdout, model)}
        # One line a record, as DVC's template for confusion matrices wants it.
        for actual, row in zip(model.labels, confusion, strict=True):
            for predicted, count in zip(model.labels, row, strict=True):
                lines += [f"{_quote(actual)},{_quote(predicted)}"] * int(count)
    else:
        metrics = {
            "holdout": "none",
            "reason": door.parameters.get("reason", ""),
            "accuracy": None,
            "reference_accuracy": None,
        }
    write_json(room.path(METRICS), metrics)
    write_text(room.path(CONFUSION), "\n".join(lines) + "\n")


def judge(model: Model, file: Path) -> tuple[dict[str, Any], NDArray[np.int64]]:
    """Accuracy, recall of each class, the confusion matrix (rows: actual) and further measures on encoded
    records; of an autoencoder, its error; of a number, R^2 and errors.
    """
    if model.number:
        return judge_number(model, file), np.zeros((1, 1), np.int64)
    if getattr(model, "reconstructs", False):
        return reconstruct(model, file), np.zeros((len(model.labels), len(model.labels)), np.int64)
    scores, actual = answers(model, file)
    confusion = confuse(actual, scores.argmax(axis=1), len(model.labels))
    total, right = int(confusion.sum()), int(np.trace(confusion))
    support = confusion.sum(axis=1)
    recall = {
        label: (float(confusion[i, i] / support[i]) if support[i] else None)
        for i, label in enumerate(model.labels)
    }
    return {
        "accuracy": right / total if total else None,
        "records": total,
        **measures(scores, actual),
        "recall": recall,
        "confusion": confusion.tolist(),
    }, confusion


def judge_number(model: Model, file: Path) -> dict[str, Any]:
    """R^2, root mean squared error and mean absolute error, in the label's own units and within its bounds."""
    assert model.number is not None
    scores, actual = answers(model, file)
    predicted = np.clip(scores[:, 0], *model.number)
    found = numbers.measures(predicted, numbers.of_grid(actual, model.number))
    return {"accuracy": None, "records": len(actual), **found}


def reconstruct(model: Model, file: Path) -> dict[str, Any]:
    """Mean over records of the squared error, summed over what a record holds (in [0, 1])."""
    import pyarrow.parquet as pq

    from airlock.models.classifier import scaled

    errors = [np.zeros(0)]
    for batch in pq.ParquetFile(file).iter_batches(batch_size=4096):
        encoded = unpack(batch, model.shape)
        known = encoded.x[encoded.valid > 0]
        wanted = np.moveaxis(scaled(known), -1, 1) if known.ndim == 4 else scaled(known)
        errors.append(((model.logits(known) - wanted.reshape(len(known), -1)) ** 2).sum(axis=1))
    found = np.concatenate(errors)
    return {
        "accuracy": None,
        "mean_squared_error": float(found.mean()) if len(found) else None,
        "records": len(found),
    }


def answers(model: Model, file: Path) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Scores and the actual class of the valid records of a holdout file."""
    import pyarrow.parquet as pq

    scores, actual = [np.zeros((0, len(model.labels)))], [np.zeros(0, np.int64)]
    for batch in pq.ParquetFile(file).iter_batches(batch_size=4096):
        encoded = unpack(batch, model.record_shape)
        known = (encoded.valid > 0) & (encoded.y >= 0)
        x, y = model.judged(encoded.x[known], encoded.y[known])
        scores.append(model.logits(x))
        actual.append(y.astype(np.int64))
    return np.concatenate(scores), np.concatenate(actual)


def _reference(room: Room, holdout: Path, model: Model) -> dict[str, float | None]:
    """Accuracy of the non-private reference (of a number, R^2), where the data are public, it was made, and the
    model is for the same labels.
    """
    folder = room.path("data/released/reference")
    reference = load_model(folder) if manifest.load(folder).applies else None
    if reference is None or (reference.labels, reference.number) != (model.labels, model.number):
        return {"reference_accuracy": None}
    found = judge(reference, holdout / "holdout.parquet")[0]
    beside = {"reference_r2": found["r2"]} if model.number else {}
    return {"reference_accuracy": found["accuracy"], **beside}


def _quote(label: str) -> str:
    return '"' + label.replace('"', '""') + '"' if any(mark in label for mark in ',"\n') else label
