"""`airlock report`: how the last run went, and where its page is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

PAGE, SUMMARY = "data/report/report.html", "data/report/summary.json"
MAKE = "dvc repro report"


def command(
    open_page: bool = typer.Option(False, "--open", help="Show the page in a browser."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Say how the last run went and where its page is; make nothing. Exit 1 if the page is missing or out of date.

    Example: airlock report --open
    """
    import json

    workspace = Path.cwd()
    stale = stale_stages(workspace)
    exists = (workspace / PAGE).is_file()
    summary = read_summary(workspace) if exists else {}
    if as_json:
        known = {
            "page": PAGE,
            "exists": exists,
            "up_to_date": exists and not stale,
            "stale": stale,
            "command": MAKE,
        }
        typer.echo(json.dumps(known | summary, indent=1))
    else:
        for line in (*_lines(summary), _verdict(exists, stale)):
            typer.echo("".join(filter(str.isprintable, line)))
    if open_page and exists:
        _show(workspace / PAGE)
    raise typer.Exit(0 if exists and not stale else 1)


def stale_stages(workspace: Path) -> list[str]:
    """The stages that `dvc repro report` would run again."""
    import json
    import subprocess
    import sys

    from airlock.errors import InputError

    asked = [sys.executable, "-m", "dvc", "status", "--with-deps", "--json", "report"]
    done = subprocess.run(asked, cwd=workspace, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[0].removeprefix("ERROR: ")
        raise InputError(
            f"DVC cannot tell whether the report is up to date ({reason}): run from the project's top folder"
        )
    return sorted(json.loads(done.stdout))


def read_summary(workspace: Path) -> dict[str, Any]:
    """The page's figures. They were written behind the wall, so they are shown as they are and believed by nothing."""
    import json

    from airlock.errors import InputError

    try:
        summary: dict[str, Any] = json.loads((workspace / SUMMARY).read_text())
        _lines(summary)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"{SUMMARY} cannot be read: run `{MAKE}`") from None
    return summary


def _lines(summary: dict[str, Any]) -> list[str]:
    if not summary:
        return []
    readers, breaches = (
        ", ".join(summary["could_read_records"]) or "no stage",
        ", ".join(summary["breaches"]) or "none",
    )
    return [
        f"Accuracy  {_accuracy(summary)}",
        f"Privacy   {_privacy(summary)}",
        *([f"Budget    {_spending(summary['budget'])}"] if summary["budget"] else []),
        f"Records   {readers} could read them; {breaches} of the open stages could",
    ]


def _accuracy(summary: dict[str, Any]) -> str:
    if summary["accuracy"] is None:
        return "not measured (no holdout; on private records it is a release of its own: airlock evaluate)"
    reference = summary["reference_accuracy"]
    beside = "" if reference is None else f"; {reference:.1%} without privacy"
    low, high = summary.get("interval") or (None, None)
    between = "" if low is None else f" ({low:.1%} to {high:.1%})"
    return f"{summary['accuracy']:.1%}{between} on {summary['records']} {summary['holdout']} records{beside}"


def _privacy(summary: dict[str, Any]) -> str:
    if summary["epsilon"] is None:
        return "nothing was released"
    proven = f"proven epsilon {_figure(summary['epsilon'])}, delta {_figure(summary['delta'])} per {summary['unit']}"
    return f"{proven}, {summary['passes']} pass{'' if summary['passes'] == 1 else 'es'} over the records"


def _spending(budget: dict[str, Any]) -> str:
    cap = (
        f", {_figure(budget.get('left'))} left of {_figure(budget['cap_epsilon'])}"
        if budget.get("cap_epsilon")
        else ", no cap is set"
    )
    return f"{budget['population']}: epsilon {_figure(budget['epsilon'])} spent{cap}{' (scratch ledger)' if budget.get('scratch') else ''}"


def _figure(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else str(value)


def _verdict(exists: bool, stale: list[str]) -> str:
    if not exists:
        return f"Report    not made yet: run `{MAKE}`"
    return f"Report    {PAGE}" + (
        f" (out of date: {', '.join(stale)} changed; run `{MAKE}`)" if stale else ""
    )


def _show(page: Path) -> None:
    import webbrowser

    if not webbrowser.open(page.as_uri()):
        typer.echo(f"No browser was found here: open {page.as_uri()} in one.", err=True)
