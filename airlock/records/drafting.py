"""A first schema for a raw file: what can be seen in it, marked as unconfirmed, and blanks that only the owner can fill."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import yaml

from airlock.errors import InputError, SchemaError
from airlock.records.pixels import FORMATS
from airlock.records.schema import MISSING
from airlock.records.tables import Table
from airlock.records.values import as_texts

MARK = "#: "  # comments that a confirmed schema loses
MOST = 100  # more different values than this are no categories
LABELS = ("label", "class", "target", "y", "diagnosis", "classification", "outcome", "species", "category")
HEADER = """\
A draft, outside git. Give every number its bounds: the lowest and highest value that the measurement allows,
from a textbook, an instrument or a form. Never from the records: the smallest and largest record would then be public.
Classes and categories below were found in the data and are unconfirmed: an odd one may be a person's. Remove what must
not be known, add what is possible but was not met. Then: airlock init --confirm {name}
"""


@dataclass
class Sight:
    """What one column showed as it streamed by; its memory is bounded."""

    name: str
    numeric: bool = True
    missing: bool = False
    values: set[str] | None = field(default_factory=set)
    picture: Mapping[str, Any] | None = None
    simple: bool = True

    def look(self, array: Any) -> None:
        """Take in one batch of the column."""
        if self.picture is None and (found := _picture(array)):
            self.picture, self.numeric, self.values, self.simple = found, False, None, False
        if not self.simple:
            return
        try:
            texts = as_texts(array, self.name)
        except SchemaError:
            self.numeric, self.values, self.simple = False, None, False
            return
        blank = pc.fill_null(pc.is_in(texts, value_set=pa.array([None, *MISSING], pa.string())), True)
        self.missing |= bool(pc.any(blank).as_py())
        found = texts.filter(pc.invert(blank))
        self.numeric = self.numeric and _is_numeric(found)
        if self.values is not None:
            self.values |= set(pc.unique(found).to_pylist())
            self.values = self.values if len(self.values) <= MOST else None


def draft(table: Table, name: str, label: str | None) -> str:
    """The text of a drafted schema.

    Raises:
        InputError: no label can be told, or it has one class only.
    """
    sights = {column: Sight(column) for column in table.columns}
    for batch in table.batches():
        for column, sight in sights.items():
            sight.look(batch.column(column))
    target = sights.pop(_find_label(sights, label))
    if target.values is None or len(target.values) < 2:
        problem = "more than 100 different values" if target.values is None else "one class only"
        raise InputError(f"label '{target.name}' has {problem}: name another column with --label")
    image = next((_one_column(sight) for sight in sights.values() if sight.picture), None) or _pixel_columns(
        list(sights.values())
    )
    used = _names_of(image) if image else set()
    rest = [sight for sight in sights.values() if sight.name not in used]
    return _write(name, target, image, rest)


def _write(name: str, target: Sight, image: dict[str, Any] | None, rest: list[Sight]) -> str:
    columns = [sight for sight in rest if not image and (sight.numeric or sight.values)]
    ignored = [sight.name for sight in rest if sight not in columns]
    lines = [MARK + line for line in HEADER.format(name=name).splitlines()]
    lines += [
        f"name: {name}",
        'description: ""',
        f"kind: {'image' if image else 'tabular'}",
        "public: false",
        "confirmed: false",
    ]
    lines += [
        f"{MARK}found in the data, unconfirmed: classes",
        f"label: {_flow(column=target.name, classes=_sorted(target.values))}",
    ]
    if image:
        lines += [
            f"{MARK}bounds are the darkest and the brightest value, [0, 255] for bytes",
            f"image: {_flow(**image)}",
        ]
    else:
        lines += ["columns:", *(line for sight in columns for line in _column(sight))]
    if ignored:
        lines += [
            f"{MARK}not used: text without categories, or more different values than {MOST}",
            f"ignored: {_flow_list(ignored)}",
        ]
    return "\n".join(lines) + "\n"


def _column(sight: Sight) -> list[str]:
    missing = "impute" if sight.missing else "refuse"
    if sight.numeric:
        return [f"- {_flow(name=sight.name, type='number', bounds=None, missing=missing, why='')}"]
    line = f"- {_flow(name=sight.name, type='category', categories=_sorted(sight.values), missing=missing)}"
    return [f"{MARK}found in the data, unconfirmed: categories", line]


def confirmed(text: str) -> str:
    """A draft's text as a confirmed schema: without the draft's own comments."""
    lines = [line for line in text.splitlines() if not line.startswith((MARK.strip(), "confirmed:"))]
    place = next((index for index, line in enumerate(lines) if line.startswith("kind:")), 0)
    return "\n".join([*lines[: place + 1], "confirmed: true", *lines[place + 1 :]]) + "\n"


def slug(path: Path) -> str:
    """A population's name from a file's."""
    return re.sub(r"[^a-z0-9]+", "-", path.name.split(".")[0].lower()).strip("-") or "records"


def _find_label(sights: Mapping[str, Sight], asked: str | None) -> str:
    if asked is not None:
        if asked in sights:
            return asked
        raise InputError(
            f"unknown column '{asked}': the file has {', '.join(list(sights)[:8])}{' ...' if len(sights) > 8 else ''}"
        )
    known = next((column for wanted in LABELS for column in sights if column.lower() == wanted), None)
    texts = [column for column, sight in sights.items() if sight.values and not sight.numeric]
    found = known or (texts[-1] if texts else None)
    if found is None:
        raise InputError("which column is the label? Say it with --label COLUMN")
    return found


def _is_numeric(texts: Any) -> bool:
    try:
        pc.cast(texts, pa.float64())
    except pa.ArrowInvalid:
        return False
    return True


def _picture(array: Any) -> dict[str, Any] | None:
    """How a column of bytes or lists could hold images, from its type and its first value."""
    kind = array.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        first = next((value for value in array.to_pylist() if value), b"")
        return _compressed(first) or _square(len(first))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _square(next((len(value) for value in array.to_pylist() if value), 0))
    return None


def _compressed(data: bytes) -> dict[str, Any] | None:
    import io

    import PIL.Image

    try:
        with PIL.Image.open(io.BytesIO(data), formats=FORMATS) as picture:
            channels = 1 if picture.mode in ("L", "1") else 3
            return {
                "height": picture.height,
                "width": picture.width,
                "channels": channels,
                "encoding": "compressed",
            }
    except (OSError, SyntaxError, ValueError):
        return None


def _square(size: int) -> dict[str, Any] | None:
    for channels in (1, 3):
        side = math.isqrt(size // channels)
        if side >= 4 and side * side * channels == size:
            return {"height": side, "width": side, "channels": channels, "bounds": None}
    return None


def _one_column(sight: Sight) -> dict[str, Any]:
    return {**(sight.picture or {}), "column": sight.name, "missing": "drop" if sight.missing else "refuse"}


def _pixel_columns(sights: list[Sight]) -> dict[str, Any] | None:
    """Columns such as pixel0, pixel1, ... that make a square."""
    numbered = [
        (match[1], int(match[2]))
        for sight in sights
        if sight.numeric and (match := re.fullmatch(r"(\D*)(\d+)", sight.name))
    ]
    prefixes = {prefix for prefix, _ in numbered}
    if len(prefixes) != 1 or len(numbered) < len(sights) - 1:
        return None
    numbers, prefix = sorted(number for _, number in numbered), prefixes.pop()
    shape = _square(len(numbers))
    if shape is None or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        return None
    return {**shape, "pixels": f"{prefix}{{}}", "first": numbers[0]}


def _names_of(image: Mapping[str, Any]) -> set[str]:
    if "column" in image:
        return {image["column"]}
    size = image["height"] * image["width"] * image["channels"]
    return {image["pixels"].replace("{}", str(image["first"] + place)) for place in range(size)}


def _sorted(values: Iterable[str] | None) -> list[str]:
    """Numbers by size, words by letter."""
    found = list(values or ())
    return sorted(
        found,
        key=lambda text: (0, float(text), text) if re.fullmatch(r"-?\d+(\.\d+)?", text) else (1, 0.0, text),
    )


def _flow(**fields: Any) -> str:
    return yaml.safe_dump(
        fields, default_flow_style=True, width=math.inf, sort_keys=False, allow_unicode=True
    ).strip()


def _flow_list(items: list[str]) -> str:
    return yaml.safe_dump(items, default_flow_style=True, width=math.inf, allow_unicode=True).strip()
