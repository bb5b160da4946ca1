"""`airlock audit`: who could read records, who did, and what came out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from airlock import files

if TYPE_CHECKING:
    from airlock.evidence.audit import Audit, AuditRow


def command(
    rev: str = typer.Option(None, "--rev", help="Audit this commit instead of the workspace."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
    graph: bool = typer.Option(False, "--graph", help="Print the boundary as a Mermaid graph."),
    svg: Path = typer.Option(None, "--svg", help="Write the boundary as an SVG picture to this file."),
    key: str = typer.Option(
        None, "--key", help="The owner's public key, if you know it (64 hexadecimal digits)."
    ),
) -> None:
    """Show which stages could read records, which did, and what each released. Exit 1 if the boundary does
    not hold.

    Example: airlock audit --rev HEAD
    """
    import json
    from dataclasses import asdict

    from airlock.evidence.audit import audit, collect
    from airlock.evidence.policy import known_key
    from airlock.owner.checks import custody_problems
    from airlock.owner.home import project

    key = None if key is None else known_key(key)
    if rev is None and (brought := collect(Path.cwd(), project(Path.cwd()))):
        typer.echo(f"brought home {len(brought)} receipts of queued experiments: commit receipts/", err=True)
    answer = audit(Path.cwd(), rev)
    problems = [*answer.problems, *_owner_problems(answer, key)]
    custody: list[str] = custody_problems(Path.cwd()) if rev is None else []
    problems += [line for line in custody if not any(line in known for known in problems)]
    if graph or svg:
        _draw(answer, rev, svg)
    elif as_json:
        document = {
            "source": answer.source,
            "holds": not problems,
            "problems": problems,
            "owner": answer.evidence.policy.owner,
            "admitted": answer.evidence.policy.admitted,
            "stages": [asdict(row) for row in answer.stages],
        }
        typer.echo(json.dumps(document, indent=1))
    else:
        _show(answer, problems)
    raise typer.Exit(1 if problems else 0)


def _draw(answer: Audit, rev: str | None, svg: Path | None) -> None:
    from dataclasses import asdict

    from airlock.evidence.picture import mermaid, picture
    from airlock.evidence.revisions import graph_of, tree_of

    stages = graph_of(tree_of(Path.cwd(), rev))
    if svg:
        files.deliver(svg, picture(stages, [asdict(row) for row in answer.stages]))
        typer.echo(f"written to {svg}")
    else:
        typer.echo(mermaid(stages))


def _owner_problems(answer: Audit, key: str | None) -> list[str]:
    """Whether the owner is who the reader knows: by `--key`, or because this is the owner's own machine."""
    from airlock.evidence.policy import OWNER_KEY, outdated
    from airlock.owner import keys
    from airlock.owner.home import newest_policy, project

    place, owner = project(Path.cwd()), answer.evidence.policy.owner
    if key and key != owner:
        return [f"{OWNER_KEY} names the owner's key {owner or '(none)'}, not {key}"]
    if owner and keys.exist(place) and keys.signer(place).public_key.hex() != owner:
        return [
            f"{OWNER_KEY} names the owner's key {owner}, which is not this machine's: restore it from git"
        ]
    if answer.source == "workspace" and owner and keys.exist(place):
        return [line for line in [outdated(answer.evidence.policy, newest_policy(place))] if line]
    return []


def _show(answer: Audit, problems: list[str]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from airlock import terminal

    workspace = answer.source == "workspace"
    table = Table(
        title=f"Boundary of the {answer.source}" if workspace else f"Boundary of commit {answer.source}",
        box=SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    for heading in ("stage", "zone", "could read\nraw / sealed", "did read\nrecords", "passes", "when (UTC)"):
        table.add_column(heading, no_wrap=True)
    for row in answer.stages:
        table.add_row(*map(escape, _cells(row)))
    console = Console(highlight=False, soft_wrap=True)
    terminal.show_uncut(console, table)
    for line in _below(answer):
        console.print(escape(terminal.line(line)))
    for problem in problems:
        console.print(f"[red]✗[/red] {escape(terminal.line(problem))}")
    ran = any(row.when for row in answer.stages)
    console.print(
        "The boundary [bold red]does not hold[/bold red]."
        if problems
        else "[bold green]The boundary holds.[/bold green]" + ("" if ran else " Nothing was run yet.")
    )


def _below(answer: Audit) -> list[str]:
    """What does not fit into columns: releases, layers and signers."""
    rows = [row for row in answer.stages if row.when]
    lines = [f"{row.name} released {_released(release)}" for row in rows for release in row.releases]
    reasons = {release["proven"]["reason"] for row in rows for release in row.releases}
    lines += [f"not private: {reason}" for reason in sorted(reasons - {""})]
    lines += [f"Layers of {names}: {layers}" for layers, names in _shared(rows, _layers).items()]
    rooted = [row.name for row in rows if row.user == "root"]
    lines += (
        [f"Ran as root, without its powers (see `airlock doctor`): {', '.join(rooted)}"] if rooted else []
    )
    each = [row.name for row in rows if row.limits == "rlimits"]
    lines += [f"Limits of each process only (no control group): {', '.join(each)}"] if each else []
    owner = answer.evidence.policy.owner
    signers = _shared(rows, lambda row: f"{row.signer}{' (the owner)' if row.signer == owner else ''}")
    return lines + [f"Signed by {signer}: {names}" for signer, names in signers.items()]


def _shared(rows: list[AuditRow], fact: Callable[[AuditRow], str]) -> dict[str, str]:
    """Each answer with the stages that have it."""
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(fact(row), []).append(row.name)
    return {
        answer: ("every stage" if len(names) == len(rows) else ", ".join(names))
        for answer, names in found.items()
    }


def _layers(row: AuditRow) -> str:
    return "all five" if len(row.enforcement) == 5 else ", ".join(row.enforcement) or "none"


def _cells(row: AuditRow) -> list[str]:
    could = f"{'yes' if row.could_read_raw else 'no'} / {'yes' if row.could_read_sealed else 'no'}"
    when = row.when[5:16].replace("T", " ")
    return [row.name, row.zone, could, row.did_read_records, str(row.passes), when or "-"]


def _released(release: Mapping[str, Any]) -> str:
    proven = release["proven"]
    promise = (
        "not private"
        if proven["epsilon"] == "infinity"
        else f"epsilon {proven['epsilon']:.4g} proven at {proven['delta']:g}"
    )
    return f"{release['mechanism']}: {promise}{' (interactive)' if release['interactive'] else ''}"
