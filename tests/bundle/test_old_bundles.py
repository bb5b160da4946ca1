"""Bundles stay readable: tests/data keeps one of each format that was ever written."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from airlock.bundle import FORMAT
from airlock.bundle.results import markdown
from airlock.bundle.verify import VerifyOptions, verify

DATA = Path(__file__).parents[1] / "data"


@pytest.mark.parametrize("number", range(1, FORMAT + 1))
def test_a_bundle_of_every_format_verifies(number: int) -> None:
    verdict = verify(DATA / f"bundle-v{number}.zip", VerifyOptions(quick=True))
    assert verdict.problems == [] and verdict.facts["format"] == number
    assert len(verdict.guarantees) == 9


def test_stages_of_an_old_bundle_run_again_with_their_own_code(tmp_path: Path) -> None:
    with zipfile.ZipFile(DATA / "bundle-v1.zip") as collection:
        first = min(name for name in collection.namelist() if name.startswith("runs/"))
        (tmp_path / "run.zip").write_bytes(collection.read(first))
    verdict = verify(tmp_path / "run.zip", VerifyOptions())
    assert verdict.problems == []
    assert [one.stage for one in verdict.agreements] == ["train", "evaluate", "report"]


def test_every_figure_of_the_worked_example_is_in_its_bundle() -> None:
    verdict = verify(DATA / "bundle-v1.zip", VerifyOptions(quick=True))
    assert verdict.problems == [] and len(verdict.results) == 3
    assert markdown(verdict.results) in (DATA.parents[1] / "docs/submissions.md").read_text()
