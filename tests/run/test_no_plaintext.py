"""After a full run no record stands anywhere outside AIRLOCK_HOME, in any encoding.

The control finds them with sealing off.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.conftest import Workspace
from tests.support import planted


def everything(workspace: Workspace) -> list[Path]:
    """All that DVC, git and a push leave behind, and all that a stage publishes."""
    workspace.run("dvc", "push", "-r", "sealed", "data/sealed")
    workspace.run("dvc", "push")
    return [workspace.root]


def test_no_record_stands_in_cache_git_remotes_or_receipts(private: Workspace) -> None:
    places = everything(private)
    assert any((private.root / ".remotes/sealed").rglob("*")), (
        "nothing was pushed: the search would prove nothing"
    )
    assert planted.wanted().below(*places) == []


def test_the_search_finds_them_with_sealing_off(workspace: Workspace) -> None:
    # Run by every confined process before it opens or writes a sealed file.
    (workspace.root / "stages/__init__.py").write_text(
        "from airlock.inside import sealed\n"
        "sealed._Cipher.seal = lambda self, data, index, *, last: data\n"
        "sealed._Cipher.open = lambda self, data, index, *, last: data\n"
    )
    planted.plant(workspace)
    workspace.commit("Add the handle")
    workspace.run("dvc", "repro", "ingest")
    workspace.commit("Run")
    found = planted.wanted().below(*everything(workspace))
    assert any(".dvc/cache" in path for path in found), found
    assert any(".remotes/sealed" in path for path in found), found


@pytest.mark.parametrize("encode", [repr, lambda number: np.float64(number).tobytes().hex()])
def test_the_search_finds_text_in_git_objects(workspace: Workspace, encode: object) -> None:
    numbers = planted.values(4, 1)
    encoded = [encode(float(number)) for number in numbers.ravel()]  # type: ignore[operator]
    (workspace.root / "leak.txt").write_text("\n".join(encoded))
    workspace.commit("Leak")
    assert any(".git/objects" in path for path in planted.wanted(numbers).below(workspace.root / ".git"))
