"""`airlock doctor`: what this machine can enforce, and how to get more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from pathlib import Path

    from airlock.run.leftovers import Leftover
    from airlock.wall.doctor import Examination, MachineFact


def command(as_json: bool = typer.Option(False, "--json", help="Print JSON.")) -> None:
    """Tell which layers of the wall this machine can raise, what a missing one leaves open, and the remedy; and
    what killed runs have left behind, which is swept.

    Exit 0 if the minimum (Landlock, no capabilities, seccomp) is there, otherwise 1.

    Example: airlock doctor
    """
    import json
    from dataclasses import asdict

    from airlock.run import leftovers
    from airlock.wall.doctor import examine
    from airlock.wall.layers import MINIMUM

    found, left = examine(), leftovers.find()
    swept = leftovers.sweep()
    if as_json:
        listed = [{"path": str(one.path), "kind": one.kind, "kept": one.why_kept} for one in left]
        document = {"enforcement": found.enforcement, **asdict(found), "leftovers": listed}
        typer.echo(json.dumps(document, indent=1))
    else:
        _show(found)
        _show_leftovers(left, swept)
    raise typer.Exit(0 if found.offered >= MINIMUM else 1)


def _show(found: Examination) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="What this machine can enforce")
    for heading in ("", "answer", "remedy", "left open"):
        table.add_column(heading)
    for finding in (*found.layers, *found.surroundings):
        table.add_row(*_cells(finding))
    console = Console(highlight=False)
    console.print(table)
    console.print(", ".join(f"{name} {version}" for name, version in found.versions.items()))
    console.print(
        {
            "strict": "[bold green]All five layers[/bold green]: boundary.enforcement can be strict.",
            "auto": "[bold yellow]The minimum[/bold yellow]: boundary.enforcement auto "
            "works, strict would refuse.",
            "advisory": "[bold red]Below the minimum[/bold red]: no stage starts unless "
            "boundary.enforcement is advisory.",
        }[found.enforcement]
    )


def _show_leftovers(left: list[Leftover], swept: list[Path]) -> None:
    for one in left:
        state = one.why_kept or (
            "swept" if one.path in swept else "cannot be removed: look at its folder's rights"
        )
        typer.echo(f"left by a run: {one.path} ({one.kind}): {state}")
    if not left:
        typer.echo("Killed runs have left nothing behind.")


def _cells(finding: MachineFact) -> list[str]:
    colour = "green" if finding.good else "red"
    return [str(finding.name), f"[{colour}]{finding.answer}[/{colour}]", finding.remedy, finding.left_open]
