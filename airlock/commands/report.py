"""`airlock report`: how the last run went, and where its page is.

A run that was refused, failed or was killed is told first: the figures on disk are then those of the run
before it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

PAGE, SUMMARY = "data/report/report.html", "data/report/summary.json"
MAKE_COMMAND = "dvc repro report"
FRAME = """<!doctype html><meta charset="utf-8"><title>Airlock</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:;
 base-uri 'none'; form-action 'none'">
<style>html, body, iframe {{ margin: 0; border: 0; width: 100%; height: 100%; display: block }}</style>
<iframe sandbox srcdoc="{page}"></iframe>
"""


def command(
    open_page: bool = typer.Option(False, "--open", help="Show the page in a browser."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Say how the last run went and where its page is; make nothing.

    Exit 1 if a stage failed, or if the page is missing or out of date.

    Example: airlock report --open
    """
    import json

    workspace = Path.cwd()
    stale = stale_stages(workspace)
    exists = (workspace / PAGE).is_file()
    summary = read_summary(workspace) if exists else {}
    unknown, failed = unknown_data_set(workspace), failures(workspace, stale)
    said = {one["words"] for one in failed}
    failed = [*(one for one in unknown if one["words"] not in said), *failed]
    if as_json:
        known = {
            "failed": failed,
            "page": PAGE,
            "exists": exists,
            "up_to_date": exists and not stale,
            "stale": stale,
            "command": MAKE_COMMAND,
        }
        typer.echo(json.dumps(known | summary, indent=1))
    else:
        for line in (*_failed(failed, exists), *_lines(summary), _verdict(exists, stale)):
            typer.echo("".join(filter(str.isprintable, line)))
    if open_page and exists:
        _show(framed_page(workspace))
    raise typer.Exit(0 if exists and not stale and not failed else 1)


def failures(workspace: Path, stale: list[str]) -> list[dict[str, Any]]:
    """The stages whose last run did not end well, unless they are up to date without it."""
    import yaml

    from airlock.run.failures import of_workspace

    up_to_date = set(yaml.safe_load((workspace / "dvc.yaml").read_text())["stages"]) - set(stale)
    return [
        {"stage": one.stage, "error": one.error, "words": one.words, "when": one.when}
        for one in of_workspace(workspace)
        if one.stage not in up_to_date
    ]


def unknown_data_set(workspace: Path) -> list[dict[str, Any]]:
    """A data set that was never added: where `dvc repro STAGE` starts behind the stage that would say so, DVC stops at
    its missing handle, and says no more than that.
    """
    from datetime import UTC, datetime

    from airlock.params import load_params
    from airlock.records.handles import objection

    if "${dataset}" not in (workspace / "dvc.yaml").read_text():
        return []
    wrong = objection(workspace, load_params(workspace / "params.yaml").dataset)
    when = datetime.now(UTC).isoformat(timespec="seconds")
    return [{"stage": "params.yaml", "error": "InputError", "words": wrong, "when": when}] if wrong else []


def _failed(failed: list[dict[str, Any]], exists: bool) -> list[str]:
    lines = [
        f"Failed    {one['stage']} ({one['error']}, {one['when']}): {one['words'] or 'it was killed'}"
        for one in failed
    ]
    return [*lines, "          What follows is from the run before it."] if failed and exists else lines


def stale_stages(workspace: Path) -> list[str]:
    """The stages that `dvc repro report` would run again."""
    import json

    from airlock.errors import InputError
    from airlock.evidence.reader import check_text
    from airlock.run import dvc
    from airlock.run.paths import read_text

    for name in ("params.yaml", "dvc.yaml", "dvc.lock"):  # which DVC reads without bounds
        check_text(read_text(workspace, name) or "", name)
    done = dvc.run(workspace, "status", "--with-deps", "--json", "report", quiet=True)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[0].removeprefix("ERROR: ")
        raise InputError(
            f"DVC cannot tell whether the report is up to date ({reason}): run from the project's top folder"
        )
    # What stands in owner/dvc.yaml no plain `dvc repro` runs; a modeller has no sealed records to compare.
    return sorted(name for name in json.loads(done.stdout) if ":" not in name)


def read_summary(workspace: Path) -> dict[str, Any]:
    """The page's figures, written behind the wall: shown as they are, and believed by nothing."""
    from airlock.errors import BoundaryError, InputError
    from airlock.files import parse_json
    from airlock.run.paths import read_text

    try:
        summary: dict[str, Any] = parse_json(read_text(workspace, SUMMARY) or "")
        _lines(summary)
    except (BoundaryError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
        raise InputError(f"{SUMMARY} cannot be read: run `{MAKE_COMMAND}`") from None
    return summary


def _lines(summary: dict[str, Any]) -> list[str]:
    from airlock.terminal import number_words

    if not summary:
        return []
    readers, breaches = (
        ", ".join(summary["could_read_records"]) or "no stage",
        ", ".join(summary["breaches"]) or "none",
    )
    return [
        f"{number_words(summary)} on {summary['records']} {summary['holdout']} records{_beside(summary)}"
        if summary.get("rmse") is not None
        else f"Error     {_error(summary)}"
        if summary.get("mean_squared_error") is not None
        else f"Accuracy  {_accuracy(summary)}",
        f"Privacy   {_privacy(summary)}",
        *([f"Budget    {_spending(summary['budget'])}"] if summary["budget"] else []),
        f"Records   {readers} could read them; {breaches} of the open stages could",
    ]


def _beside(summary: dict[str, Any]) -> str:
    reference = summary.get("reference_r2")
    return "" if reference is None else f"; R^2 {reference:.3f} without privacy"


def _error(summary: dict[str, Any]) -> str:
    records = f"{summary['records']} {summary['holdout']} records"
    return f"{_figure(summary['mean_squared_error'])}, squared and summed over a record, on {records}"


def _accuracy(summary: dict[str, Any]) -> str:
    if summary["accuracy"] is None:
        return "not measured (no public holdout; on private records it is a release of its own: airlock evaluate)"
    reference = summary["reference_accuracy"]
    beside = "" if reference is None else f"; {reference:.1%} without privacy"
    low, high = summary.get("interval") or (None, None)
    between = "" if low is None else f" ({low:.1%} to {high:.1%})"
    records = f"{summary['records']} {summary['holdout']} records"
    return f"{summary['accuracy']:.1%}{between} on {records}{beside}{_guessing(summary)}"


def _guessing(summary: dict[str, Any]) -> str:
    """Where the commonest class alone would have been right as often; pages of before do not say how often."""
    commonest = summary.get("largest_class")
    if commonest is None or summary["accuracy"] * summary["records"] > commonest * summary["records"] + 0.01:
        return ""
    return f"; no better than always the commonest class ({commonest:.1%})"


def _privacy(summary: dict[str, Any]) -> str:
    if summary["epsilon"] is None:
        return "nothing was released"
    epsilon, delta = _figure(summary["epsilon"]), _figure(summary["delta"])
    passes = f"{summary['passes']} pass{'' if summary['passes'] == 1 else 'es'} over the records"
    if epsilon == "infinity":
        claimed = [f"epsilon {_figure(one)} is claimed" for one in summary.get("claimed") or []]
        return f"nothing finite is proven{''.join(f' ({one})' for one in claimed[-1:])}, {passes}"
    more = ""
    if summary.get("beyond"):
        asked, beyond = _figure(summary["asked"]), _figure(summary["beyond"])
        more = f"; release.epsilon asked for {asked}, and the noise of its paper proves {beyond}"
    return f"proven epsilon {epsilon}, delta {delta} per {summary['unit']}, {passes}{more}"


def _spending(budget: dict[str, Any]) -> str:
    cap = (
        f", {_figure(budget.get('left'))} left of {_figure(budget['cap_epsilon'])}"
        if budget.get("cap_epsilon")
        else ", no cap is set"
    )
    scratch = " (scratch ledger)" if budget.get("scratch") else ""
    return f"{budget['population']}: epsilon {_figure(budget['epsilon'])} spent{cap}{scratch}"


def _figure(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else str(value)


def _verdict(exists: bool, stale: list[str]) -> str:
    if not exists:
        return f"Report    not made yet: run `{MAKE_COMMAND}`"
    return f"Report    {PAGE}" + (
        f" (out of date: {', '.join(stale)} changed; run `{MAKE_COMMAND}`)" if stale else ""
    )


def framed_page(workspace: Path) -> Path:
    """A copy of the page, in AIRLOCK_HOME, in a frame in which nothing of it runs and which asks for nothing: the page
    is made by code that anyone may edit, and a browser lets a file speak to every server of this machine.
    """
    import html

    from airlock.owner.home import project, write_private
    from airlock.run.paths import read_text

    page = html.escape(read_text(workspace, PAGE) or "")
    copy = project(workspace).folder / "page.html"
    write_private(copy, FRAME.format(page=page).encode())
    return copy


def _show(page: Path) -> None:
    import webbrowser

    if not webbrowser.open(page.as_uri()):
        typer.echo(f"No browser was found here: open {page.as_uri()} in one.", err=True)
