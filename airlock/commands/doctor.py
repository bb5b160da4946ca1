"""`airlock doctor`: what this machine can enforce, and how to get more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from airlock.wall.doctor import Examination, MachineFact


def command(as_json: bool = typer.Option(False, "--json", help="Print JSON.")) -> None:
    """Tell which layers of the wall this machine can raise, what a missing one leaves open, and the remedy.

    Exit 0 if the minimum (Landlock, no capabilities, seccomp) is there, otherwise 1.

    Example: airlock doctor
    """
    import json
    from dataclasses import asdict

    from airlock.wall.doctor import examine
    from airlock.wall.layers import MINIMUM

    found = examine()
    if as_json:
        typer.echo(json.dumps({"enforcement": found.enforcement, **asdict(found)}, indent=1))
    else:
        _show(found)
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


def _cells(finding: MachineFact) -> list[str]:
    colour = "green" if finding.good else "red"
    return [str(finding.name), f"[{colour}]{finding.answer}[/{colour}]", finding.remedy, finding.left_open]
