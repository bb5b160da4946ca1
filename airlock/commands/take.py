"""`airlock take`: what an owner handed over, checked and trained."""

from __future__ import annotations

import shlex
from pathlib import Path

import typer


def command(
    place: str = typer.Argument(help="The folder or address at which it was handed over."),
    folder: Path | None = typer.Argument(
        None, help="A new folder, or one that was taken before; the project's name by default."
    ),
    owner: str | None = typer.Option(
        None, "--owner", metavar="KEY", help="The owner's public key, as `airlock hand-over` printed it."
    ),
    train: bool = typer.Option(True, "--train/--no-train", help="Run `dvc repro` at the end."),
) -> None:
    """Bring what was handed over, check every signature, and train on the releases: no key, no record, no budget.

    Example: airlock take https://example.org/clinic
    """
    from rich.console import Console

    from airlock.evidence.policy import known_key
    from airlock.workspaces.handover import dvc
    from airlock.workspaces.taking import take

    key = None if owner is None else known_key(owner)
    with Console(stderr=True).status("bringing what was handed over, and checking it"):
        taken = take(place, folder, key)
    typer.echo(f"{taken.folder}: commit {taken.note.commit[:12]}, every signature of the owner's key holds")
    if owner is None:
        typer.echo(f"  the owner's key is {taken.note.key}: compare it with what the owner tells you")
    if train:
        dvc(taken.folder, "repro", quiet=False)
    typer.echo(
        f"Next: cd {shlex.quote(str(taken.folder))}, change `train` in params.yaml, `dvc repro`: it costs nothing"
    )
    typer.echo(f"  to have your results believed, ask the owner to run: airlock keys admit {taken.key}")
