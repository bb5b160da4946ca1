"""`airlock init`: draft a schema for your own data, fill in its bounds, and confirm it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from airlock.owner.home import Project
    from airlock.records.drafting import Draft
    from airlock.records.guesses import Wishes

WHY = """\
  Bounds are left blank. Airlock never computes them from the records: the smallest and the largest value would
  then be public, and they belong to two people. Fill in what the measurement allows.
  Classes, categories and missing values were found in the data. They stay unconfirmed and outside git until you have
  looked at them."""
PATTERNS = "columns by name or pattern; may be repeated."


def command(
    file: str | None = typer.Argument(
        None,
        help="A CSV or Parquet file, a folder of Parquet parts, or an address of either: a table, or "
        "flattened images.",
    ),
    name: str | None = typer.Option(
        None, "--name", help="Name of the population; the file's name by default."
    ),
    label: str | None = typer.Option(None, "--label", help="The column to predict."),
    ignore: list[str] = typer.Option([], "--ignore", help=f"Never read these {PATTERNS}"),
    category: list[str] = typer.Option(
        [], "--category", help=f"Take as categories (also codes) these {PATTERNS}"
    ),
    number: list[str] = typer.Option([], "--number", help=f"Take as numbers these {PATTERNS}"),
    regression: bool = typer.Option(
        False, "--regression", help="Take the label as a number to predict, not as classes."
    ),
    image: str | None = typer.Option(
        None, "--image", metavar="HxWxC", help="The records are images of this size."
    ),
    decimal: str | None = typer.Option(None, "--decimal", help="How numbers are written: . or ,"),
    header: bool | None = typer.Option(
        None, "--header/--no-header", help="Whether the first line of a CSV file holds names."
    ),
    draft_name: str | None = typer.Option(
        None, "--draft", metavar="NAME", help="Go on with this draft; no record is read."
    ),
    bounds: str | None = typer.Option(
        None, "--bounds", metavar="LOW,HIGH", help="Bounds of --columns, or of all that have none."
    ),
    columns: list[str] = typer.Option([], "--columns", help=f"With --bounds: {PATTERNS}"),
    bounds_from: Path | None = typer.Option(
        None,
        "--bounds-from",
        help="A data dictionary in CSV with the columns name, low, high and perhaps why.",
    ),
    ask: bool = typer.Option(
        False, "--ask", help="Ask for every bound that is missing; it can be stopped and gone on with."
    ),
    confirm: str | None = typer.Option(
        None, "--confirm", metavar="NAME", help="Check the draft of this name and make it the schema."
    ),
    force: bool = typer.Option(False, "--force", help="Replace a draft that exists."),
) -> None:
    """Draft a schema for your own data: columns, types, classes; bounds are left for you to fill in.

    Example: airlock init patients.csv --label diagnosis --ask
    """
    from airlock.errors import InputError
    from airlock.records.guesses import Wishes

    if sum(given is not None for given in (file, draft_name, confirm)) != 1:
        raise InputError(
            "give either a file to draft a schema for, --draft NAME to go on with one, or --confirm NAME"
        )
    if confirm is not None:
        _confirm(confirm)
        return
    if columns and bounds is None:
        raise InputError("--columns says which columns --bounds is for: give both")
    target = _draft_path(draft_name) if draft_name else None
    if file is not None:
        wishes = Wishes(
            label,
            tuple(ignore),
            tuple(category),
            tuple(number),
            _size(image),
            _decimal(decimal),
            header,
            regression,
        )
        target = _draft(file, name, wishes, force, resume=ask)
    assert target is not None
    _fill(target, bounds, columns, bounds_from)
    if ask:
        _ask(target)
    _say_next(target, file)


def _draft(file: str, name: str | None, wishes: Wishes, force: bool, *, resume: bool) -> Path:
    from rich.console import Console

    from airlock.errors import InputError
    from airlock.owner.home import NAME, project, write_private
    from airlock.records.drafting import draft, slug
    from airlock.records.places import at_hand
    from airlock.records.tables import open_table

    name = name or slug(Path(file))
    if not NAME.fullmatch(name):
        raise InputError(f"the name '{name}' may have lower-case letters, digits, '-' and '_' only")
    home = project(Path.cwd())
    target = home.drafts / f"{name}.yaml"
    if resume and target.exists() and not force:
        return target
    for path in (target, Path.cwd() / f"data/schemas/{name}.yaml"):
        if path.exists() and not force:
            raise InputError(
                f"{path.name} exists already ({path.parent}): choose another --name, go on with it by "
                f"--draft {name}, or replace it with --force"
            )
    with (
        Console(stderr=True).status(f"reading {Path(file).name}") as status,
        at_hand(file, home.spool) as path,
    ):
        progress = lambda rows: status.update(f"reading {Path(file).name}: {rows:,} records")  # noqa: E731
        made = draft(open_table(path, header=wishes.header is not False), name, wishes, progress)
    write_private(target, made.text.encode())
    _tell(home, name, made)
    if made.number:
        typer.echo("The label is taken as a number: its value will be predicted, not a class.")
    typer.echo(f"A draft of the schema is in {target}\n{WHY}")
    return target


def _tell(home: Project, name: str, made: Draft) -> None:
    """What was seen goes to the owner's log, and to the screen only if that is a terminal: a log of others
    may stand behind a pipe.
    """
    import sys

    from rich.console import Console

    from airlock.owner.home import owner_log
    from airlock.owner.log import shown

    entry = {
        "message": f"draft of '{name}'",
        "rare": dict(made.rare),
        "notes": list(made.notes),
        "columns": _rows(made),
    }
    owner_log(home, "init", entry)
    if sys.stdout.isatty():
        Console(highlight=False).print(shown(entry))
    else:
        typer.echo("What each column was taken for, and why, is for the owner's eyes: airlock log init")


def _rows(made: Draft) -> list[Mapping[str, Any]]:
    return [
        {
            "name": choice.name,
            "kind": choice.kind,
            "why": choice.why,
            "missing": choice.profile.share_missing,
            "levels": choice.profile.levels,
        }
        for choice in made.choices
    ]


def _fill(target: Path, bounds: str | None, columns: list[str], bounds_from: Path | None) -> None:
    from airlock.owner.home import write_private
    from airlock.records.filling import fill, for_pattern, parse_bound, read_dictionary
    from airlock.records.schema_checks import listed

    if bounds is None and bounds_from is None:
        return
    text = target.read_text()
    found = dict(read_dictionary(bounds_from)) if bounds_from else {}
    text, filled = fill(text, found)
    unused = [each for each in found if each not in filled]
    if bounds is not None:
        text, more = fill(text, for_pattern(text, parse_bound(bounds), columns))
        filled += more
    write_private(target, text.encode())
    typer.echo(f"Bounds of {len(set(filled))} column(s) were filled in.")
    if unused:
        typer.echo(f"  not used, because the draft has no such number or date: {listed(unused, 8)}")


def _ask(target: Path) -> None:
    """Walk through what is missing. Every answer is written at once, so that stopping loses nothing."""
    from airlock.errors import InputError
    from airlock.owner.home import write_private
    from airlock.records.filling import fill, open_columns, parse_bound

    left = open_columns(target.read_text())
    if left:
        typer.echo(
            "LOW,HIGH of each column, what the measurement allows; enter leaves it for later, q stops."
        )
    for place, column in enumerate(left, start=1):
        while True:
            example = "2000-01-01,2030-12-31" if column["type"] == "date" else "LOW,HIGH"
            answer = typer.prompt(
                f"[{place}/{len(left)}] {column['name']} ({column['type']}, {example})",
                default="",
                show_default=False,
            ).strip()
            if answer in ("", "q"):
                break
            try:
                text, _ = fill(target.read_text(), {column["name"]: parse_bound(answer)})
            except InputError as error:
                typer.echo(f"  {error}")
                continue
            write_private(target, text.encode())
            break
        if answer == "q":
            break


def _say_next(target: Path, file: str | None) -> None:
    from airlock.records.filling import open_columns
    from airlock.records.schema_checks import listed

    name, left = target.stem, [column["name"] for column in open_columns(target.read_text())]
    if left:
        typer.echo(f"{len(left)} column{'s need' if len(left) > 1 else ' needs'} bounds: {listed(left, 8)}")
        typer.echo(
            f"Next: fill them in with `airlock init --draft {name} --ask` (or --bounds LOW,HIGH --columns "
            "'PATTERN', or"
            f" --bounds-from FILE, or an editor), then run `airlock init --confirm {name}`"
        )
    else:
        typer.echo(
            f"Next: look at {target}, then run `airlock init --confirm {name}` and `airlock add "
            f"{shlex.quote(file) if file else 'FILE'} --name {name}`"
        )


def _draft_path(name: str) -> Path:
    from airlock.errors import InputError
    from airlock.owner.home import project

    source = project(Path.cwd()).drafts / f"{name}.yaml"
    if not source.exists():
        raise InputError(f"no draft '{name}': run `airlock init FILE --name {name}` first")
    return source


def _size(text: str | None) -> tuple[int, int, int] | None:
    import re

    from airlock.errors import InputError

    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,5})x(\d{1,5})(?:x(\d{1,3}))?", text.lower())
    if not match or "0" in match.groups():
        raise InputError(
            f"'{text}' is no size of an image: --image HEIGHTxWIDTH or HEIGHTxWIDTHxCHANNELS, as in 28x28x1"
        )
    return int(match[1]), int(match[2]), int(match[3] or 1)


def _decimal(text: str | None) -> str | None:
    from airlock.errors import InputError

    if text not in (None, ".", ","):
        raise InputError("--decimal is . or ,")
    return text


def _confirm(name: str) -> None:
    from airlock.errors import InputError
    from airlock.files import replace
    from airlock.records.draft_file import confirmed
    from airlock.records.schema_checks import require_complete
    from airlock.records.schema_file import load_schema

    source, target = _draft_path(name), Path.cwd() / f"data/schemas/{name}.yaml"
    if target.exists():
        raise InputError(f"data/schemas/{name}.yaml exists already: remove it first, or choose another name")
    schema = load_schema(source, draft=True)
    require_complete(schema, source.name)
    replace(target, confirmed(source.read_text()))
    source.unlink()
    typer.echo(f"data/schemas/{name}.yaml is confirmed. It is public as soon as you commit it, with")
    for line in _public_words(schema):
        typer.echo(f"  {line}")
    typer.echo(f"Next: airlock add FILE --name {name}")


def _public_words(schema: Any) -> list[str]:
    """What a schema says to anyone who reads it, and what of it came from records."""
    from airlock.records.schema_checks import listed

    names = [column.name for column in schema.columns] or list(schema.sources)
    imputed = [column.name for column in schema.columns if column.missing != "refuse"]
    imputed += [schema.label.column] if schema.label.missing != "refuse" else []
    imputed += ["the images"] if schema.image and schema.image.missing != "refuse" else []
    lines = [f"names of {len(names)} columns: {', '.join(names[:40])}{' ...' if len(names) > 40 else ''}"]
    lines += [f"ignored columns: {listed(schema.ignored)}"] if schema.ignored else []
    if schema.label.number:
        lines += ["bounds of the number '{}': {:g} to {:g}".format(schema.label.column, *schema.label.number)]
    else:
        lines += [f"classes of '{schema.label.column}': {', '.join(schema.label.classes)}"]
    lines += [
        f"categories of '{column.name}': {', '.join(column.categories)}"
        for column in schema.columns
        if column.categories
    ]
    whole = [column.name for column in schema.columns if column.whole]
    lines += [f"that there are whole numbers only in: {', '.join(whole)}"] if whole else []
    return lines + ([f"that values may be missing in: {', '.join(imputed)}"] if imputed else [])
