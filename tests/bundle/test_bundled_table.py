"""What counts as the same result on another kind of machine."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from airlock.bundle import comparison


def pair(tmp_path: Path, name: str, left: str, right: str) -> tuple[Path, Path]:
    for side, text in (("left", left), ("right", right)):
        (tmp_path / side).mkdir()
        (tmp_path / side / name).write_text(text)
    return tmp_path / "left", tmp_path / "right"


@pytest.mark.parametrize(
    ("right", "expected"),
    [
        ({"accuracy": 0.96, "confusion": [[70, 1]], "holdout": "public"}, True),
        ({"accuracy": 0.90, "confusion": [[70, 1]], "holdout": "public"}, False),
        ({"accuracy": 0.95, "confusion": [[60, 11]], "holdout": "public"}, False),
        ({"accuracy": 0.95, "confusion": [[70, 1]], "holdout": "private"}, False),
        ({"accuracy": 0.95, "confusion": [[70, 1]]}, False),
        ({"accuracy": None, "confusion": [[70, 1]], "holdout": "public"}, False),
    ],
)
def test_figures(tmp_path: Path, right: dict, expected: bool) -> None:
    left = {"accuracy": 0.95, "confusion": [[71, 0]], "holdout": "public"}
    assert comparison.close(*pair(tmp_path, "evaluate.json", json.dumps(left), json.dumps(right))) is expected


@pytest.mark.parametrize(("off", "expected"), [(1e-6, True), (1e-2, False), (np.nan, False)])
def test_tensors(tmp_path: Path, off: float, expected: bool) -> None:
    values = np.linspace(-3, 5, 12).reshape(3, 4)
    for name, tensor in (("left", values), ("right", values + off)):
        (tmp_path / name).mkdir()
        save_file({"weight": tensor}, tmp_path / name / "model.safetensors")
    assert comparison.close(tmp_path / "left", tmp_path / "right") is expected


def test_a_few_rows_of_a_table_may_differ(tmp_path: Path) -> None:
    rows = ["actual,predicted", *["ill,ill"] * 99]
    changed = [*rows[:-1], "ill,healthy"]
    assert comparison.close(*pair(tmp_path, "confusion.csv", "\n".join(rows), "\n".join(changed)))
    left, right = tmp_path / "left", tmp_path / "right"
    (right / "confusion.csv").write_text("\n".join([*rows[:-5], *["ill,healthy"] * 5]))
    assert not comparison.close(left, right)


def test_files_that_are_missing_or_unknown_must_not_differ(tmp_path: Path) -> None:
    left, right = pair(tmp_path, "notes.txt", "one", "two")
    assert not comparison.close(left, right)
    (right / "notes.txt").unlink()
    assert not comparison.close(left, right)


def test_only_budget_and_boundary_of_a_page_may_differ(tmp_path: Path) -> None:
    page = (
        '<h1>95 %</h1><section id="privacy">1<h3 id="budget">{}</section><section '
        'id="boundary">{}</section><p>files</p>'
    )
    left, right = pair(tmp_path, "report.html", page.format("1 of 3", "a"), page.format("2 of 3", "b"))
    assert comparison.same_page(left, right)
    (right / "report.html").write_text(page.format("1 of 3", "a").replace("95", "99"))
    assert not comparison.same_page(left, right)
