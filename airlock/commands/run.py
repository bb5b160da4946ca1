"""`airlock run`: one stage of dvc.yaml, behind the wall."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

LONGEST_LABEL, MOST_BARS = 60, 20


def command(stage: str = typer.Argument(help="Name of a stage in dvc.yaml.")) -> None:
    """Run one stage confined to what it declares. DVC calls this; you rarely need to.

    Example: airlock run train
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from airlock.run import die_with_parent, failures
    from airlock.run.stage import run_stage
    from airlock.run.stage_output import printable

    die_with_parent.hold()
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
    )
    progress = Progress(*columns, console=console, transient=True)
    tasks: dict[str, Any] = {}

    def listen(event: Mapping[str, Any]) -> None:
        label = printable(str(event["label"]), LONGEST_LABEL)
        if label not in tasks and len(tasks) < MOST_BARS:
            progress.start()
            tasks[label] = progress.add_task(escape(f"{stage}: {label}"), total=_count(event["total"]))
        if label in tasks:
            progress.update(tasks[label], completed=_count(event["done"]))

    try:
        with failures.noted(Path.cwd(), stage):
            receipt = run_stage(stage, workspace=Path.cwd(), listen=listen)
    finally:
        if tasks:
            progress.stop()
    console.print(f"{stage}: done, receipt {receipt.relative_to(Path.cwd())}", highlight=False)
    if stage == "ingest":
        _tell_of_private_holdout(console)
    if stage == "ingest" and console.is_terminal:
        _tell_owner(console)


def _count(value: Any) -> float:
    """Whole where it is: a bar says 7 of 10."""
    return int(value) if float(value).is_integer() else float(value)


def _tell_of_private_holdout(console: Any) -> None:
    """`dvc exp run -S` leaves what it sets in params.yaml: a private holdout is never taken from another data
    set without a word.
    """
    from airlock.params import load_params

    params = load_params()
    if params.evaluate.holdout == "private":
        console.print(
            f"ingest: evaluate.holdout is private: a part of the records of '{params.dataset}' is kept from "
            "training, and judging on it"
            " (airlock evaluate) is charged",
            highlight=False,
        )


def _tell_owner(console: Any) -> None:
    """How many values were clipped, missing or dropped: on a terminal only, for a log may be read by others
    (`airlock log` shows it again).
    """
    from airlock.owner.home import project
    from airlock.owner.log import last_summaries, shown

    for entry in last_summaries(project(Path.cwd()), "ingest"):
        console.print(shown(entry), highlight=False)
