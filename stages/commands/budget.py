"""`airlock budget`: what was spent, what is left, what a release would cost, and whether the books are whole."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from stages.boundary.budget import Point
    from stages.boundary.ledger import Entry, Ledger, Spent

app = typer.Typer(help="Show, plan, set and verify what releases may cost.\n\nExample: airlock budget plan", no_args_is_help=True)

JSON = typer.Option(False, "--json", help="Print JSON.")


@app.command()
def show(population: str = typer.Argument(None, help="One population; all by default."), as_json: bool = JSON) -> None:
    """Show what each population has spent and what is left, by mechanism.

    Example: airlock budget show clinic
    """
    from rich.console import Console

    from stages.boundary import budget
    from stages.boundary.home import project

    home, workspace = project(Path.cwd()), Path.cwd()
    console = Console(highlight=False, soft_wrap=True)
    with Console(stderr=True).status("adding up"):
        if population:
            ledger = budget.ledger_of(home, workspace, population)
            found = [(ledger, [ledger.spent(population)])]
        else:
            books = budget.ledgers(home, workspace).values()
            found = [(ledger, [ledger.spent(name) for name in ledger.populations()]) for ledger in books]
    if as_json:
        _echo({"ledgers": [_ledger_json(ledger, spent) for ledger, spent in found]})
        return
    for ledger, accounts in found:
        _show_ledger(console, ledger, accounts)


@app.command()
def plan(
    sweep: list[str] = typer.Option([], "--sweep", help="KEY=VALUE,VALUE,...: price every value; may be given more than once."),
    as_json: bool = JSON,
) -> None:
    """Price what params.yaml would release, before any record is read. Exit 1 if it does not fit.

    Example: airlock budget plan --sweep release.epsilon=0.1,0.5,1
    """
    from stages.boundary import budget
    from stages.boundary.home import project
    from stages.errors import BudgetRefused
    from stages.params import load_params

    points = budget.price(project(Path.cwd()), Path.cwd(), load_params(), budget.read_sweep(sweep))
    refusal = next((point.objection for point in points if point.objection), None)
    if as_json:
        _echo({"fits": refusal is None, "points": [_point_json(point) for point in points]})
        raise typer.Exit(1 if refusal else 0)
    _show_plan(points)
    if refusal:
        raise BudgetRefused(refusal)


@app.command("set")
def set_cap(
    population: str = typer.Argument(help="Whose budget."),
    epsilon: float = typer.Option(..., "--epsilon", help="The most that all releases together may spend."),
    delta: float = typer.Option(..., "--delta", help="At which delta totals are taken; far below 1/n."),
    why: str = typer.Option(..., "--why", help="The reason, kept in the ledger."),
    who: str = typer.Option(None, "--who", help="Who decided; your login name by default."),
) -> None:
    """Set the cap of a population. Only the owner does this; who, when and why stay in the ledger.

    Example: airlock budget set clinic --epsilon 3 --delta 1e-6 --why "ethics board, 12 May"
    """
    import getpass

    from stages.boundary import budget
    from stages.boundary.home import project

    ledger = budget.ledger_of(project(Path.cwd()), Path.cwd(), population)
    ledger.set_cap(population, epsilon, delta, who=who or getpass.getuser(), why=why)
    spent = ledger.spent(population)
    typer.echo(f"{population}: the cap is epsilon {epsilon:g} at delta {delta:g}; {_number(spent.epsilon)} of it is spent")


@app.command()
def history(population: str = typer.Argument(None, help="One population; all by default."), as_json: bool = JSON) -> None:
    """List every entry of the ledgers: caps, reservations, commits and disclosures.

    Example: airlock budget history clinic
    """
    from stages.boundary import budget
    from stages.boundary.home import project

    home, workspace = project(Path.cwd()), Path.cwd()
    books = [budget.ledger_of(home, workspace, population)] if population else list(budget.ledgers(home, workspace).values())
    listed = [(ledger.scratch, entry) for ledger in books for entry in ledger.history(population)]
    if as_json:
        _echo([_entry_json(scratch, entry) for scratch, entry in listed])
    else:
        _show_history(listed)


@app.command()
def verify() -> None:
    """Check the chain of every ledger, and that the heads in signed receipts are in it. Exit 1 with one line per problem.

    Example: airlock budget verify
    """
    from stages.boundary import budget
    from stages.boundary.home import project

    problems = budget.problems(project(Path.cwd()), Path.cwd())
    for problem in problems:
        typer.echo(problem)
    if problems:
        raise typer.Exit(1)
    typer.echo("every entry is in its place")


def _show_ledger(console: Any, ledger: Ledger, accounts: list[Spent]) -> None:
    console.print(f"[bold]{'Scratch ledger (public data only)' if ledger.scratch else 'Ledger'}[/bold] {ledger}", style="dim")
    for spent in accounts:
        _show_account(console, spent)
    if not accounts:
        console.print("  no population has a cap or a release yet")


def _show_account(console: Any, spent: Spent) -> None:
    from rich.columns import Columns
    from rich.padding import Padding
    from rich.progress_bar import ProgressBar

    name = f"[bold]{spent.population}[/bold]"
    if spent.cap_epsilon is None:
        console.print(f"  {name}  {_number(spent.epsilon)} spent at delta {spent.delta:g}, no cap")
    else:
        bar = ProgressBar(total=spent.cap_epsilon or 1, completed=min(spent.epsilon, spent.cap_epsilon), width=40)
        figures = f"{_number(spent.epsilon)} spent of {spent.cap_epsilon:g} at delta {spent.delta:g}, {_number(spent.left or 0)} left"
        console.print(Padding(Columns([name, bar, figures]), (0, 0, 0, 2)))
        console.print(f"    one more release of up to epsilon {_number(spent.largest or 0)} fits (composition is not addition)")
    for mechanism, epsilon in spent.mechanisms.items():
        console.print(f"    {mechanism}: {_number(epsilon)} by itself")
    if spent.disclosures:
        console.print(f"    {spent.disclosures} disclosure{'s' if spent.disclosures > 1 else ''} of public data, not counted")
    for release in spent.reserved:
        console.print(
            f"    [yellow]reserved, not committed: crashed or running[/yellow] {release.release_id[:12]} {release.mechanism}, {release.at}"
        )


def _show_plan(points: list[Point]) -> None:
    from rich.console import Console
    from rich.table import Table

    account, before = points[0].quote.account, points[0].quote.before
    cap = f"of {account.cap.epsilon:g} " if account.cap else "(no cap) "
    table = Table(title=f"{account.population}: {_number(before)} {cap}spent at delta {points[0].quote.delta:g}", title_justify="left")
    for heading in (*points[0].settings, "releases", "passes", "epsilon", "total after", "fits"):
        table.add_column(heading, no_wrap=True)
    for point in points:
        outs = "\n".join(f"{price.out} ({price.mechanism}, {price.status})" for price in point.prices)
        passes = "\n".join(str(price.passes) for price in point.prices)
        epsilons = "\n".join("-" if price.epsilon is None else _number(price.epsilon) for price in point.prices)
        settings = [f"{value}" for value in point.settings.values()]
        table.add_row(*settings, outs, passes, epsilons, _number(point.quote.together), "no" if point.objection else "yes")
    Console(highlight=False).print(table)


def _show_history(listed: list[tuple[bool, Entry]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("ledger", "entry", "when", "kind", "population", "release", "details")
    for scratch, entry in listed:
        details = {name: value for name, value in entry.details.items() if name != "at" and value is not None}
        words = ", ".join(f"{name} {value}" for name, value in details.items())
        table.add_row(
            "scratch" if scratch else "real",
            str(entry.sequence),
            entry.details["at"],
            entry.kind,
            entry.population,
            entry.release_id[:12],
            words,
        )
    Console(highlight=False).print(table)


def _ledger_json(ledger: Ledger, accounts: list[Spent]) -> dict[str, Any]:
    from dataclasses import asdict

    return {"url": str(ledger), **ledger.receipt(), "populations": [asdict(spent) for spent in accounts]}


def _point_json(point: Point) -> dict[str, Any]:
    from dataclasses import asdict

    quote = point.quote
    return {
        "settings": dict(point.settings),
        "releases": [asdict(price) for price in point.prices],
        "population": quote.account.population,
        "delta": quote.delta,
        "cap_epsilon": quote.account.cap.epsilon if quote.account.cap else None,
        "before": quote.before,
        "together": quote.together,
        "fits": point.objection is None,
        "refusal": point.objection,
    }


def _entry_json(scratch: bool, entry: Entry) -> dict[str, Any]:
    names = ("sequence", "kind", "population", "release_id", "previous", "hash")
    return {"scratch": scratch, **{name: getattr(entry, name) for name in names}, "details": entry.details}


def _echo(document: Any) -> None:
    """Infinity is a word in JSON, as everywhere in Airlock."""
    import json
    import math

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [plain(item) for item in value]
        return "infinity" if isinstance(value, float) and math.isinf(value) else value

    typer.echo(json.dumps(plain(document), indent=1))


def _number(value: float) -> str:
    return f"{value:.4g}"
