"""What `airlock budget` prints, for people and as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from airlock.terminal import show_uncut

if TYPE_CHECKING:
    from airlock.ledger import Entry, Ledger, Spent
    from airlock.models.features.choice import Choice
    from airlock.privacy.continual import Errors
    from airlock.run.budget import Point, Price

FEATURED = ("coefficients", "coefficients-iterated")
"""The mechanisms whose feature map params.yaml names."""


def show_ledger(console: Any, ledger: Ledger, accounts: list[Spent]) -> None:
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
            f"  [bold]{spent.population}[/bold]: {number(spent.epsilon)} spent at "
            f"delta {spent.delta:g}, no cap"
        )
    else:
        figures = (
            f"{number(spent.epsilon)} spent of {spent.cap_epsilon:g} at delta {spent.delta:g}, "
            f"{number(spent.left or 0)} left"
        )
        console.print(f"  [bold]{spent.population}[/bold] {_bar(spent.epsilon, spent.cap_epsilon)} {figures}")
        console.print(
            "    one more release of up to epsilon "
            f"{number(spent.largest or 0)} fits (composition is not addition)"
        )
    for mechanism, epsilon in spent.mechanisms.items():
        console.print(f"    {mechanism}: {number(epsilon)} by itself")
    if spent.box and any(spent.box[name].limit for name in ("pure", "slack")):
        limits = (
            f"{name} {number(purse.used)} of {number(purse.limit)}"
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


def show_plan(points: list[Point]) -> None:
    from rich.console import Console
    from rich.table import Table

    account, before = points[0].quote.account, points[0].quote.before
    cap = f"of {account.cap.epsilon:g} " if account.cap else "(no cap) "
    table = Table(
        title=f"{account.population}: {number(before)} {cap}spent at delta {points[0].quote.delta:g}",
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
        table.add_row(*setting, *columns, number(point.quote.together), "no" if point.objection else "yes")
    console = Console(highlight=False)
    show_uncut(console, table)
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
    return number(price.epsilon) if price.epsilon is not None else f"{price.status}, free"


def show_history(listed: list[tuple[bool, Entry]]) -> None:
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


def ledger_json(ledger: Ledger, head: dict[str, Any], accounts: list[Spent]) -> dict[str, Any]:
    from dataclasses import asdict

    return {"url": str(ledger), **head, "populations": [asdict(spent) for spent in accounts]}


def point_json(point: Point) -> dict[str, Any]:
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


def entry_json(scratch: bool, entry: Entry) -> dict[str, Any]:
    names = ("sequence", "kind", "population", "release_id", "previous", "hash")
    return {"scratch": scratch, **{name: getattr(entry, name) for name in names}, "details": entry.details}


def echo(document: Any) -> None:
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


def number(value: float) -> str:
    return f"{value:.4g}"
