"""`airlock budget`: what was spent, what is left, what a release
would cost, and whether the books are whole.
"""

from __future__ import annotations

from pathlib import Path

import typer

from airlock.commands import budget_output as output

app = typer.Typer(
    help="Show, plan, set and verify what releases may cost.\n\nExample: airlock budget plan",
    no_args_is_help=True,
)

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
        output.echo({"ledgers": [output.ledger_json(ledger, head, spent) for ledger, head, spent in found]})
        return
    for ledger, _, accounts in found:
        output.show_ledger(console, ledger, accounts)


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
        output.echo({"fits": refusal is None, "points": [output.point_json(point) for point in points]})
        raise typer.Exit(1 if refusal else 0)
    output.show_plan(points)
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
    from airlock.owner.home import account, project
    from airlock.run import budget, reconcile

    budget.check_cap(Path.cwd(), population, delta)
    place = project(Path.cwd())
    ledger = budget.ledger_of(place, Path.cwd(), population)
    with reconcile.agreed(place, Path.cwd(), ledger):
        ledger.set_cap(
            population,
            epsilon,
            delta,
            who=who or account(),
            why=why,
            pure=pure,
            slack=slack,
            odometer=odometer,
        )
    spent = ledger.spent(population)
    typer.echo(
        f"{population}: the cap is epsilon {epsilon:g} at "
        f"delta {delta:g}; {output.number(spent.epsilon)} of it is spent"
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
        output.echo([output.entry_json(scratch, entry) for scratch, entry in listed])
    else:
        output.show_history(listed)


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
    from airlock.errors import LedgerError
    from airlock.owner.home import account, project
    from airlock.run import recovery

    place = project(Path.cwd())
    charged, unclear = recovery.recover(
        place, Path.cwd(), who=who or account(), why=why, population=population
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
    from airlock.errors import InputError
    from airlock.owner.home import account, project
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
        book(release_id, who=who or account(), why=why)
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
    from airlock.owner.home import account, project
    from airlock.run import budget, reconcile

    place = project(Path.cwd())
    with reconcile.agreed(place, Path.cwd(), budget.ledger_of(place, Path.cwd(), population)) as ledger:
        ledger.retire(population, who=who or account(), why=why)
    typer.echo(f"{population}: retired; nothing more is released")


@app.command()
def move(
    url: str = typer.Argument(help="An empty database: postgresql://USER@HOST/DATABASE or sqlite:////PATH."),
) -> None:
    """Copy the ledger of private data into another database, entry by entry; the chain and every signed head
    stay right.

    Example: airlock budget move postgresql://airlock@db.example.org/ledger
    """
    from airlock.ledger.moving import move
    from airlock.owner.home import project
    from airlock.run import reconcile

    place = project(Path.cwd())
    reconcile.require(place, Path.cwd())
    count = move(reconcile.open_ledger(place, public=False), url)
    typer.echo(f"{count} entries copied and checked; from now on: export AIRLOCK_LEDGER_URL={_hidden(url)}")
    typer.echo("the old one is closed: it tells where the ledger is now, and nothing else")


def _hidden(url: str) -> str:
    from sqlalchemy.engine import make_url

    return make_url(url).render_as_string(hide_password=True)
