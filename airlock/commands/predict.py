"""`airlock predict`: labels for new records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from airlock import files

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from airlock.models.model import Model

Batch = TypeVar("Batch", bound=tuple[Any, ...])


def command(
    model: Path = typer.Argument(..., help="Folder of a trained model, such as data/model."),
    file: Path = typer.Argument(..., help="CSV or Parquet file of new records; it needs no label column."),
    output: Path | None = typer.Option(None, "--output", "-o", help="Write a CSV file instead of printing."),
    probabilities: bool = typer.Option(
        False, "--probabilities", help="Give the probability of every class beside the label."
    ),
    as_json: bool = typer.Option(
        False, "--json", help="Print a JSON list of labels, or of labels and probabilities."
    ),
) -> None:
    """Predict the class of every record in a file, or its number where the label is one.

    Example: airlock predict data/model new.csv --probabilities --output labels.csv
    """
    import csv
    import io
    import json

    from airlock.models.predict import predict
    from airlock.storage import load_model

    loaded = load_model(model)
    if loaded.number:
        _write(_numbers(loaded, file, as_json=as_json, probabilities=probabilities), output)
        return
    # A record that the schema drops (a missing value, say) has no label.
    found = [pair for batch in _counted(predict(loaded, file)) for pair in zip(*batch, strict=True)]
    labels = [loaded.labels[int(scores.argmax())] if known else None for scores, known in found]
    shares = [_shares(scores) if known and probabilities else None for scores, known in found]
    if as_json and probabilities:
        rows = [
            {"label": label, "probabilities": dict(zip(loaded.labels, share, strict=True)) if share else None}
            for label, share in zip(labels, shares, strict=True)
        ]
        text = json.dumps(rows, ensure_ascii=False) + "\n"
    elif as_json:
        text = json.dumps(labels, ensure_ascii=False) + "\n"
    else:
        sink = io.StringIO()
        writer = csv.writer(sink, lineterminator="\n")
        classes = [f"probability of {label}" for label in loaded.labels] if probabilities else []
        numbers = _expected(loaded, file)
        more = [*classes, *(["expected"] if numbers else [])]
        writer.writerow(["row", loaded.document["schema"]["label"]["column"], *more])
        for row, (label, share) in enumerate(zip(labels, shares, strict=True), start=1):
            blank: list[str | float] = [""] * len(classes)
            value = [f"{numbers[row - 1]:.6g}" if label else ""] if numbers else []
            writer.writerow([row, label or "", *(share or blank), *value])
        text = sink.getvalue()
    _write(text, output)


def _counted(batches: Iterator[Batch]) -> Iterator[Batch]:
    """The same, while a line says how many records there were; the last of a batch are whether each is known."""
    from rich.console import Console

    rows = 0
    with Console(stderr=True).status("reading") as status:
        for batch in batches:
            rows += len(batch[-1])
            status.update(f"predicting: {rows:,} records")
            yield batch


def _write(text: str, output: Path | None) -> None:
    if output:
        files.deliver(output, text)
    else:
        typer.echo(text, nl=False)


def _numbers(model: Model, file: Path, *, as_json: bool, probabilities: bool) -> str:
    """One number a record; none where the schema drops it."""
    import json

    from airlock.errors import InputError
    from airlock.models.predict import encoded_batches

    if probabilities:
        raise InputError("this model predicts a number, which has no classes: leave out --probabilities")
    found: list[float | None] = []
    for encoded, _ in _counted((each, each.valid) for each in encoded_batches(model, file)):
        values = model.expected(encoded.x)
        assert values is not None
        known = zip(values, encoded.valid, strict=True)
        found += [float(f"{value:.6g}") if valid else None for value, valid in known]
    if as_json:
        return json.dumps(found) + "\n"
    rows = (f"{row},{'' if value is None else value!r}" for row, value in enumerate(found, start=1))
    return "\n".join([f"row,{_quoted(model.labels[0])}", *rows]) + "\n"


def _quoted(name: str) -> str:
    """A column's name as CSV has it."""
    import csv
    import io

    sink = io.StringIO()
    csv.writer(sink, lineterminator="").writerow([name])
    return sink.getvalue()


def _expected(model: Model, file: Path) -> list[float]:
    """What a model of a number expects of each record; nothing of a model of classes."""
    from airlock.models.predict import encoded_batches

    parts = [model.expected(encoded.x) for encoded in encoded_batches(model, file)]
    return [float(value) for part in parts if part is not None for value in part]


def _shares(scores: NDArray[np.float64]) -> list[float]:
    from airlock.models.features.softmax import softmax

    return [round(float(each), 6) for each in softmax(scores[None])[0]]
