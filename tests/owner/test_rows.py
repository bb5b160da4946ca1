"""The same records under a second name are known again, in whatever form they come."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
import pytest

from airlock.errors import InputError
from airlock.owner import rows
from airlock.owner.add import add
from airlock.records.schema_file import load_schema
from airlock.records.tables import open_table
from tests.support.clinic import SCHEMA, Clinic, make_clinic

KEY = b"k" * 32


@pytest.fixture
def clinic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clinic:
    monkeypatch.setenv("AIRLOCK_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("AIRLOCK_LEDGER_URL", raising=False)
    made = make_clinic(tmp_path)
    made.write_schema(SCHEMA.replace("name: clinic", "name: second"), "second")
    return made


def people(number: int, seed: int = 0) -> pa.Table:
    generator = np.random.default_rng(seed)
    return pa.table(
        {
            "age": np.round(generator.uniform(0, 100, number), 4),
            "site": np.array(["north", "south"])[generator.integers(0, 2, number)],
            "outcome": np.array(["healthy", "ill"])[generator.integers(0, 2, number)],
        }
    )


def write_csv(table: pa.Table, path: Path, *, crlf: bool = False) -> Path:
    pyarrow.csv.write_csv(table, path)
    if crlf:
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    return path


def write_parquet(table: pa.Table, path: Path) -> Path:
    pyarrow.parquet.write_table(table, path.with_suffix(".parquet"))
    return path.with_suffix(".parquet")


def changed(table: pa.Table) -> pa.Table:
    ages = table["age"].to_pylist()
    return table.set_column(0, "age", pa.array([1.2345, *ages[1:]]))


FORMS: dict[str, Callable[[pa.Table, Path], Path]] = {
    "permuted": lambda t, p: write_csv(t.take(np.random.default_rng(1).permutation(t.num_rows)), p),
    "one row changed": lambda t, p: write_csv(changed(t), p),
    "columns in another order": lambda t, p: write_csv(t.select(["outcome", "age", "site"]), p),
    "Parquet": lambda t, p: write_parquet(t, p),
    "CRLF": lambda t, p: write_csv(t, p, crlf=True),
    "a subset": lambda t, p: write_csv(t.slice(10, 12), p),
    "half of it and others": lambda t, p: write_csv(pa.concat_tables([t.slice(0, 25), people(20, 9)]), p),
    "numbers written otherwise": lambda t, p: write_csv(
        t.set_column(0, "age", pc.binary_join_element_wise(pc.cast(t["age"], pa.string()), "00", "")), p
    ),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_known_records_in_another_form_are_refused_under_a_second_name(
    clinic: Clinic, tmp_path: Path, form: Callable[[pa.Table, Path], Path]
) -> None:
    table = people(40)
    add(clinic.home, clinic.root, write_csv(table, tmp_path / "first.csv"), name="clinic")
    again = form(table, tmp_path / "second.csv")
    with pytest.raises(InputError, match=r"of these records belong to population 'clinic' already"):
        add(clinic.home, clinic.root, again, name="second")
    assert not (clinic.root / "data/handles/second").exists()
    assert add(clinic.home, clinic.root, again, name="second", distinct=True).handle.n > 0


def test_renamed_column_is_known_too(clinic: Clinic, tmp_path: Path) -> None:
    table = people(40)
    add(clinic.home, clinic.root, write_csv(table, tmp_path / "first.csv"), name="clinic")
    text = SCHEMA.replace("name: clinic", "name: second").replace("age", "years")
    clinic.write_schema(text, "second")
    renamed = write_csv(table.rename_columns(["years", "site", "outcome"]), tmp_path / "second.csv")
    with pytest.raises(InputError, match="100% of these records"):
        add(clinic.home, clinic.root, renamed, name="second")


def wider(number: int, seed: int = 0) -> pa.Table:
    generator = np.random.default_rng(seed)
    return (
        people(number, seed)
        .add_column(1, "weight", pa.array(np.round(generator.uniform(40, 120, number), 1)))
        .add_column(2, "height", pa.array(generator.integers(140, 210, number)))
    )


WIDE = SCHEMA.replace(
    "- {name: site",
    "- {name: weight, type: number, bounds: [0, 300], missing: refuse, why: scale}\n"
    "- {name: height, type: number, bounds: [0, 300], missing: refuse, why: rule}\n- {name: site",
)
ONE_COLUMN: dict[str, tuple[str, Callable[[pa.Table], pa.Table]]] = {
    "left out": ("height", lambda t: t.drop_columns(["height"])),
    "changed in every row": ("", lambda t: t.set_column(1, "weight", pc.add(t["weight"], 0.1))),
    "recoded": (
        "",
        lambda t: t.set_column(3, "site", pc.if_else(pc.equal(t["site"], "north"), "south", "north")),
    ),
    "left out of a part": ("age", lambda t: t.slice(5, 30).drop_columns(["age"])),
}


@pytest.mark.parametrize("how", ONE_COLUMN)
@pytest.mark.parametrize("backwards", [False, True])
def test_known_records_with_another_column_are_refused(
    clinic: Clinic, tmp_path: Path, how: str, backwards: bool
) -> None:
    gone, change = ONE_COLUMN[how]
    text = "".join(line for line in WIDE.splitlines(True) if not gone or f"name: {gone}" not in line)
    first, second = (WIDE, text)[:: -1 if backwards else 1]
    clinic.write_schema(first, "clinic")
    clinic.write_schema(second.replace("name: clinic", "name: second"), "second")
    tables = (wider(40), change(wider(40)))[:: -1 if backwards else 1]
    add(clinic.home, clinic.root, write_csv(tables[0], tmp_path / "first.csv"), name="clinic")
    with pytest.raises(InputError, match=r"of these records belong to population 'clinic' already"):
        add(clinic.home, clinic.root, write_csv(tables[1], tmp_path / "second.csv"), name="second")
    others = change(wider(40, 7)) if not backwards else wider(40, 7)
    add(clinic.home, clinic.root, write_csv(others, tmp_path / "others.csv"), name="second")  # the control


def test_people_who_look_alike_without_a_column_are_let_in(clinic: Clinic, tmp_path: Path) -> None:
    """Twenty ages and two sites: without what tells people apart, chance makes most of them known."""
    clinic.write_schema(WIDE, "clinic")
    clinic.write_schema(WIDE.replace("name: clinic", "name: second"), "second")
    for seed, name in enumerate(("clinic", "second")):
        ages = pa.array(np.random.default_rng(seed).integers(20, 40, 300))
        heights = pa.array(np.full(300, 170))
        table = wider(300, seed).set_column(0, "age", ages).set_column(2, "height", heights)
        add(clinic.home, clinic.root, write_csv(table, tmp_path / f"{name}.csv"), name=name)


def test_other_people_are_let_in(clinic: Clinic, tmp_path: Path) -> None:
    """The control: nothing is refused that shares no rows."""
    add(clinic.home, clinic.root, write_csv(people(40), tmp_path / "first.csv"), name="clinic")
    add(clinic.home, clinic.root, write_csv(people(40, 1), tmp_path / "second.csv"), name="second")


def test_private_records_are_no_public_population(clinic: Clinic, tmp_path: Path) -> None:
    table = people(40)
    add(clinic.home, clinic.root, write_csv(table, tmp_path / "first.csv"), name="clinic")
    text = SCHEMA.replace("name: clinic", "name: second").replace("public: false", "public: true")
    clinic.write_schema(text, "second")
    with pytest.raises(InputError, match="belong to population 'clinic' already"):
        add(clinic.home, clinic.root, write_csv(table.slice(0, 30), tmp_path / "second.csv"), name="second")


def test_private_records_are_no_public_holdout(clinic: Clinic, tmp_path: Path) -> None:
    table = people(40)
    add(clinic.home, clinic.root, write_csv(table, tmp_path / "first.csv"), name="clinic")
    part = write_csv(table.slice(0, 20), tmp_path / "holdout.csv")
    with pytest.raises(InputError, match="of this public holdout are private records of 'clinic'"):
        add(clinic.home, clinic.root, part, name="clinic", role="holdout")


def test_subset_of_a_large_table_is_found_by_a_bounded_sketch(clinic: Clinic, tmp_path: Path) -> None:
    schema = load_schema(clinic.root / "data/schemas/clinic.yaml")
    table = people(30_000)
    whole = open_table(write_csv(table, tmp_path / "whole.csv"))
    part = open_table(write_csv(table.slice(1000, 1000), tmp_path / "part.csv"))
    other = open_table(write_csv(people(1000, 5), tmp_path / "other.csv"))
    seen = rows.compare(whole, schema, KEY, {})
    known = {"whole": rows.Known(seen.sketch, seen.parts)}
    assert len(seen.sketch.kept) == rows.SKETCH_SIZE and seen.sketch.below is not None
    assert len(seen.parts.kept) == rows.SKETCH_SIZE
    assert rows.compare(part, schema, KEY, known).shares["whole"] > 0.95
    assert rows.compare(other, schema, KEY, known).shares["whole"] == 0
    assert rows.compare(part, schema, b"x" * 32, known).shares["whole"] == 0


def test_rows_that_repeat_do_not_tell_people_apart(clinic: Clinic, tmp_path: Path) -> None:
    schema = load_schema(clinic.root / "data/schemas/clinic.yaml")
    few = pa.concat_tables([people(3)] * 20)
    seen = rows.compare(open_table(write_csv(few, tmp_path / "few.csv")), schema, KEY, {})
    assert seen.sketch.kept == set() and seen.shares == {} and seen.repeated == 0.95


def test_two_tables_of_few_different_rows_are_not_the_same_people(clinic: Clinic, tmp_path: Path) -> None:
    """The control: rows that many people share say nothing, also if each comes often."""
    kinds, generator = people(16), np.random.default_rng(0)
    for name in ("clinic", "second"):
        table = kinds.take(generator.integers(0, 16, 1000))
        add(clinic.home, clinic.root, write_csv(table, tmp_path / f"{name}.csv"), name=name)


@pytest.mark.parametrize("times", [(1, 3), (3, 1), (3, 2)])
def test_table_written_several_times_over_is_known_again(
    clinic: Clinic, tmp_path: Path, times: tuple[int, int]
) -> None:
    first, second = (pa.concat_tables([people(40)] * count) for count in times)
    add(clinic.home, clinic.root, write_csv(first, tmp_path / "first.csv"), name="clinic")
    with pytest.raises(InputError, match="belong to population 'clinic' already"):
        add(clinic.home, clinic.root, write_csv(second, tmp_path / "second.csv"), name="second")


@pytest.mark.parametrize(("rows_", "times"), [(40, 1), (40, 2), (9000, 2), (9000, 1)])
def test_part_of_the_rows_that_repeat_is_counted(
    clinic: Clinic, tmp_path: Path, rows_: int, times: int
) -> None:
    schema = load_schema(clinic.root / "data/schemas/clinic.yaml")
    table = write_csv(pa.concat_tables([people(rows_)] * times), tmp_path / "table.csv")
    assert rows.compare(open_table(table), schema, KEY, {}).repeated == pytest.approx(
        1 - 1 / times, abs=0.005
    )


def test_sketch_survives_the_registry_and_merging() -> None:
    generator = np.random.default_rng(0)
    first, second, both = rows.Sketch(), rows.Sketch(), rows.Sketch()
    one, two = (generator.integers(0, 2**63, 6000, dtype=np.uint64) for _ in range(2))
    first.add(one), second.add(two), both.add(np.concatenate([one, two]))
    first.merge(rows.Sketch.from_json(second.to_json()))
    assert first == both


@pytest.mark.parametrize("form", ["the same file", "one row changed", "permuted"])
def test_known_records_are_refused_in_a_second_workspace(clinic: Clinic, tmp_path: Path, form: str) -> None:
    """Another project has other keys and another ledger: without this it would be a second budget."""
    table = people(40)
    first = write_csv(table, tmp_path / "first.csv")
    add(clinic.home, clinic.root, first, name="clinic")
    (tmp_path / "other").mkdir()
    other = make_clinic(tmp_path / "other", "elsewhere")
    again = first if form == "the same file" else FORMS[form](table, tmp_path / "again.csv")
    with pytest.raises(InputError, match="population 'clinic' of the project 'clinic' already"):
        add(other.home, other.root, again, name="clinic")
    assert not (other.root / "data/handles").exists()
    others = write_csv(people(40, seed=5), tmp_path / "others.csv")
    assert add(other.home, other.root, others, name="clinic").handle.n == 40  # the control
