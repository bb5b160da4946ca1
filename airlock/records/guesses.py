"""What the columns of a raw file are taken for, each with its reason: label, numbers, categories, dates, an image."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from airlock.errors import InputError
from airlock.records.profiles import MOST_CATEGORIES, Profile, square
from airlock.records.schema_checks import fits, listed

BUCKETS = 64
RARE_CLASS = (
    5  # a class with fewer records is told: it may be a person's, and nothing can be learned about it
)
FEW_LEVELS = 20  # so few different texts are categories, whatever they look like
LABELS = ("label", "class", "target", "y", "diagnosis", "classification", "outcome", "species", "category")
INDICES = ("", "index", "rowid", "row", "nr", "__index_level_0__")
IDENTIFIER = re.compile(r"(?i)(.*[_ .-])?(id|uuid|guid|ssn|mrn)|.*(Id|ID|Uuid|UUID)|id[_ .-].*|unnamed: ?\d+")
PIXELS = re.compile(r"(?i)(pixel|pix|px)[_ .-]?")
MOSTLY_NUMBERS = "mostly numbers: to have it as one, write plain numbers, and nothing where they are missing"
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


def decimal_of(profiles: Mapping[str, Profile], wishes: Wishes) -> tuple[str, list[str]]:
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


def label_of(profiles: Mapping[str, Profile], asked: str | None) -> tuple[Profile, str]:
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


def as_number(target: Profile, wishes: Wishes, decimal: str) -> str | None:
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


def choice_of(profile: Profile, wishes: Wishes, decimal: str, beside_image: bool) -> Choice:
    """What a column is, by what the owner said, then by what it shows."""
    numeric = profile.commas if decimal == "," else profile.numeric
    if fits(profile.name, wishes.ignored):
        return Choice(profile, "ignored", "as you said")
    if fits(profile.name, wishes.numbers):
        if not numeric:
            raise InputError(
                f"column '{profile.name}' has values that are no numbers: leave it out of --number, or write plain "
                "numbers, and nothing where they are missing"
            )
        return Choice(profile, "number", "as you said")
    if fits(profile.name, wishes.categories):
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
        if profile.mostly_numbers:
            return _as_category(profile, MOSTLY_NUMBERS)
    if profile.simple:
        return _as_category(profile, "")
    return Choice(profile, "ignored", "a type that holds neither numbers nor text")


def _as_code(profile: Profile) -> Choice:
    why = "leading zeros" if profile.padded else "whole numbers beyond 2^53, which no float tells apart"
    if profile.alone:
        return Choice(profile, "ignored", f"{why}, and nearly every record has its own: an identifier")
    return _as_category(profile, f"{why}: a code, not a number")


def nearly_alike(target: Profile) -> list[str]:
    """A word about classes that somebody has written in two ways."""
    found: dict[str, list[str]] = {}
    for value in target.values or ():
        found.setdefault(" ".join(value.casefold().split()), []).append(value)
    alike = [" and ".join(map(repr, values)) for values in found.values() if len(values) > 1]
    return (
        [f"classes that differ in case or blanks only: {'; '.join(alike)}: write them alike"] if alike else []
    )


def _as_category(profile: Profile, why: str) -> Choice:
    if profile.alone and why in ("", MOSTLY_NUMBERS) and profile.rows > FEW_LEVELS:
        return Choice(
            profile, "ignored", why or "nearly every record has its own text (--category hashes it)"
        )
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


def image_of(profiles: list[Profile], wishes: Wishes, notes: list[str]) -> dict[str, Any] | None:
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


def columns_of(image: Mapping[str, Any]) -> set[str]:
    if "column" in image:
        return {image["column"]}
    size = image["height"] * image["width"] * image["channels"]
    return {image["pixels"].replace("{}", str(image["first"] + place)) for place in range(size)}
