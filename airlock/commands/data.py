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
            f"{name}: {counts} from {done.source}, checked and added. Next: airlock data use {name} && dvc repro"
        )


@app.command()
def use(
    name: str = typer.Argument(help="Name of a data set that was added or fetched here."),
    private_holdout: bool | None = typer.Option(
        None,
        "--private-holdout/--no-holdout",
        help="Keep a part of the records from training, for `airlock evaluate`; by default as params.yaml says.",
    ),
) -> None:
    """Set `dataset` in params.yaml, once it is clear that its records and its schema are here.

    Example: airlock data use clinic && dvc repro
    """
    from airlock.errors import InputError
    from airlock.params import load_params
    from airlock.records import handles
    from airlock.workspaces.steps import set_params

    root = Path.cwd()
    before = load_params(root / "params.yaml")
    if wrong := handles.objection(root, name):
        raise InputError(wrong)
    settings: dict[str, object] = {"dataset": name}
    if private_holdout is not None:
        settings["evaluate.holdout"] = "private" if private_holdout else "none"
    set_params(root, settings)
    after = load_params(root / "params.yaml")
    typer.echo(f"dataset: {name}; evaluate.holdout: {after.evaluate.holdout}")
    if after.evaluate.holdout == "private" and before.dataset != name and private_holdout is None:
        typer.echo(
            "  a private holdout was set for the data set before, and holds for this one too: --no-holdout"
        )
    typer.echo("Next: airlock budget plan, then dvc repro")
