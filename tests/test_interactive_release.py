"""Interactive mechanisms behind the wall: killed they go on without a second charge, and beyond the cap they
do not begin.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import PATIENCE, Workspace
from tests.run.test_stage import reserved, spent
from tests.support.prefect_server import wait_for
from tests.test_compared_mechanisms import ask

RELEASE = "data/released/release"
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


# Stands for a runner that gives every release one folder, as it once did.
SHARED = """
import sys
from airlock.cli import main
from airlock.run import confined

def checkpoint(asked, progress=""):
    folder = asked.project.checkpoints / "one" / asked.zone / "walk"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder

confined.checkpoint = checkpoint
sys.argv = ["airlock", "run", "release"]
main()
"""


def family(process: int) -> list[int]:
    """A process and all that it started."""
    found = [process]
    for one in found:
        for children in Path(f"/proc/{one}/task").glob("*/children"):
            found += map(int, children.read_text().split())
    return found


@pytest.mark.stress
@pytest.mark.parametrize(
    ("command", "well"),
    [(("airlock", "run", "release"), True), ((sys.executable, "-c", SHARED), False)],
    ids=["each its own", "one for all, the control"],
)
def test_checkpoints_of_two_clones_do_not_meet(
    finished: Workspace, tmp_path: Path, command: tuple[str, ...], well: bool
) -> None:
    """One clone is in the middle of its release while another, of the same AIRLOCK_HOME, begins and ends one."""
    shutil.copytree(finished.root, tmp_path / "clone", symlinks=True)
    clone = Workspace(tmp_path / "clone", finished.home)
    for place, epochs in ((finished, 120), (clone, 121)):
        ask(place, "ellipsoid-noise", f"{{epochs: {epochs}, batch: 46, device: cpu}}")
    checkpoints = finished.home / "airlock/airlock-default/checkpoints"
    first = subprocess.Popen(
        command, cwd=finished.root, env=finished.environment, start_new_session=True, stderr=subprocess.PIPE
    )
    try:
        wait_for(lambda: any(checkpoints.glob("*/*/*/*.safetensors")) or first.poll() is not None, "one")
        running = family(first.pid)
        for process in running:
            os.kill(process, signal.SIGSTOP)
        second = subprocess.run(command, cwd=clone.root, env=clone.environment, check=False, timeout=PATIENCE)
        assert second.returncode == 0
        for process in reversed(running):
            os.kill(process, signal.SIGCONT)
        assert (first.wait(PATIENCE) == 0) == well, first.stderr.read()  # type: ignore[union-attr]
    finally:
        if first.poll() is None:
            os.killpg(first.pid, signal.SIGKILL)
            first.wait()
    if well:
        made = [
            json.loads((place.root / RELEASE / "release.json").read_text()) for place in (finished, clone)
        ]
        assert [one["mechanism"] for one in made] == ["ellipsoid-noise"] * 2
        assert made[0]["release_id"] != made[1]["release_id"]
        assert not any(checkpoints.glob("*/*/*/*.safetensors")), "a run that ends well keeps nothing"
