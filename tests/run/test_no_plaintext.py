"""After a full run no record stands anywhere outside AIRLOCK_HOME, in any encoding.

The control finds them with sealing off.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.conftest import Workspace
from tests.support import planted

ROWS, COLUMNS = 240, 5
LOW, HIGH = 0.0, 1_000_000.0
SCHEMA = """
name: planted
description: Distinctive values in every record.
kind: tabular
public: false
confirmed: true
label: {column: outcome, classes: [healthy, ill]}
columns:
"""


def plant(workspace: Workspace) -> np.ndarray:
    """A private population whose every value would be recognised."""
    numbers = planted.values(ROWS, COLUMNS)
    header = ",".join([f"c{index}" for index in range(COLUMNS)] + ["outcome"])
    lines = [
        ",".join([*(repr(float(number)) for number in row), "ill" if index % 3 else "healthy"])
        for index, row in enumerate(numbers)
    ]
    raw = workspace.home / "records.csv"
    raw.write_text("\n".join([header, *lines]) + "\n")
    columns = "".join(
        f"- {{name: c{index}, type: number, bounds: [{LOW}, {HIGH}], missing: refuse, why: test}}\n"
        for index in range(COLUMNS)
    )
    (workspace.root / "data/schemas/planted.yaml").write_text(SCHEMA + columns)
    workspace.set("dataset", "planted")
    workspace.run("airlock", "add", str(raw), "--name", "planted", "--epsilon", "3", "--delta", "1e-5")
    return numbers


def everything(workspace: Workspace) -> list[Path]:
    """All that DVC, git and a push leave behind, and all that a stage publishes."""
    workspace.commit("Add the handle")
    workspace.run("dvc", "repro")
    workspace.commit("Run")
    workspace.run("dvc", "push", "-r", "sealed", "data/sealed")
    workspace.run("dvc", "push")
    return [workspace.root]


def wanted(numbers: np.ndarray, *, timestamps: bool = False) -> planted.Search:
    """Raw values, and the encoded ones that are sealed."""
    encoded = (numbers - LOW) / (HIGH - LOW)
    return planted.Search(planted.needles([*numbers.ravel(), *encoded.ravel()], timestamps=timestamps))


def test_no_record_stands_in_cache_git_remotes_or_receipts(workspace: Workspace) -> None:
    numbers = plant(workspace)
    places = everything(workspace)
    assert any((workspace.root / ".remotes/sealed").rglob("*")), (
        "nothing was pushed: the search would prove nothing"
    )
    assert wanted(numbers).below(*places) == []


def test_the_search_finds_them_with_sealing_off(workspace: Workspace) -> None:
    # Run by every confined process before it opens or writes a sealed file.
    (workspace.root / "stages/__init__.py").write_text(
        "from airlock.inside import sealed\n"
        "sealed._Cipher.seal = lambda self, data, index, *, last: data\n"
        "sealed._Cipher.open = lambda self, data, index, *, last: data\n"
    )
    numbers = plant(workspace)
    found = wanted(numbers).below(*everything(workspace))
    assert any(".dvc/cache" in path for path in found), found
    assert any(".remotes/sealed" in path for path in found), found


@pytest.mark.parametrize("encode", [repr, lambda number: np.float64(number).tobytes().hex()])
def test_the_search_finds_text_in_git_objects(workspace: Workspace, encode: object) -> None:
    numbers = planted.values(4, 1)
    encoded = [encode(float(number)) for number in numbers.ravel()]  # type: ignore[operator]
    (workspace.root / "leak.txt").write_text("\n".join(encoded))
    workspace.commit("Leak")
    assert any(".git/objects" in path for path in wanted(numbers).below(workspace.root / ".git"))
