"""`airlock explain`: what the inputs of a model contribute to its answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from airlock import files


def command(
    model: Path = typer.Argument(..., help="Folder of a trained model, such as data/model."),
    file: Path | None = typer.Argument(None, help="CSV or Parquet file of records to explain, one by one."),
    most: int = typer.Option(
        10, "--most", min=1, help="How many inputs of a class or a record, largest first."
    ),
    output: Path | None = typer.Option(None, "--output", "-o", help="Write a CSV file instead of printing."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Say what each input contributes: to every class over all records, or to the answer for each record.

    Layer-wise relevance propagation through the released steps and the head. It works on the model alone and
    costs no budget.

    Example: airlock explain data/model new.csv --most 5
    """
    import csv
    import io
    import json

    from airlock.storage import load_model

    loaded = load_model(model)
    rows = list(_of_file(loaded, file, most) if file else _of_release(model, most))
    if as_json:
        text = json.dumps(rows, ensure_ascii=False) + "\n"
    else:
        sink = io.StringIO()
        writer = csv.DictWriter(sink, list(rows[0]) if rows else ["row"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        text = sink.getvalue()
    if output:
        files.deliver(output, text)
    else:
        typer.echo(text, nl=False)


def _of_release(folder: Path, most: int) -> Iterator[dict[str, Any]]:
    """Of each class the inputs that contribute most, with an interval from the noise's law."""
    import numpy as np

    from airlock.models.explained import read

    found = read(folder / "relevance.parquet")
    for place, label in enumerate(found.labels):
        for index in np.argsort(-np.abs(found.relevance[:, place]), kind="stable")[:most]:
            yield {
                "class": label,
                "input": found.names[index],
                "relevance": _figure(found.relevance[index, place]),
                "low": _figure(found.low[index, place]),
                "high": _figure(found.high[index, place]),
                "larger": {1.0: "for", -1.0: "against"}.get(float(found.direction[index, place]), ""),
            }


def _of_file(model: Any, file: Path, most: int) -> Iterator[dict[str, Any]]:
    """Of each record the inputs that contribute most to its answer; a record that the schema drops has none."""
    import numpy as np
    from rich.console import Console

    from airlock.models import explain
    from airlock.models.predict import encoded_batches
    from airlock.records.encoding import encoded_columns
    from airlock.records.schema import Schema

    schema = Schema.model_validate(model.document["schema"])
    columns = encoded_columns(schema) if schema.kind == "tabular" else None
    names, row = explain.names_of(model, columns)[0], 0
    with Console(stderr=True).status("reading") as status:
        for batch in encoded_batches(model, file):
            status.update(f"explaining: {row:,} records")
            answers, parts = model.predict(batch.x), explain.of_records(model, batch.x)
            for answer, part, valid in zip(answers, parts, batch.valid, strict=True):
                row += 1
                if not valid:
                    continue
                own = part[:, answer]
                for index in np.argsort(-np.abs(own), kind="stable")[:most]:
                    yield {
                        "row": row,
                        "answer": model.labels[answer],
                        "input": names[index],
                        "relevance": _figure(own[index]),
                    }


def _figure(value: float) -> float:
    return float(f"{value:.6g}")
