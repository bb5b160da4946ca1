"""The private profile: its figures are near the true ones, its intervals cover, and the page shows it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from airlock.inside.room import Room
from airlock.models.distribution import distribution_of
from airlock.models.profile import rows_of, table_of
from airlock.params import Params
from airlock.records.encoding import encode
from stages.open.report.profile import section_of, write_profile
from tests.open.test_training_from_inputs import SCHEMA, N, people, released


def test_figures_are_near_the_true_ones_and_intervals_cover() -> None:
    made, tensors = released()
    known = distribution_of(made.details, tensors)
    rows = rows_of(known)
    encoded = encode(people(), SCHEMA)
    bins = known.bins.of(encoded.x, encoded.y)
    covered = []
    for place, name in enumerate(known.names):
        true = np.bincount(bins[:, place], minlength=known.bins.sizes[place]) / N
        found = [row for row in rows if row.column == name and row.kind in ("histogram", "missing")]
        assert [row.value for row in found] == pytest.approx(true, abs=0.02)
        covered += [row.low <= share <= row.high for row, share in zip(found, true, strict=True)]
    assert np.mean(covered) > 0.85
    correlation = next(row.value for row in rows if row.kind == "correlation")
    seen = ~people()["dose"].combine_chunks().is_null().to_numpy(zero_copy_only=False)
    true = np.corrcoef(people()["age"].to_numpy()[seen], people()["dose"].to_numpy()[seen])[0, 1]
    assert correlation == pytest.approx(true, abs=0.06)
    means = {row.label: row.value for row in rows if row.kind == "mean" and row.column == "age"}
    ages, ill = people()["age"].to_numpy(), people()["ill"].to_numpy()
    for label in ("no", "yes"):
        assert means[label] == pytest.approx(ages[ill == label].mean(), abs=3)
    assert means[None] == pytest.approx(ages.mean(), abs=2)
    missing = [row for row in rows if row.kind == "missing"]
    assert [row.column for row in missing] == ["dose"] and missing[0].value == pytest.approx(0.05, abs=0.02)


def test_the_file_has_every_figure_and_the_page_a_line_for_each_column() -> None:
    made, tensors = released()
    known = distribution_of(made.details, tensors)
    rows = rows_of(known)
    table = table_of(rows)
    assert table.num_rows == len(rows)
    assert set(table["kind"].to_pylist()) == {
        "histogram", "missing", "association", "correlation", "difference", "mean",
    }  # fmt: skip
    section = section_of(known, rows)
    assert [one["name"] for one in section["columns"]] == ["age", "dose", "ward", "ill"]
    assert section["pairs"] and section["columns"][0]["association"] > 0.3


def test_a_release_of_something_else_has_no_profile(tmp_path: Path) -> None:
    (tmp_path / "release").mkdir()
    room = Room("report", Params(), paths={"data/released/release": tmp_path / "release"})
    assert write_profile(room) is None
    assert not list(tmp_path.rglob("*.parquet")) and pq is not None
