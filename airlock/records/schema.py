"""What a record looks like, in public terms: columns, classes and bounds that the owner has confirmed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import date
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, SerializerFunctionWrapHandler, model_serializer

from airlock.params import Section

EPOCH = date(1970, 1, 1)
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
