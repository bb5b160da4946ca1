"""Columns as hospitals, SPSS, Excel and databases write them: taken for what they are, or left out with a reason."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from rich.text import Text

from airlock.errors import AirlockError, InputError
from airlock.owner.log import plain
from airlock.records.drafting import Draft, draft
from airlock.records.filling import for_pattern, parse_bound
from airlock.records.guesses import Wishes
from airlock.records.schema_checks import listed
from airlock.records.tables import open_table

ROWS = 60
LABELS = ["ja" if row % 2 else "nein" for row in range(ROWS)]
DAY = datetime.date(2020, 1, 1)
DATES = ["2020-01-{:02}", "{:02}/01/2020", "{:02}.01.2020"]

# How a column is written, by row; what it is taken for; and a word of the reason.
TEXTS: dict[str, tuple[Callable[[int], str], str, str]] = {
    "thousands": (lambda row: f'"{row + 10},{100 + row}"', "ignored", "thousands"),
    "thousands, German": (lambda row: f'"{row + 1}.{100 + row},50"', "ignored", "plain numbers"),
    "per cent": (lambda row: f"{row / 3:.1f}%", "ignored", "plain numbers"),
    "money": (lambda row: f"${row * 1.5:.2f}", "ignored", "plain numbers"),
    "units": (lambda row: f"{8 + row / 9:.2f} g/dl", "ignored", "plain numbers"),
    "below the limit": (
        lambda row: "<0.01" if row % 9 == 0 else f"{row / 7:.3f}",
        "ignored",
        "plain numbers",
    ),
    "dates in three forms": (lambda row: DATES[row % 3].format(row % 28 + 1), "ignored", "several forms"),
    "numbers with a word among them": (
        lambda row: "unbekannt" if row % 9 == 0 else f"{20 + row}",
        "category",
        "mostly numbers",
    ),
    "measurements with words": (
        lambda row: "n. b." if row % 9 == 0 else f'"{row / 7:.3f}"'.replace(".", ","),
        "category",
        "mostly numbers",
    ),
    "leading zeros": (lambda row: f"0{1000 + row % 25}", "category", "leading zeros"),
    "beyond 2^53": (lambda row: str(2**53 + 1 + row % 5), "category", "2^53"),
    "identifiers beyond 2^53": (lambda row: str(2**53 + 7 * row), "ignored", "identifier"),
    "one text a record": (lambda row: f"S{row:x}z", "ignored", "its own text"),
    "constant": (lambda row: "Bonn", "ignored", "the same in every record"),
    "constant number": (lambda row: "7", "ignored", "the same in every record"),
    "empty": (lambda row: "", "ignored", "no value"),
    "negative zero": (lambda row: "-0.0" if row % 2 else f"{row / 3:.2f}", "number", ""),
    "powers of ten": (lambda row: f"{(row + 1) * 1.7e-7:.3e}", "number", ""),
    "stages of a disease": (lambda row: f"{row % 4 + 1}{'AB'[row % 2]}", "category", ""),
    "true and false": (lambda row: str(row % 3 == 0), "category", ""),
    "instants": (lambda row: f"2020-01-{row % 28 + 1:02}T10:00:00Z", "date", "ISO 8601"),
    "quotes and line breaks": (
        lambda row: f'"kam ""krank""\n am {row * 13}. Tag"',
        "ignored",
        "its own text",
    ),
}
TYPED: dict[str, tuple[Any, str]] = {
    "list": (pa.array([[1.0, 2.0]] * ROWS), "ignored"),
    "struct": (pa.array([{"u": 1}] * ROWS), "ignored"),
    "map": (pa.array([[("a", 1)]] * ROWS, pa.map_(pa.string(), pa.int64())), "ignored"),
    "bytes": (pa.array([b"\x00\x01"] * ROWS), "ignored"),
    "time": (pa.array([datetime.time(row % 24) for row in range(ROWS)]), "ignored"),
    "duration": (pa.array([datetime.timedelta(hours=row) for row in range(ROWS)]), "ignored"),
    "null": (pa.nulls(ROWS), "ignored"),
    "dictionary": (pa.array([f"k{row % 4}" for row in range(ROWS)]).dictionary_encode(), "category"),
    "decimal": (pa.array([decimal.Decimal(row) / 4 for row in range(ROWS)], pa.decimal128(10, 2)), "number"),
    "half": (pa.array(np.linspace(0, 1, ROWS).astype(np.float16)), "number"),
    "zoned": (
        pa.array(
            [datetime.datetime(2020, 1, 1 + row % 28) for row in range(ROWS)],
            pa.timestamp("us", "Europe/Berlin"),
        ),
        "date",
    ),
    "date": (pa.array([DAY + datetime.timedelta(row) for row in range(ROWS)]), "date"),
    "boolean": (pa.array([row % 3 == 0 for row in range(ROWS)]), "category"),
    "vast": (pa.array([2**53 + 1 + row % 5 for row in range(ROWS)], pa.uint64()), "category"),
}


def kind_of(found: Draft, name: str) -> tuple[str, str]:
    choice = next(choice for choice in found.choices if choice.name == name)
    return choice.kind, choice.why


@pytest.mark.parametrize("case", TEXTS)
def test_a_written_column_is_taken_for_what_it_is(tmp_path: Path, case: str) -> None:
    write, kind, word = TEXTS[case]
    lines = [f"{row * 1.37 % 11:.3f},{write(row)},{LABELS[row]}" for row in range(ROWS)]
    (tmp_path / "table.csv").write_text("\n".join(["x,odd,y", *lines]) + "\n")
    found = kind_of(draft(open_table(tmp_path / "table.csv"), "table"), "odd")
    assert found[0] == kind and word in found[1]


@pytest.mark.parametrize("case", TYPED)
def test_a_typed_column_is_taken_for_what_it_is(tmp_path: Path, case: str) -> None:
    array, kind = TYPED[case]
    x = pa.array([row * 1.37 % 11 for row in range(ROWS)])
    pa.parquet.write_table(pa.table({"x": x, "odd": array, "y": LABELS}), tmp_path / "table.parquet")
    assert kind_of(draft(open_table(tmp_path / "table.parquet"), "table"), "odd")[0] == kind


def test_what_the_owner_says_goes_before_the_guess(tmp_path: Path) -> None:
    lines = [f"{row},0{row % 25},{row + 10}%,{LABELS[row]}" for row in range(ROWS)]
    (tmp_path / "table.csv").write_text("\n".join(["x,code,share,y", *lines]) + "\n")
    found = draft(
        open_table(tmp_path / "table.csv"), "t", Wishes(numbers=("x", "code"), categories=("share",))
    )
    assert kind_of(found, "code") == ("number", "as you said")
    assert kind_of(found, "share") == ("category", "as you said")


def test_a_column_is_meant_by_its_very_name_also_with_brackets_in_it(tmp_path: Path) -> None:
    lines = [f"{row % 3},{row / 7:.2f},{row},{LABELS[row]}" for row in range(ROWS)]
    (tmp_path / "table.csv").write_text("\n".join(["grade [1-3],Hb [g/dl],x,y", *lines]) + "\n")
    wishes = Wishes(categories=("grade [1-3]",), ignored=("Hb [g/dl]",))
    found = draft(open_table(tmp_path / "table.csv"), "t", wishes)
    assert kind_of(found, "grade [1-3]") == ("category", "as you said")
    assert kind_of(found, "Hb [g/dl]") == ("ignored", "as you said")
    text = draft(open_table(tmp_path / "table.csv"), "t").text
    assert set(for_pattern(text, parse_bound("0,25"), ["Hb [g/dl]"])) == {"Hb [g/dl]"}


def test_why_no_column_is_left_is_said(tmp_path: Path) -> None:
    lines = [f'"{row + 1}.{100 + row},50",{LABELS[row]}' for row in range(ROWS)]
    (tmp_path / "table.csv").write_text("\n".join(["amount,y", *lines]) + "\n")
    with pytest.raises(AirlockError, match="no column is left.*'amount': numbers with a sign or a unit"):
        draft(open_table(tmp_path / "table.csv"), "t")


def test_classes_that_somebody_wrote_in_two_ways_are_told(tmp_path: Path) -> None:
    words = ["Yes", "yes ", "NO", "no"]
    lines = [f"{row / 7:.3f},{words[row % 4]}" for row in range(ROWS)]
    (tmp_path / "table.csv").write_text("\n".join(["x,y", *lines]) + "\n")
    assert any("case or blanks only" in note for note in draft(open_table(tmp_path / "table.csv"), "t").notes)


SECRET = "734512.125"
REFUSED = {
    "rows.jsonl": (f'{{"a": {SECRET}, "y": "b"}}\n' * 9, "is JSON"),
    "rows.txt": (f'[{{"a": {SECRET}, "y": "b"}}]', "is JSON"),
    "comment.csv": (f"# exported\na,y\n{SECRET},b\n", "2 fields where the first line has 1"),
    "sep.csv": (f"sep=;\na;b;y\n{SECRET};1;b\n", "fields where the first line has"),
    "trailing.csv": (f"a,y\n{SECRET},b,\n", "3 fields where the first line has 2"),
    "blanks.txt": (f"age weight y\n{SECRET} 3 b\n", "only one was found"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_table_is_one_line_without_a_value(tmp_path: Path, name: str) -> None:
    text, line = REFUSED[name]
    (tmp_path / name).write_text(text)
    with pytest.raises(AirlockError, match=line) as caught:
        draft(open_table(tmp_path / name), "table")
    assert "\n" not in str(caught.value) and SECRET not in str(caught.value) and caught.value.exit_code == 2


def test_a_separator_at_the_end_of_every_line_is_no_column(tmp_path: Path) -> None:
    lines = [f"{row / 7:.3f},{LABELS[row]}," for row in range(ROWS)]
    (tmp_path / "table.csv").write_text("\n".join(["x,y,", *lines]) + "\n")
    found = draft(open_table(tmp_path / "table.csv"), "table")
    assert kind_of(found, "") == ("ignored", "has no value at all")
    (tmp_path / "table.csv").write_text("\n".join(["x,y,", *(f"{line}{SECRET}" for line in lines)]) + "\n")
    with pytest.raises(AirlockError, match="empty name"):
        draft(open_table(tmp_path / "table.csv"), "table")


@pytest.mark.parametrize("text", ["age,readmitted", "\ufeffage,readmitted", "\nage,readmitted"])
def test_names_without_a_line_break_are_no_records(tmp_path: Path, text: str) -> None:
    (tmp_path / "export.csv").write_text(text)
    with pytest.raises(InputError, match="is empty: it has no records"):
        open_table(tmp_path / "export.csv")
    with pytest.raises(InputError, match="one line without an end"):
        open_table(tmp_path / "export.csv", header=False)


def test_names_in_a_message_are_on_its_line() -> None:
    assert listed(["haem\n(g/dl)", " age "]) == "'haem (g/dl)', ' age '"
    assert len(listed(["x" * 100_000])) < 200


def test_names_are_shown_as_they_are_written() -> None:
    """Brackets are markup to the terminal's tables, also behind a backslash."""
    for name in ("haem [g/dl]", "[/red]x", "a\\[/b]"):
        assert Text.from_markup(plain(name)).plain == name


def test_a_column_that_a_table_lacks_is_named(tmp_path: Path) -> None:
    """It was said that the file is damaged."""
    (tmp_path / "export.csv").write_text("age,readmitted\n1,yes\n")
    pa.parquet.write_table(pa.table({"age": [1]}), tmp_path / "export.parquet")
    for name in ("export.csv", "export.parquet"):
        with pytest.raises(InputError, match="has no column 'ward'"):
            next(open_table(tmp_path / name).batches(["age", "ward"]))
