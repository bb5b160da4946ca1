"""`airlock verify`: check somebody's bundle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from airlock import terminal

if TYPE_CHECKING:
    from airlock.bundle.ledgers import Total
    from airlock.bundle.verify import Verdict, VerifyOptions

# Columns of results that a narrow terminal does without; --json has them all.
WHOLE = ("release", "data", "mechanism")  # names, of which the end tells as much as the start
WIDE_TERMINAL, SECONDARY = 130, ("options", "δ", "without privacy", "records", "commit")


def command(
    bundle: Path = typer.Argument(help="A file that `airlock bundle` wrote."),
    quick: bool = typer.Option(False, "--quick", help="Check everything but run no stage again."),
    with_records: bool = typer.Option(
        False, "--with-records", help="On the owner's machine: make every release again too, at no charge."
    ),
    own_code: bool = typer.Option(
        False, "--own-code", help="Run the stages of this workspace instead of the bundle's own code."
    ),
    key: str = typer.Option(
        None, "--key", help="The owner's public key, if you know it (64 hexadecimal digits)."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Check a bundle without keys, data or network, and run its open stages again. Exit 1 if anything does
    not hold.

    Example: airlock verify submission.zip
    """
    from airlock.bundle.verify import VerifyOptions
    from airlock.evidence.policy import known_key

    options = VerifyOptions(
        quick=quick,
        own_code=Path.cwd() if own_code else None,
        records=Path.cwd() if with_records else None,
        key=None if key is None else known_key(key),
    )
    verdict = _follow(bundle, options)
    if as_json:
        import json

        typer.echo(json.dumps(_document(bundle, verdict, options), indent=1))
    else:
        _show(bundle, verdict, options)
    if verdict.problems:
        more = f" (and {len(verdict.problems) - 1} more: --json)" if len(verdict.problems) > 1 else ""
        said = terminal.line(f"{bundle.name} does not verify: {verdict.problems[0]}{more}")
        typer.echo(f"airlock: {said}", err=True)
    raise typer.Exit(1 if verdict.problems else 0)


def _follow(bundle: Path, options: VerifyOptions) -> Verdict:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from airlock.bundle.verify import verify

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
    )
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:  # a log gets none, nor the empty line below it
        task = progress.add_task("opening", total=None)

        def tell(label: str, done: int, total: int) -> None:
            progress.update(task, description=label, completed=done, total=total)

        return verify(bundle, options, tell=tell)


def _code(options: VerifyOptions) -> str:
    if options.quick and not options.records:
        return "no stage (--quick)"
    which = (
        "releases only" if options.quick else "releases and open stages" if options.records else "open stages"
    )
    return (
        f"{which}, with "
        f"{'the code of this workspace' if options.own_code else 'the code in the bundle, behind the wall'}"
    )


def _document(bundle: Path, verdict: Verdict, options: VerifyOptions) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "bundle": str(bundle),
        "verifies": not verdict.problems,
        "problems": verdict.problems,
        **verdict.facts,
        "steps": [asdict(step) for step in verdict.steps],
        "guarantees": [
            {
                "out": one.out,
                "mechanism": one.mechanism,
                "stated": one.stated.to_json(),
                "recomputed": _figure(one.epsilon),
            }
            for one in verdict.guarantees
        ],
        "results": [
            {**asdict(one), "proven": _figure(one.proven), "claimed": _figure(one.claimed)}
            for one in verdict.results
        ],
        "totals": [{**asdict(one), "epsilon": _figure(one.epsilon)} for one in verdict.totals],
        "hidden_ledger_entries": verdict.hidden,
        "ledger_entries_of_unknown_populations": verdict.unknown,
        "run_again": _code(options),
        "agreements": [asdict(one) for one in verdict.agreements],
    }


def _figure(epsilon: float | None) -> float | str | None:
    """As JSON, which has no infinity."""
    import math

    return "infinity" if epsilon is not None and math.isinf(epsilon) else epsilon


def _show(bundle: Path, verdict: Verdict, options: VerifyOptions) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    table = Table("", "check", "what was found", title=bundle.name)
    for step in verdict.steps:
        table.add_row("[green]✓[/green]" if step.holds else "[red]✗[/red]", step.name, step.words)
    console.print(table)
    if verdict.guarantees:
        console.print(_guarantees(verdict))
    if verdict.results:
        console.print(_results(verdict, narrow=console.width < WIDE_TERMINAL))
    if verdict.facts:
        console.print(f"Signed by {verdict.facts['key']}. Run again: {_code(options)}.")
    for total in verdict.totals:
        console.print(_total(total))
    if others := verdict.hidden - verdict.unknown:
        console.print(f"{others} ledger entries are hashes only: by their commitments, of other populations.")
    if verdict.unknown:
        console.print(f"{verdict.unknown} ledger entries are hashes only: cannot tell whose they are.")
    console.print(
        "[bold red]It does not verify.[/bold red]"
        if verdict.problems
        else "[bold green]It verifies.[/bold green]"
    )


def _total(total: Total) -> str:
    cap = f" of {total.cap:g}" if total.cap is not None else ""
    releases = f"{total.releases} release{'' if total.releases == 1 else 's'}"
    return (
        f"In all, '{total.population}' has spent epsilon {_words(total.epsilon)}{cap} over {releases} "
        f"({'scratch' if total.scratch else 'real'} ledger, up to the bundled head)."
    )


def _results(verdict: Verdict, *, narrow: bool) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from airlock.bundle.results import HEADINGS

    again = "accuracy, run again"
    names = {"accuracy": "accuracy, as stated"}
    shown = [index for index, heading in enumerate(HEADINGS) if not (narrow and heading in SECONDARY)]
    table = Table(title="Results", box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for heading in (*(HEADINGS[index] for index in shown), again):
        table.add_column(names.get(heading, heading), no_wrap=heading in WHOLE, overflow="fold")
    for one in verdict.results:
        cells = one.cells()
        found = f"{one.recomputed:.4f}" if one.recomputed is not None else "not recomputed"
        table.add_row(*(cells[index] for index in shown), found)
    return table


def _guarantees(verdict: Verdict) -> Any:
    from pathlib import PurePosixPath

    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title="Guarantees, computed again", box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for heading in ("release", "mechanism", "proven epsilon", "from its events", "delta"):
        table.add_column(heading, no_wrap=heading in WHOLE, overflow="fold")
    for one in verdict.guarantees:
        stated = one.stated
        words = (
            [_words(stated.epsilon), _words(one.epsilon)] if stated.event else [f"none: {stated.reason}", "-"]
        )
        table.add_row(PurePosixPath(one.out).name, one.mechanism, *words, f"{stated.delta:g}")
    return table


def _words(epsilon: float) -> str:
    return f"{epsilon:.6g}"
