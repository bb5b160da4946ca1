"""`airlock new`: a workspace of its own for a project."""

from __future__ import annotations

import shlex
from pathlib import Path

import typer


def command(
    project: Path = typer.Argument(help="A new folder; its name is the project's."),
    identity: str | None = typer.Option(
        None, "--id", help="Share keys and ledger with the project of this id (data/project.json)."
    ),
) -> None:
    """Make a workspace: pipeline, parameters, stages that you may edit, CI file and README, in a first commit.

    The tool stays where it is installed. A workspace is for one data set: what it spends, its parameters and its
    model belong together.

    Example: airlock new clinic && cd clinic
    """
    from airlock.workspaces.creation import create

    commit = create(project, identity)
    typer.echo(f"{project} is a workspace of its own (git commit {commit[:12]}).")
    typer.echo(
        f"Next: cd {shlex.quote(str(project))} && airlock data fetch wdbc && dvc repro    # public records, to try it"
    )
    typer.echo("  or: airlock init FILE --ask                               # your own")
