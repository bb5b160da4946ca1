"""`airlock synthesize`: synthetic records from a release, at no charge."""

from __future__ import annotations

from pathlib import Path

import typer


def command(
    rows: int = typer.Option(
        None, "--rows", min=1, max=100_000_000, help="As many as were released by default."
    ),
    seed: int = typer.Option(None, "--seed", min=0, help="The same seed gives the same records."),
    model: str = typer.Option(
        None, "--model", help="tree, or mbi: a graphical model (the extra `synthesis`)."
    ),
    output: Path = typer.Option(
        Path("data/open/synthetic"), "--output", "-o", help="A folder; what is in it is replaced."
    ),
) -> None:
    """Make synthetic records from a release of `inputs`: Parquet and CSV in the schema's columns and types.

    Nothing is read but the release, and nothing is charged; every file names the release it comes from.

    Example: airlock synthesize --rows 10000 --seed 1
    """
    from rich.console import Console

    from airlock.owner.home import project
    from airlock.params import Params, check, load_params
    from airlock.run import synthesis

    workspace = Path.cwd()
    given = {"rows": rows, "seed": seed, "model": model}
    document = load_params(workspace / "params.yaml").model_dump()
    document["synthesize"] |= {name: value for name, value in given.items() if value is not None}
    params = check(Params, document, "airlock synthesize")
    with Console(stderr=True).status("making synthetic records"):
        marks = synthesis.make(params, output, workspace=workspace, project=project(workspace))
    typer.echo(
        f"{output}: {marks['rows']} synthetic records as Parquet and CSV, from release {marks['release'][:12]}"
    )
    typer.echo(
        f"Proven epsilon {marks['epsilon']:.4g} at delta {marks['delta']:g} is the release's; nothing more was "
        "charged"
    )
