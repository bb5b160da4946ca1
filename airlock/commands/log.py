"""`airlock log`: the owner's log, for the owner."""

from __future__ import annotations

from pathlib import Path

import typer


def command(
    stage: str = typer.Argument(
        "ingest", help="A stage, or `init`: what was seen of a file when its schema was drafted."
    ),
    every: bool = typer.Option(False, "--all", help="Every entry, as JSON lines."),
    as_json: bool = typer.Option(False, "--json", help="Print the newest entries as JSON."),
) -> None:
    """Show what the last run told the owner alone: values clipped, missing and dropped per column.

    It depends on records: it is kept in AIRLOCK_HOME, and in no file that is versioned.

    Example: airlock log ingest
    """
    import json

    from rich.console import Console

    from airlock.errors import InputError
    from airlock.owner.home import project
    from airlock.owner.log import entries, last_summaries, shown, stages

    place = project(Path.cwd())
    found = entries(place, stage) if every else last_summaries(place, stage)
    if not found:
        there = ", ".join(stages(place)) or "no stage yet"
        raise InputError(
            f"the owner's log has nothing of '{stage}': it has {there} (--all shows entries without a table)"
        )
    if every or as_json:
        typer.echo("\n".join(json.dumps(entry) for entry in found) if every else json.dumps(found, indent=1))
        return
    console = Console(highlight=False)
    for entry in found:
        console.print(shown(entry))
