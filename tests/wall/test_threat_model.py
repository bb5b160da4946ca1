"""docs/threat-model.md names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = re.findall(r"`(tests/[a-z_/]+\.py)::(test_[a-z_0-9]+)`", (ROOT / "docs/threat-model.md").read_text())


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_a_named_test_exists(file: str, test: str) -> None:
    assert f"def {test}(" in (ROOT / file).read_text()


def test_every_row_of_the_table_names_one() -> None:
    text = (ROOT / "docs/threat-model.md").read_text().split("## Attacks, what stops them")[1].split("## ")[0]
    rows = [line for line in text.splitlines() if line.startswith("|")][2:]
    assert len(rows) >= 20 and all("`tests/" in row for row in rows)


def test_every_finding_has_its_test() -> None:
    text = (ROOT / "docs/threat-model.md").read_text()
    found = re.findall(r"^\| W(\d+) \|.*`tests/[a-z_/]+\.py::test_[a-z_0-9]+` \|$", text, re.MULTILINE)
    assert [int(number) for number in found] == list(range(1, 21))
