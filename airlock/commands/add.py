"""`airlock add`: tell Airlock where records are."""

from __future__ import annotations

from pathlib import Path

import typer

REPEATED = 0.05
"""A part of the records that is worth a word, as for values that are clipped or missing."""


def command(
    place: str = typer.Argument(
        help="A CSV or Parquet file, a folder of Parquet parts, or an address of either (s3://, gs://, "
        "https://). It stays where it is."
    ),
    name: str = typer.Option(
        ..., "--name", help="The population: whose records these are. Its budget belongs to this name."
    ),
    holdout: bool = typer.Option(False, "--holdout", help="The file is a test set beside the records."),
    public: bool = typer.Option(
        False, "--public", help="With --holdout: declare that every record in it is public."
    ),
    epsilon: float | None = typer.Option(
        None, "--epsilon", help="Set the population's cap at once; with --delta."
    ),
    delta: float | None = typer.Option(
        None, "--delta", help="Set the population's cap at once; with --epsilon."
    ),
    distinct: bool = typer.Option(
        False,
        "--distinct",
        help="These are other people's records, although rows of them look like known ones.",
    ),
    append: bool = typer.Option(
        False,
        "--append",
        help="These are tonight's records of a population that grows night by night (docs/nights.md).",
    ),
    identity: str | None = typer.Option(
        None,
        "--id",
        help="With --append, at the first batch: the column that names a record; by default its whole row.",
    ),
    participations: int | None = typer.Option(
        None,
        "--participations",
        help="With --append, at the first batch: on how many nights one record may come; 1.",
    ),
) -> None:
    """Take note of raw records: count them, fingerprint them with a key, open their population's account.

    Example: airlock add patients.csv --name clinic --epsilon 3 --delta 1e-5
    """
    from rich.console import Console

    from airlock.errors import InputError
    from airlock.owner.add import CapRequest, add
    from airlock.owner.home import project
    from airlock.owner.nights import Growth
    from airlock.records.handles import Role

    if holdout != public:
        raise InputError(
            "a holdout is a file that may be shown to "
            "anyone: say so with --holdout --public, or leave both out "
            "(a private holdout is a split: evaluate.holdout: private)"
        )
    if (epsilon is None) != (delta is None):
        raise InputError("a cap needs both --epsilon and --delta")
    if not append and (identity is not None or participations is not None):
        raise InputError("--id and --participations are about a population that grows: say --append too")
    if append and holdout:
        raise InputError(
            "a holdout does not grow: leave --append out, or name another --name for tonight's records"
        )
    growth = Growth(identity, participations) if append else None
    cap = CapRequest(epsilon, delta) if epsilon is not None and delta is not None else None
    role: Role = "holdout" if holdout else "records"
    with Console(stderr=True).status("reading") as status:
        progress = lambda done, total: status.update(f"fetching part {min(done + 1, total)} of {total}")  # noqa: E731
        done = add(
            project(Path.cwd()),
            Path.cwd(),
            place,
            name=name,
            role=role,
            cap=cap,
            progress=progress,
            distinct=distinct,
            growth=growth,
        )
    handle = done.handle
    _tell_of_repetitions(name, done.repeated)
    night = f", night {handle.night}" if handle.night else ""
    typer.echo(
        f"{name}{night}: {handle.n:,} {'public holdout records' if holdout else 'records'} "
        f"{'added' if done.changed else 'unchanged'}"
    )
    typer.echo(
        f"  handle data/handles/{name}/{handle.file}: commit it with git; the file itself stays where it is"
    )
    if cap is not None:
        typer.echo(f"  the cap of '{name}' is epsilon {cap.epsilon:g} at delta {cap.delta:g}")
    if done.has_cap and not holdout:
        typer.echo(
            f"Next: `airlock data use {name}`, see the price with `airlock budget plan`, then `dvc repro`"
        )
    if not done.has_cap:
        typer.echo(
            f"  nothing may be released before you say how much: airlock budget set {name} --epsilon 1 "
            "--delta 1e-5 --why REASON"
        )


def _tell_of_repetitions(name: str, share: float) -> None:
    """On a terminal only, and in the owner's log: how many records repeat others depends on records."""
    import sys

    from airlock.owner.home import owner_log, project

    if share < REPEATED:
        return
    words = (
        f"about {share:.0%} of the records of '{name}' repeat another one, in all columns that are used. The unit of "
        "privacy is one record: where these are one person's, remove them, or say whose they are (`user` in the schema)"
    )
    owner_log(project(Path.cwd()), "add", {"message": words})
    if sys.stdout.isatty():
        typer.echo(f"  for your eyes only: {words}")
