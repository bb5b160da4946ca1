"""What a record looks like, in public terms: columns, classes and bounds that the owner has confirmed."""

from __future__ import annotations

import difflib
import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import yaml
from pydantic import BeforeValidator, Field, SerializerFunctionWrapHandler, ValidationError, model_serializer

from airlock.errors import SchemaError
from airlock.files import read_plain
from airlock.params import Section

EPOCH = date(1970, 1, 1)
DEPTH = 24
LOADER = getattr(
    yaml, "CSafeLoader", yaml.SafeLoader
)  # of the same language, ten times as fast: schemas may be wide
MISSING = ("", "?", "NA", "N/A", "null", "NULL", "None")


def _as_text(value: Any) -> Any:
    """Classes and categories are compared as text, whatever type they have in the file."""
    if isinstance(value, bool):
        raise ValueError("put words such as yes, no, true and false in quotes")
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    return value


def _as_days(value: Any) -> Any:
    """Bounds that are dates, as days since 1970."""
    if not isinstance(value, (list, tuple)):
        return value
    return [_day(each) for each in value]


def _day(value: Any) -> Any:
    if isinstance(value, str):
        try:
            value = date.fromisoformat(value)
        except ValueError:
            return value
    return float((value - EPOCH).days) if type(value) is date else value


Text = Annotated[str, BeforeValidator(_as_text)]
Bounds = tuple[float, float]


FORMAT = " has no format: day first or month first? Write for example format: '%d/%m/%Y'"


class Grown(Section):
    """A section with fields that came later: they are written only where they are used, so that older hashes
    stay.
    """

    later: ClassVar[tuple[str, ...]] = ()

    @model_serializer(mode="wrap")
    def _without_unused(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        document: dict[str, Any] = write(self)
        for name in self.later:
            if getattr(self, name) == type(self).model_fields[name].default:
                document.pop(name, None)
        return document


class Label(Grown):
    """The column to predict: every class it may have, or (`type: number`) the bounds of a number.

    Such bounds are public like those of any column; a label beyond them is clipped.
    """

    later = ("type", "bounds", "why")

    column: str
    classes: tuple[Text, ...] = ()
    missing: Literal["refuse", "drop"] = "refuse"
    type: Literal["class", "number"] = "class"
    bounds: Bounds | None = None
    why: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Of a model's scores: the classes, or the one number."""
        return (self.column,) if self.type == "number" else self.classes

    @property
    def number(self) -> Bounds | None:
        """The bounds of a label that is a number."""
        return self.bounds if self.type == "number" else None


class Column(Grown):
    """One attribute. `bounds` are public: they come from the measurement, never from the records, and `why`
    says from where.

    A category lists its `categories`, or is hashed into a public number of `buckets`. A date becomes a number
    of `unit`s since 1970; its bounds are dates, its `format` is that of strptime, ISO 8601 if there is none.
    A number may be `whole`: then another is refused, and synthetic records have whole ones too.
    """

    later = ("buckets", "unit", "format", "whole")

    name: str
    type: Literal["number", "category", "date"]
    bounds: Annotated[Bounds | None, BeforeValidator(_as_days)] = None
    categories: tuple[Text, ...] | None = None
    missing: Literal["refuse", "drop", "impute"] = "refuse"
    why: str = ""
    buckets: int | None = Field(None, ge=2, le=4096)
    unit: Literal["day", "month", "year"] | None = None
    format: str | None = None
    whole: bool = False


class Image(Grown):
    """Where the pixels are: in one column (bytes, a list of numbers, JPEG or PNG), or in one column each.

    `pixels` is a list of names, or a pattern such as "pixel{}" that counts from `first`. Pixels are in the
    order row, column, channel; `bounds` are their darkest and brightest values. Grey pictures may have a `depth` of 16
    bits (PNG, or bytes with the lower one first): then `bounds` are the window that becomes 256 steps of grey.
    """

    later = ("depth",)

    height: int = Field(ge=1)
    width: int = Field(ge=1)
    channels: int = Field(1, ge=1)
    column: str | None = None
    pixels: str | tuple[str, ...] | None = None
    first: int = 0
    encoding: Literal["raw", "compressed"] = "raw"
    bounds: Bounds | None = None
    missing: Literal["refuse", "drop"] = "refuse"
    why: str = ""
    depth: Literal[8, 16] = 8

    @property
    def size(self) -> int:
        """Values per image."""
        return self.height * self.width * self.channels

    @property
    def sources(self) -> tuple[str, ...]:
        """The file's columns that pixels come from."""
        if self.column is not None:
            return (self.column,)
        if isinstance(self.pixels, str):
            return tuple(self.pixels.replace("{}", str(self.first + index)) for index in range(self.size))
        return self.pixels or ()


class Friends(Section):
    """Slots through which other users reach a record: who it is, and a number from that user's data. The
    numbers are the last columns.

    `name` and `influence` are patterns such as "friend_{}" that count from 1. An empty name means an empty
    slot, whose number is 0. One user counts in at most `appearances` slots of other users' records.
    """

    name: str
    influence: str
    slots: int = Field(ge=1)
    appearances: int = Field(ge=1)

    @property
    def names(self) -> tuple[str, ...]:
        """The file's columns that say who."""
        return tuple(self.name.replace("{}", str(number)) for number in range(1, self.slots + 1))

    @property
    def influences(self) -> tuple[str, ...]:
        """The columns with the numbers."""
        return tuple(self.influence.replace("{}", str(number)) for number in range(1, self.slots + 1))


class User(Section):
    """Who a record belongs to, and how many records of one user count at most."""

    column: str
    per_user: int = Field(ge=1)
    friends: Friends | None = None

    @property
    def sources(self) -> tuple[str, ...]:
        """The file's columns that name users."""
        return (self.column, *(self.friends.names if self.friends else ()))


class Encoder(Section):
    """What the owner vouches for, of an encoder that the schema's `features: onnx:FILE` names.

    Attributes:
        sha256: of the file in data/encoders.
        width: how many features it gives.
        seen: the data it was made from; no record of this data set may be among them.
        vouched_by: whose word that is.
    """

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    width: int = Field(ge=1, le=8192)
    seen: str = Field(min_length=3)
    vouched_by: str = Field(min_length=1)


class Schema(Grown):
    """One data set's schema: data/schemas/NAME.yaml."""

    later = ("header", "decimal", "encoder")

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")
    description: str = ""
    kind: Literal["tabular", "image"]
    public: bool = False
    confirmed: bool = False
    label: Label
    columns: tuple[Column, ...] = ()
    image: Image | None = None
    user: User | None = None
    features: str | None = None
    ignored: tuple[str, ...] = ()
    missing_values: tuple[str, ...] = MISSING
    header: bool = True
    decimal: Literal[".", ","] = "."
    encoder: Encoder | None = None

    @property
    def map(self) -> str | None:
        """The feature map by its whole name; None where none is named."""
        if self.encoder and self.features:
            return f"{self.features}@{self.encoder.width}:{self.encoder.sha256}"
        return self.features

    @property
    def sha256(self) -> str:
        """Of everything that shapes the encoded records; comments do not."""
        document = self.model_dump(mode="json", exclude={"description", "confirmed"})
        for part in (*document["columns"], document["image"] or {}, document["label"]):
            part.pop("why", None)
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()

    @property
    def sources(self) -> tuple[str, ...]:
        """The file's columns that are read, without the label."""
        names = self.image.sources if self.image else tuple(column.name for column in self.columns)
        return (*names, *self.user.sources) if self.user else names

    def require_complete(self, source: str) -> None:
        """Refuse a schema that could not encode a record.

        Raises:
            SchemaError: one line that names every column and what it lacks.
        """
        if problems := _problems(self):
            raise SchemaError(f"{source}: {'; '.join(problems)}")


def load_schema(path: Path, *, draft: bool = False) -> Schema:
    """Read a schema. Only a draft may be unconfirmed or incomplete.

    Raises:
        SchemaError: one line that names what is wrong and where.
    """
    schema = _parse(path)
    if draft:
        return schema
    schema.require_complete(path.name)
    if not schema.confirmed:
        raise SchemaError(
            f"{path.name} is not confirmed: check the draft, then run `airlock init --confirm {schema.name}`"
        )
    return schema


def retargeted(schema: Schema, target: str, classes: Sequence[str]) -> Schema:
    """The schema of records in which the column `target` is to be predicted, as one of `classes`, and the
    label is a column like the others (the last).
    """
    kept = tuple(column for column in schema.columns if column.name != target)
    label = (
        Column(name=schema.label.column, type="number", bounds=schema.label.bounds)
        if schema.label.type == "number"
        else Column(name=schema.label.column, type="category", categories=schema.label.classes)
    )
    return schema.model_copy(
        update={"columns": (*kept, label), "label": Label(column=target, classes=tuple(classes))}
    )


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


def listed(names: Sequence[str], most: int = 40) -> str:
    """Names for a message, the first of very many."""
    quoted = ", ".join(f"'{name}'" for name in names[:most])
    return quoted + (f" and {len(names) - most} more" if len(names) > most else "")


def columns_named(names: Sequence[str]) -> str:
    """Names with their noun."""
    return f"column{'s' if len(names) > 1 else ''} {listed(names)}"


def is_or_are(names: Sequence[str]) -> str:
    """The verb that goes with them."""
    return "is" if len(names) == 1 else "are"


def _parse(path: Path) -> Schema:
    try:
        text = read_plain(path)
        _check_depth(text, path.name)
        document = yaml.load(text, Loader=LOADER)
    except FileNotFoundError:
        raise SchemaError(
            f"no schema {path.name}: draft one with `airlock init FILE --name {path.stem}`"
        ) from None
    except OSError:
        raise SchemaError(f"{path.name} is not a plain file: replace it by the file itself") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        raise SchemaError(
            f"{path.name} is not valid YAML{f' near line {mark.line + 1}' if mark else ''}: mend the syntax"
        ) from None
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
