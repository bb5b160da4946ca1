"""`airlock budget`: what was spent, what is left, what a release
would cost, and whether the books are whole.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from airlock.ledger import Entry, Ledger, Spent
    from airlock.models.features.choice import Choice
    from airlock.privacy.continual import Errors
    from airlock.run.budget import Point, Price

app = typer.Typer(
    help="Show, plan, set and verify what releases may cost.\n\nExample: airlock budget plan",
    no_args_is_help=True,
)

FEATURED = ("coefficients", "coefficients-iterated")
"""The mechanisms whose feature map params.yaml names."""
JSON = typer.Option(False, "--json", help="Print JSON.")


@app.command()
def show(
    population: str = typer.Argument(None, help="One population; all by default."), as_json: bool = JSON
) -> None:
    """Show what each population has spent and what is left, by mechanism.

    Example: airlock budget show clinic
    """
    from rich.console import Console

    from airlock.owner.home import project
    from airlock.run import budget

    home, workspace = project(Path.cwd()), Path.cwd()
    console = Console(highlight=False, soft_wrap=True)
    with Console(stderr=True).status("adding up"):
        wanted = [population] if population else None
        books = (
            [budget.ledger_of(home, workspace, population)]
            if population
            else list(budget.ledgers(home, workspace).values())
        )
        found = [(ledger, *ledger.snapshot(wanted)) for ledger in books]
    if as_json:
        _echo({"ledgers": [_ledger_json(ledger, head, spent) for ledger, head, spent in found]})
        return
    for ledger, _, accounts in found:
        _show_ledger(console, ledger, accounts)


@app.command()
def plan(
    sweep: list[str] = typer.Option(
        [], "--sweep", help="KEY=VALUE,VALUE,...: price every value; may be given more than once."
    ),
    as_json: bool = JSON,
) -> None:
    """Price what params.yaml would release, before any record is read. Exit 1 if it does not fit.

    Example: airlock budget plan --sweep release.epsilon=0.1,0.5,1
    """
    from airlock.errors import BudgetRefused
    from airlock.owner.home import project
    from airlock.params import load_params
    from airlock.run import budget

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
    pure: float = typer.Option(
        None, "--pure", help="The part of epsilon for Laplace noise, beside other releases."
    ),
    slack: float = typer.Option(
        None, "--slack", help="The part of delta for sampled steps (dp-sgd), beside other releases."
    ),
    odometer: bool = typer.Option(
        False, "--odometer", help="Raise a cap after results were seen: nothing is promised about the whole."
    ),
) -> None:
    """Set the cap of a population. Only the owner does this; who, when and why stay in the ledger.

    Its limits are fixed before the first release: where neither --pure nor --slack is given, that release
    decides (all for Gaussian noise, all for Laplace noise, or a tenth of delta as slack). docs/ledger.md
    tells more.

    Example: airlock budget set clinic --epsilon 3 --delta 1e-6 --why "ethics board, 12 May"
    """
    import getpass

    from airlock.owner.home import project
    from airlock.run import budget, reconcile

    budget.check_cap(Path.cwd(), population, delta)
    place = project(Path.cwd())
    ledger = budget.ledger_of(place, Path.cwd(), population)
    with reconcile.agreed(place, Path.cwd(), ledger):
        ledger.set_cap(
            population,
            epsilon,
            delta,
            who=who or getpass.getuser(),
            why=why,
            pure=pure,
            slack=slack,
            odometer=odometer,
        )
    spent = ledger.spent(population)
    typer.echo(
        f"{population}: the cap is epsilon {epsilon:g} at "
        f"delta {delta:g}; {_number(spent.epsilon)} of it is spent"
    )


@app.command()
def history(
    population: str = typer.Argument(None, help="One population; all by default."), as_json: bool = JSON
) -> None:
    """List every entry of the ledgers: caps, reservations, commits and disclosures.

    Example: airlock budget history clinic
    """
    from airlock.owner.home import project
    from airlock.run import budget

    home, workspace = project(Path.cwd()), Path.cwd()
    books = (
        [budget.ledger_of(home, workspace, population)]
        if population
        else list(budget.ledgers(home, workspace).values())
    )
    listed = [(ledger.scratch, entry) for ledger in books for entry in ledger.history(population)]
    if as_json:
        _echo([_entry_json(scratch, entry) for scratch, entry in listed])
    else:
        _show_history(listed)


@app.command()
def verify() -> None:
    """Check the chain of every ledger, and that the heads in signed receipts are in it. Exit 1 with one line
    per problem.

    Example: airlock budget verify
    """
    from airlock.owner.home import project
    from airlock.run import budget

    problems = budget.problems(project(Path.cwd()), Path.cwd())
    for problem in problems:
        typer.echo(problem)
    if problems:
        raise typer.Exit(1)
    typer.echo("every entry is in its place")


@app.command()
def recover(
    why: str = typer.Option(..., "--why", help="What happened, kept in the ledger."),
    who: str = typer.Option(None, "--who", help="Who decided; your login name by default."),
    population: str = typer.Option(
        None, "--population", help="Whose the releases are of which only a receipt or a witness is left."
    ),
) -> None:
    """Charge again what a ledger put back from a backup has forgotten: from archived releases and signed
    receipts.

    Example: airlock budget recover --why "disk failure, backup of 3 May put back"
    """
    import getpass

    from airlock.errors import LedgerError
    from airlock.owner.home import project
    from airlock.run import reconcile

    place = project(Path.cwd())
    charged, unclear = reconcile.recover(
        place, Path.cwd(), who=who or getpass.getuser(), why=why, population=population
    )
    for release_id in charged:
        typer.echo(f"charged again: release {release_id[:12]}")
    if unclear:
        raise LedgerError(
            f"of release {unclear[0][:12]} only a receipt is left, or a witness ({len(unclear)} in all): "
            "`dvc pull` it, or say whose it is with --population"
        )
    if not charged:
        typer.echo("nothing was forgotten")


@app.command()
def settle(
    release: str = typer.Argument(
        help="The reservation: its id or the beginning of it, as `budget show` lists it."
    ),
    lost: bool = typer.Option(
        False, "--lost", help="Book it as lost: it stays spent and is not made any more."
    ),
    back: bool = typer.Option(
        False, "--give-back", help="Undo it; only where the ledger proves that its stage never started."
    ),
    why: str = typer.Option("", "--why", help="The reason, kept in the ledger; not needed to make it."),
    who: str = typer.Option(None, "--who", help="Who decided; your login name by default."),
) -> None:
    """Settle a reservation that no run takes over: make that very release, whatever params.yaml says by now, or
    book it as lost, or give it back.

    Example: airlock budget settle 3f2a9c01 --lost --why "cancelled study"
    """
    import getpass

    from airlock.errors import InputError
    from airlock.owner.home import project
    from airlock.run import budget, reconcile, settlement

    if lost and back:
        raise InputError("say --lost or --give-back, not both; without either the release is made")
    if (lost or back) and not why.strip():
        raise InputError("to settle a reservation without making it say why: --why TEXT")
    place = project(Path.cwd())
    ledger, release_id = budget.reservation(place, Path.cwd(), release)
    if not (lost or back):
        settlement.make(place, Path.cwd(), release_id)
        typer.echo(
            f"release {release_id[:12]}: made and committed; with its parameters `dvc repro` replays it"
        )
        return
    with reconcile.agreed(place, Path.cwd(), ledger):
        book = ledger.give_up if lost else ledger.give_back
        book(release_id, who=who or getpass.getuser(), why=why)
    typer.echo(
        f"release {release_id[:12]}: {'lost, and stays spent' if lost else 'given back, it never started'}"
    )


@app.command()
def retire(
    population: str = typer.Argument(help="Whose budget."),
    why: str = typer.Option(..., "--why", help="The reason, kept in the ledger."),
    who: str = typer.Option(None, "--who", help="Who decided; your login name by default."),
) -> None:
    """Let a population release nothing more, for ever. What was released is still replayed.

    Example: airlock budget retire clinic --why "consent ended"
    """
    import getpass

    from airlock.owner.home import project
    from airlock.run import budget, reconcile

    place = project(Path.cwd())
    with reconcile.agreed(place, Path.cwd(), budget.ledger_of(place, Path.cwd(), population)) as ledger:
        ledger.retire(population, who=who or getpass.getuser(), why=why)
    typer.echo(f"{population}: retired; nothing more is released")


@app.command()
def move(
    url: str = typer.Argument(help="An empty database: postgresql://USER@HOST/DATABASE or sqlite:////PATH."),
) -> None:
    """Copy the ledger of private data into another database, entry by entry; the chain and every signed head
    stay right.

    Example: airlock budget move postgresql://airlock@db.example.org/ledger
    """
    from airlock.owner.home import project
    from airlock.run import reconcile

    place = project(Path.cwd())
    reconcile.require(place, Path.cwd())
    count = reconcile.open_ledger(place, public=False).move_to(url)
    typer.echo(f"{count} entries copied and checked; from now on: export AIRLOCK_LEDGER_URL={_hidden(url)}")
    typer.echo("the old one is closed: it tells where the ledger is now, and nothing else")


def _hidden(url: str) -> str:
    from sqlalchemy.engine import make_url

    return make_url(url).render_as_string(hide_password=True)


def _show_ledger(console: Any, ledger: Ledger, accounts: list[Spent]) -> None:
    console.print(
        f"[bold]{'Scratch ledger (public data only)' if ledger.scratch else 'Ledger'}[/bold] {ledger}",
        style="dim",
    )
    for spent in accounts:
        _show_account(console, spent)
    if not accounts:
        console.print("  no population has a cap or a release yet")


def _show_account(console: Any, spent: Spent) -> None:
    if spent.cap_epsilon is None:
        console.print(
            f"  [bold]{spent.population}[/bold]: {_number(spent.epsilon)} spent at "
            f"delta {spent.delta:g}, no cap"
        )
    else:
        figures = (
            f"{_number(spent.epsilon)} spent of {spent.cap_epsilon:g} at delta {spent.delta:g}, "
            f"{_number(spent.left or 0)} left"
        )
        console.print(f"  [bold]{spent.population}[/bold] {_bar(spent.epsilon, spent.cap_epsilon)} {figures}")
        console.print(
            "    one more release of up to epsilon "
            f"{_number(spent.largest or 0)} fits (composition is not addition)"
        )
    for mechanism, epsilon in spent.mechanisms.items():
        console.print(f"    {mechanism}: {_number(epsilon)} by itself")
    if spent.box and any(spent.box[name].limit for name in ("pure", "slack")):
        limits = (
            f"{name} {_number(purse.used)} of {_number(purse.limit)}"
            for name, purse in spent.box.items()
            if purse.limit
        )
        console.print(f"    the cap's limits, fixed before anything was seen: {', '.join(limits)}")
    if spent.raised:
        console.print(
            "    [yellow]the cap was raised after results were seen[/yellow]: it reads an odometer, not a "
            "promise (docs/ledger.md)"
        )
    for release_id, used, nights in spent.horizons:
        console.print(
            f"    nights of {release_id[:12]}: {used} used of {nights}, {nights - used} left, paid for with the first"
        )
    if spent.disclosures:
        console.print(
            f"    public data disclosed {spent.disclosures} "
            f"time{'s' if spent.disclosures > 1 else ''}, not counted"
        )
    for release in spent.reserved:
        words = f"{release.release_id[:12]} ({release.mechanism}, {release.at})"
        console.print(f"    [yellow]reserved, not committed: crashed or running[/yellow] {words}")
    if spent.reserved:
        console.print("    make it, or book it as lost: airlock budget settle ID [--lost --why TEXT]")


def _bar(spent: float, cap: float, width: int = 30) -> str:
    full = width if spent >= cap else int(width * spent / cap)
    colour = "red" if full == width else "yellow" if full > 0.8 * width else "green"
    return f"[{colour}]{'━' * full}[/{colour}][dim]{'─' * (width - full)}[/dim]"


def _show_plan(points: list[Point]) -> None:
    from rich.console import Console
    from rich.table import Table

    account, before = points[0].quote.account, points[0].quote.before
    cap = f"of {account.cap.epsilon:g} " if account.cap else "(no cap) "
    table = Table(
        title=f"{account.population}: {_number(before)} {cap}spent at delta {points[0].quote.delta:g}",
        title_justify="left",
        box=None,
    )
    for heading in (
        *(["setting"] if points[0].settings else []),
        "release",
        "mechanism",
        "passes",
        "epsilon",
        "total",
        "fits",
    ):
        table.add_column(heading, no_wrap=True)
    free = {
        Path(price.out).name: None
        for point in points
        for price in point.prices
        if price.status == "not charged"
    }
    for point in points:
        cells = [
            (Path(price.out).name, price.mechanism, str(price.passes), _cost(price)) for price in point.prices
        ]
        columns = [
            "\n".join(column) for column in zip(*(cell for cell in cells if cell[0] not in free), strict=True)
        ] or ["-"] * 4
        setting = (
            ["\n".join(f"{key}={value}" for key, value in point.settings.items())] if point.settings else []
        )
        table.add_row(*setting, *columns, _number(point.quote.together), "no" if point.objection else "yes")
    console = Console(highlight=False)
    console.print(table)
    for point in points:
        for price in point.prices:
            if price.settled:
                where = ", ".join(f"{key}={value}" for key, value in point.settings.items())
                console.print(f"{Path(price.out).name}{f' ({where})' if where else ''}: {price.settled}")
    if free:
        console.print(f"not charged: {', '.join(free)}")
    for line in dict.fromkeys(_chosen(point.choice) for point in points):
        console.print(line, soft_wrap=True)
    for errors in dict.fromkeys(point.nights for point in points if point.nights):
        _show_nights(console, errors)


def _show_nights(console: Any, errors: tuple[Errors, ...]) -> None:
    from rich.table import Table

    console.print(
        f"{errors[-1].night} nights for this price, by weighted totals; expected noise of what is told after a night, "
        "against one release of all records so far, for equal nights (of the others: of the running total):",
        soft_wrap=True,
    )
    table = Table("after night", "weighted totals", "square-root", "binary tree", "independent", box=None)
    for row in errors:
        table.add_row(str(row.night), *(f"{value:.3g}" for value in row[1:]))
    console.print(table)


def _chosen(choice: Choice) -> str:
    """The mechanism; of those that release coefficients also through which features, and why these."""
    through = f" through {choice.features}: {choice.reason}" if choice.mechanism in FEATURED else ""
    return f"{choice.mechanism}{through}"


def _cost(price: Price) -> str:
    return _number(price.epsilon) if price.epsilon is not None else f"{price.status}, free"


def _show_history(listed: list[tuple[bool, Entry]]) -> None:
    wide = max((len(entry.population) for _, entry in listed), default=0)
    for scratch, entry in listed:
        number, when = (
            f"{'scratch ' if scratch else ''}{entry.sequence}",
            entry.details["at"][:16].replace("T", " "),
        )
        typer.echo(
            f"{number:>11}  {when}  {entry.kind:<10}  "
            f"{entry.population:<{wide}}  {entry.release_id[:12]:<12}  {_words(entry)}"
        )


def _words(entry: Entry) -> str:
    details = entry.details
    match entry.kind:
        case "cap":
            split = "".join(
                f", {name} {details[name]:g}" for name in ("pure", "slack") if details.get(name) is not None
            )
            raised = ", raised after results were seen" if details.get("odometer") else ""
            return (
                f"epsilon {details['epsilon']:g} at delta {details['delta']:g}{split}{raised}, by "
                f"{details['who']}: {details['why']}"
            )
        case "night":
            horizon = details["horizon"]
            return f"night {horizon['night']} of {horizon['nights']}, paid for with {horizon['id'][:12]}"
        case "reserve" | "disclosure":
            return (
                f"{details['mechanism']}, passes {details['passes']}, {details['unit']}, "
                f"{details['neighbours']}"
            )
        case "lost" | "return" | "retire" | "recover":
            return f"by {details['who']}: {details['why']}"
        case "commit":
            return f"release.json {details['manifest'][:12]}"
    return ""


def _ledger_json(ledger: Ledger, head: dict[str, Any], accounts: list[Spent]) -> dict[str, Any]:
    from dataclasses import asdict

    return {"url": str(ledger), **head, "populations": [asdict(spent) for spent in accounts]}


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
        "choice": asdict(point.choice),
        "nights": [row._asdict() for row in point.nights],
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
