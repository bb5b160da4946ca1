"""A schema's file: parsed with care, for it may come from anyone, and refused in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from airlock.errors import SchemaError
from airlock.files import read_plain
from airlock.params import parse_yaml, what_is_wrong
from airlock.records.schema import Schema
from airlock.records.schema_checks import require_complete

DEPTH = 24
LOADER = getattr(
    yaml, "CSafeLoader", yaml.SafeLoader
)  # of the same language, ten times as fast: schemas may be wide


def load_schema(path: Path, *, draft: bool = False) -> Schema:
    """Read a schema. Only a draft may be unconfirmed or incomplete.

    Raises:
        SchemaError: one line that names what is wrong and where.
    """
    schema = _parse(path)
    if draft:
        return schema
    require_complete(schema, path.name)
    if not schema.confirmed:
        raise SchemaError(
            f"{path.name} is not confirmed: check the draft, then run `airlock init --confirm {schema.name}`"
        )
    return schema


def _parse(path: Path) -> Schema:
    try:
        text = read_plain(path)
        _check_depth(text, path.name)
        document = parse_yaml(text, LOADER)
    except FileNotFoundError:
        if not path.parent.exists():
            raise SchemaError(
                f"there is no folder {path.parent}: run from the project's top folder"
            ) from None
        raise SchemaError(
            f"no schema {path.name}: draft one with `airlock init FILE --name {path.stem}`"
        ) from None
    except OSError:
        raise SchemaError(f"{path.name} is not a plain file: replace it by the file itself") from None
    except UnicodeDecodeError:
        raise SchemaError(f"{path.name} is not in UTF-8: write it anew") from None
    except yaml.YAMLError as error:
        raise SchemaError(f"{path.name} is not valid YAML{what_is_wrong(error)}: mend the syntax") from None
    try:
        schema = Schema.model_validate(document)
    except ValidationError as error:
        raise SchemaError(f"{path.name}: {_first_problem(document, error)}") from None
    if schema.name != path.stem:
        raise SchemaError(f"{path.name} says `name: {schema.name}`: the name and the file's name must agree")
    return schema


def _check_depth(text: str, name: str) -> None:
    """Before anything is built: the fast parser follows every level with a call of its own, and falls over."""
    depth = 0
    for event in yaml.parse(text, Loader=LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEPTH:
            raise SchemaError(f"{name} is nested more than {DEPTH} levels deep: write it flat")


def _first_problem(document: Any, error: ValidationError) -> str:
    """One line without the input: a draft holds categories that were found in records."""
    first = error.errors(include_input=False)[0]
    place, names = list(first["loc"]), []
    if len(place) > 1 and place[0] == "columns" and isinstance(place[1], int):
        column = document["columns"][place[1]]
        names = (
            [f"column '{column['name']}'"]
            if isinstance(column, dict) and isinstance(column.get("name"), str)
            else []
        )
        place = place[2:] if names else place
    names += [".".join(str(part) for part in place)] if place else []
    message = (
        "unknown key" if first["type"] == "extra_forbidden" else first["msg"].removeprefix("Value error, ")
    )
    return f"{', '.join(names) or 'document'}: {message[0].lower()}{message[1:]}"
