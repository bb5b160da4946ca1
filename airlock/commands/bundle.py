"""`airlock bundle`: one file for reviewers."""

from __future__ import annotations

import shlex
from pathlib import Path

import typer


def command(
    rev: list[str] = typer.Option(
        ["HEAD"], "--rev", help="The commit to bundle; several make one file of several bundles."
    ),
    output: Path = typer.Option(
        None, "--output", "-o", help="The file to write; airlock-COMMIT.zip by default."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Pack what a reviewer needs of a commit into one signed file, without any record, sealed file or key.

    Example: airlock bundle --rev HEAD --output submission.zip
    """
    import json

    from rich.console import Console

    from airlock.bundle import pack
    from airlock.bundle.sources import resolve
    from airlock.errors import InputError

    if output and output.is_dir():
        raise InputError(f"{output} is a folder: name the file to write, such as {output / 'submission.zip'}")
    workspace = Path.cwd()
    target = output or workspace / f"airlock-{resolve(workspace, rev[-1])[0][:12]}.zip"
    with Console(stderr=True).status("collecting, checking and signing"):
        facts = (
            pack.make(workspace, target, rev=rev[0])
            if len(rev) == 1
            else pack.make_collection(workspace, target, rev)
        )
    size = target.stat().st_size
    if as_json:
        typer.echo(json.dumps({"bundle": str(target), "bytes": size, **facts}, indent=1))
    else:
        commits = ", ".join(commit[:12] for commit in facts.get("commits") or [facts["commit"]])
        typer.echo(
            f"{target}: {commits}, {size / 1e6:.1f} MB. Anyone can check it: airlock verify {shlex.quote(str(target))}"
        )
