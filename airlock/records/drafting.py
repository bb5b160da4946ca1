"""A first schema for a raw file: what can be seen in it, marked as unconfirmed, and blanks that only the
owner can fill.

Nothing is guessed that is not said: every column has its reason, which goes to the owner's terminal and into
the draft.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

import yaml

from airlock.errors import InputError
from airlock.records.profiles import (
    MOST_CATEGORIES,
    NAN,
    Profile,
    RowProgress,
    parses_as_number,
    profiles_of,
    square,
)
from airlock.records.schema import MISSING, listed
from airlock.records.tables import Table

DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
MARK = "#: "  # comments that a confirmed schema loses
BUCKETS = 64
FEW_LEVELS = 20  # so few different texts are categories, whatever they look like
RARE_CLASS = (
    5  # a class with fewer records is told: it may be a person's, and nothing can be learned about it
)
LABELS = ("label", "class", "target", "y", "diagnosis", "classification", "outcome", "species", "category")
INDICES = ("", "index", "rowid", "row", "nr", "__index_level_0__")
IDENTIFIER = re.compile(r"(?i)(.*[_ .-])?(id|uuid|guid|ssn|mrn)|.*(Id|ID|Uuid|UUID)|id[_ .-].*|unnamed: ?\d+")
PIXELS = re.compile(r"(?i)(pixel|pix|px)[_ .-]?")
HEADER = """\
A draft, outside git. Give every number its bounds: the lowest and highest value that the measurement allows,
from a textbook, an instrument or a form. Never from the records: the smallest and largest record would then be public.
Classes, categories and `missing` below were found in the data and are unconfirmed: an odd one may be a person's. Remove
what must not be known, add what is possible but was not met. Then: airlock init --confirm {name}
"""
NO_HEADER = (
    "{name}: the first line may be a record instead of a header (column {place} {why}): "
    "say --no-header to call the columns c1, c2, ..., or --header if these are names"
)
Kind = Literal["number", "category", "hashed", "date", "image", "ignored", "label"]


@dataclass(frozen=True)
class Wishes:
    """What the owner said about columns, by name or pattern; it goes before anything that is guessed."""

    label: str | None = None
    ignored: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    image: tuple[int, int, int] | None = None
    decimal: str | None = None
    header: bool | None = None
    regression: bool = False


@dataclass(frozen=True)
class Choice:
    """What a column is taken for, and why."""

    profile: Profile
    kind: Kind
    why: str = ""
    form: str | None = None

    @property
    def name(self) -> str:
        return self.profile.name


@dataclass(frozen=True)
class Draft:
    """A drafted schema and the reasons for it.

    `choices`, `rare` and `notes` tell about records: they are for the owner.
    """

    text: str
    choices: tuple[Choice, ...]
    rare: Mapping[str, int]
    notes: tuple[str, ...]
    number: bool = False


def draft(
    table: Table, name: str, wishes: Wishes | None = None, progress: RowProgress = lambda rows: None
) -> Draft:
    """Draft a schema.

    Raises:
        InputError: no header or label can be told, a wish fits no column, or the label has one class only.
    """
    wishes = wishes or Wishes()
    if table.format == "csv" and wishes.header is None:
        _refuse_numbers_for_names(table)
    _check_wishes(table.columns, wishes)
    if len(table.columns) == 1:
        raise InputError(
            "no column is left to learn from: only one was found, and columns are separated by , ; tab or |"
        )
    profiles = profiles_of(table, progress)
    if table.format == "csv" and wishes.header is None:
        _refuse_values_for_names(table, profiles)
    decimal, notes = _decimal(profiles, wishes)
    target, why = _find_label(profiles, wishes.label)
    number = _as_number(target, wishes, decimal)
    notes = [f"label: {target.name} ({why})", *notes, *([number] if number else _nearly_alike(target))]
    rest = [profile for profile in profiles.values() if profile is not target]
    image = _image(rest, wishes, notes)
    used = _names_of(image) if image else set()
    choices = [Choice(profile, "image") for profile in rest if profile.name in used]
    choices += [
        _choose(profile, wishes, decimal, bool(image)) for profile in rest if profile.name not in used
    ]
    if image and number:
        raise InputError(
            f"label '{target.name}' is a number, which is for tables: name a column of classes with --label"
        )
    if not image and all(choice.kind == "ignored" for choice in choices):
        raise InputError("no column is left to learn from: name some with --number or --category")
    choices.append(Choice(target, "label", why))
    extra = _extra(table, profiles, decimal, notes)
    counts = {} if number else target.counts or {}
    rare = {value: count for value, count in counts.items() if count < RARE_CLASS}
    ordered = tuple(sorted(choices, key=lambda choice: choice.profile.place))
    return Draft(
        _write(name, target, image, ordered, extra, number), ordered, rare, tuple(notes), bool(number)
    )


def _refuse_numbers_for_names(table: Table) -> None:
    empty = [place for place, name in enumerate(table.columns, start=1) if not name.strip()]
    number = next(
        (place for place, name in enumerate(table.columns, start=1) if parses_as_number(name)), None
    )
    if number:
        raise InputError(
            NO_HEADER.format(name=table.path.name, place=number, why="is named by a number or a date")
        )
    # An empty name in the first place is the index that pandas writes; in the last, a separator at the line's end.
    if empty and empty not in ([1], [len(table.columns)]):
        raise InputError(NO_HEADER.format(name=table.path.name, place=empty[-1], why="has an empty name"))


def _refuse_values_for_names(table: Table, profiles: Mapping[str, Profile]) -> None:
    last = profiles[table.columns[-1]]
    if not last.name.strip() and last.missing < last.rows:
        raise InputError(NO_HEADER.format(name=table.path.name, place=last.place, why="has an empty name"))
    found = next((profile.place for profile in profiles.values() if profile.named_like_value), None)
    if found:
        why = "has its name among its values"
        raise InputError(NO_HEADER.format(name=table.path.name, place=found, why=why))


def _check_wishes(columns: Sequence[str], wishes: Wishes) -> None:
    """A wish that fits no column is a typing error, and is told before anything is read."""
    if wishes.label is not None and wishes.label not in columns:
        raise InputError(f"unknown column '{wishes.label}': the file has {listed(columns, 8)}")
    for pattern in (*wishes.ignored, *wishes.categories, *wishes.numbers):
        if not any(fnmatchcase(name, pattern) for name in columns):
            raise InputError(f"no column fits '{pattern}': the file has {listed(columns, 8)}")


def _decimal(profiles: Mapping[str, Profile], wishes: Wishes) -> tuple[str, list[str]]:
    """The decimal mark of the file, from how its numbers are written."""
    if wishes.decimal is not None:
        return wishes.decimal, []
    commas = [
        profile.name
        for profile in profiles.values()
        if profile.needs_comma and profile.commas and not profile.numeric and not profile.grouped
    ]
    points = [profile.name for profile in profiles.values() if profile.needs_point and profile.numeric]
    if not commas:
        return ".", []
    if points:
        note = (
            f"decimal commas in {listed(commas, 8)} beside decimal "
            f"points in {listed(points, 8)}: write them alike"
        )
        return ".", [note]
    return ",", [f"decimal commas in {listed(commas, 8)} (--decimal . if that is wrong)"]


def _find_label(profiles: Mapping[str, Profile], asked: str | None) -> tuple[Profile, str]:
    names = {name.lower(): name for name in reversed(list(profiles))}
    known = next((names[wanted] for wanted in LABELS if wanted in names), None)
    last = list(profiles)[-1]
    found, why = asked or known or last, "named by --label"
    if asked is None:
        why = f"{'by its name' if known else 'the last column'}; change it with --label"
    profile = profiles[found]
    if asked is None and known is None and not (profile.values and (profile.whole or not profile.numeric)):
        raise InputError("which column is the label? Say it with --label COLUMN")
    if not profile.simple:
        raise InputError(f"label '{found}' holds neither numbers nor text: name another column with --label")
    if profile.values is None and not (profile.numeric or profile.commas):
        raise InputError(
            f"label '{found}' has more than {MOST_CATEGORIES} different texts: name a column of classes or "
            "numbers with --label"
        )
    if profile.values is not None and len(profile.values) < 2:
        raise InputError(f"label '{found}' has one class only: name another column with --label")
    return profile, why


def _as_number(target: Profile, wishes: Wishes, decimal: str) -> str | None:
    """Why the label is a number to predict; None where it is a class.

    Raises:
        InputError: it has to be one, and cannot be read as one.
    """
    numeric = target.commas if decimal == "," else target.numeric
    if not wishes.regression and target.values is not None:
        return None
    if not numeric:
        raise InputError(
            f"label '{target.name}' has values that are no numbers: leave out --regression, or name another column"
        )
    why = "as you said" if wishes.regression else f"more than {MOST_CATEGORIES} different numbers"
    return f"label: a number to predict, not classes ({why}); it needs bounds like any number"


def _choose(profile: Profile, wishes: Wishes, decimal: str, beside_image: bool) -> Choice:
    """What a column is, by what the owner said, then by what it shows."""
    numeric = profile.commas if decimal == "," else profile.numeric
    if _fits(profile.name, wishes.ignored):
        return Choice(profile, "ignored", "as you said")
    if _fits(profile.name, wishes.numbers):
        if not numeric:
            raise InputError(
                f"column '{profile.name}' has values that are no numbers: leave it out of --number"
            )
        return Choice(profile, "number", "as you said")
    if _fits(profile.name, wishes.categories):
        return _as_category(profile, "as you said")
    if beside_image:
        return Choice(profile, "ignored", "beside an image")
    return _guess(profile, numeric)


def _guess(profile: Profile, numeric: bool) -> Choice:
    if profile.missing == profile.rows:
        return Choice(profile, "ignored", "has no value at all")
    if profile.name.strip().lower() in INDICES and (profile.counting or profile.alone):
        return Choice(profile, "ignored", "a row number, such as pandas writes (index=False leaves it out)")
    many = profile.counts is None
    if profile.simple and IDENTIFIER.fullmatch(profile.name) and (profile.alone or profile.whole or many):
        shared = "" if profile.alone else ", of several records each: whose they are, `user` says"
        return Choice(
            profile, "ignored", f"named as an identifier{shared} (--number or --category takes it in)"
        )
    if profile.counting and profile.rows > RARE_CLASS:
        return Choice(profile, "ignored", "counts the rows (--number takes it in)")
    if profile.typed_date or (profile.forms and not (numeric and profile.forms != ["%Y%m%d"])):
        return _as_date(profile)
    if profile.simple and (profile.padded or profile.vast) and (profile.numeric or profile.vast):
        return _as_code(profile)
    if (
        profile.seen is not None
        and len(profile.seen) == 1
        and not profile.missing
        and profile.rows > RARE_CLASS
    ):
        return Choice(profile, "ignored", "the same in every record (--number or --category takes it in)")
    if numeric and profile.simple:
        few = profile.whole and profile.seen is not None and len(profile.seen) <= 10
        return Choice(profile, "number", "whole numbers, few of them: a code? (--category)" if few else "")
    if profile.simple and (profile.seen is None or len(profile.seen) > FEW_LEVELS):
        if profile.needs_comma and profile.grouped:
            return Choice(profile, "ignored", "12,345: thousands, or --decimal ,? Write plain numbers")
        if profile.dated:
            return Choice(
                profile, "ignored", "dates in several forms, or in none that is known: write them alike"
            )
        if profile.disguised:
            return Choice(
                profile, "ignored", "numbers with a sign or a unit (%, <, kg, 1.234,5): write plain numbers"
            )
    if profile.simple:
        return _as_category(profile, "")
    return Choice(profile, "ignored", "a type that holds neither numbers nor text")


def _as_code(profile: Profile) -> Choice:
    why = "leading zeros" if profile.padded else "whole numbers beyond 2^53, which no float tells apart"
    if profile.alone:
        return Choice(profile, "ignored", f"{why}, and nearly every record has its own: an identifier")
    return _as_category(profile, f"{why}: a code, not a number")


def _nearly_alike(target: Profile) -> list[str]:
    """A word about classes that somebody has written in two ways."""
    found: dict[str, list[str]] = {}
    for value in target.values or ():
        found.setdefault(" ".join(value.casefold().split()), []).append(value)
    alike = [" and ".join(map(repr, values)) for values in found.values() if len(values) > 1]
    return (
        [f"classes that differ in case or blanks only: {'; '.join(alike)}: write them alike"] if alike else []
    )


def _as_category(profile: Profile, why: str) -> Choice:
    if profile.alone and not why and profile.rows > FEW_LEVELS:
        return Choice(profile, "ignored", "nearly every record has its own text (--category hashes it)")
    if profile.values:
        return Choice(profile, "category", why)
    if not profile.simple or profile.typed_date:
        raise InputError(f"column '{profile.name}' holds no text: leave it out of --category")
    return Choice(
        profile,
        "hashed",
        why or f"more than {MOST_CATEGORIES} different texts: hashed into {BUCKETS} buckets",
    )


def _as_date(profile: Profile) -> Choice:
    if profile.typed_date or profile.forms[0] is None:
        return Choice(profile, "date", "dates, in ISO 8601")
    if len(profile.forms) > 1:
        return Choice(profile, "date", "dates, day first or month first: say it in `format`", "?")
    return Choice(profile, "date", f"dates, as {profile.forms[0]}", profile.forms[0])


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _image(profiles: list[Profile], wishes: Wishes, notes: list[str]) -> dict[str, Any] | None:
    one = next((profile for profile in profiles if profile.picture), None)
    if wishes.image:
        height, width, channels = wishes.image
        shape = {"height": height, "width": width, "channels": channels}
        found = {**_one_column(one), **shape} if one else _numbered(profiles, {**shape, "bounds": None})
        if found is None:
            raise InputError(
                f"--image {height}x{width}x{channels}: there is no column of images, and no "
                f"{height * width * channels} numbered columns"
            )
        return found
    pixels = [profile for profile in profiles if PIXELS.fullmatch(re.sub(r"\d+$", "", profile.name))]
    image = _one_column(one) if one else _numbered(pixels, square(len(pixels)))
    if image:
        size = f"{image['height']}x{image['width']}x{image['channels']}"
        notes.append(f"image: {size}, guessed from the number of values (--image HEIGHTxWIDTHxCHANNELS)")
    return image


def _one_column(profile: Profile) -> dict[str, Any]:
    return {
        **(profile.picture or {}),
        "column": profile.name,
        "missing": "drop" if profile.missing else "refuse",
    }


def _numbered(profiles: list[Profile], shape: dict[str, Any] | None) -> dict[str, Any] | None:
    """Columns such as pixel0, pixel1, ... that are as many as an image has values."""
    if shape is None:
        return None
    size = shape["height"] * shape["width"] * shape["channels"]
    found: dict[str, list[int]] = {}
    for profile in profiles:
        if profile.numeric and (match := re.fullmatch(r"(.*?)(\d+)", profile.name)):
            found.setdefault(match[1], []).append(int(match[2]))
    for prefix, numbers in found.items():
        if sorted(numbers) == list(range(min(numbers), min(numbers) + size)):
            return {**shape, "pixels": f"{prefix}{{}}", "first": min(numbers)}
    return None


def _names_of(image: Mapping[str, Any]) -> set[str]:
    if "column" in image:
        return {image["column"]}
    size = image["height"] * image["width"] * image["channels"]
    return {image["pixels"].replace("{}", str(image["first"] + place)) for place in range(size)}


def _extra(table: Table, profiles: Mapping[str, Profile], decimal: str, notes: list[str]) -> dict[str, Any]:
    """Fields of the whole file, written only where they differ from what is usual."""
    extra: dict[str, Any] = {}
    if not table.header:
        extra["header"] = False
    if decimal != ".":
        extra["decimal"] = decimal
    if any(profile.nan for profile in profiles.values()):
        extra["missing_values"] = [*MISSING, *NAN]
        notes.append("NaN is written for missing values: `missing_values` lists it")
    return extra


def _write(
    name: str,
    target: Profile,
    image: dict[str, Any] | None,
    choices: Sequence[Choice],
    extra: dict[str, Any],
    number: str | None = None,
) -> str:
    lines = [MARK + line for line in HEADER.format(name=name).splitlines()]
    lines += [
        f"name: {name}",
        'description: ""',
        f"kind: {'image' if image else 'tabular'}",
        "public: false",
        "confirmed: false",
    ]
    lines += [_flow(**{key: value})[1:-1] for key, value in extra.items()]
    if number:
        lines += [f"{MARK}{number}"] + [f"{MARK}found in the data, unconfirmed: missing"] * bool(
            target.missing
        )
        written = {"type": "number", "bounds": None, **_missing_label(target), "why": ""}
        lines += [f"label: {_flow(column=target.name, **written)}"]
    else:
        lines += [
            f"{MARK}found in the data, unconfirmed: classes{', missing' if target.missing else ''}",
            f"label: {_flow(column=target.name, classes=target.values, **_missing_label(target))}",
        ]
    if image:
        lines += [
            f"{MARK}bounds are the darkest and the brightest value, [0, 255] for bytes",
            f"image: {_flow(**image)}",
        ]
    else:
        lines += ["columns:", *(line for choice in choices for line in _column(choice))]
    ignored = [choice for choice in choices if choice.kind == "ignored"]
    lines += [f"{MARK}'{choice.name}': {choice.why}" for choice in ignored]
    lines += [f"ignored: {flow([choice.name for choice in ignored])}"] if ignored else []
    return "\n".join(lines) + "\n"


def _missing_label(target: Profile) -> dict[str, str]:
    return {"missing": "drop"} if target.missing else {}


def _column(choice: Choice) -> Iterator[str]:
    profile = choice.profile
    whole = choice.kind == "number" and profile.whole
    found = {"category": ["categories"]}.get(choice.kind, []) + ["whole"] * whole
    found += ["missing"] * bool(profile.missing)
    form = {"format": choice.form} if choice.form else {}
    kinds: dict[str, dict[str, Any]] = {
        "number": {"type": "number", "bounds": None, **({"whole": True} if whole else {})},
        "date": {"type": "date", "unit": "day", "bounds": None, **form},
        "category": {"type": "category", "categories": profile.values},
        "hashed": {"type": "category", "buckets": BUCKETS},
    }
    fields = kinds.get(choice.kind)
    if fields is None:
        return
    if found:
        yield f"{MARK}found in the data, unconfirmed: {', '.join(found)}"
    tail = {"missing": "impute" if profile.missing else "refuse"} | (
        {"why": ""} if "bounds" in fields else {}
    )
    yield f"- {_flow(name=profile.name, **fields, **tail)}"


def confirmed(text: str) -> str:
    """A draft's text as a confirmed schema: without the draft's own comments."""
    lines = [line for line in text.splitlines() if not line.startswith((MARK.strip(), "confirmed:"))]
    place = next((index for index, line in enumerate(lines) if line.startswith("kind:")), 0)
    return "\n".join([*lines[: place + 1], "confirmed: true", *lines[place + 1 :]]) + "\n"


def slug(path: Path) -> str:
    """A population's name from a file's."""
    return re.sub(r"[^a-z0-9]+", "-", path.name.split(".")[0].lower()).strip("-") or "records"


def _flow(**fields: Any) -> str:
    return flow(fields)


def flow(document: Any) -> str:
    """A value on one line of YAML."""
    return yaml.dump(
        document, Dumper=DUMPER, default_flow_style=True, width=2**31 - 1, sort_keys=False, allow_unicode=True
    ).strip()
