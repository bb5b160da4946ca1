"""`airlock compare`: all mechanisms on one page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from airlock import files

if TYPE_CHECKING:
    from airlock.compare.comparison import ComparisonRow


def command(
    results: Path = typer.Option(Path("bench/results"), "--results", help="Folder of results."),
    dataset: str = typer.Option(None, "--dataset", help="Only this data set."),
    mechanism: str = typer.Option(None, "--mechanism", help="Only this mechanism."),
    markdown: Path = typer.Option(
        None,
        "--markdown",
        dir_okay=False,
        help="Write a page (docs/papers.md) and, in a folder of its name, its pictures.",
    ),
    save: Path = typer.Option(
        None,
        "--save",
        dir_okay=False,
        help="Write rows as CSV (stages/open/report/published.csv, for the "
        "report page), and attacks.csv beside it.",
    ),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Show claimed, proven and attacked epsilon and accuracy of every mechanism, from results.

    Example: airlock compare --markdown docs/papers.md --save stages/open/report/published.csv
    """
    import json

    from airlock.compare import ceiling, comparison, figures, papers, published
    from airlock.errors import InputError

    rows = [
        row
        for row in comparison.load(results)
        if (dataset is None or row.dataset == dataset) and (mechanism is None or row.mechanism == mechanism)
    ]
    if not rows:
        raise InputError("no result fits --dataset and --mechanism: leave one of them out")
    if markdown:
        curves, ceilings = figures.load_curves(results), ceiling.load(results)
        papers.draw_all(rows, markdown.with_suffix(""), curves, ceilings)
        files.deliver(markdown, papers.page(rows, markdown.stem, curves, ceilings))
    if save:
        published.write(save, rows, comparison.load_attacks(results))
    if as_json:
        typer.echo(json.dumps([row.to_json() for row in rows], indent=1))
    elif not markdown and not save:
        _print(rows)


def _print(rows: list[ComparisonRow]) -> None:
    """Aligned columns, never cut off: a table of fifteen columns is for a wide window or a pager."""
    from airlock.compare.comparison import HEADINGS

    lines = [list(HEADINGS), *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    for line in lines:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
