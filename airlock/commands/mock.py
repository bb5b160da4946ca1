"""`airlock mock`: made-up records of a schema, before anything is spent."""

from __future__ import annotations

from pathlib import Path

import typer


def command(
    name: str = typer.Argument(help="A data set: its schema is data/schemas/NAME.yaml."),
    rows: int = typer.Option(1000, "--rows", min=1, max=100_000_000, help="How many records."),
    seed: int = typer.Option(0, "--seed", min=0, help="The same seed gives the same records."),
    output: Path = typer.Option(None, "--output", "-o", help="A folder; data/open/mock by default."),
) -> None:
    """Make mock records from the schema alone: no release, no record read, nothing charged.

    Every value that the schema allows is as likely as any other: they are for writing and testing code. Every
    file says that it is mock, and `airlock add` refuses it.

    Example: airlock mock clinic --rows 500
    """
    import numpy as np
    import pyarrow as pa
    from rich.console import Console

    from airlock.errors import InputError
    from airlock.records.generation import MOCK_COLUMN, check_offered, even_draw, records_of, write
    from airlock.records.schema_file import load_schema
    from airlock.run.paths import check_way

    schema = load_schema(Path("data/schemas") / f"{name}.yaml")
    check_offered(schema)
    folder = output or Path("data/open/mock")
    if output is None:
        check_way(Path.cwd(), f"{folder}/{name}.mock")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: give a folder")
    marks = {
        "kind": "mock",
        "label": "open",
        "schema": schema.name,
        "schema_sha256": schema.sha256,
        "release": None,
        "seed": seed,
    }
    random = np.random.default_rng(seed)
    with Console(stderr=True).status(f"making {rows:,} records"):
        made = records_of(schema, *even_draw(schema, rows, random), random)
        marked = made.append_column(MOCK_COLUMN, pa.array(np.ones(rows, np.int8)))
        paths = write(marked, folder, f"{name}.mock", schema, marks)
    typer.echo(f"{rows} mock records of '{name}': {', '.join(str(path) for path in paths)}")
