"""`airlock data`: public data sets that come with a schema."""

from __future__ import annotations

import json
from pathlib import Path

import typer

app = typer.Typer(
    help="List and fetch public data sets that come with a schema.\n\nExample: airlock data fetch mnist",
    no_args_is_help=True,
)


@app.command("list")
def show(as_json: bool = typer.Option(False, "--json", help="Print JSON.")) -> None:
    """Show the data sets that Airlock knows, where they come from, and which are here.

    Example: airlock data list
    """
    from rich.console import Console
    from rich.table import Table

    from airlock.datasets.catalog import DATASETS, present
    from airlock.owner.home import project

    place, workspace = project(Path.cwd()), Path.cwd()
    rows = [
        {
            "name": found.name,
            "records": found.records,
            "holdout": found.holdout,
            "package": found.package,
            "mirrors": len(found.mirrors),
            "simulated": found.simulated,
            "here": present(place, workspace, found),
        }
        for found in DATASETS.values()
    ]
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    table = Table("data set", "records", "holdout", "comes from (after AIRLOCK_DATA_HOME)", "here", box=None)
    for row in rows:
        places = (
            [str(row["package"])] * bool(row["package"])
            + ["public mirrors"] * bool(row["mirrors"])
            + ["a simulation"] * bool(row["simulated"])
        )
        table.add_row(
            str(row["name"]),
            f"{row['records']:,}",
            f"{row['holdout']:,}",
            ", ".join(places) or "-",
            "yes" if row["here"] else "",
        )
    Console(highlight=False).print(table)


@app.command()
def fetch(name: str = typer.Argument(help="Name of a data set; `airlock data list` shows them.")) -> None:
    """Bring a public data set: find its files, check them against their pinned SHA-256, convert and add them.

    Example: airlock data fetch mnist
    """
    from rich.console import Console

    from airlock.datasets.catalog import fetch as bring
    from airlock.owner.home import project

    with Console(stderr=True).status(f"fetching {name}"):
        done = bring(project(Path.cwd()), Path.cwd(), name)
    counts = f"{done.records:,} records" + (
        f" and a public holdout of {done.holdout:,}" if done.holdout else ""
    )
    if done.source is None:
        typer.echo(f"{name}: already here, {counts}")
    else:
        typer.echo(
            f"{name}: {counts} from {done.source}, checked and added. Next: dvc exp run -S dataset={name}"
        )
