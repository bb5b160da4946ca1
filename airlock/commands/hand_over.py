"""`airlock hand-over`: releases for a modeller on another machine."""

from __future__ import annotations

import shlex
from pathlib import Path

import typer


def command(
    place: str = typer.Argument(
        help="Where to: a folder, or an address of any kind that DVC pushes to (s3://, gs://, ssh://, ...)."
    ),
) -> None:
    """Push what was released at this commit, with the project's history, to a place that a modeller can read.

    Sealed records, raw files and keys never go there.

    Example: airlock hand-over /srv/clinic
    """
    from rich.console import Console

    from airlock.workspaces.handover import hand_over

    with Console(stderr=True).status("auditing the commit and pushing what was released"):
        note = hand_over(Path.cwd(), place)
    typer.echo(f"Commit {note.commit[:12]} of '{note.project}' is handed over at {place}")
    typer.echo(f"The modeller runs: airlock take {shlex.quote(place)} --owner {note.key}")
    typer.echo("  (or an address at which that place can be read, such as https://...)")
