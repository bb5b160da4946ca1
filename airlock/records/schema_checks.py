"""What a schema lacks before it can encode a record, and how a file's columns differ from it: one line each."""

from __future__ import annotations

import difflib
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from airlock.errors import SchemaError
from airlock.records.schema import Bounds, Column, Label, Schema

FORMAT = " has no format: day first or month first? Write for example format: '%d/%m/%Y'"
LONGEST_NAME = 100  # of a column, in a message


def require_complete(schema: Schema, source: str) -> None:
    """Refuse a schema that could not encode a record.

    Raises:
        SchemaError: one line that names every column and what it lacks.
    """
    if problems := _problems(schema):
        raise SchemaError(f"{source}: {'; '.join(problems)}")


def check_columns(found: Sequence[str], schema: Schema, *, with_label: bool = True) -> None:
    """Compare a file's columns with the schema's.

    Raises:
        SchemaError: a column is missing, comes twice, or is not known to the schema.
    """
    if len(set(found)) < len(found):
        raise SchemaError(f"column '{Counter(found).most_common(1)[0][0]}' is in the file twice: rename one")
    wanted = (*schema.sources, schema.label.column) if with_label else schema.sources
    present = set(found)
    if lost := [name for name in wanted if name not in present]:
        if (
            len(lost) > len(wanted) / 2
        ):  # perhaps no header: what stands in its place is a record, and is not quoted
            raise SchemaError(
                f"{len(lost)} of the {len(wanted)} columns of schema '{schema.name}' are not in the file "
                f"({listed(lost)}): is its first line a header?"
            )
        near = difflib.get_close_matches(lost[0], found, n=1)
        hint = f", did you mean '{near[0]}'?" if near and near[0] not in wanted else ""
        raise SchemaError(
            f"{columns_named(lost)} of schema '{schema.name}' {is_or_are(lost)} not in the file{hint}"
        )
    known = {*schema.sources, schema.label.column, *schema.ignored}
    if unknown := [name for name in found if name not in known]:
        raise SchemaError(
            f"unknown {columns_named(unknown)}: schema '{schema.name}' does not have "
            f"{'it' if len(unknown) == 1 else 'them'};"
            " add to it, or list under `ignored`"
        )


def fits(name: str, patterns: Iterable[str]) -> bool:
    """Whether a column is meant: by its very name, in which `[mg/dl]` is no pattern, or by a pattern."""
    return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)


def listed(names: Sequence[str], most: int = 40) -> str:
    """Names for a message, the first of very many."""
    quoted = ", ".join(f"'{shown(name)}'" for name in names[:most])
    return quoted + (f" and {len(names) - most} more" if len(names) > most else "")


def shown(name: str) -> str:
    """A name on one line, and as much of it as tells it from others."""
    line = " ".join(name.splitlines())
    return line if len(line) <= LONGEST_NAME else f"{line[:LONGEST_NAME]}..."


def columns_named(names: Sequence[str]) -> str:
    """Names with their noun."""
    return f"column{'s' if len(names) > 1 else ''} {listed(names)}"


def is_or_are(names: Sequence[str]) -> str:
    """The verb that goes with them."""
    return "is" if len(names) == 1 else "are"


def _problems(schema: Schema) -> list[str]:
    problems = _label_problems(schema.label, schema.kind)
    if schema.kind == "image":
        problems += _image_problems(schema)
    else:
        problems += (
            ["a tabular schema needs columns and no image"] if schema.image or not schema.columns else []
        )
        problems += _columns_problems(schema.columns)
    problems += _friends_problems(schema) + _encoder_problems(schema)
    roles = Counter([*schema.sources, schema.label.column, *schema.ignored])
    twice = [name for name, times in roles.items() if times > 1]
    return problems + ([f"{columns_named(twice)} {is_or_are(twice)} named twice"] if twice else [])


def _label_problems(label: Label, kind: str) -> list[str]:
    name = f"label '{label.column}'"
    if label.type == "number":
        problems = [f"{name} is a number and has no classes"] if label.classes else []
        problems += [f"{name} is a number, which is for tables"] if kind != "tabular" else []
        return problems + [name + problem for problem in _bounds_problems(label.bounds)]
    if label.bounds is not None:
        return [f"{name} has bounds: write `type: number` beside them, or its classes instead"]
    if len(label.classes) < 2:
        return [f"{name} needs at least two classes"]
    return [f"{name} names a class twice"] if len(set(label.classes)) < len(label.classes) else []


def _columns_problems(columns: Iterable[Column]) -> list[str]:
    """All gaps, the columns that lack the same thing in one breath."""
    found: dict[str, list[str]] = {}
    for column in columns:
        for problem in _column_problems(column):
            found.setdefault(problem, []).append(column.name)
    return [
        columns_named(names) + (problem if len(names) == 1 else _of_several(problem))
        for problem, names in found.items()
    ]


def _of_several(problem: str) -> str:
    return problem.replace(" has ", " have ").replace(" needs its", " need their")


def _column_problems(column: Column) -> list[str]:
    if column.type == "category":
        return _category_problems(column)
    what = "date" if column.type == "date" else "number"
    extra = [f" is a {what} and has no categories"] if column.categories is not None or column.buckets else []
    if column.type == "date":
        extra += [": `unit` is day, month or year"] if column.unit is None else []
        extra += [FORMAT] if column.format == "?" else []
    elif column.unit or column.format:
        extra.append(" is a number and has no unit or format: is it a date?")
    extra += [" is a date and is not `whole`"] if column.whole and column.type == "date" else []
    return _bounds_problems(column.bounds, dates=column.type == "date") + extra


def _category_problems(column: Column) -> list[str]:
    if column.bounds is not None or column.unit or column.format or column.whole:
        return [" is a category and has no bounds"]
    if column.buckets is not None:
        return [" has buckets and categories: give one of them"] if column.categories is not None else []
    if not column.categories:
        return [" needs its categories"]
    return [" names a category twice"] if len(set(column.categories)) < len(column.categories) else []


def _bounds_problems(bounds: Bounds | None, *, dates: bool = False) -> list[str]:
    if bounds is None:
        what = (
            "first and last day that is possible"
            if dates
            else "lowest and highest value that the measurement allows"
        )
        return [
            f" has no bounds: give the {what}, as {'[2000-01-01, 2030-12-31]' if dates else '[low, high]'}"
        ]
    return [] if 0 < bounds[1] - bounds[0] < math.inf else [": bounds must be [low, high] with low < high"]


def _encoder_problems(schema: Schema) -> list[str]:
    named = (schema.features or "").startswith("onnx:")
    if named and schema.kind != "image":
        return [f"features '{schema.features}' is an encoder, which is for images"]
    if named and schema.encoder is None:
        return ["features: an encoder needs `encoder` beside it: sha256, width, seen and vouched_by"]
    return ["encoder needs `features: onnx:FILE` beside it"] if schema.encoder and not named else []


def _friends_problems(schema: Schema) -> list[str]:
    """A slot is one encoded number from 0 on, and slots come last: what a mechanism takes for a user's own is
    the user's own.
    """
    friends = schema.user.friends if schema.user else None
    if friends is None:
        return []
    last = schema.columns[-friends.slots :]
    if tuple(column.name for column in last) != friends.influences:
        return [
            f"user.friends: the last {friends.slots} columns must be {friends.influences[0]} to "
            f"{friends.influences[-1]}"
        ]
    # A record that is dropped because of a slot would depend on the friend as a whole.
    plain = all(
        column.type == "number" and column.missing == "refuse" and column.bounds and column.bounds[0] == 0
        for column in last
    )
    return (
        []
        if plain
        else [
            "user.friends: influences are numbers with bounds [0, high] and `missing: refuse`; an empty "
            "slot holds 0"
        ]
    )


def _image_problems(schema: Schema) -> list[str]:
    image = schema.image
    if image is None or schema.columns:
        return ["an image schema needs `image` and no columns"]
    if (image.column is None) == (image.pixels is None):
        return ["image: give either `column` or `pixels`"]
    if len(image.sources) not in (1, image.size) or (
        image.pixels is not None and len(image.sources) != image.size
    ):
        return [
            f"image: {len(image.sources)} pixel columns do not make {image.height} x {image.width} x "
            f"{image.channels}"
        ]
    if image.depth == 16 and (image.column is None or image.channels != 1):
        return ["image: pictures of 16 bits are grey and in one column"]
    if image.encoding == "compressed" and image.depth == 8:
        if image.column is None or image.channels not in (1, 3):
            return ["image: compressed images are in one column and have 1 or 3 channels"]
        return ["image: compressed images have bounds 0 and 255; remove `bounds`"] if image.bounds else []
    return [f"image{problem}" for problem in _bounds_problems(image.bounds)]
