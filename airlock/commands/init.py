"""`airlock init`: draft a schema for your own data, and confirm it."""

from __future__ import annotations

from pathlib import Path

import typer

WHY = """\
  Bounds are left blank. Airlock never computes them from the records: the smallest and the largest value would
  then be public, and they belong to two people. Fill in what the measurement allows.
  Classes and categories were found in the data. They stay unconfirmed and outside git until you have looked at them."""


def command(
    file: str | None = typer.Argument(
        None,
        help="A CSV or Parquet file, a folder of Parquet parts, or an address of either: a table, or flattened images.",
    ),
    name: str | None = typer.Option(
        None, "--name", help="Name of the population; the file's name by default."
    ),
    label: str | None = typer.Option(None, "--label", help="The column to predict."),
    confirm: str | None = typer.Option(
        None, "--confirm", metavar="NAME", help="Check the draft of this name and make it the schema."
    ),
    force: bool = typer.Option(False, "--force", help="Replace a draft that exists."),
) -> None:
    """Draft a schema for your own data: columns, types, classes; bounds are left for you to fill in.

    Example: airlock init patients.csv --label diagnosis
    """
    from airlock.errors import InputError

    if (file is None) == (confirm is None):
        raise InputError("give either a file to draft a schema for, or --confirm NAME")
    if confirm is not None:
        _confirm(confirm)
    elif file is not None:
        _draft(file, name, label, force)


def _draft(file: str, name: str | None, label: str | None, force: bool) -> None:
    from rich.console import Console

    from airlock.errors import InputError
    from airlock.owner.home import NAME, project, write_private
    from airlock.records.drafting import draft, slug
    from airlock.records.places import at_hand
    from airlock.records.tables import open_table

    name = name or slug(Path(file))
    if not NAME.fullmatch(name):
        raise InputError(f"the name '{name}' may have lower-case letters, digits, '-' and '_' only")
    home = project(Path.cwd())
    target = home.drafts / f"{name}.yaml"
    for path in (target, Path.cwd() / f"data/schemas/{name}.yaml"):
        if path.exists() and not force:
            raise InputError(
                f"{path.name} exists already ({path.parent}): choose another --name, or replace the draft with --force"
            )
    with Console(stderr=True).status(f"reading {Path(file).name}"), at_hand(file, home.spool) as path:
        text = draft(open_table(path), name, label)
    write_private(target, text.encode())
    typer.echo(f"A draft of the schema is in {target}\n{WHY}")
    typer.echo(
        f"Next: edit it, then run `airlock init --confirm {name}` and `airlock add {file} --name {name}`"
    )


def _confirm(name: str) -> None:
    import os

    from airlock.errors import InputError
    from airlock.owner.home import project
    from airlock.records.drafting import confirmed
    from airlock.records.schema import load_schema

    source, target = project(Path.cwd()).drafts / f"{name}.yaml", Path.cwd() / f"data/schemas/{name}.yaml"
    if not source.exists():
        raise InputError(f"no draft '{name}': run `airlock init FILE --name {name}` first")
    if target.exists():
        raise InputError(f"data/schemas/{name}.yaml exists already: remove it first, or choose another name")
    schema = load_schema(source, draft=True)
    schema.require_complete(source.name)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}")
    temporary.write_text(confirmed(source.read_text()))
    os.replace(temporary, target)
    source.unlink()
    typer.echo(f"data/schemas/{name}.yaml is confirmed. It is public as soon as you commit it, with")
    typer.echo(f"  classes of '{schema.label.column}': {', '.join(schema.label.classes)}")
    for column in schema.columns:
        if column.categories:
            typer.echo(f"  categories of '{column.name}': {', '.join(column.categories)}")
    typer.echo(f"Next: airlock add FILE --name {name}")
