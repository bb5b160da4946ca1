"""What the columns of a raw file show as they stream by, and what each is taken for. For the owner's eyes: it
depends on records.

Memory is bounded: of a column with many different values only hashes are kept, and of those not more than
MOST_COUNTED.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airlock.errors import SchemaError
from airlock.records.pixels import FORMATS
from airlock.records.schema import MISSING
from airlock.records.tables import Table
from airlock.records.values import as_dates, as_texts, flat, is_number, is_text, with_points

MOST_CATEGORIES = 100  # more different values than this are no list of categories
MOST_COUNTED = 20_000  # different values that are counted at all
FORMS: tuple[str | None, ...] = (None, "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y", "%Y%m%d")
NAN = ("nan", "NaN", "NAN", "-nan")
DECIMAL_COMMA = r"^[+-]?\d+,\d+$"
GROUPED = r"^[+-]?\d{1,3}(,\d{3})*(\.\d+)?$"
PLAIN_NUMBER = r"^[+-]?\d+([.,]\d+)?$"
PADDED = r"^0\d+$"
LONG = r"^[+-]?\d{16,}$"
EXACT = 2**53  # whole numbers beyond it are no longer told apart as floats
DISGUISED = r"^[<>≤≥~=±$€£¥ ]*[+-]?\d[\d.,' ]*[^\d]{0,12}$"
DATED = r"^\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([T ].*)?$"
DECIMAL_POINT = r"^[+-]?\d*\.\d+([eE][+-]?\d+)?$"
RowProgress = Callable[[int], None]


@dataclass
class Profile:
    """What one column showed."""

    name: str
    place: int = 1
    rows: int = 0
    missing: int = 0
    numeric: bool = True
    commas: bool = True
    whole: bool = True
    needs_comma: bool = False
    needs_point: bool = False
    grouped: bool = True
    padded: bool = False
    vast: bool = False
    disguised: bool = True
    dated: bool = True
    nan: bool = False
    named_like_value: bool = False
    counting: bool = True
    counts: dict[str, int] | None = field(default_factory=dict)
    seen: set[int] | None = field(default_factory=set)
    forms: list[str | None] = field(default_factory=lambda: list(FORMS))
    numbers: int = 0
    typed_date: bool = False
    picture: Mapping[str, Any] | None = None
    simple: bool = True

    def look(self, array: Any) -> None:
        """Take in one batch of the column."""
        first = self.rows
        self.rows += len(array)
        if self.picture is None and (found := _picture(array)):
            self.picture, self.simple = found, False
        if self.simple and _is_date(array.type):
            self.typed_date, self.missing = True, self.missing + array.null_count
            self.numeric = self.commas = self.counting = False
            return
        if not self.simple or not self._plain(array):
            return
        texts = as_texts(array, self.name)
        blank = pc.fill_null(pc.is_in(texts, value_set=pa.array([None, *MISSING, *NAN], pa.string())), True)
        self.missing += int(pc.sum(blank).as_py() or 0)
        self.nan |= bool(pc.any(pc.is_in(texts, value_set=pa.array(NAN))).as_py())
        found = texts.filter(pc.invert(blank))
        if len(found):
            self._look_at_texts(found, is_text(flat(array).type), first)

    def _plain(self, array: Any) -> bool:
        try:
            as_texts(array.slice(0, 1), self.name)
        except SchemaError:
            self.numeric = self.commas = self.counting = self.simple = False
            self.counts = self.seen = None
            self.forms = []
        return self.simple

    def _look_at_texts(self, texts: Any, written: bool, first: int) -> None:
        unique = pc.value_counts(texts)
        values = unique.field("values")
        if written:
            self.named_like_value |= bool(pc.any(pc.equal(values, self.name)).as_py())
            if self.commas or self.numeric:
                self.needs_comma |= _any(values, DECIMAL_COMMA)
                self.needs_point |= _any(values, DECIMAL_POINT)
                self.grouped = self.grouped and _all(values, GROUPED)
                self.padded |= _any(values, PADDED)
            self.disguised = self.disguised and _all(values, DISGUISED)
            self.dated = self.dated and _all(values, DATED)
            if self.forms and not re.search(r"\d[-/.]\d|^\d{8}$", values[0].as_py()):
                self.forms = []  # most columns: seven attempts less
            self.forms = [form for form in self.forms if as_dates(values, form).null_count == 0]
        else:
            self.forms = []
            self.disguised = self.dated = False
        self.vast = self.vast or (self.numeric and _is_vast(values))
        self.numeric = self.numeric and _is_numeric(values)
        self.commas = self.commas and written and _is_numeric(with_points(values))
        self.whole = self.whole and self.numeric and _is_whole(values)
        self.counting = self.counting and self.whole and _counts_up(texts, first)
        self.numbers += len(texts) if self.numeric or self.commas else _how_many(unique, PLAIN_NUMBER)
        self._count(values.to_pylist(), unique.field("counts").to_pylist())

    def _count(self, values: list[str], counts: list[int]) -> None:
        if self.seen is not None:
            self.seen.update(map(hash, values))
            self.seen = self.seen if len(self.seen) <= MOST_COUNTED else None
        if self.counts is not None:
            for value, count in zip(values, counts, strict=True):
                self.counts[value] = self.counts.get(value, 0) + count
            self.counts = self.counts if len(self.counts) <= MOST_CATEGORIES else None

    @property
    def values(self) -> list[str] | None:
        """Its different values, numbers by size, words by letter; None where they are too many."""
        return (
            in_order(self.counts) if self.counts is not None and self.simple and not self.typed_date else None
        )

    @property
    def levels(self) -> str:
        """How many different values there are, for the owner."""
        if self.seen is None or not self.simple or self.typed_date:
            return "" if not self.simple or self.typed_date else f"over {MOST_COUNTED:,}"
        return f"{len(self.seen):,}"

    @property
    def alone(self) -> bool:
        """Whether nearly every record has a value of its own, as identifiers and free text have."""
        known = self.rows - self.missing
        return known > 0 and (self.seen is None or len(self.seen) > 0.9 * known)

    @property
    def mostly_numbers(self) -> bool:
        """Whether most of what is known is a number, and something is not."""
        known = self.rows - self.missing
        return known > 0 and known / 2 < self.numbers < known

    @property
    def share_missing(self) -> float:
        return self.missing / max(self.rows, 1)


def profiles_of(table: Table, progress: RowProgress = lambda rows: None) -> dict[str, Profile]:
    """Stream a table by and take in every column."""
    profiles = {name: Profile(name, place) for place, name in enumerate(table.columns, start=1)}
    rows = 0
    for batch in table.batches():
        for name, profile in profiles.items():
            profile.look(batch.column(name))
        rows += batch.num_rows
        progress(rows)
    return profiles


def in_order(values: Iterable[str]) -> list[str]:
    """Numbers by size, words by letter."""
    return sorted(
        values,
        key=lambda text: (0, float(text), text) if re.fullmatch(r"-?\d+(\.\d+)?", text) else (1, 0.0, text),
    )


def parses_as_number(text: str) -> bool:
    """Whether a name could be a value: a number with a point or a comma, or a date."""
    trimmed = pa.array([text.strip()])
    return (
        _is_numeric(trimmed)
        or _is_numeric(with_points(trimmed))
        or bool(re.fullmatch(r"\d{4}-\d\d-\d\d.*", text))
    )


def _is_date(kind: Any) -> bool:
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def _any(texts: Any, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(texts, pattern)).as_py())


def _all(texts: Any, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(texts, pattern)).as_py())


def _how_many(unique: Any, pattern: str) -> int:
    """Records whose text has a form."""
    fitting = pc.match_substring_regex(unique.field("values"), pattern)
    return int(pc.sum(unique.field("counts").filter(fitting)).as_py() or 0)


def _is_vast(texts: Any) -> bool:
    long = texts.filter(pc.match_substring_regex(texts, LONG)).to_pylist()
    return any(abs(int(text)) > EXACT for text in long)


def _is_numeric(texts: Any) -> bool:
    try:
        pc.cast(texts, pa.float64())
    except pa.ArrowInvalid:
        return False
    return True


def _is_whole(texts: Any) -> bool:
    try:
        pc.cast(texts, pa.int64())
    except pa.ArrowInvalid:
        return False
    return True


def _counts_up(texts: Any, first: int) -> bool:
    """Whether a batch goes on as a row number does: 0, 1, 2, ... or 1, 2, 3, ..."""
    numbers = pc.cast(texts, pa.int64()).to_numpy(zero_copy_only=False)
    return bool((numbers[0] - first) in (0, 1) and (numbers == numbers[0] + range(len(numbers))).all())


def _picture(array: Any) -> dict[str, Any] | None:
    """How a column of bytes or lists could hold images, from its type and its first value."""
    kind = array.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        first = next((value for value in array.to_pylist() if value), b"")
        return _compressed(first) or square(len(first))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        if not is_number(kind.value_type):
            return None
        return square(next((len(value) for value in array.to_pylist() if value), 0))
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


def square(size: int) -> dict[str, Any] | None:
    """The square image of one or three channels that has so many values."""
    for channels in (1, 3):
        side = math.isqrt(size // channels)
        if side >= 4 and side * side * channels == size:
            return {"height": side, "width": side, "channels": channels, "bounds": None}
    return None
