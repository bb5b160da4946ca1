"""`airlock upgrade`: a workspace follows the tool that is installed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from airlock.workspaces.upgrade import Upgrade

MEANS = {
    "sensitive": "records are sealed again",
    "release": "a release that was made is replayed without a read or a charge, unless its price changed: "
    "airlock budget plan",
    "open": "made again, which costs nothing",
}


def command(
    check: bool = typer.Option(
        False, "--check", help="Only say what would change; exit 1 if anything would."
    ),
) -> None:
    """Follow the installed tool: its stages where you have not edited them, its lock, and what becomes stale.

    Run it after `pip install --upgrade`; commit what it wrote, then `dvc repro`.

    Example: airlock upgrade --check
    """
    from airlock.evidence.revisions import load_graph
    from airlock.workspaces.upgrade import upgrade

    done = upgrade(Path.cwd(), only_check=check)
    for line in _lines(done):
        typer.echo(line)
    graph = load_graph(Path.cwd())
    for name in done.stale:
        stage = graph.stages.get(name)
        why = done.reasons.get(name, "uses what a stale stage makes")
        typer.echo(f"  stale  {name:<16} {why}; {MEANS[str(stage.zone)]}" if stage else f"  stale  {name}")
    if done.changes and not check:
        typer.echo("Next: look at `git diff`, commit, and run `dvc repro`")
    raise typer.Exit(1 if check and done.changes else 0)


def _lines(done: Upgrade) -> list[str]:
    versions = f"airlock {done.before}" + (f" -> {done.after}" if done.after != done.before else "")
    lines = [versions if done.changes else f"{versions}: this workspace is up to date, nothing is stale"]
    for title, paths in (("new", done.added), ("replaced", done.replaced), ("removed", done.removed)):
        lines += [f"  {title:<9} {path}" for path in paths]
    return lines + [
        f"  kept      {path}: you have edited it, and another version was shipped" for path in done.kept
    ]
