"""`airlock run`: one stage of dvc.yaml, behind the wall."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import typer

LONGEST_LABEL, MOST_BARS = 60, 20


def command(stage: str = typer.Argument(help="Name of a stage in dvc.yaml.")) -> None:
    """Run one stage confined to what it declares. DVC calls this; you rarely need to.

    Example: airlock run train
    """
    from airlock.run import die_with_parent, failures
    from airlock.run.stage import run_stage

    die_with_parent.hold()
    bars = Bars(stage)
    try:
        with failures.noted(Path.cwd(), stage):
            receipt = run_stage(stage, workspace=Path.cwd(), listen=bars.listen)
    finally:
        bars.stop()
    _say(f"{stage}: done, receipt {receipt.relative_to(Path.cwd())}")
    if stage == "ingest":
        _tell_of_private_holdout()
    if stage == "ingest" and sys.stderr.isatty():
        _tell_owner()


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


class Bars:
    """What a stage tells of its progress, on a terminal; nobody looks at bars in a log."""

    def __init__(self, stage: str) -> None:
        self._stage = stage
        self._shown = sys.stderr.isatty()
        self._tasks: dict[str, Any] = {}

    @cached_property
    def _progress(self) -> Any:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}"),
            TimeElapsedColumn(),
        )
        return Progress(*columns, console=Console(stderr=True), transient=True)

    def listen(self, event: Mapping[str, Any]) -> None:
        """Show one event."""
        if not self._shown:
            return
        from rich.markup import escape

        from airlock.run.stage_output import printable

        label = printable(str(event["label"]), LONGEST_LABEL)
        if label not in self._tasks and len(self._tasks) < MOST_BARS:
            self._progress.start()
            description = escape(f"{self._stage}: {label}")
            self._tasks[label] = self._progress.add_task(description, total=_count(event["total"]))
        if label in self._tasks:
            self._progress.update(self._tasks[label], completed=_count(event["done"]))

    def stop(self) -> None:
        """Take the bars away."""
        if self._tasks:
            self._progress.stop()


def _count(value: Any) -> float:
    """Whole where it is: a bar says 7 of 10."""
    return int(value) if float(value).is_integer() else float(value)


def _tell_of_private_holdout() -> None:
    """`dvc exp run -S` leaves what it sets in params.yaml: a private holdout is never taken from another data
    set without a word.
    """
    from airlock.params import load_params

    params = load_params()
    if params.evaluate.holdout == "private":
        _say(
            f"ingest: evaluate.holdout is private: a part of the records of '{params.dataset}' is kept from "
            "training, and judging on it (airlock evaluate) is charged"
        )


def _tell_owner() -> None:
    """How many values were clipped, missing or dropped: on a terminal only, for a log may be read by others
    (`airlock log` shows it again).
    """
    from rich.console import Console

    from airlock.owner.home import project
    from airlock.owner.log import last_summaries, shown

    console = Console(stderr=True)
    for entry in last_summaries(project(Path.cwd()), "ingest"):
        console.print(shown(entry), highlight=False)
