"""`airlock nights`: a population that grows night by night, released for one price."""

from __future__ import annotations

from pathlib import Path

import typer

app = typer.Typer(
    help="Show and release the nights of a population that grows (docs/nights.md).\n\nExample: airlock nights run",
    no_args_is_help=True,
)


@app.command()
def show(as_json: bool = typer.Option(False, "--json", help="Print JSON.")) -> None:
    """List the batches of the data set, and which of them are released.

    Example: airlock nights show
    """
    import json
    from dataclasses import asdict

    from rich.console import Console
    from rich.table import Table

    from airlock.owner.home import project
    from airlock.params import load_params
    from airlock.run import nights

    params = load_params()
    found = nights.batches(project(Path.cwd()), Path.cwd(), params)
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in found], indent=1))
        return
    table = Table("night", "records", "", box=None)
    for one in found:
        table.add_row(str(one.night), f"{one.records:,}", one.status)
    Console(highlight=False).print(table)
    used = sum(one.status in ("released", "given up") for one in found)
    typer.echo(
        f"{params.dataset}: {used} of {params.release.horizon} nights used, epsilon {params.release.epsilon:g} for all"
    )


@app.command()
def run(
    parts: Path | None = typer.Option(
        None,
        "--parts",
        help="A folder in which every new CSV or Parquet file is a night: those not known yet are added.",
    ),
) -> None:
    """Release every night that is due, one after the other, and train on what is released.

    Example: airlock nights run --parts /srv/clinic/nightly
    """
    from airlock.run import nightly

    for night in nightly.run(Path.cwd(), parts, tell=typer.echo):
        typer.echo(f"night {night}: released")


@app.command()
def watch(
    folder: Path = typer.Argument(help="A folder in which every new CSV or Parquet file is a night."),
) -> None:
    """Name the folder of nightly parts once: `airlock nights run` and the schedule add what is new there.

    Example: airlock nights watch /srv/clinic/nightly
    """
    from airlock.run import nightly

    typer.echo(f"every new file in {nightly.watch(Path.cwd(), folder)} is a night from now on")


@app.command()
def renew() -> None:
    """Begin a new horizon with the first batch beyond the present one, or the newest: what all nights build on is
    released anew, at a price.

    Example: airlock nights renew && dvc repro
    """
    from airlock.run import nightly

    typer.echo(nightly.renew(Path.cwd()))
