"""`airlock forget`: destroy the key of one night's records."""

from __future__ import annotations

from pathlib import Path

import typer


def command(
    name: str = typer.Option(..., "--name", help="The population."),
    batch: int = typer.Option(..., "--batch", help="Which night's records: 1 is the first batch."),
) -> None:
    """Make the sealed records of one night unreadable for ever: their key is destroyed, in every copy of them.

    What was released of them stays released: noise hides each record in it, and nothing takes a sum back.

    Example: airlock forget --name clinic --batch 12
    """
    from airlock.owner.home import project
    from airlock.owner.nights import forget

    done = forget(project(Path.cwd()), Path.cwd(), name, batch)
    typer.echo(
        f"{name}, night {batch}: forgotten; the key of its {done.handle.n:,} sealed records is destroyed"
    )
    if done.sealed:
        typer.echo(
            "  data/sealed held them and is removed; copies in DVC's cache and remotes cannot be opened any more"
        )
    if done.place:
        typer.echo(f"  your own file is yours to remove: {done.place}")
    typer.echo(
        "  sums that were released with them stay as they are; a backup of the keys that was made before still opens "
        "them: make a new one and destroy the old (airlock keys backup)"
    )
