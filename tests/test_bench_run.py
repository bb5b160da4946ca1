"""`make bench`: one run of all tools that ends, whatever one of them does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import tables_beside
from bench.beside_page import in_one_run


def test_an_unknown_part_is_refused_and_the_parts_are_named() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "accuracy"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "no part 'accuracy' without --whole: dp-sgd, tables, numbers, scaling" in done.stderr


def _cell(table: str, tool: str, seconds: float) -> dict[str, Any]:
    return {"table": table, "tool": tool, "accuracy": 0.8125, "auc": 0.9, "cpu_seconds": seconds}


def test_seconds_of_a_run_are_told_as_multiples_of_ours() -> None:
    page = in_one_run(
        [
            _cell("small", "airlock", 0.1),
            _cell("small", "dp-ebm", 0.5),
            _cell("large", "airlock", 0.4),
            _cell("large", "dp-ebm", 9.5),
            _cell("large", "opacus linear", 4.0),
        ]
    )
    assert "| small | 81.2, 0.900, 0.10 | 81.2, 0.900, 0.50 |  |" in page
    assert "- dp-ebm: 20 times airlock's seconds on 2 tables together; least on small, 5 times." in page
    assert "- opacus linear: 10 times airlock's seconds on 1 table;" in page


def test_a_tool_that_fails_is_left_out_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(table: str, split: int, epsilon: float, tool: str, draw: int = 0) -> dict[str, Any]:
        if tool == "dp-ebm":
            raise tables_beside.PeerError(f"dp-ebm failed on {table}")
        return {"accuracy": 1.0, "cpu_seconds": 1.0}

    monkeypatch.setattr(tables_beside, "measure", measure)
    monkeypatch.setattr(tables_beside, "ONE_RUN", tmp_path / "run.jsonl")
    tables_beside.one_run(["ring"], ["airlock", "dp-ebm", "gradient boosting"])
    rows = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    assert [(row["tool"], row["epsilon"]) for row in rows] == [("airlock", 1.0), ("gradient boosting", None)]
    assert "left out: dp-ebm failed on ring" in capsys.readouterr().out


def test_a_run_that_stops_leaves_the_former_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(table: str, *_: Any) -> dict[str, Any]:
        if table == "second":
            raise KeyboardInterrupt
        return {"accuracy": 1.0, "cpu_seconds": 1.0}

    monkeypatch.setattr(tables_beside, "measure", measure)
    monkeypatch.setattr(tables_beside, "ONE_RUN", tmp_path / "run.jsonl")
    (tmp_path / "run.jsonl").write_text("former")
    with pytest.raises(KeyboardInterrupt):
        tables_beside.one_run(["first", "second"], ["airlock"])
    assert (tmp_path / "run.jsonl").read_text() == "former"
