"""Interactive mechanisms behind the wall: killed they go on without a second charge, and beyond the cap they
do not begin.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.conftest import Workspace
from tests.run.test_stage import reserved, spent
from tests.test_compared_mechanisms import ask

# About 600 steps on 456 records: a checkpoint is kept after every hundredth.
CASES = [
    ("dp-mac", "{hidden: [8], epochs: 60, batch: 46, histogram_sigma: 30.0, device: cpu}"),
    ("ellipsoid-noise", "{epochs: 120, batch: 46, device: cpu}"),
    ("optimized-noise", "{epochs: 120, batch: 46, device: cpu}"),
]


def twin_of(workspace: Workspace, folder: Path) -> Workspace:
    """The same keys and records, elsewhere."""
    shutil.copytree(workspace.root, folder / "work", symlinks=True)
    shutil.copytree(workspace.home, folder / "home", symlinks=True)
    twin = Workspace(folder / "work", folder / "home")
    twin.run("airlock", "add", "data/raw/wdbc/records.parquet", "--name", "wdbc")
    return twin


@pytest.mark.stress
@pytest.mark.parametrize(("mechanism", "options"), CASES)
def test_a_killed_release_goes_on_and_is_charged_once(
    finished: Workspace, tmp_path: Path, mechanism: str, options: str
) -> None:
    ask(finished, mechanism, options)
    twin = twin_of(finished, tmp_path / "twin")
    checkpoints = finished.home / "airlock/airlock-default/checkpoints"
    process = subprocess.Popen(
        ["airlock", "run", "release"], cwd=finished.root, env=finished.environment, start_new_session=True
    )
    deadline = time.monotonic() + 120
    while (
        not any(checkpoints.glob("*/*/*/*.safetensors"))
        and time.monotonic() < deadline
        and process.poll() is None
    ):
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert any(checkpoints.glob("*/*/*/*.safetensors")), "killed after its first checkpoint"
    charged, entries = spent(finished), reserved(finished)
    finished.run("airlock", "run", "release")
    assert (spent(finished), reserved(finished)) == (charged, entries), "taken over, not charged twice"
    assert not any(checkpoints.glob("*/*/*/*.safetensors")), "a run that ends well keeps nothing"
    twin.run("airlock", "run", "release")
    tensors = [place.root / "data/released/release/release.safetensors" for place in (finished, twin)]
    assert tensors[0].read_bytes() == tensors[1].read_bytes(), "the same noise for the same sums"


def test_beyond_the_cap_nothing_is_read(finished: Workspace) -> None:
    before = spent(finished), reserved(finished)
    ask(finished, "dp-mac", "{hidden: [8], epochs: 60, batch: 46, histogram_sigma: 30.0, sigma: 0.3}")
    done = finished.run("airlock", "run", "release", check=False)
    assert done.returncode == 1
    assert "budget" in done.stderr and len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert (spent(finished), reserved(finished)) == before
    release = json.loads((finished.root / "data/released/release/release.json").read_text())
    assert release["mechanism"] == "coefficients", "what was there is still there"
