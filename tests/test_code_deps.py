"""A stage depends on the code that its process can import, and on no other: dvc.yaml says so exactly.

tests/test_stale_stages.py shows by running them that this is so.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from airlock.run.code import MODULES
from tests.support.code_deps import code_below, declared, needed


@pytest.mark.parametrize("stage", MODULES)
def test_the_declared_code_is_what_the_stage_can_import(stage: str) -> None:
    found = {file for path in declared(stage) for file in code_below(path)}
    assert found == needed(stage), "run `python -m tests.support.code_deps --write`"


def test_no_file_that_a_stage_depends_on_is_empty() -> None:
    """DVC warns of every empty file of every dep, dozens of lines in a newcomer's first run."""
    root = Path(__file__).parents[1]
    empty = [
        path
        for folder in ("airlock", "stages")
        for path in (root / folder).rglob("*.py")
        if not path.stat().st_size
    ]
    assert not empty
