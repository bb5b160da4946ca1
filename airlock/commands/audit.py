"""`airlock audit`: who could read records, who did, and what came out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from airlock.evidence.audit import Audit, Row


def command(
    rev: str = typer.Option(None, "--rev", help="Audit this commit instead of the workspace."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
    graph: bool = typer.Option(False, "--graph", help="Print the boundary as a Mermaid graph."),
    svg: Path = typer.Option(None, "--svg", help="Write the boundary as an SVG picture to this file."),
) -> None:
    """Show which stages could read records, which did, and what each released. Exit 1 if the boundary does not hold.

    Example: airlock audit --rev HEAD
    """
    import json
    from dataclasses import asdict

    from airlock.evidence.audit import audit, collect
    from airlock.owner.checks import custody_problems
    from airlock.owner.home import project

    if not rev and (brought := collect(Path.cwd(), project(Path.cwd()).receipts)):
        typer.echo(f"brought home {len(brought)} receipts of queued experiments: commit receipts/", err=True)
    answer = audit(Path.cwd(), rev)
    problems = [*answer.problems, *([] if rev else custody_problems(Path.cwd()))]
    if graph or svg:
        _draw(answer, rev, svg)
    elif as_json:
        document = {
            "source": answer.source,
            "holds": not problems,
            "problems": problems,
            "stages": [asdict(row) for row in answer.stages],
        }
        typer.echo(json.dumps(document, indent=1))
    else:
        _show(answer, problems)
    raise typer.Exit(1 if problems else 0)


def _draw(answer: Audit, rev: str | None, svg: Path | None) -> None:
    from dataclasses import asdict

    from airlock.evidence.picture import mermaid, picture
    from airlock.evidence.revisions import graph_of, tree_of

    stages = graph_of(tree_of(Path.cwd(), rev))
    if svg:
        svg.write_text(picture(stages, [asdict(row) for row in answer.stages]))
        typer.echo(f"written to {svg}")
    else:
        typer.echo(mermaid(stages))


def _show(answer: Audit, problems: list[str]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title=f"Boundary of the {answer.source}"
        if answer.source == "workspace"
        else f"Boundary of commit {answer.source}"
    )
    for heading in (
        "stage",
        "zone",
        "could read\nraw / sealed",
        "did read\nrecords",
        "passes",
        "when (UTC)",
        "released",
        "layers",
    ):
        table.add_column(heading, no_wrap=heading in ("stage", "zone", "when (UTC)"))
    for row in answer.stages:
        table.add_row(*_cells(row))
    console = Console(highlight=False)
    console.print(table)
    for problem in problems:
        console.print(f"[red]✗[/red] {problem}")
    for reason in sorted(
        {release["proven"]["reason"] for row in answer.stages for release in row.releases} - {""}
    ):
        console.print(f"not private: {reason}")
    console.print(
        "The boundary [bold red]does not hold[/bold red]."
        if problems
        else "[bold green]The boundary holds.[/bold green]"
    )


def _cells(row: Row) -> list[str]:
    could = f"{'yes' if row.could_read_raw else 'no'} / {'yes' if row.could_read_sealed else 'no'}"
    released = "\n".join(_released(release) for release in row.releases)
    layers = "all five" if len(row.enforcement) == 5 else ", ".join(row.enforcement) or "-"
    when = row.when[5:16].replace("T", " ")
    return [
        row.name,
        row.zone,
        could,
        row.did_read_records,
        str(row.passes),
        when or "-",
        released or "-",
        layers,
    ]


def _released(release: Mapping[str, Any]) -> str:
    proven = release["proven"]
    promise = (
        "not private"
        if proven["epsilon"] == "infinity"
        else f"epsilon {proven['epsilon']:.4g} proven at {proven['delta']:g}"
    )
    return f"{release['mechanism']}: {promise}{' (interactive)' if release['interactive'] else ''}"
