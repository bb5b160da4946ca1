"""`airlock bounds`: bounds of numbers that nobody knows, as a priced release."""

from __future__ import annotations

from pathlib import Path

import typer


def command(
    columns: list[str] = typer.Argument(help="Columns of numbers."),
    epsilon: float = typer.Option(
        ..., "--epsilon", min=1e-6, help="What it may cost; 0.05 is a usual choice."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Find bounds of numbers privately, on a grid of powers of two: a release of its own, in the ledger.

    The data set of params.yaml was added with bounds that are wide enough for anything. What is found goes
    into a draft of its schema, marked as released; you confirm it as any draft. The same question again is
    replayed and costs nothing.

    Example: airlock bounds income age --epsilon 0.05
    """
    import json

    from airlock.owner.home import project
    from airlock.run import bounds

    workspace = Path.cwd()
    found, draft = bounds.find(workspace, project(workspace), columns, epsilon)
    if as_json:
        typer.echo(json.dumps({"bounds": found, "draft": str(draft)}, indent=1))
        return
    for name, (low, high) in found.items():
        typer.echo(f"{name}: [{low:g}, {high:g}]")
    typer.echo(
        f"Next: look at {draft}, remove data/schemas/{draft.stem}.yaml, run `airlock init --confirm {draft.stem}` "
        f"and `airlock add FILE --name {draft.stem}` again"
    )
