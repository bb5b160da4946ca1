"""`airlock predict`: labels for new records."""

from __future__ import annotations

from pathlib import Path

import typer


def command(
    model: Path = typer.Argument(..., help="Folder of a trained model, such as data/model."),
    file: Path = typer.Argument(..., help="CSV or Parquet file of new records; it needs no label column."),
    output: Path | None = typer.Option(None, "--output", "-o", help="Write a CSV file instead of printing."),
    as_json: bool = typer.Option(False, "--json", help="Print a JSON list of labels."),
) -> None:
    """Predict the class of every record in a file.

    Example: airlock predict data/model new.csv --output labels.csv
    """
    import csv
    import io
    import json

    from airlock.models.predict import predict
    from airlock.storage import load_model

    loaded = load_model(model)
    # A record that the schema drops (a missing value, say) has no label.
    found = (pair for batch in predict(loaded, file) for pair in zip(*batch, strict=True))
    labels = [loaded.labels[index] if known else None for index, known in found]
    if as_json:
        text = json.dumps(labels, ensure_ascii=False) + "\n"
    else:
        sink = io.StringIO()
        writer = csv.writer(sink, lineterminator="\n")
        writer.writerow(["row", loaded.document["schema"]["label"]["column"]])
        writer.writerows((row, label or "") for row, label in enumerate(labels, start=1))
        text = sink.getvalue()
    if output:
        output.write_text(text)
    else:
        typer.echo(text, nl=False)
